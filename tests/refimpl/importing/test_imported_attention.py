"""Transformers as modules write them: imported, a step beside PyTorch's in double precision, and weights back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import refimpl
from refimpl import NetworkError
from tests.messages import raises_naming
from tests.refimpl.importing.beside_pytorch import beside_pytorch

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

SHAPE = (3, 3, 8, 8)
ATTEND = functional.scaled_dot_product_attention


class Patches(nn.Module):
    """Patches of an image as 16 tokens of 8 channels, an operator on them, their mean, and a linear layer."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.patch, self.body, self.head = nn.Conv2d(3, 8, 2, 2), body, nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(self.patch(x).flatten(2).transpose(1, 2)).mean(1))


class Heads(nn.Module):
    """Attention of two heads written out: one linear layer whose channels are cut in the order that `cut` has."""

    def __init__(self, cut: Callable[[Any], tuple[Any, Any, Any]], causal: bool = False, channels: int = 24) -> None:
        super().__init__()
        self.cut, self.causal = cut, causal
        self.qkv, self.out = nn.Linear(8, channels, bias=not causal), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = ATTEND(*self.cut(self.qkv(x)), is_causal=self.causal)
        return x + self.out(y.transpose(1, 2).reshape(x.shape))


def of_thirds(x: Any) -> tuple[Any, Any, Any]:
    """All queries, all keys, all values, as GPT-2 has them."""
    q, k, v = (part.view(3, 16, 2, 4).transpose(1, 2) for part in x.split(8, dim=2))
    return q, k, v


def of_five_axes(x: Any) -> tuple[Any, Any, Any]:
    """As the first vision transformers have them."""
    q, k, v = x.reshape(3, 16, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    return q, k, v


def of_groups(x: Any) -> tuple[Any, Any, Any]:
    """Two queries that share a key and a value, which are repeated as Llama does."""
    q, k, v = (part.view(3, 16, -1, 4).transpose(1, 2) for part in x.split([8, 4, 4], dim=2))
    k, v = (part[:, :, None].expand(3, 1, 2, 16, 4).reshape(3, 2, 16, 4) for part in (k, v))
    return q, k, v


class Permuted(Heads):
    """Queries, keys and values that something else reads, too: their order is a layer of its own."""

    def __init__(self) -> None:
        super().__init__(of_thirds)
        self.out = nn.Identity()  # type: ignore[assignment]

    def forward(self, x: Any) -> Any:
        given = functional.silu(self.qkv(x))
        y = ATTEND(*self.cut(given)).transpose(1, 2).flatten(2)
        return y + given[:, :, :8]


class ClassToken(nn.Module):
    """A token before the others, alone in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.body = nn.Parameter(torch.randn(1, 1, 8)), encoder()
        self.norm = nn.RMSNorm(8)

    def forward(self, x: Any) -> Any:
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        return self.norm(self.body(x))[:, :1]


class Placed(nn.Module):
    """A learnt number for each of a token's, whose order of axes is another one."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(20, 1, 8))

    def forward(self, x: Any) -> Any:
        return functional.silu(x.transpose(0, 1) + self.places[2:18]).transpose(0, 1)


class Apart(nn.Module):
    """Queries, keys and values of three linear layers; the keys' tokens are others than the queries'."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Any) -> Any:
        context = functional.gelu(x[:, 4:])
        q, k, v = (
            layer(given).view(3, -1, 2, 4).transpose(1, 2)
            for layer, given in ((self.q, x), (self.k, context), (self.v, context))
        )
        return ATTEND(q, k, v).transpose(1, 2).flatten(2)


class Crossed(nn.Module):
    """`nn.MultiheadAttention`, whose keys and values come from other tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        context = functional.gelu(x[:, 4:])
        return self.attention(x, context, context, need_weights=False)[0]


class Masked(nn.Module):
    """`nn.TransformerEncoder` with the mask of a language model, tokens first."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(16)
        return self.body(x.transpose(0, 1), mask=mask, is_causal=True).transpose(0, 1)


class Summand(nn.Module):
    """A learnt summand of this shape."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(shape))

    def forward(self, x: Any) -> Any:
        return functional.silu(x) + self.bias


def encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, activation="gelu", **options)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


BLOCK = ["attention", "conv", "join", "layernorm", "conv", "gelu", "conv", "join", "layernorm"]
#: What is done with the tokens → the kinds of layers that it becomes.
CASES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "thirds": (lambda: Heads(of_thirds), ["conv", "attention", "conv", "join"]),
    "five axes, causal": (lambda: Heads(of_five_axes, causal=True), ["conv", "attention", "conv", "join"]),
    "shared keys": (lambda: Heads(of_groups, channels=16), ["conv", "attention", "conv", "join"]),
    "in another order": (
        Permuted,
        ["conv", "silu", "permute_channels", "attention", "take", "join"],
    ),
    "a class token": (ClassToken, ["prepend", "conv", *BLOCK, "rmsnorm", "take"]),
    "places": (Placed, ["position", "silu"]),
    "a bias": (lambda: Summand(8), ["silu", "position"]),
    "three layers": (Apart, ["take", "gelu", "conv", "conv", "conv", "attention"]),
    "nn.MultiheadAttention across": (Crossed, ["take", "gelu", "conv", "take", "take", "conv", "attention", "conv"]),
    "nn.TransformerEncoder, masked": (Masked, []),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_is_pytorchs_and_weights_come_back(case: str) -> None:
    make, kinds = CASES[case]
    torch.manual_seed(0)
    module = Patches(make())
    beside = beside_pytorch(module, torch.randn(SHAPE))
    found = [layer.kind for layer in beside.network.layers]
    assert not kinds or found == ["conv", *kinds, *["pool"] * (kinds[-1] != "take"), "fc", "softmax"]
    if case != "places":  # a part of a parameter
        assert beside.network.parameter_count == sum(weight.numel() for weight in module.parameters())
    assert beside.agrees, beside


