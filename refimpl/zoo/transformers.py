"""Transformers (Vaswani and others, "Attention is all you need", 2017), of images and of text, and small ones.

A map of tokens is (windows, channels, tokens, 1).  A linear layer that every token goes through is a 1×1 convolution.
Queries, keys and values are one map, which one convolution makes.

| | ViT | GPT-2 | BERT | Llama 3 |
| --- | --- | --- | --- | --- |
| a token is | a patch of the image, or the class | a word | a word, some of them masked | a word |
| it sees | all others | those before it | all others | those before it |
| its place is | learnt, added | learnt, added | learnt, added | an angle that queries and keys are turned by |
| normalisation | LayerNorm, before each part | as ViT | LayerNorm, after each part | RMS, before each part |
| the wide part | GELU | GELU, by tanh | GELU | SiLU of one half times the other (SwiGLU) |
| what is told apart | classes, at the class token | the next word | the masked words | the next word |

First weights are normally distributed around 0, of standard deviation 0.02, as GPT-2's and BERT's; biases are 0, and
factors 1.  Where a convolution's output is added to what goes around it, GPT-2 divides the deviation by the root of
the number of such sums, 2L of L layers, so that the sum does not grow with the depth; ViT and Llama do so here, too.
The small ones are narrower, so their deviation is larger, one by the root of the width.  None drops anything out.

With `probabilities="maps"` ViT, GPT-2 and BERT have attention's probabilities as maps, for comparisons: a convolution
makes queries and keys, another the values, and `scores` and `mix` compute what `attention` computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.later_layers import Builder
from refimpl.network.layer import Layer, NetworkError
from refimpl.network.network import Network
from refimpl.network.parts import classified, spelled

Shape = tuple[int, int, int]
SPREAD = 0.02  #: the first weights' standard deviation
BYTES = 256  #: words of text that is read byte by byte


@dataclass(frozen=True)
class BlockStyle:
    """What the blocks of a network have alike."""

    layers: int
    heads: int
    wide: int  #: channels between the two convolutions of the wide part
    causal: bool = False
    before: bool = True  #: whether the input of each part is normalised; else the sum after it
    epsilon: float = 1e-5
    gelu: str = "none"
    spread: float = SPREAD  #: of the first weights
    embedded: float = SPREAD  #: of the first words and places
    probabilities: str = "workspace"  #: of attention, or "maps"

    def __post_init__(self) -> None:
        if self.probabilities not in ("workspace", "maps"):
            raise NetworkError(f"probabilities is {self.probabilities!r}; give workspace or maps")

    @property
    def of_sums(self) -> float:
        """The spread of the convolutions whose output is added to what goes around them."""
        return self.spread / sqrt(2 * self.layers) if self.before else self.spread


def _block(b: Builder, style: BlockStyle, name: str, x: Layer) -> Layer:
    """Attention, then the wide part, each with a way around it."""
    channels, normed = x.shape[1], _before(b, style, f"{name}.norm1", x)
    if style.probabilities == "maps":
        b.conv(2 * channels, 1, name=f"{name}.qk", after=normed, spread=style.spread)
        scores = b.scores(style.heads, style.causal, name=f"{name}.scores")
        b.mix(scores, b.conv(channels, 1, name=f"{name}.v", after=normed, spread=style.spread), name=f"{name}.mix")
    else:
        b.conv(3 * channels, 1, name=f"{name}.qkv", after=normed, spread=style.spread)
        b.attention(style.heads, style.causal, name=f"{name}.attention")
    through = b.conv(channels, 1, name=f"{name}.out", spread=style.of_sums)
    x = _after(b, style, f"{name}.norm1", b.join(through, x, name=f"{name}.join1"))
    b.conv(style.wide, 1, name=f"{name}.widen", after=_before(b, style, f"{name}.norm2", x), spread=style.spread)
    b.gelu(style.gelu, name=f"{name}.gelu")
    through = b.conv(channels, 1, name=f"{name}.narrow", spread=style.of_sums)
    return _after(b, style, f"{name}.norm2", b.join(through, x, name=f"{name}.join2"))


def _before(b: Builder, style: BlockStyle, name: str, x: Layer) -> Layer:
    return b.layernorm(style.epsilon, name=name, after=x) if style.before else x


def _after(b: Builder, style: BlockStyle, name: str, x: Layer) -> Layer:
    return x if style.before else b.layernorm(style.epsilon, name=name, after=x)


def _blocks(b: Builder, style: BlockStyle) -> Layer:
    """All of them, and the normalisation that follows where each part's input is normalised."""
    x = b.last
    for i in range(1, style.layers + 1):
        x = _block(b, style, f"{i}", x)
    return b.layernorm(style.epsilon, name="norm") if style.before else x


