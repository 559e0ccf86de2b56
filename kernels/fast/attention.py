"""Attention: every token's mean of the values, weighted by how well its query fits the keys, head by head.

With d channels a head, Q (d × queries), K and V (d × keys) of one head, and dY (d × queries):

    forward     S = Qᵀ·K / √d       P = softmax of every row of S       Y = V·Pᵀ
    backward    dV = dY·P    dP = dYᵀ·V    dS = P ∘ (dP - row sums of P ∘ dP)    dQ = K·dSᵀ / √d    dK = Q·dS / √d

`causal`: token i sees tokens 0 … i alone; the other probabilities are 0.  A map is (images, channels, …), and all axes
after the channels are its tokens.  Keys may have fewer heads than queries: `heads / kv_heads` queries, a *group*, then
share a key and a value.  The inputs are one map or three:

    one      (images, (heads + 2·kv_heads)·d, tokens): group by group its queries, its key and its value
    three    queries (images, heads·d, queries), keys and values (images, kv_heads·d, keys)

**Workspace.** P, in backward dP too, of some groups at a time, and of one of their queries.  Neither is kept: backward
computes P again from the inputs, with the same bits.  How many groups the workspace holds changes the speed and not a
bit of the result.  On a CPU no more of it is used at a time than its cache holds.

The algorithm, `tiled`: `gemm`'s products, rows of P by many threads, and with `causal` no tile that is masked whole.

**Order of summation.** As in `gemm`, over d, keys or queries in ascending order; over the queries of a group in
ascending order.  A row of P is summed in a tree.

**Cost**, with pairs = queries·keys, or about half of that if causal: 4·heads·pairs·d operations forward and 10·heads·
pairs·d backward an image, and 5 (backward 9) for each probability.  It moves about 20 (backward 44) bytes for each
probability, through the caches as long as they hold a head's P: what a kernel that fuses all steps would not do.

**Launch.** The row kernels have a block a row; blockIdx.y is the head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kernels.checks.arguments import LARGEST, KernelError, check, check_shape, flat, given_workspace, place
from kernels.fast import gemm
from kernels.fast.functions import exp
from kernels.targets.launch import Floats, Kernel, kernel, launch
from kernels.targets.shim import cuda

TILE = 128  #: queries and keys of a tile; a causal one that is masked whole is not computed
MOST = 65535  #: groups at a time: a grid's y axis
CACHED = 1 << 18  #: numbers of matrices that a CPU works at together: they stay in its cache from step to step
MATRICES = {"forward": 1, "backward": 2}  #: pass → matrices of queries × keys in the workspace, for each group
PRODUCTS = {"forward": 2, "backward": 5}  #: pass → products of matrices
ZERO, ONE = np.float32(0), np.float32(1)


# -- rows of P ---------------------------------------------------------------------------------------------------------


def softmax_kernel(threads: int) -> Kernel:
    """For a row by `threads` threads, which take every `threads`-th number; their results meet in a tree."""

    @kernel(block=threads, name=f"attention_softmax_{threads}")
    def attention_softmax(s: Floats, queries: int, keys: int, tile: int) -> None:
        """One block a row.  Of a causal one, what comes after its tile is neither read nor written."""
        shared = cuda.shared.array(threads, np.float32)
        whole = cuda.shared.array(1, np.float32)
        t = np.int64(cuda.threadIdx.x)
        row = np.int64(cuda.blockIdx.x)
        start = (cuda.blockIdx.y * queries + row) * keys
        seen = row + 1 if tile > 0 else keys
        end = min(keys, (row // tile + 1) * tile) if tile > 0 else keys

        shared[np.uint32(t)] = s[np.uint32(start + min(t, seen - 1))]
        cuda.syncthreads()
        for first in range(threads, seen, threads):
            if t < seen - first:
                shared[np.uint32(t)] = max(shared[np.uint32(t)], s[np.uint32(start + first + t)])
            cuda.syncthreads()
        half = threads // 2
        while half > 0:
            if t < half:
                shared[np.uint32(t)] = max(shared[np.uint32(t)], shared[np.uint32(t + half)])
            cuda.syncthreads()
            half //= 2
        if t == 0:
            whole[0] = shared[0]
        cuda.syncthreads()

        shared[np.uint32(t)] = ZERO
        cuda.syncthreads()
        for first in range(0, seen, threads):
            if t < seen - first:
                grown = exp(s[np.uint32(start + first + t)] - whole[0])
                s[np.uint32(start + first + t)] = grown
                shared[np.uint32(t)] += grown
            cuda.syncthreads()
        half = threads // 2
        while half > 0:
            if t < half:
                shared[np.uint32(t)] += shared[np.uint32(t + half)]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            whole[0] = ONE / shared[0]
        cuda.syncthreads()
        for first in range(0, seen, threads):
            if t < seen - first:
                s[np.uint32(start + first + t)] *= whole[0]
            cuda.syncthreads()
        for first in range(seen, end, threads):
            if t < end - first:
                s[np.uint32(start + first + t)] = ZERO
            cuda.syncthreads()

    return attention_softmax


def softmax_backward_kernel(threads: int) -> Kernel:
    """As `softmax_kernel`."""

    @kernel(block=threads, name=f"attention_softmax_backward_{threads}")
    def attention_softmax_backward(p: Floats, dp: Floats, queries: int, keys: int, tile: int) -> None:
        """One block a row: dp becomes p ∘ (dp - the sum of p ∘ dp)."""
        shared = cuda.shared.array(threads, np.float32)
        t = np.int64(cuda.threadIdx.x)
        row = np.int64(cuda.blockIdx.x)
        start = (cuda.blockIdx.y * queries + row) * keys
        end = min(keys, (row // tile + 1) * tile) if tile > 0 else keys

        shared[np.uint32(t)] = ZERO
        cuda.syncthreads()
        for first in range(0, end, threads):
            if t < end - first:
                e = np.uint32(start + first + t)
                shared[np.uint32(t)] += p[e] * dp[e]
            cuda.syncthreads()
        half = threads // 2
        while half > 0:
            if t < half:
                shared[np.uint32(t)] += shared[np.uint32(t + half)]
            cuda.syncthreads()
            half //= 2
        for first in range(0, end, threads):
            if t < end - first:
                e = np.uint32(start + first + t)
                dp[e] = p[e] * (dp[e] - shared[0])
            cuda.syncthreads()

    return attention_softmax_backward


SHORT, LONG = 32, 128  #: threads of a row: of up to LONG numbers, and of more
SOFTMAX, SOFTMAX_BACKWARD = (
    {threads: made(threads) for threads in (SHORT, LONG)} for made in (softmax_kernel, softmax_backward_kernel)
)


# -- shapes ------------------------------------------------------------------------------------------------------------


class AttentionShape(NamedTuple):
    """Heads, channels and tokens."""

    images: int
    kv_heads: int  #: groups of an image: heads of keys and values
    together: int  #: queries of a group
    width: int  #: channels of a head
    queries: int
    keys: int
    causal: bool
    packed: bool  #: queries, keys and values are one map

    @classmethod
    def of(
        cls, where: str, shapes: Sequence[Sequence[int]], heads: int, kv_heads: int | None, causal: bool
    ) -> AttentionShape:
        """From the shapes of the inputs: of one map, or of queries, keys and values."""
        kv_heads = heads if kv_heads is None else kv_heads
        if min(heads, kv_heads) < 1 or heads % kv_heads:
            raise KernelError(f"{where}: {heads} heads of queries cannot be shared out over {kv_heads} of keys")
        if len(shapes) not in (1, 3) or min(map(len, shapes)) < 3:
            raise KernelError(
                f"{where}: the inputs are {', '.join(str(tuple(shape)) for shape in shapes)}; give one map, or those "
                "of queries, keys and values, each (images, channels, tokens)"
            )
        packed = len(shapes) == 1
        counts = (heads + 2 * kv_heads,) if packed else (heads, kv_heads, kv_heads)
        widths = [int(shape[1]) // count for shape, count in zip(shapes, counts, strict=True)]
        if any(shape[1] != widths[0] * count or not widths[0] for shape, count in zip(shapes, counts, strict=True)):
            channels = ", ".join(str(shape[1]) for shape in shapes)
            raise KernelError(
                f"{where}: {channels} channels are not {heads} heads of queries and {kv_heads} of keys and of values, "
                "all of equally many channels"
            )
        queries, keys, values = (math.prod(shapes[place][2:]) for place in ((0, 0, 0) if packed else (0, 1, 2)))
        if keys != values or len({shape[0] for shape in shapes}) > 1:
            raise KernelError(f"{where}: queries, keys and values of {', '.join(map(str, shapes))} do not fit together")
        if causal and queries != keys:
            raise KernelError(f"{where}: causal needs as many queries as keys, not {queries} and {keys}")
        return cls(int(shapes[0][0]), kv_heads, heads // kv_heads, widths[0], queries, keys, bool(causal), packed)

    @property
    def groups(self) -> int:
        """Of all images."""
        return self.images * self.kv_heads

    @property
    def pairs(self) -> int:
        """A query with a key that it sees, of one head."""
        return self.queries * (self.queries + 1) // 2 if self.causal else self.queries * self.keys

    @property
    def tiled_pairs(self) -> int:
        """Those of the tiles that are computed."""
        return sum(tile.size * tile.seen for tile in self.rows())

    def flops(self, pass_: str, pairs: int) -> int:
        """Operations of the products over `pairs` of each head; a multiply-add is two."""
        return PRODUCTS[pass_] * 2 * self.groups * self.together * pairs * self.width

    def rows(self) -> list[Tile]:
        """The tiles of the queries, each with the keys that it sees: all, if not causal, in one tile."""
        if not self.causal:
            return [Tile(0, self.queries, self.keys)]
        return [Tile(i, min(TILE, self.queries - i), min(i + TILE, self.keys)) for i in range(0, self.queries, TILE)]

    def columns(self) -> list[Tile]:
        """The tiles of the keys, each with the queries that see it: the last ones, if causal."""
        if not self.causal:
            return [Tile(0, self.keys, self.queries)]
        return [Tile(j, min(TILE, self.keys - j), self.queries - j) for j in range(0, self.keys, TILE)]

    def at_once(self, pass_: str, floats: int) -> int:
        """The most groups at a time for which `floats` numbers of workspace are enough."""
        each = MATRICES[pass_] * self.queries * self.keys
        return min(self.groups, MOST, min(floats, LARGEST) // each)

    def workspace_bytes(self, pass_: str, images: int | None = None) -> int:
        """Bytes for `images` images at a time (None: all), or for as many groups as can be indexed."""
        each = MATRICES[pass_] * self.queries * self.keys
        groups = self.kv_heads * (self.images if images is None else images)
        return 4 * each * max(1, min(groups, self.at_once(pass_, LARGEST)))


class Tile(NamedTuple):
    """Some queries, or keys: the first, how many, and the number of the others that they meet."""

    first: int
    size: int
    seen: int


# -- the passes --------------------------------------------------------------------------------------------------------


ALGORITHMS = ("tiled",)  #: beside the plain one, `kernels.attention`
BEST = "tiled"


class Matrices(NamedTuple):
    """One matrix of every group: its first number, the step from one row to the next and from one group to the next."""

    array: Any
    row: int
    apart: int

    def at(self, offset: int) -> Matrices:
        """The parts of them that begin `offset` numbers further on."""
        return Matrices(self.array[offset:], self.row, self.apart)


@dataclass(frozen=True)
class SomeHeads:
    """Some groups of one call."""

    shape: AttentionShape
    count: int
    stream: Any

    def product(
        self, a: Matrices, b: Matrices, c: Matrices, sizes: tuple[int, int, int], trans_a: bool = False,
        trans_b: bool = False, alpha: float = 1.0, add: bool = False,
    ) -> None:  # fmt: skip
        """C = alpha·op(A)·op(B), plus C if `add`; sizes: m, n, k."""
        m, n, k = sizes
        gemm.strided(
            a.array, b.array, c.array, m=m, n=n, k=k, lda=a.row, ldb=b.row, ldc=c.row, batch=self.count,
            stride_a=a.apart, stride_b=b.apart, stride_c=c.apart, trans_a=trans_a, trans_b=trans_b,
            alpha=alpha, beta=1.0 if add else 0.0, algorithm=gemm.BEST, stream=self.stream,
        )  # fmt: skip

    def by_rows(self, one: Matrices, other: Matrices, squares: Matrices, alpha: float = 1.0) -> None:
        """squares = alpha · oneᵀ · other: S, or dP."""
        for i, size, seen in self.shape.rows():
            made = squares.at(i * squares.row)
            self.product(one.at(i), other, made, (size, seen, self.shape.width), trans_a=True, alpha=alpha)

    def onto_queries(self, other: Matrices, squares: Matrices, out: Matrices, alpha: float = 1.0) -> None:
        """out = alpha · other · squaresᵀ: Y, or dQ."""
        for i, size, seen in self.shape.rows():
            read = squares.at(i * squares.row)
            self.product(other, read, out.at(i), (self.shape.width, size, seen), trans_b=True, alpha=alpha)

    def onto_keys(self, one: Matrices, squares: Matrices, out: Matrices, add: bool, alpha: float = 1.0) -> None:
        """out = alpha · one · squares: dV, or dK; of a group's queries all but the first add."""
        for j, size, seen in self.shape.columns():
            before = self.shape.queries - seen
            read = squares.at(before * squares.row + j)
            self.product(one.at(before), read, out.at(j), (self.shape.width, size, seen), alpha=alpha, add=add)

    def softmax(self, squares: Matrices) -> None:
        """The rows of S become those of P."""
        launch(
            SOFTMAX[self._threads], (self.shape.queries, self.count), squares.array, *self._sizes, stream=self.stream
        )

    def softmax_backward(self, p: Matrices, dp: Matrices) -> None:
        """The rows of dP become those of dS."""
        grid = self.shape.queries, self.count
        launch(SOFTMAX_BACKWARD[self._threads], grid, p.array, dp.array, *self._sizes, stream=self.stream)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.shape.queries, self.shape.keys, TILE if self.shape.causal else 0

    @property
    def _threads(self) -> int:
        return SHORT if self.shape.keys <= LONG else LONG