def window(x: Any) -> Any:
    q, k, v = of_thirds(torch.cat([x, x, x], 2))
    near = (torch.arange(16)[:, None] - torch.arange(16)).abs() < 3
    return ATTEND(q, k, v, attn_mask=near).transpose(1, 2).flatten(2)


#: What is done with the tokens → what the refusal names.
REFUSED: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "a number for each token": (lambda: Summand(16, 1), ("body.add", "16×1 numbers")),
    "a window": (lambda: Function(window), ("mask", "causal")),
}


class Function(nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize("case", REFUSED)
def test_another_attention_is_refused(case: str) -> None:
    make, says = REFUSED[case]
    with raises_naming(NetworkError, *says):
        refimpl.networks.from_torch(Patches(make()), SHAPE, keeps="own")


#: How a head that is tied to a table is written, of the head's input and the table's weight.
TIED: dict[str, Callable[[Any, Any], Any]] = {
    "linear": functional.linear,
    "t()": lambda x, w: torch.matmul(x, w.t()).float(),
    "of rows": lambda x, w: (x.flatten(0, 1) @ w.movedim(0, 1)).unflatten(0, x.shape[:2]),
    "einsum of any axes": lambda x, w: torch.einsum("dv,...d->...v", w.T, x),
    "capped": lambda x, w: 3.0 * torch.tanh((x @ w.T) / 3.0),
}


class Language(nn.Module):
    """A small GPT, its head tied to its table."""

    def __init__(
        self, tied: bool = True, head: Callable[[Any, Any], Any] = functional.linear, blocks: int = 1
    ) -> None:  # fmt: skip
        super().__init__()
        self.table, self.places = nn.Embedding(20, 8), nn.Embedding(24, 8)
        self.blocks = nn.ModuleList(Heads(of_thirds, causal=True) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(8), head
        self.weight = self.table.weight if tied else nn.Parameter(torch.randn(20, 8))

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x), self.weight)


@pytest.mark.parametrize(("tied", "head"), [*((True, head) for head in TIED), (False, "linear")])
def test_a_language_model_takes_steps_as_pytorch_does(tied: bool, head: str) -> None:
    torch.manual_seed(0)
    blocks = 2 if tied and head == "linear" else 0
    module = Language(tied, TIED[head], blocks)
    beside = beside_pytorch(module, torch.randint(0, 20, (3, 16)))
    cap = ["scale", "tanh", "scale"] * (head == "capped")
    kinds = ["embedding", "position", *["conv", "attention", "conv", "join"] * blocks, "layernorm", "conv", *cap]
    count = beside.network.parameter_count + (24 - 16) * 8 - 20 * cap.count("scale")  # positions of 16 tokens
    assert count == sum(weight.numel() for weight in module.parameters())
    assert [layer.kind for layer in beside.network.layers] == [*kinds, "pixel_softmax"]
    assert beside.agrees, beside


class Adapted(nn.Module):
    """A frozen linear layer beside two small ones that learn (LoRA)."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, len(base.weight), bias=False)

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.up(self.down(x)) * 4.0


def adapted() -> nn.Module:
    """A language model that is frozen but for its adapters and norm, as they are put in after it is loaded."""
    module = Language()
    module.requires_grad_(False)
    module.norm.requires_grad_(True)
    for block in module.blocks:
        block.qkv, block.out = Adapted(block.qkv), Adapted(block.out)  # type: ignore[assignment]
    return module


def test_adapters_beside_a_frozen_base_learn_as_pytorchs_do() -> None:
    torch.manual_seed(0)
    module = adapted()
    beside = beside_pytorch(module, torch.randint(0, 20, (3, 16)))
    assert beside.agrees, beside
    learnt = {name for name, weight in module.named_parameters() if weight.requires_grad}
    network = beside.network
    frozen = {parameter.weight.name for _, _, parameter in network.parameters() if parameter.frozen}
    assert {first.source for name, first in network.initial.items() if name not in frozen} == learnt
    as_pytorch = refimpl.networks.from_torch(module, torch.zeros(3, 16, dtype=torch.int64), keeps="pytorch")
    assert {parameter.weight.name for _, _, parameter in as_pytorch.parameters() if not parameter.frozen} == learnt
    for one in (network, as_pytorch):
        assert refimpl.plan(one.trained_by("adamw"), "superneurons", "titan-x").simulate().seconds > 0
