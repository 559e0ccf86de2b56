"""What modules write out in arithmetic, as the package `transformers` does, is imported as one layer.

The modules here compute what that package's compute, operator by operator, so that these tests need no such package.
`test_transformers_package.py` has its own models.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl import NetworkError
from refimpl.importing import written_out
from tests.messages import raises_naming
from tests.refimpl.importing.beside_pytorch import beside_pytorch

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

WINDOWS, TOKENS, WORDS, WIDE, HEADS = 2, 12, 23, 16, 4
EACH = WIDE // HEADS
EXAMPLE = torch.randint(0, WORDS, (WINDOWS, TOKENS), generator=torch.Generator().manual_seed(0))


def gelu(x: Any) -> Any:
    """As GPT-2 has it."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def gelu_by_erf(x: Any) -> Any:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def silu(x: Any) -> Any:
    return x / (1 + torch.exp(-x))


class Rms(nn.Module):
    def __init__(self, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.rand(WIDE) + 0.5), epsilon

    def forward(self, x: Any) -> Any:
        x = x.to(torch.float32) if x.dtype == torch.float32 else x
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


class Product(nn.Module):
    """GPT-2's linear layer: the weight's first axis is the input's."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.randn(WIDE, outputs) * 0.3),
            nn.Parameter(torch.randn(outputs) * 0.1),
        )

    def forward(self, x: Any) -> Any:
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)


def angles(width: int, base: float, repeated: bool) -> Any:
    inverse = 1.0 / base ** (torch.arange(0, width, 2).float() / width)
    found = torch.arange(TOKENS)[:, None].float() * inverse
    return found.repeat_interleave(2, -1) if repeated else torch.cat([found, found], -1)


def halves(x: Any, width: int = EACH, base: float = 10000.0) -> Any:
    """Llama's rotary position of (windows, heads, tokens, channels)."""
    cosines, sines = (of(angles(width, base, False)).to(x.dtype)[None, None] for of in (torch.cos, torch.sin))
    half = x.shape[-1] // 2
    return x * cosines + torch.cat((-x[..., half:], x[..., :half]), -1) * sines


def neighbours(x: Any) -> Any:
    """GPT-J's."""
    cosines, sines = (of(angles(EACH, 500.0, True)).to(x.dtype)[None, None] for of in (torch.cos, torch.sin))
    return x * cosines + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sines