def forward(
    inputs: Sequence[Any], y: Any, *, heads: int, kv_heads: int | None = None, causal: bool = False,
    algorithm: str = BEST, workspace: Any = None, stream: Any = None,
) -> None:  # fmt: skip
    """Fill y, (images, heads·d, queries); inputs: one map, or those of queries, keys and values."""
    where = "attention.forward"
    shape, workspace = _checked(where, inputs, y, heads, kv_heads, causal, algorithm, workspace)
    for first, part in _parts(where, "forward", shape, workspace, stream):
        squares = Matrices(workspace, shape.keys, shape.queries * shape.keys)
        for member in range(shape.together):
            q, k, v = _read(shape, inputs, first, member)
            part.by_rows(q, k, squares, shape.width**-0.5)
            part.softmax(squares)
            part.onto_queries(v, squares, _queries(shape, y, first, member))


def backward(
    inputs: Sequence[Any], dy: Any, dxs: Sequence[Any], *, heads: int, kv_heads: int | None = None,
    causal: bool = False, algorithm: str = BEST, workspace: Any = None, stream: Any = None,
) -> None:  # fmt: skip
    """Fill dxs, the gradients of the inputs."""
    where = "attention.backward"
    shape, workspace = _checked(where, inputs, dy, heads, kv_heads, causal, algorithm, workspace, dxs)
    scale = shape.width**-0.5
    for first, part in _parts(where, "backward", shape, workspace, stream):
        area = shape.queries * shape.keys
        p, dp = (Matrices(workspace[i * part.count * area :], shape.keys, area) for i in range(2))
        for member in range(shape.together):
            q, k, v = _read(shape, inputs, first, member)
            dq, dk, dv = _read(shape, dxs, first, member)
            given = _queries(shape, dy, first, member)
            part.by_rows(q, k, p, scale)
            part.softmax(p)
            part.onto_keys(given, p, dv, member > 0)
            part.by_rows(given, v, dp)
            part.softmax_backward(p, dp)
            part.onto_queries(k, dp, dq, scale)
            part.onto_keys(q, dp, dk, member > 0, scale)


