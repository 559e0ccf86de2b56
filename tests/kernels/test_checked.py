"""Every kernel in checked mode: no index outside, no missing barrier, nothing read before it was written.

Each case calls public functions on small arrays, with the threads forward, reversed and shuffled, and must give the
same bits each time, close to what the fast code gives.  `make test-fast` runs a few cases, `make test-emulated` all
but those left to the campaign.  The last test makes sure that no kernel is left out.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

import kernels
from kernels.checks.conv_shape import ConvShape
from kernels.fast import (
    adamw,
    attention,
    batchnorm,
    channel_shuffle,
    clip,
    concat,
    conv,
    drop_path,
    dropout,
    elementwise,
    embedding,
    fc,
    gemm,
    join,
    layernorm,
    lrn,
    mean_loss,
    mix,
    mul,
    pad,
    permute_channels,
    pixel_softmax,
    pool,
    position,
    prepend,
    rmsnorm,
    rotary,
    scale,
    scores,
    sgd,
    softmax,
    take,
    upsample,
)
from kernels.fast.conv import grouped
from kernels.targets import cpu
from kernels.targets.launch import REGISTRY, bind
from refimpl.network.kinds import TRAITS, LayerKind

Outputs = list[np.ndarray]
CASES: dict[str, Callable[[], Outputs]] = {}


def case(function: Callable[[], Outputs]) -> Callable[[], Outputs]:
    CASES[function.__name__] = function
    return function


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def empty(*shape: int) -> np.ndarray:
    """An output: what a kernel leaves unwritten stays visible."""
    return np.full(shape, np.nan, np.float32)


def gemm_case(algorithm: str, trans_a: bool, trans_b: bool) -> None:
    def run() -> Outputs:
        outputs = []
        for m, n, k in ((5, 7, 3), (33, 70, 37), (3, 130, 40)):
            a = drawn(k, m) if trans_a else drawn(m, k)
            b = drawn(n, k) if trans_b else drawn(k, n)
            for beta in (0.0, 0.5):
                c = drawn(m, n, seed=1)
                options: dict[str, Any] = {"trans_a": trans_a, "trans_b": trans_b, "alpha": 2.0, "beta": beta}
                if algorithm == "skinny" and m > 32:
                    continue
                gemm.gemm(a, b, c, algorithm=algorithm, **options)
                outputs.append(c)
                if (need := gemm.workspace_bytes(m, n, k, algorithm)) > 0:
                    c = drawn(m, n, seed=1)
                    gemm.gemm(a, b, c, algorithm=algorithm, workspace=empty(need // 4), **options)
                    outputs.append(c)
        return outputs

    CASES[f"gemm-{algorithm}-{'t' if trans_a else 'n'}{'t' if trans_b else 'n'}"] = run


TRANSPOSITIONS = ((False, False), (True, False), (False, True), (True, True))
for name in gemm.ALGORITHMS:
    for transposed in TRANSPOSITIONS if name != gemm.BEST else ():
        gemm_case(name, *transposed)


def large_gemm_case(algorithm: str, trans_a: bool, trans_b: bool) -> None:
    """More than 64 rows and columns: the larger tile of `split_fragments` and of `vector_rows`."""

    def run() -> Outputs:
        a = drawn(19, 130) if trans_a else drawn(130, 19)
        b = drawn(70, 19) if trans_b else drawn(19, 70)
        c = empty(130, 70)
        gemm.gemm(a, b, c, trans_a=trans_a, trans_b=trans_b, algorithm=algorithm)
        return [c]

    CASES[f"gemm-large-{algorithm}-{'t' if trans_a else 'n'}{'t' if trans_b else 'n'}"] = run


for name in ("split_fragments", "vector_rows"):
    for transposed in TRANSPOSITIONS:
        large_gemm_case(name, *transposed)

# Each compiles kernels of its own for seconds, which are the source of other cases with other constants: a
# transposition of A and one of B are met in the small tile, each alone; the large tile is met once.
LEFT_TO_THE_CAMPAIGN = {
    *(f"gemm-{rung}-{turned}" for rung in ("split_fragments", "vector_rows") for turned in ("tn", "nt")),
    *(f"gemm-large-split_fragments-{turned}" for turned in ("nn", "tt", "tn")),
    *(f"gemm-large-vector_rows-{turned}" for turned in ("nn", "tt", "tn", "nt")),
    "conv-implicit_gemm-5", "depthwise-5-1", "depthwise-5-2", "pool-max-3-3-1-False",
    "batchnorm_of_four_values_a_thread", "batchnorm_of_four_values_a_thread on a GPU",
    "batchnorm_of_sixteen_values_a_thread on a GPU",
}  # fmt: skip


@case
def gemm_long_skinny() -> Outputs:
    a, b, c = drawn(2, 3000), drawn(3000, 9), empty(2, 9)
    need = gemm.workspace_bytes(2, 9, 3000, "skinny")
    gemm.gemm(a, b, c, algorithm="skinny", workspace=empty(max(1, need // 4)) if need else None)
    return [c]


CONVOLUTIONS = [  # x, w, stride, pad
    ((2, 3, 7, 6), (4, 3, 3, 3), (1, 1), (1, 1)),
    ((1, 20, 5, 5), (70, 20, 3, 3), (1, 1), (1, 0)),
    ((2, 17, 9, 8), (5, 17, 3, 2), (2, 3), (1, 0)),
    ((3, 1, 6, 6), (2, 1, 1, 1), (1, 1), (0, 0)),
    ((2, 6, 7, 8), (9, 2, 3, 2), (2, 1), (1, 0, 0, 2)),
    ((2, 70, 17, 17), (70, 70, 3, 2), (1, 1), (1, 0)),
]


def conv_case(algorithm: str, index: int, patch: Callable[[], Any] = contextlib.nullcontext, name: str = "") -> None:
    x_shape, w_shape, stride, pad = CONVOLUTIONS[index]
    module, shape = conv.ALGORITHMS[algorithm], ConvShape.of(x_shape, w_shape, stride, pad)
    if any(module.why_not(pass_, shape) for pass_ in ("forward", "backward_data", "backward_filter")):
        return

    def run() -> Outputs:
        x, w, b, dy = drawn(*x_shape), drawn(*w_shape), drawn(w_shape[0]), drawn(*shape.y_shape)
        y, dx, dw, db = empty(*shape.y_shape), empty(*x_shape), empty(*w_shape), empty(w_shape[0])

        def workspace(pass_: str) -> Any:
            need = conv.workspace_bytes(pass_, x_shape, w_shape, stride, pad, algorithm=algorithm)
            return empty(need // 4) if need else None

        options: dict[str, Any] = {"stride": stride, "pad": pad, "algorithm": algorithm}
        with patch():
            conv.forward(x, w, b, y, workspace=workspace("forward"), **options)
            conv.backward_data(dy, w, dx, workspace=workspace("backward_data"), **options)
            conv.backward_filter(x, dy, dw, workspace=workspace("backward_filter"), **options)
        conv.backward_bias(dy, db)
        return [y, dx, dw, db]

    CASES[name or f"conv-{algorithm}-{index}"] = run


def tiles(cores: int, few: int = conv.implicit_gemm.FEW_TILES) -> Callable[[], Any]:
    """The tiles of a CPU with this number of cores, where fewer blocks than `few` are few."""
    return lambda: mock.patch.multiple(conv.implicit_gemm, thread_count=lambda: cores, FEW_TILES=few)


for name in conv.ALGORITHMS:
    for number in range(5):
        conv_case(name, number, tiles(cores=1))
for side in (3, 5, 7):
    for stride in (1, 2):
        CONVOLUTIONS.append(((2, 17, 6, 9), (17, 1, side, side), (stride, stride), (side // 2, side // 2)))
        conv_case("direct", len(CONVOLUTIONS) - 1, name=f"depthwise-{side}-{stride}")
        conv_case("vector_direct", len(CONVOLUTIONS) - 1, name=f"vector_direct-depthwise-{side}-{stride}")
for side, stride in ((5, 1), (7, 1), (7, 2), (3, 2)):
    CONVOLUTIONS.append(((2, 3, 6, 9), (5, 3, side, side), (stride, stride), (side // 2, side // 2)))
    conv_case("vector_direct", len(CONVOLUTIONS) - 1, name=f"vector_direct-{side}-{stride}")
# The tiles of 128 rows are for outputs too large for this mode; so here every output counts as large.
conv_case("implicit_gemm", 5, tiles(cores=1, few=1))


def pool_case(mode: str, options: dict[str, Any]) -> None:
    def run() -> Outputs:
        x = np.round(drawn(2, 3, 8, 7))  # rounded: many equal maxima
        y = empty(*pool.output_shape(x.shape, **{k: v for k, v in options.items() if k != "count_padding"}))
        dy, dx = drawn(*y.shape), empty(*x.shape)
        pool.forward(x, y, mode=mode, **options)
        pool.backward(x, y, dy, dx, mode=mode, **options)
        return [y, dx]

    window = "-".join(map(str, (*options["window"], options["stride"][0])))
    CASES[f"pool-{mode}-{window}-{options.get('ceil', False)}"] = run


for kind in ("max", "average"):
    pool_case(kind, {"window": (2, 2), "stride": (2, 2), "pad": (0, 0)})
    pool_case(kind, {"window": (3, 3), "stride": (2, 2), "pad": (1, 1), "ceil": True})
pool_case("max", {"window": (3, 3), "stride": (1, 1), "pad": (1, 1)})


@case
def pool_to_a_size() -> Outputs:
    outputs: Outputs = []
    for mode in ("max", "average"):
        x = np.round(drawn(2, 3, 8, 7))
        y, dy, dx = empty(2, 3, 3, 9), drawn(2, 3, 3, 9), empty(*x.shape)
        pool.forward_to(x, y, out=(3, 9), mode=mode)
        pool.backward_to(x, y, dy, dx, out=(3, 9), mode=mode)
        outputs += [y, dx]
    return outputs


@case
def upsample_both_ways() -> Outputs:
    outputs: Outputs = []
    for mode in upsample.MODES:
        x, dy, y, dx = drawn(2, 3, 4, 5), drawn(2, 3, 9, 7), empty(2, 3, 9, 7), empty(2, 3, 4, 5)
        upsample.forward(x, y, mode=mode)
        upsample.backward(dy, dx, mode=mode)
        outputs += [y, dx]
    return outputs


@case
def fully_connected() -> Outputs:
    outputs: Outputs = []
    for batch in (3, 40):
        x, w, b, dy = drawn(batch, 37), drawn(11, 37), drawn(11), drawn(batch, 11)
        y, dx, dw, db = empty(batch, 11), empty(batch, 37), empty(11, 37), empty(11)
        fc.forward(x, w, b, y)
        fc.backward_data(dy, w, dx)
        fc.backward_filter(x, dy, dw)
        fc.backward_bias(dy, db)
        outputs += [y, dx, dw, db]
    return outputs


def activation_case(kind: LayerKind) -> None:
    """An element-wise kind of layers with all of its options, forward and backward."""

    def run() -> Outputs:
        outputs, module, reads = [], importlib.import_module(f"kernels.fast.{kind}"), TRAITS[kind].backward_reads
        for form in TRAITS[kind].forms:
            maps, dy, dx = {"x": drawn(3, 50), "y": empty(3, 50)}, drawn(3, 50, seed=1), empty(3, 50)
            module.forward(maps["x"], maps["y"], **form)
            if TRAITS[kind].in_place:
                module.forward(x := maps["x"].copy(), x, **form)
                outputs.append(x)
            module.backward(*(maps[name] for name in reads), dy, dx, **form)
            outputs += [maps["y"], dx]
        return outputs

    CASES[f"{kind}_both_ways"] = run


ELEMENTWISE = [kind for kind, traits in TRAITS.items() if traits.elementwise]
for kind in ELEMENTWISE:
    activation_case(kind)


@case
def lrn_both_ways() -> Outputs:
    outputs: Outputs = []
    for size in (1, 4, 5):
        x, dy, y, dx = drawn(2, 7, 3, 5), drawn(2, 7, 3, 5, seed=1), empty(2, 7, 3, 5), empty(2, 7, 3, 5)
        lrn.forward(x, y, size=size)
        lrn.backward(x, y, dy, dx, size=size)
        outputs += [y, dx]
    return outputs


@case
def layernorm_both_ways() -> Outputs:
    outputs: Outputs = []
    for groups, map_ in ((None, (5, 7)), (2, (5, 7)), (2, (3, 3))):  # a CPU takes small maps as a GPU does
        x, dy, gamma, beta = drawn(2, 10, *map_), drawn(2, 10, *map_, seed=1), drawn(10), drawn(10, seed=1)
        kept = layernorm.Sets.of("", x.shape, groups).kept
        y, dx, mean, inverse_std = (empty(*shape) for shape in (x.shape, x.shape, kept, kept))
        dgamma, dbeta = empty(10), empty(10)
        layernorm.forward(x, gamma, beta, y, mean, inverse_std, groups=groups)
        workspace = empty(layernorm.workspace_bytes(x.shape) // 4)
        layernorm.backward(x, gamma, mean, inverse_std, dy, dx, dgamma, dbeta, groups=groups, workspace=workspace)
        outputs += [y, mean, inverse_std, dx, dgamma, dbeta]
    return outputs


@case
def rmsnorm_both_ways() -> Outputs:
    outputs: Outputs = []
    for shape in ((2, 10, 5, 7), (3, 10, 1, 1)):
        x, dy, gamma, kept = drawn(*shape), drawn(*shape, seed=1), drawn(10), (shape[0], shape[2] * shape[3])
        y, dx, inverse_rms, dgamma = (empty(*size) for size in (shape, shape, kept, (10,)))
        rmsnorm.forward(x, gamma, y, inverse_rms)
        workspace = empty(rmsnorm.workspace_bytes(shape) // 4)
        rmsnorm.backward(x, gamma, inverse_rms, dy, dx, dgamma, workspace=workspace)
        outputs += [y, inverse_rms, dx, dgamma]
    return outputs


@case
def rotary_both_ways() -> Outputs:
    x = drawn(2, 16, 5, 7)
    y = empty(*x.shape)
    rotary.forward(x, y, heads=4, kv_heads=2, packed=True)
    dx = drawn(2, 16, 5, 7, seed=1)
    rotary.backward(dx, dx, heads=2, packed=False, rotated=6, neighbours=True)
    return [y, dx]


def attention_of(tokens: int, causal: bool) -> Outputs:
    """Two queries a group, and a workspace for one of the images."""
    how: dict[str, Any] = {"heads": 4, "kv_heads": 2, "causal": causal}
    x, dy = drawn(2, 16, tokens, 1), drawn(2, 8, tokens, 1)
    y, dx = empty(*dy.shape), empty(*x.shape)
    spaces = [empty(attention.workspace_bytes(pass_, [x.shape], **how, images=1) // 4) for pass_ in attention.MATRICES]
    attention.forward([x], y, **how, workspace=spaces[0])
    attention.backward([x], dy, [dx], **how, workspace=spaces[1])
    return [y, dx]


@case
def attention_causal() -> Outputs:
    return attention_of(5, True)


@case
def attention_tiled() -> Outputs:
    return attention_of(37, False)


@case
def attention_tiled_causal() -> Outputs:
    return attention_of(5, True)


@case
def attention_tiled_causal_in_several_tiles() -> Outputs:
    return attention_of(131, True)


@case
def scores_and_mix() -> Outputs:
    """Causal, in two tiles."""
    x, values, dy = drawn(1, 8, 131, 1), drawn(1, 4, 131, 1), drawn(1, 4, 131, 1, seed=1)
    p, dp, y, dx, dvalues = (
        empty(1, 2, 131, 131),
        empty(1, 2, 131, 131),
        empty(1, 4, 131, 1),
        empty(*x.shape),
        empty(*dy.shape),
    )
    scores.forward(x, p, heads=2, causal=True)
    scores.softmax(p, causal=True)
    mix.forward(p, values, y, causal=True)
    mix.backward(p, values, dy, dp, dvalues, causal=True)
    scores.softmax_backward(p, dp, causal=True)
    scores.backward(x, dp, dx, heads=2, causal=True)
    return [p, y, dp, dx, dvalues]


def batchnorm_of(images: int) -> Outputs:
    """Every kernel of batch normalisation, for channels of 42 values an image."""
    shape = (images, 5, 6, 7)
    x, dy, gamma, beta = drawn(*shape), drawn(*shape, seed=1), drawn(5), drawn(5, seed=1)
    y, dx, dgamma, dbeta, mean, inverse_std = (*(empty(*x.shape) for _ in range(2)), *(empty(5) for _ in range(4)))
    workspace = empty(max(1, batchnorm.workspace_bytes(x.shape) // 4))
    batchnorm.forward(x, gamma, beta, y, mean, inverse_std, epsilon=1e-5, workspace=workspace)
    running_mean, running_variance = np.zeros(5, np.float32), np.ones(5, np.float32)
    batchnorm.update_running(
        mean, inverse_std, running_mean, running_variance, count=images * 6 * 7, momentum=0.1, epsilon=1e-5
    )
    batchnorm.backward(x, gamma, mean, inverse_std, dy, dx, dgamma, dbeta, workspace=workspace)
    inferred = empty(*x.shape)
    batchnorm.inference(x, gamma, beta, running_mean, running_variance, inferred, epsilon=1e-5)
    return [y, mean, inverse_std, running_mean, running_variance, dx, dgamma, dbeta, inferred]


@case
def batchnorm_all() -> Outputs:
    return batchnorm_of(images=3)  # one value a thread


@case
def batchnorm_of_four_values_a_thread() -> Outputs:
    return batchnorm_of(images=7)


@case
def batchnorm_of_sixteen_values_a_thread() -> Outputs:
    return batchnorm_of(images=26)


@case
def dropout_both_ways() -> Outputs:
    x, y, dx = drawn(7, 45), empty(7, 45), empty(7, 45)
    options: dict[str, Any] = {"probability": 0.4, "seed": 12345678901, "layer": 3, "iteration": 9}
    dropout.forward(x, y, **options)
    dropout.backward(x, dx, **options)
    return [y, dx]


@case
def drop_path_channel_shuffle_take_and_pad() -> Outputs:
    x, outputs = drawn(3, 6, 5, 7), []
    chance: dict[str, Any] = {"probability": 0.4, "seed": 12345678901, "layer": 3, "iteration": 9}
    for module, how, y_shape in (
        (drop_path, chance, x.shape),
        (channel_shuffle, {"groups": 3}, x.shape),
        (take, {"start": 2}, (3, 3, 5, 7)),
        (take, {"axis": 2, "start": 1}, (3, 6, 2, 7)),
        (pad, {"pad": (1, 0, 2, 3), "value": 0.5}, (3, 6, 8, 10)),
    ):
        y, dx = empty(*y_shape), empty(*x.shape)
        module.forward(x, y, **how)  # type: ignore[attr-defined]
        module.backward(y, dx, **how)  # type: ignore[attr-defined]
        outputs += [y, dx]
    return outputs


@case
def permute_channels_and_prepend() -> Outputs:
    outputs: Outputs = []
    for shape in ((3, 6, 5, 7), (1, 3, 40, 30)):
        x, y, dx, order = drawn(*shape), empty(*shape), empty(*shape), np.arange(shape[1], dtype=np.int32)[::-1] - 0
        permute_channels.forward(x, order, y)
        permute_channels.backward(y, order, dx)
        longer, dw = empty(*shape[:2], 1 + shape[2] * shape[3], 1), empty(shape[1], 1)
        prepend.forward(x, drawn(shape[1], 1), longer)
        prepend.backward(longer, x, dw)
        outputs += [y, dx, longer, x, dw]
    return outputs


@case
def embedding_and_position() -> Outputs:
    outputs: Outputs = []
    for windows, count, words, channels in ((2, 5, 4, 3), (1, 40, 300, 70), (2, 150, 17, 33)):
        tokens = (np.arange(windows * count, dtype=np.int32) ** 2 % words).reshape(windows, count)
        w, y, dw = drawn(words, channels), empty(windows, channels, count, 1), empty(words, channels)
        embedding.forward(tokens, w, y)
        workspace = empty(embedding.workspace_bytes(tokens.shape) // 4)
        embedding.backward(tokens, y, dw, workspace=workspace)
        outputs += [y, dw.copy()]
        embedding.backward(tokens, y, dw, added=True, padding=1, workspace=workspace)
        at, moved, dat = drawn(channels, count, 1), empty(*y.shape), empty(channels, count, 1)
        position.forward(y, at, moved)
        position.backward(moved, dat)
        outputs += [dw, moved, dat]
    return outputs


@case
def softmax_and_loss() -> Outputs:
    outputs: Outputs = []
    for classes in (3, 10, 1000):
        x, y, losses = drawn(4, classes), empty(4, classes), empty(4)
        labels = np.array([0, 2, 1, classes - 1], np.int32)
        softmax.forward(x, y)
        softmax.cross_entropy(y, labels, losses)
        dx = empty(4, classes)
        softmax.backward(y, labels, dx)
        outputs += [y, losses, dx]
    return outputs


@case
def pixel_softmax_and_loss() -> Outputs:
    outputs: Outputs = []
    for shape in ((2, 3, 5, 7), (1, 4, 70, 60), (2, 50, 35, 1)):
        x, y, dx, losses, counted = drawn(*shape), empty(*shape), empty(*shape), empty(shape[0]), empty(1)
        labels = (np.arange(shape[0] * shape[2] * shape[3], dtype=np.int32) % 4 - 1).reshape(-1, *shape[2:])
        workspace = empty(pixel_softmax.workspace_bytes(shape) // 4)
        pixel_softmax.forward(x, y)
        pixel_softmax.cross_entropy(y, labels, losses, counted, ignore_index=-1, workspace=workspace)
        pixel_softmax.backward(y, labels, counted, dx, ignore_index=-1)
        outputs += [y, losses, counted, dx]
    return outputs


@case
def mean_loss_of_both_errors() -> Outputs:
    outputs: Outputs = []
    for error in ("squared", "binary"):
        x, targets, dx, losses = drawn(2, 3, 50, 41), drawn(2, 3, 50, 41, seed=1), empty(2, 3, 50, 41), empty(2)
        mean_loss.forward(x, targets, losses, error=error, workspace=empty(mean_loss.workspace_bytes(x.shape) // 4))
        mean_loss.backward(x, targets, dx, error=error)
        mean_loss.sigmoid(x, x)
        outputs += [losses, dx, x]
    return outputs


@case
def joins_and_concats() -> Outputs:
    parts = [drawn(2, c, 3, 5, seed=c) for c in (1, 4, 2)]
    whole, back = empty(2, 7, 3, 5), [empty(*part.shape) for part in parts]
    concat.forward(parts, whole)
    concat.backward(whole, back)
    long = [drawn(2, c, 17, 19, seed=c) for c in (1, 2)]
    joined, split = empty(2, 3, 17, 19), [empty(*part.shape) for part in long]
    concat.forward(long, joined)
    concat.backward(joined, split)
    same = [drawn(3, 70, seed=n) for n in range(3)]
    total, copies, forked, gathered = empty(3, 70), [empty(3, 70)] * 2, [empty(3, 70), empty(3, 70)], empty(3, 70)
    join.forward(same, total)
    join.backward(total, copies)
    join.fork_forward(total, forked)
    join.fork_backward(same, gathered)
    return [joined, *split, whole, *back, total, *copies, *forked, gathered]


@case
def mul_and_scale() -> Outputs:
    outputs: Outputs = []
    for shape in ((2, 3, 5, 7), (2, 3, 2, 2), (1, 2, 13, 11)):
        x, dy, y = drawn(*shape), drawn(*shape, seed=1), empty(*shape)
        for gate in (drawn(*shape, seed=2), drawn(*shape[:2], 1, 1, seed=2)):
            dx, dgate = empty(*shape), empty(*gate.shape)
            mul.forward(x, gate, y)
            mul.backward(x, gate, dy, dx, dgate)
            outputs += [y.copy(), dx, dgate]
        w, dw, dx = drawn(shape[1], seed=3), empty(shape[1]), empty(*shape)
        scale.forward(x, w, y)
        scale.backward(x, w, dy, dx, dw, workspace=empty(scale.workspace_bytes(shape) // 4))
        outputs += [y, dx, dw]
    return outputs


@case
def elementwise_and_sgd() -> Outputs:
    x, y, z = drawn(700), empty(700), drawn(700, seed=1)
    elementwise.copy(x, y)
    elementwise.axpy(0.5, x, z)
    filled = empty(700)
    elementwise.fill(filled, 3.0)
    w, buffer = drawn(700, seed=2), np.zeros(700, np.float32)
    sgd.update(w, x, buffer, rate=0.1, momentum=0.9, decay=0.01)
    sgd.update(w, z, buffer, rate=0.1, momentum=0.9, decay=0.01)
    return [y, z, filled, w, buffer]


@case
def adamw_and_clip() -> Outputs:
    w, dw, mean, square = drawn(5000), drawn(5000, seed=1), np.zeros(5000, np.float32), np.zeros(5000, np.float32)
    squares, norm = empty(2), empty(1)
    clip.square(dw, squares, place=0)
    clip.norm(squares, norm)
    clip.apply(norm, dw, max_norm=1.0)
    for iteration in range(2):
        adamw.update(w, dw, mean, square, iteration=iteration, rate=0.1, decay=0.1)
    return [w, dw, mean, square, squares, norm]


def elsewhere(name: str, where: str, patch: Callable[[], Any]) -> None:
    """A case with the kernels that another machine takes."""
    here = CASES[name]

    def run() -> Outputs:
        with patch():
            return here()

    CASES[f"{name} on a {where}"] = run


@contextlib.contextmanager
def as_on_a_gpu() -> Iterator[None]:
    with contextlib.ExitStack() as patches:
        by_place_of = ((module, "place_of") for module in (batchnorm, conv.implicit_gemm))
        for module, function in (*((module, "place") for module in (pool, grouped)), *by_place_of):
            patches.enter_context(mock.patch.object(module, function, lambda array: "gpu"))
        yield


def with_other_vectors() -> Any:
    has = cpu.has_avx512()
    return mock.patch.object(cpu, "has_avx512", lambda: not has)


for name in (
    "pool-max-2-2-2-False",
    "conv-direct-0",
    "conv-implicit_gemm-0",
    "depthwise-3-2",
    *(n for n in CASES if "batchnorm" in n),
):
    elsewhere(name, "GPU", as_on_a_gpu)
for turned in ("nn", "nt"):
    elsewhere(f"gemm-skinny-{turned}", "CPU with other vectors", with_other_vectors)
for name in ("conv-vector_direct-0", "conv-vector_direct-3", *(n for n in CASES if n.startswith("vector_direct"))):
    elsewhere(name, "CPU with other vectors", with_other_vectors)


# Tiles, sums of a block, and kernels that share nothing.  Each is compiled twice, unchecked and checked, which takes
# seconds; unchecked, a kernel that leaves its shared array may compute the right numbers.  The other cases run with
# `--device emulated`, where a fault of theirs is also seen in their PTX.
IN_EVERY_RUN = {
    "gemm-tiled-nn", "conv-direct-0", "dropout_both_ways", "softmax_and_loss", "joins_and_concats",
}  # fmt: skip


def run_in(name: str) -> Any:
    """The marks that say which run a case is part of."""
    if name in LEFT_TO_THE_CAMPAIGN:
        return pytest.mark.campaign
    return () if name in IN_EVERY_RUN else (pytest.mark.emulated, pytest.mark.slow)


@pytest.mark.parametrize("name", [pytest.param(name, marks=run_in(name)) for name in CASES])
def test_the_order_of_threads_changes_nothing(name: str) -> None:
    fast, ordered = CASES[name](), []
    for order in ("forward", "reverse", 5):
        with cpu.checked(order):
            ordered.append(CASES[name]())
    for number, output in enumerate(ordered[0]):
        assert np.isfinite(output).all(), f"output {number} of {name} has elements that were not written"
        np.testing.assert_allclose(output, fast[number], rtol=1e-4, atol=1e-5)
        for other in ordered[1:]:
            np.testing.assert_array_equal(output, other[number])


@pytest.mark.slow
def test_no_kernel_is_left_out() -> None:
    for module in pkgutil.walk_packages(kernels.__path__, "kernels."):
        if not module.name.startswith("kernels.targets.cpu"):
            importlib.import_module(module.name)
    seen = {one.kernel.name for run in CASES.values() for one in bind(run)}
    ours = {name for name, made in REGISTRY.items() if made.function.__module__.startswith("kernels.")}
    assert ours - seen == set()
