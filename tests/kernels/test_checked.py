"""Every kernel in checked mode: no index outside, no missing barrier, nothing read before it was written.

Each case calls public functions on small arrays, with the threads forward, reversed and shuffled, and must give the
same bits each time, close to what the fast code gives: the operations of `operations.py`, and by hand those that have
several algorithms, or other kernels for other sizes.  `make test-fast` runs a few cases, `make test-emulated` those
whose kernels have a source of their own, `make matrix` the others.  The last test makes sure that none is left out.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import kernels
from kernels import pool_position as plain_positions
from kernels.checks.conv_shape import ConvShape
from kernels.fast import attention, batchnorm, conv, gemm, pixel_softmax, pool, pool_position, softmax
from kernels.targets import cpu
from kernels.targets.launch import REGISTRY, bind
from tests.kernels.operations import FAST, OPERATIONS, WITH_FAST_KERNELS, Draw, as_on_a_gpu, with_other_vectors

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


def pool_position_case(window: int, stride: int) -> None:
    def run() -> Outputs:
        x = np.round(drawn(2, 3, 8, 7))
        how: dict[str, Any] = {"window": (window, window), "stride": (stride, stride)}
        y = empty(*pool.output_shape(x.shape, **how))
        positions, dx = np.full(plain_positions.positions_shape(y.shape), -1, np.int32), empty(*x.shape)
        pool_position.forward(x, y, positions, **how)
        pool_position.backward(positions, drawn(*y.shape), dx, **how)
        return [y, positions, dx]

    CASES[f"pool_position-{window}-{stride}"] = run


for square in pool.SQUARE:
    pool_position_case(*square)


@case
def attention_causal_in_several_tiles() -> Outputs:
    """Two queries a group, and a workspace for one of the images."""
    how: dict[str, Any] = {"heads": 4, "kv_heads": 2, "causal": True}
    x, dy = drawn(2, 16, 131, 1), drawn(2, 8, 131, 1)
    y, dx = empty(*dy.shape), empty(*x.shape)
    spaces = [empty(attention.workspace_bytes(pass_, [x.shape], **how, images=1) // 4) for pass_ in attention.MATRICES]
    attention.forward([x], y, **how, workspace=spaces[0])
    attention.backward([x], dy, [dx], **how, workspace=spaces[1])
    return [y, dx]


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
def pixel_softmax_of_few_classes() -> Outputs:
    y = empty(1, 4, 20, 20)
    pixel_softmax.forward(drawn(*y.shape), y)
    return [y]


def operation_case(name: str) -> None:
    CASES[name] = lambda: [output for seed in (-1, -2, -3, -4) for output in OPERATIONS[name](FAST, Draw(seed))]


for name in WITH_FAST_KERNELS:
    operation_case(name)


def elsewhere(name: str, where: str, patch: Callable[[], Any]) -> None:
    """A case with the kernels that another machine takes."""
    here = CASES[name]

    def run() -> Outputs:
        with patch():
            return here()

    CASES[f"{name} on a {where}"] = run


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
IN_EVERY_RUN = {"gemm-tiled-nn", "dropout", "softmax_and_loss"}

#: Cases whose kernels are the same kernels, or the same source with other constants, as those of another case.
ALIKE = re.compile("|".join((
    r"gemm-(coalesced|register|double|tiled).*(tn|nt|tt)", r"gemm-skinny-t.", r"gemm-split_fragments-(tn|nt)",
    r"gemm-vector_rows-(nn|tn|nt)", r"gemm-large-.*", r"conv-direct-[34]", r"conv-implicit_gemm-(3|5|0 on a GPU)",
    r"conv-(im2col|winograd|vector_direct)-([1-4].*|0 on a .*)", r"(vector_direct-)?depthwise-[57]-.",
    r"vector_direct-depthwise-3-1", r"vector_direct-\d-\d", r"vector_direct-.* on a .*", r"pool_position-3-1",
    r"pool-max-3-3-1-False", r"batchnorm_of_four_values_a_thread", r"batchnorm_of_\w+ on a GPU",
)))  # fmt: skip


def run_in(name: str) -> Any:
    """The marks that say which run a case is part of."""
    if ALIKE.fullmatch(name):
        return pytest.mark.matrix
    return () if name in IN_EVERY_RUN else (pytest.mark.emulated, pytest.mark.slow)


@pytest.mark.parametrize("name", [pytest.param(name, marks=run_in(name)) for name in CASES])
def test_the_order_of_threads_changes_nothing(name: str) -> None:
    fast, ordered = CASES[name](), []
    for order in ("forward", "reverse", 5):
        with cpu.checked(order):
            ordered.append(CASES[name]())
    for number, output in enumerate(ordered[0]):
        assert name in OPERATIONS or np.isfinite(output).all(), f"output {number} of {name} is not wholly written"
        np.testing.assert_allclose(output, fast[number], rtol=1e-4, atol=1e-5)
        for other in ordered[1:]:
            np.testing.assert_array_equal(output, other[number])


@pytest.mark.slow
def test_no_kernel_is_left_out() -> None:
    for module in pkgutil.walk_packages(kernels.__path__, "kernels."):
        if not module.name.startswith("kernels.targets.cpu"):
            importlib.import_module(module.name)
    seen = {one.kernel.name for run in CASES.values() for one in bind(run)}
    ours = {name for name, made in REGISTRY.items() if made.function.__module__.startswith("kernels.fast.")}
    assert ours - seen == set()