def workspace_bytes(
    pass_: str, shapes: Sequence[Sequence[int]], *, heads: int, kv_heads: int | None = None, causal: bool = False,
    images: int | None = None,
) -> int:  # fmt: skip
    """Bytes of workspace for `images` images at a time (None: all of them); `shapes` are those of the inputs."""
    where = "attention.workspace_bytes"
    shape = AttentionShape.of(where, shapes, heads, kv_heads, causal)
    if pass_ not in MATRICES:
        raise KernelError(f"{where}: there is no pass {pass_!r}; there are {', '.join(MATRICES)}")
    if images is not None and not 1 <= images <= shape.images:
        raise KernelError(f"{where}: images is {images}; the batch has {shape.images}, give 1 to {shape.images}")
    return shape.workspace_bytes(pass_, images)


# -- where the matrices are --------------------------------------------------------------------------------------------


def _queries(shape: AttentionShape, y: Any, first: int, member: int) -> Matrices:
    """Query `member` of every group from group `first` on, in a map of queries alone."""
    each = shape.width * shape.queries
    apart = shape.together * each
    return Matrices(flat(y)[first * apart + member * each :], shape.queries, apart)


def _read(shape: AttentionShape, maps: Sequence[Any], first: int, member: int) -> tuple[Matrices, Matrices, Matrices]:
    """Query `member`, key and value of every group from group `first` on."""
    if not shape.packed:
        apart = shape.width * shape.keys
        key, value = (Matrices(flat(one)[first * apart :], shape.keys, apart) for one in maps[1:])
        return _queries(shape, maps[0], first, member), key, value
    each = shape.width * shape.queries
    apart = (shape.together + 2) * each
    x = Matrices(flat(maps[0])[first * apart :], shape.queries, apart)
    query, key, value = (x.at(place * each) for place in (member, shape.together, shape.together + 1))
    return query, key, value