def _words(b: Builder, words: int, width: int, style: BlockStyle) -> Layer:
    """The embedding, and the places added to it."""
    table = b.embedding(words, width, name="words", spread=style.embedded)
    b.position(name="position", spread=style.embedded)
    return table


def _told(b: Builder, table: Layer, bias: bool = False) -> Network:
    """The end: the table of the embedding once more, as a matrix, and the loss of every token."""
    head = b.conv(table.options["words"], 1, bias=bias, name="head")
    b.share(table, head, own_bias=bias)
    b.pixel_softmax(name="softmax")
    return b.build()


# -- of images ---------------------------------------------------------------------------------------------------------


def vit_b16(
    batch: int = 64, conventions: Conventions = VDNN, shape: Shape = (3, 224, 224), classes: int = 1000,
    patch: int = 16, layers: int = 12, width: int = 768, heads: int = 12, probabilities: str = "workspace",
) -> Network:  # fmt: skip
    """ViT-B/16 (Dosovitskiy and others, "An image is worth 16×16 words", 2021), as torchvision has it."""
    b = Builder(spelled("vit-b16", conventions), (batch, *shape), conventions)
    style = BlockStyle(layers, heads, 4 * width, epsilon=1e-6, probabilities=probabilities)
    return _vit(b, patch, width, style, classes)


def tiny_vit(
    batch: int = 32, conventions: Conventions = VDNN, shape: Shape = (3, 32, 32), classes: int = 10,
    layers: int = 2, width: int = 32, heads: int = 4, probabilities: str = "workspace",
) -> Network:  # fmt: skip
    """Patches of 4², or of 2² where an image has fewer than 16 rows; two layers of 32 channels and 4 heads."""
    b = Builder(spelled("tiny-vit", conventions), (batch, *shape), conventions)
    style = BlockStyle(layers, heads, 4 * width, spread=1 / sqrt(width), embedded=0.5, probabilities=probabilities)
    return _vit(b, 2 if shape[1] < 16 else 4, width, style, classes)


def _vit(b: Builder, patch: int, width: int, style: BlockStyle, classes: int) -> Network:
    b.conv(width, patch, patch, name="patches")
    b.prepend(name="class")
    b.position(name="position", spread=style.embedded)
    _blocks(b, style)
    b.take(1, axis=2, name="first")
    return classified(b, classes)


# -- of text -----------------------------------------------------------------------------------------------------------


def _gpt(b: Builder, words: int, width: int, style: BlockStyle) -> Network:
    """GPT-2 (Radford and others, 2019)."""
    table = _words(b, words, width, style)
    _blocks(b, style)
    return _told(b, table)


def _bert(b: Builder, words: int, width: int, style: BlockStyle) -> Network:
    """BERT (Devlin and others, 2019), trained to tell masked words, of one segment.

    So without the two learnt numbers a channel that tell two segments apart, and without the layer that tells whether
    the second follows the first.
    """
    table = _words(b, words, width, style)
    b.layernorm(style.epsilon, name="words.norm")
    _blocks(b, style)
    b.conv(width, 1, name="head.dense", spread=style.spread)
    b.gelu(name="head.gelu")
    b.layernorm(style.epsilon, name="head.norm")
    return _told(b, table, bias=True)


def _of_text(
    family: Callable[[Builder, int, int, BlockStyle], Network], name: str, about: str, images: int,
    tokens: int, words: int, layers: int, width: int, heads: int, small: bool = False, **style: Any,
) -> Callable[..., Network]:  # fmt: skip
    """The function that makes one network of a family; its arguments' defaults are the sizes given here.

    Args:
        family: describes the layers.
        name, about: of the network.
        images: windows of a batch.
        tokens: of a window.
        words: that there are.
        layers, width, heads: their number, their channels, and heads of attention.
        small: whether it is for teaching, so that the deviation of its first weights follows from the width.
        style: other fields of `BlockStyle`.
    """

    def make(
        batch: int = images, conventions: Conventions = VDNN, tokens: int = tokens, words: int = words,
        layers: int = layers, width: int = width, heads: int = heads, probabilities: str = "workspace",
    ) -> Network:  # fmt: skip
        b = Builder(spelled(name, conventions), (batch, tokens), conventions, dtype="int32")
        spread = 1 / sqrt(width) if small else SPREAD
        how: dict[str, Any] = {"spread": spread, "embedded": spread, "probabilities": probabilities, **style}
        return family(b, words, width, BlockStyle(layers, heads, 4 * width, **how))

    make.__name__, make.__doc__ = name.replace("-", "_"), about
    return make