def partly(x: Any) -> Any:
    """GPT-NeoX's: the other half of the channels stay as they are."""
    return torch.cat([halves(x[..., : EACH // 2], EACH // 2), x[..., EACH // 2 :]], -1)


def tokens_first(x: Any) -> Any:
    """Of (windows, tokens, heads, channels)."""
    x = x.transpose(1, 2)
    cosines, sines = (of(angles(EACH, 1e4, False)).to(x.dtype)[None, :, None] for of in (torch.cos, torch.sin))
    turned = x * cosines + torch.cat((-x[..., EACH // 2 :], x[..., : EACH // 2]), -1) * sines
    return turned.transpose(1, 2)


def by_products(q: Any, k: Any, v: Any) -> Any:
    """Attention without an operator of its own, with the causal mask as a summand."""
    mask = torch.full((TOKENS, TOKENS), torch.finfo(torch.float32).min).triu(1)
    scores = torch.matmul(q, k.transpose(2, 3)) * EACH**-0.5 + mask[None, None].to(q.dtype)
    return torch.matmul(functional.dropout(functional.softmax(scores, -1), 0.0, True), v)


def by_where(q: Any, k: Any, v: Any) -> Any:
    """As the first GPT-2 had it."""
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(EACH)
    seen = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril().view(1, 1, TOKENS, TOKENS)
    return torch.matmul(torch.where(seen, scores, torch.full([], -1e9, dtype=q.dtype)).softmax(-1), v)


def by_batches(q: Any, k: Any, v: Any) -> Any:
    """As the first BART had it: queries with their factor, images and heads as one axis."""
    q, k, v = (x.reshape(WINDOWS * HEADS, TOKENS, EACH) for x in (q * EACH**-0.5, k, v))
    return torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v).view(WINDOWS, HEADS, TOKENS, EACH)


def of_roots(q: Any, k: Any, v: Any) -> Any:
    """As PyTorch's ONNX exporter writes the operator."""
    root = EACH**-0.25
    return ((q * root) @ (k.transpose(2, 3) * root)).softmax(3) @ v


def of_groups(q: Any, k: Any, v: Any) -> Any:
    """Every key and value for two queries, as Llama repeats them."""
    few = HEADS // 2
    k, v = (x[:, :few, None].expand(-1, -1, 2, -1, -1).reshape(WINDOWS, HEADS, TOKENS, EACH) for x in (k, v))
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril().expand(WINDOWS, 1, -1, -1)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def usual(q: Any, k: Any, v: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    """A small language model of one layer."""

    def __init__(
        self, attention: Any = usual, rotary: Any = None, activation: Any = functional.gelu, norm: Any = None,
        linear: Any = None, keys: int = HEADS, packed: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        linear = linear or (lambda outputs: nn.Linear(WIDE, outputs, bias=False))
        self.attend, self.rotary, self.activation, self.packed = attention, rotary, activation, packed
        self.table, self.norm = nn.Embedding(WORDS, WIDE), (norm or (lambda: nn.LayerNorm(WIDE)))()
        if packed:
            self.qkv = linear(3 * WIDE)
        else:
            self.q, self.k, self.v = linear(WIDE), linear(keys * EACH), linear(keys * EACH)
        self.out, self.head = linear(WIDE), nn.Linear(WIDE, WORDS)

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens.view(-1, TOKENS))
        y = self.norm(x)
        if self.packed:  # head by head, as GPT-NeoX has them
            q, k, v = self.qkv(y).view(WINDOWS, TOKENS, HEADS, 3 * EACH).transpose(1, 2).chunk(3, -1)
        else:
            q, k, v = (layer(y).view(WINDOWS, TOKENS, -1, EACH).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if self.rotary:
            q, k = self.rotary(q), self.rotary(k)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(WINDOWS, TOKENS, WIDE))
        return self.head(self.activation(x))


#: What a module writes out → how, and the kinds of layers and options that it becomes.
CASES: dict[str, tuple[Callable[[], Any], dict[str, dict[str, Any]]]] = {
    "GELU, GPT-2's linear layer": (
        lambda: Block(activation=gelu, linear=Product, packed=True),
        {"gelu": {"approximate": "tanh"}, "attention": {"causal": True}},
    ),
    "GELU by erf, products and a mask": (
        lambda: Block(by_products, activation=gelu_by_erf, packed=True), {"gelu": {}, "attention": {"causal": True}},
    ),
    "SiLU, rotary in part, products and where": (
        lambda: Block(by_where, partly, silu),
        {"silu": {}, "rotary": {"rotated": EACH // 2}, "attention": {"causal": True}},
    ),
    "RMS normalisation, tokens before heads, products of batches": (
        lambda: Block(by_batches, tokens_first, norm=lambda: Rms(3e-3)),
        {"rmsnorm": {"epsilon": 3e-3}, "rotary": {"rotated": EACH}, "attention": {"causal": False}},
    ),
    "rotary neighbours, roots of the factor": (
        lambda: Block(of_roots, neighbours),
        {"rotary": {"neighbours": True, "base": 500.0}, "attention": {"causal": False}},
    ),
    "keys of groups": (lambda: Block(of_groups, halves, keys=HEADS // 2), {"attention": {"kv_heads": 2}}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_out_is_one_layer_and_trains_as_in_pytorch(case: str) -> None:
    make, wanted = CASES[case]
    torch.manual_seed(0)
    beside = beside_pytorch(make(), EXAMPLE)
    layers = beside.network.layers
    for kind, options in wanted.items():
        found = [layer.options for layer in layers if layer.kind == kind]
        assert found and all(options.items() <= its.items() for its in found), (kind, found)
    assert beside.agrees, beside
    assert not {layer.kind for layer in layers} & {"mul", "concat", "scale"} and len(layers) <= 20


class Biased(Block):
    """A learnt summand of the scores, as T5 and Swin have it."""

    def __init__(self, attention: Any) -> None:
        super().__init__(attention)
        self.bias = nn.Parameter(torch.zeros(HEADS, TOKENS, TOKENS))
        self.attend = lambda q, k, v: attention(q, k, v, self.bias)


def products_with_bias(q: Any, k: Any, v: Any, bias: Any) -> Any:
    scores = q @ k.transpose(2, 3)
    scores += bias
    return scores.softmax(-1) @ v


def ahead(x: Any) -> Any:
    """Angles that are scaled, as those of some long models."""
    cosines, sines = (of(angles(EACH, 1e4, False) * 0.5).to(x.dtype)[None, None] for of in (torch.cos, torch.sin))
    return x * cosines + torch.cat((-x[..., EACH // 2 :], x[..., : EACH // 2]), -1) * sines


#: A module that is refused → what the one line names.
REFUSED: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "biases of products": (lambda: Biased(products_with_bias), ("relative position biases",)),
    "other angles": (lambda: Block(rotary=ahead), ("rotary positions", "base")),
    "a product that is no attention": (lambda: Block(lambda q, k, v: q @ (k.mT @ v)), ("product", "attention")),
    "a factor that is not the usual": (lambda: Block(lambda q, k, v: usual(q * 2, k, v)), ("scale=1",)),
    "dropped probabilities": (
        lambda: Block(lambda q, k, v: functional.dropout((q @ k.mT).softmax(-1), 0.1) @ v), ("dropout_p=0.1",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_layer_of_ours_is_refused_in_one_line(case: str) -> None:
    make, says = REFUSED[case]
    with raises_naming(NetworkError, *says):
        refimpl.networks.from_torch(make(), EXAMPLE, keeps="own")


def quick(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / (1 + np.exp(-1.702 * x)))


@pytest.mark.parametrize(("rotated", "by", "base"), [(2, True, 100.0), (4, True, 10000.0), (6, False, 500000.0)])
def test_a_rotary_position_is_recognised_by_what_it_does(rotated: int, by: bool, base: float) -> None:
    found = written_out.recognised(lambda x: written_out.turned(x, rotated, by, base), (2, 3, 9, 8))
    assert found is not None and found[0] == "rotary"
    options = {"rotated": rotated, "neighbours": by, "base": base, "tokens": 2}
    if rotated == 2:  # one pair has no base, and no neighbours
        options |= {"neighbours": False, "base": 10000.0}
    assert found[1] == options


@pytest.mark.parametrize(
    "function",
    [quick, lambda x: x, lambda x: 2 * x, lambda x: np.cumsum(x, -1), lambda x: x[:1], lambda x: x[..., ::-1],
     lambda x: x - x.mean(-1, keepdims=True), lambda x: np.roll(x, 1, -2)],
)  # fmt: skip
def test_other_functions_are_not(function: Callable[[np.ndarray], np.ndarray]) -> None:
    assert written_out.recognised(function, (2, 3, 9, 8)) is None