def _parts(
    where: str, pass_: str, shape: AttentionShape, workspace: Any, stream: Any
) -> Iterator[tuple[int, SomeHeads]]:
    """Groups from one on, as many as the workspace holds; on a CPU as many as its cache holds, too, or one."""
    step = shape.at_once(pass_, workspace.shape[0])
    if step < 1:
        least, whole = 4 * MATRICES[pass_] * shape.queries * shape.keys, shape.workspace_bytes(pass_)
        raise KernelError(
            f"{where}: it needs a workspace of at least {least} bytes (for all heads at once: {whole}), got "
            f"{4 * workspace.shape[0]}"
        )
    if place(workspace) == "cpu":
        step = min(step, max(1, shape.at_once(pass_, CACHED)))
    for first in range(0, shape.groups, step):
        yield first, SomeHeads(shape, min(step, shape.groups - first), stream)


def _checked(
    where: str, inputs: Sequence[Any], y: Any, heads: int, kv_heads: int | None, causal: bool, algorithm: str,
    workspace: Any, dxs: Sequence[Any] = (),
) -> tuple[AttentionShape, Any]:  # fmt: skip
    """The shape, and the workspace, flat."""
    workspace = given_workspace(workspace)
    maps = {f"input {number}": one for number, one in enumerate(inputs)}
    slopes = {f"gradient {number}": one for number, one in enumerate(dxs)}
    of_queries = "dy" if dxs else "y"
    check(where, **maps, **slopes, **{of_queries: y}, workspace=workspace)
    shape = AttentionShape.of(where, [one.shape for one in inputs], heads, kv_heads, causal)
    check_shape(where, of_queries, y, (shape.images, heads * shape.width, *inputs[0].shape[2:]))
    if dxs and len(dxs) != len(inputs):
        raise KernelError(f"{where}: {len(inputs)} inputs have {len(inputs)} gradients, not {len(dxs)}")
    for (name, dx), x in zip(slopes.items(), inputs, strict=False):
        check_shape(where, name, dx, tuple(x.shape))
    if algorithm not in ALGORITHMS:
        raise KernelError(f"{where}: there is no algorithm {algorithm!r}; there are {', '.join(ALGORITHMS)}")
    if workspace is None:
        raise KernelError(f"{where}: it needs a workspace; give {shape.workspace_bytes(where.partition('.')[2])} bytes")
    return shape, flat(workspace)
