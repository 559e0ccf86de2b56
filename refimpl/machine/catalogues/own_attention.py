"""This project's own kernels of attention: the workspaces that a call is offered, and what each has to do.

The products of all images' heads are computed at once, or of a quarter, a sixteenth, one image at a time; the least
workspace is one image's.  Less would leave a GPU idle: with one head at a time a small network took many times as long.
Tiles and workspaces are asked of `kernels.fast.attention`, imported when it is first needed.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from refimpl.machine.catalogues.own import MENU, NAIVE
from refimpl.machine.work import Option, Work
from refimpl.network.call import Call

if TYPE_CHECKING:
    from kernels.fast.attention import AttentionShape

Shape = tuple[int, ...]


class Attention(NamedTuple):
    """One pass of an attention layer, as the catalogue sees it."""

    pass_: str  #: "forward" or "backward"
    inputs: tuple[Shape, ...]  #: their shapes
    heads: int
    kv_heads: int
    causal: bool

    @classmethod
    def of(cls, call: Call) -> Attention:
        """A choosable call's."""
        given = call.arguments
        shapes = tuple(x.shape for x in given["inputs"])
        pass_ = call.function.removeprefix("attention.")
        return cls(pass_, shapes, given["heads"], given["kv_heads"], given["causal"])


def options(call: Attention) -> list[Option]:
    """The fast algorithm with every workspace worth offering."""
    from kernels.fast import attention

    shape = attention.AttentionShape.of("attention", call.inputs, call.heads, call.kv_heads, call.causal)
    images = {-(-shape.images // parts) for parts in MENU} | {1}
    workspaces = {shape.workspace_bytes(call.pass_, some) for some in images}
    return [
        Option(attention.BEST, workspace, _work(call.pass_, shape, workspace))
        for workspace in sorted(workspaces, reverse=True)
    ]


def plain(call: Attention) -> list[Option]:
    """The plain kernel of this pass, which computes probabilities where it needs them."""
    from kernels.fast.attention import AttentionShape

    shape = AttentionShape.of("attention", call.inputs, call.heads, call.kv_heads, call.causal)
    products = {"forward": 3, "backward": 8}[call.pass_]  # those of queries and keys are computed two and three times
    flops = 2 * products * shape.groups * shape.together * shape.pairs * shape.width
    return [Option("plain", 0, (Work("products", flops, 4 * sum(map(prod, call.inputs)), speed=NAIVE),))]


def _work(pass_: str, shape: AttentionShape, workspace: int) -> tuple[Work, ...]:
    """Products of the tiles that are not masked, and the passes over the rows of probabilities."""
    from kernels.fast import attention

    groups = shape.at_once(pass_, workspace // 4)
    parts = -(-shape.groups // groups) * shape.together
    products, tiles = attention.PRODUCTS[pass_], len(shape.rows())
    pairs = shape.groups * shape.together * shape.tiled_pairs
    tokens = shape.groups * shape.width * (shape.together * shape.queries + 2 * shape.keys)
    squares = 4 * pairs * (attention.MATRICES[pass_] - 1 + products)  # dP is read twice
    multiply = Work(
        "products", shape.flops(pass_, shape.tiled_pairs), squares + 4 * products * tokens,
        times=parts * products * tiles, blocks=groups * _blocks(shape),
    )  # fmt: skip
    # A row of S is read, its exponentials are written, then its shares; backward also p and dP are, and dS is written.
    streamed = 4 * pairs * (4 if pass_ == "forward" else 9)
    rows = Work("products", 0, streamed, times=parts * attention.MATRICES[pass_])
    return multiply, rows


def _blocks(shape: AttentionShape) -> int:
    """Blocks of a head that work side by side in its smallest products, Y and the gradients: one for 64 tokens."""
    return -(-min(shape.rows()[0].size, shape.columns()[0].size) // 64)