TANH: dict[str, Any] = {"causal": True, "gelu": "tanh"}
gpt2 = _of_text(_gpt, "gpt2", "The smallest of GPT-2, of 124M parameters.", 8, 1024, 50257, 12, 768, 12, **TANH)
gpt2_medium = _of_text(_gpt, "gpt2-medium", "The second smallest, of 355M.", 8, 1024, 50257, 24, 1024, 16, **TANH)
gpt2_xl = _of_text(_gpt, "gpt2-xl", "The largest, of 1,558M.", 4, 1024, 50257, 48, 1600, 25, **TANH)
tiny_gpt = _of_text(_gpt, "tiny-gpt", "For text byte by byte.", 16, 64, BYTES, 2, 64, 4, small=True, causal=True)
bert_base = _of_text(_bert, "bert-base", "Of 110M.", 16, 512, 30522, 12, 768, 12, before=False, epsilon=1e-12)
tiny_bert = _of_text(
    _bert, "tiny-bert", "For text byte by byte; the last word is the mask.", 16, 64, BYTES + 1, 2, 64, 4, small=True,
    before=False,
)  # fmt: skip


def llama3_1b(
    batch: int = 1, conventions: Conventions = VDNN, tokens: int = 2048, words: int = 128256, layers: int = 16,
    width: int = 2048, heads: int = 32, kv_heads: int = 8, wide: int = 8192,
) -> Network:  # fmt: skip
    """Llama 3.2 of 1B parameters (Grattafiori and others, "The Llama 3 herd of models", 2024; Meta's model card).

    Without the other angles that it has for texts longer than 8,192 tokens.
    """
    style = BlockStyle(layers, heads, wide, causal=True)
    return _llama("llama3-1b", batch, conventions, tokens, words, width, kv_heads, 500_000.0, style)


def tiny_llama(
    batch: int = 16, conventions: Conventions = VDNN, tokens: int = 64, words: int = BYTES, layers: int = 2,
    width: int = 64, heads: int = 4, kv_heads: int = 2,
) -> Network:  # fmt: skip
    """Llama with two layers of 64 channels, 4 heads of queries and 2 of keys and values, for text byte by byte."""
    style = BlockStyle(layers, heads, 3 * width, causal=True, spread=1 / sqrt(width), embedded=1 / sqrt(width))
    return _llama("tiny-llama", batch, conventions, tokens, words, width, kv_heads, 10_000.0, style)


def _llama(
    name: str, batch: int, conventions: Conventions, tokens: int, words: int, width: int, kv_heads: int, base: float,
    style: BlockStyle,
) -> Network:  # fmt: skip
    b = Builder(spelled(name, conventions), (batch, tokens), conventions, dtype="int32")
    x = table = b.embedding(words, width, name="words", spread=style.embedded)
    for i in range(1, style.layers + 1):
        x = _gated_block(b, style, f"{i}", x, kv_heads, base)
    b.rmsnorm(style.epsilon, name="norm")
    return _told(b, table)


def _gated_block(b: Builder, style: BlockStyle, name: str, x: Layer, kv_heads: int, base: float) -> Layer:
    channels, heads = x.shape[1], style.heads
    b.rmsnorm(style.epsilon, name=f"{name}.norm1", after=x)
    qkv = (heads + 2 * kv_heads) * channels // heads
    b.conv(qkv, 1, bias=False, name=f"{name}.qkv", spread=style.spread)
    b.rotary(heads, kv_heads, base=base, name=f"{name}.rotary")
    b.attention(heads, style.causal, kv_heads, name=f"{name}.attention")
    b.conv(channels, 1, bias=False, name=f"{name}.out", spread=style.of_sums)
    x = b.join(b.last, x, name=f"{name}.join1")
    normed = b.rmsnorm(style.epsilon, name=f"{name}.norm2")
    b.conv(style.wide, 1, bias=False, name=f"{name}.gate", spread=style.spread)
    gate = b.silu(name=f"{name}.silu")
    up = b.conv(style.wide, 1, bias=False, name=f"{name}.widen", after=normed, spread=style.spread)
    b.mul(up, gate, name=f"{name}.gated")
    b.conv(channels, 1, bias=False, name=f"{name}.narrow", spread=style.of_sums)
    return b.join(b.last, x, name=f"{name}.join2")
