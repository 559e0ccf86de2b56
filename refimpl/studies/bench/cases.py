"""The bench's cases: those of every kernel family, their sizes by device, and their rivals.

A laptop's two cores get sizes that take milliseconds, a GPU those of a real network.  Bytes are the least that must
move: each input read once, each output written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from kernels.checks.conv_shape import PASSES, ConvShape
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
    relu,
    rmsnorm,
    rotary,
    scale,
    scores,
    sgd,
    softmax,
    take,
    upsample,
)
from kernels.targets.launch import KernelLaunch, bind
from refimpl.machine.devices import Device
from refimpl.network.kinds import TRAITS
from refimpl.studies.bench import rivals
from refimpl.studies.bench.kernels import Case, Rival
from refimpl.studies.bench.pytorch import elementwise as by_torch

Shape = Sequence[int]
Prepared = tuple[Mapping[str, Sequence[KernelLaunch]], Mapping[str, Rival]]
torch = rivals.torch_or_none()

#: The element-wise kinds of layers beside the ReLU, which has cases of its own.
ACTIVATIONS = tuple(kind for kind, traits in TRAITS.items() if traits.elementwise and kind != "relu")

FAMILIES = (
    "gemm", "conv", "fc", "pool", "upsample", "relu", *ACTIVATIONS, "mul", "scale", "lrn", "batchnorm", "layernorm",
    "rmsnorm", "rotary", "attention", "scores", "mix", "dropout", "drop_path", "channel_shuffle",
    "permute_channels", "take", "pad", "prepend", "embedding", "position",
    "softmax", "pixel_softmax", "mean_loss", "concat", "join", "elementwise", "sgd", "adamw", "clip", "launch",
)  # fmt: skip

# VGG-16's convolutions, 3×3 with padding 1: name, channels, filters, height and width, how many layers are like this.
VGG16 = (
    ("conv1_1", 3, 64, 224, 1),
    ("conv1_2", 64, 64, 224, 1),
    ("conv2_1", 64, 128, 112, 1),
    ("conv2_2", 128, 128, 112, 1),
    ("conv3_1", 128, 256, 56, 1),
    ("conv3_2", 256, 256, 56, 2),
    ("conv4_1", 256, 512, 28, 1),
    ("conv4_2", 512, 512, 28, 2),
    ("conv5", 512, 512, 14, 3),
)


#: Layers with groups: of MobileNet v2 and of ResNeXt-50 (32×4d); name, channels, groups.
GROUPED = (("depthwise", 144, 144), ("32 groups", 128, 32))
#: On a CPU, what networks of today have beside these: channels, groups, side of the map and of the filter, stride.
OF_TODAY = (
    ("depthwise 3×3, stride 2", 144, 144, 56, 3, 2), ("depthwise 5×5", 240, 240, 14, 5, 1),
    ("depthwise 5×5", 576, 576, 7, 5, 1), ("32 groups", 512, 32, 14, 3, 1), ("32 groups", 1024, 32, 7, 3, 1),
)  # fmt: skip


def random(device: Device, *shape: int) -> Any:
    """An array of the device with normally distributed values (repeated in large arrays: drawing them takes long)."""
    count = math.prod(shape)
    some = np.random.default_rng(0).standard_normal(min(count, 1 << 20), dtype=np.float32)
    return device.array(np.resize(some, shape))


def workspace(device: Device, size: int) -> Any:
    """A workspace of `size` bytes; None for 0."""
    return device.empty(-(-size // 4)) if size else None


def beside(
    device: Device,
    arrays: Sequence[Any],
    by_numpy: Callable[..., Any] | None,
    by_torch: Callable[..., Any] | None,
    library: str = "PyTorch",
) -> dict[str, Rival]:
    """The rivals over the same arrays: NumPy on the CPU, PyTorch where it is installed.

    `library` names what PyTorch calls on a GPU.
    """
    found = {}
    if by_numpy is not None and device.kind == "cpu":
        found["NumPy"] = Rival(partial(by_numpy, *arrays))
    if by_torch is not None and torch is not None and (device.kind == "cpu" or torch.cuda.is_available()):
        tensors = [device.tensor(torch, array) for array in arrays]
        found[library if device.kind == "gpu" else "PyTorch"] = Rival(partial(by_torch, *tensors))
    return found


def plain_copy(device: Device, shape: Shape) -> dict[str, Rival]:
    """The yardstick of everything that is bound by bandwidth: a plain copy of an array."""
    x, y = random(device, *shape), random(device, *shape)
    run = partial(np.copyto, y, x) if device.kind == "cpu" else partial(y.copy_to_device, x)
    return {"copy": Rival(run, 8.0 * math.prod(shape))}


def times(*sizes: int) -> str:
    return "×".join(str(n) for n in sizes)


Bound = Callable[[Device], tuple[Sequence[KernelLaunch], Sequence[Any]]]  #: our launches, and the arrays for the rivals


def bound(function: Callable[..., Any], *shapes: Shape, space: int = 0, **options: Any) -> Bound:
    """The launches of a function of arrays of these shapes, with a workspace of `space` bytes; one axis is all ones."""

    def ours(device: Device) -> tuple[Sequence[KernelLaunch], Sequence[Any]]:
        arrays = [
            random(device, *shape) if len(shape) > 1 else device.array(np.ones(shape, np.float32)) for shape in shapes
        ]
        given = options | ({"workspace": workspace(device, space)} if space else {})
        return bind(function, *arrays, **given), arrays

    return ours


# -- gemm and fc: bound by arithmetic, or by reading the weights -------------------------------------------------------


def gemm_case(what: str, m: int, n: int, k: int, algorithm: str, headline: bool) -> Case:
    def prepare(device: Device) -> Prepared:
        a, b, c = random(device, m, k), random(device, k, n), random(device, m, n)
        space = workspace(device, gemm.workspace_bytes(m, n, k, algorithm))
        return {algorithm: bind(gemm.gemm, a, b, c, algorithm=algorithm, workspace=space)}, beside(
            device, (a, b, c), np.matmul, lambda a, b, c: torch.matmul(a, b, out=c), "cuBLAS"
        )

    return Case("gemm", f"{what}, {algorithm}", times(m, n, k), "GFLOP/s", 2.0 * m * n * k, prepare, headline)


def gemm_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    size = (4096 if gpu else 512) // (2 if quick else 1)
    for algorithm in gemm.ALGORITHMS:
        if algorithm != "skinny":
            yield gemm_case("ladder", size, size, size, algorithm, algorithm == gemm.BEST)
    for algorithm in dict.fromkeys((gemm.BEST, "skinny")):
        yield gemm_case("32 rows", 32, 1000 if quick else 4096, 4096, algorithm, algorithm == "skinny")


def fc_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    """VGG-16's first fully connected layer on a GPU, its second on a CPU: the weights are what moves."""
    batch, inputs, outputs = 32, 25088 if gpu else 4096, 1024 if quick else 4096
    x, w, b, y = (batch, inputs), (outputs, inputs), (outputs,), (batch, outputs)

    def case(pass_: str, ours: Bound, by_numpy: Callable[..., Any], by_torch: Callable[..., Any]) -> Case:
        def prepare(device: Device) -> Prepared:
            launches, arrays = ours(device)
            return {"fc": launches}, beside(device, arrays, by_numpy, by_torch, "cuBLAS") | plain_copy(device, w)

        moved = 4.0 * (inputs * outputs + batch * (inputs + outputs))
        return Case("fc", pass_, times(batch, inputs, outputs), "GB/s", moved, prepare, pass_ == "forward")

    def space(pass_: str) -> int:
        return fc.workspace_bytes(pass_, x, w)

    yield case(
        "forward", bound(fc.forward, x, w, b, y, space=space("forward")),
        lambda x, w, b, y: np.add(np.matmul(x, w.T, out=y), b, out=y),
        lambda x, w, b, y: torch.addmm(b, x, w.T, out=y),
    )  # fmt: skip
    yield case(
        "backward_data", bound(fc.backward_data, y, w, x, space=space("backward_data")),
        np.matmul, lambda dy, w, dx: torch.matmul(dy, w, out=dx),
    )  # fmt: skip
    yield case(
        "backward_filter", bound(fc.backward_filter, x, y, w, space=space("backward_filter")),
        lambda x, dy, dw: np.matmul(dy.T, x, out=dw), lambda x, dy, dw: torch.matmul(dy.T, x, out=dw),
    )  # fmt: skip


# -- conv --------------------------------------------------------------------------------------------------------------

NUMPY_CONV = {
    "forward": rivals.numpy_conv_forward,
    "backward_data": rivals.numpy_conv_backward_data,
    "backward_filter": rivals.numpy_conv_backward_filter,
}


def conv_launches(
    device: Device, pass_: str, shape: ConvShape, algorithm: str, arrays: Sequence[Any]
) -> list[KernelLaunch]:
    """The launches of one algorithm, for as many images at a time as the device's memory allows; none if it cannot."""
    if conv.ALGORITHMS[algorithm].why_not(pass_, shape) is not None:
        return []
    stride, pad, dilation = shape.walk
    how = {"stride": stride, "pad": pad, "dilation": dilation, "algorithm": algorithm}
    images, limit = shape.images, device.free_bytes // 3
    while images > 1 and need(pass_, shape, images, how) > limit:
        images = -(-images // 2)
    size = need(pass_, shape, images, how)
    if size > limit:
        return []
    given = (*arrays[:2], None, arrays[2]) if pass_ == "forward" else arrays
    return bind(getattr(conv, pass_), *given, workspace=workspace(device, size), **how)


def need(pass_: str, shape: ConvShape, images: int, how: Mapping[str, Any]) -> int:
    return conv.workspace_bytes(pass_, shape.x_shape, shape.w_shape, images=images, **how)


def conv_case(
    what: str,
    size: str,
    pass_: str,
    shape: ConvShape,
    algorithms: Sequence[str],
    headline: bool = False,
    layers: int = 1,
) -> Case:
    """One pass of one convolution; of several algorithms the fastest counts."""

    def prepare(device: Device) -> Prepared:
        x, w, y = (random(device, *s) for s in (shape.x_shape, shape.w_shape, shape.y_shape))
        arrays = {"forward": (x, w, y), "backward_data": (y, w, x), "backward_filter": (x, y, w)}[pass_]
        ours = {name: conv_launches(device, pass_, shape, name, arrays) for name in algorithms}
        by_torch = partial(rivals.torch_conv, torch, pass_, shape)
        found = beside(device, arrays, partial(NUMPY_CONV[pass_], shape), by_torch, "cuDNN")
        return {name: launches for name, launches in ours.items() if launches}, found

    return Case("conv", what, size, "GFLOP/s", shape.flops, prepare, headline, layers)


def conv_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    if gpu:
        batch = 4 if quick else 32
        for name, channels, filters, side, layers in VGG16:
            shape = ConvShape.of((batch, channels, side, side), (filters, channels, 3, 3), (1, 1), (1, 1))
            for pass_ in PASSES:
                if not (name == "conv1_1" and pass_ == "backward_data"):  # the gradient of the images is not needed
                    ours = [name for name, one in conv.ALGORITHMS.items() if not getattr(one, "CPU_ONLY", False)]
                    yield conv_case(pass_, f"VGG {name}", pass_, shape, ours, layers=layers)
    else:
        shape = ConvShape.of((1 if quick else 8, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1))
        for pass_ in PASSES:
            for algorithm in conv.ALGORITHMS:
                best = algorithm in ("implicit_gemm", "vector_direct")
                yield conv_case(
                    f"{pass_}, {algorithm}", f"{times(*shape.x_shape)} 3×3", pass_, shape, [algorithm], best
                )
        for channels, side in ((8, 32), (32, 8)):
            shape = ConvShape.of((64, channels, side, side), (channels, channels, 3, 3), (1, 1), (1, 1))
            for pass_ in PASSES:
                for algorithm in ("implicit_gemm", "vector_direct"):
                    what = f"{channels} channels, {pass_}, {algorithm}"
                    yield conv_case(what, times(*shape.x_shape), pass_, shape, [algorithm], channels == 8)
        for channels, filters, side, window in ((3, 64, 112, 7), (128, 128, 28, 3)):
            shape = ConvShape.of(
                (1 if quick else 4, channels, side, side),
                (filters, channels, window, window),
                (2, 2),
                (window // 2,) * 2,
            )
            for pass_ in PASSES:
                what = f"{window}×{window}, stride 2, {pass_}"
                yield conv_case(what, times(*shape.x_shape), pass_, shape, ["vector_direct"])
    for channels, side in ((64, 56), (128, 28), (256, 14), (512, 7)):
        if quick and channels in (128, 512):
            continue
        shape = ConvShape.of((32 if gpu else 4, channels, side, side), (channels, channels, 3, 3), (1, 1), (1, 1))
        for algorithm in ("implicit_gemm", "winograd"):
            if algorithm in conv.ALGORITHMS:
                yield conv_case(
                    f"{channels} channels, {algorithm}", times(*shape.x_shape), "forward", shape, [algorithm]
                )
    for name, channels, groups in GROUPED[:1] if quick else GROUPED:
        shape = ConvShape.of((32 if gpu else 4, channels, 56, 56), (channels, channels // groups, 3, 3), (1, 1), (1, 1))
        for pass_ in PASSES:
            for algorithm in ("direct", "implicit_gemm", *(() if gpu else ("vector_direct",))):
                what, best = f"{name}, {pass_}, {algorithm}", algorithm == "vector_direct"
                yield conv_case(what, times(*shape.x_shape), pass_, shape, [algorithm], best)
    for name, channels, groups, side, window, stride in () if gpu or quick else OF_TODAY:
        x, w = (16, channels, side, side), (channels, channels // groups, window, window)
        shape = ConvShape.of(x, w, (stride, stride), (window // 2, window // 2))
        for pass_ in PASSES:
            faster = ["direct", "vector_direct"] if groups == channels else ["vector_direct"]
            yield conv_case(f"{name}, {pass_}", times(*x), pass_, shape, faster, headline=True)


# -- bound by bandwidth ------------------------------------------------------------------------------------------------


def map_shape(gpu: bool, quick: bool) -> tuple[int, int, int, int]:
    """A batch of maps: 26 MB on a CPU (more than its cache), 411 MB on a GPU."""
    n, c, h, w = (32, 256, 112, 112) if gpu else (32, 64, 56, 56)
    return (n // 4 if quick else n), c, h, w


def streaming_case(
    family: str,
    what: str,
    shape: Shape,
    moved: float,
    ours: Bound,
    by_numpy: Callable[..., Any] | None = None,
    by_torch: Callable[..., Any] | None = None,
    headline: bool = False,
) -> Case:
    """`moved`: arrays of this shape that are read or written."""

    def prepare(device: Device) -> Prepared:
        launches, arrays = ours(device)
        return {family: launches}, beside(device, arrays, by_numpy, by_torch) | plain_copy(device, shape)

    return Case(family, what, times(*shape), "GB/s", moved * 4.0 * math.prod(shape), prepare, headline)


def map_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    """The functions whose arrays are all of one shape."""
    one = map_shape(gpu, quick)
    rows, weights = (65536 if gpu else 4096, 1000), (4096, 25088 if gpu else 1024)
    two, three = (one, one), (one, one, one)
    yield streaming_case(
        "elementwise", "fill", one, 1, bound(elementwise.fill, one, value=0.0),
        lambda x: x.fill(0), lambda x: x.zero_(),
    )  # fmt: skip
    yield streaming_case(
        "elementwise", "copy", one, 2, bound(elementwise.copy, *two),
        lambda x, y: np.copyto(y, x), lambda x, y: y.copy_(x), True,
    )  # fmt: skip
    yield streaming_case(
        "elementwise", "axpy", one, 3, bound(partial(elementwise.axpy, 0.5), *two),
        lambda x, y: np.add(y, np.float32(0.5) * x, out=y), lambda x, y: y.add_(x, alpha=0.5),
    )  # fmt: skip
    yield streaming_case(
        "relu", "forward", one, 2, bound(relu.forward, *two),
        lambda x, y: np.maximum(x, 0, out=y), lambda x, y: torch.clamp_min(x, 0, out=y), True,
    )  # fmt: skip
    yield streaming_case(
        "relu", "backward", one, 3, bound(relu.backward, *three),
        lambda y, dy, dx: np.multiply(y > 0, dy, out=dx), lambda y, dy, dx: torch.ops.aten.threshold_backward(dy, y, 0),
    )  # fmt: skip
    for kind in ACTIVATIONS:
        for form in TRAITS[kind].forms:
            yield from activation_cases(kind, form, one)
    yield streaming_case(
        "join", "forward, two", one, 3, bound(lambda a, b, y: join.forward([a, b], y), *three),
        np.add, lambda a, b, y: torch.add(a, b, out=y), True,
    )  # fmt: skip
    yield streaming_case(
        "lrn", "forward, 5 channels", one, 2, bound(lrn.forward, *two),
        None, lambda x, y: torch.nn.functional.local_response_norm(x, 5), True,
    )  # fmt: skip
    yield streaming_case("lrn", "backward, 5 channels", one, 4, bound(lrn.backward, *two, *two))
    yield streaming_case(
        "dropout", "forward", one, 2, bound(dropout.forward, *two, probability=0.5, seed=1, layer=2, iteration=3),
        None, lambda x, y: torch.nn.functional.dropout(x, 0.5), True,
    )  # fmt: skip
    yield streaming_case(
        "softmax", "forward", rows, 2, bound(softmax.forward, rows, rows),
        None, lambda x, y: torch.softmax(x, 1, out=y), True,
    )  # fmt: skip
    update = bound(sgd.update, weights, weights, weights, rate=1e-3, momentum=0.9, decay=1e-4)
    yield streaming_case("sgd", "momentum and decay", weights, 5, update, headline=True)
    given: dict[str, Any] = {"iteration": 3, "rate": 1e-3, "decay": 1e-2}
    adam = bound(adamw.update, weights, weights, weights, weights, **given)
    yield streaming_case("adamw", "update", weights, 7, adam, headline=True)
    yield streaming_case("clip", "apply", weights, 2, bound(clip.apply, (1,), weights, max_norm=1.0))

    def softmax_backward(device: Device) -> tuple[Sequence[KernelLaunch], Sequence[Any]]:
        y, labels = random(device, *rows), device.array(np.arange(rows[0], dtype=np.int32) % rows[1])
        return bind(softmax.backward, y, labels, y), ()

    yield streaming_case("softmax", "backward, in place", rows, 2, softmax_backward)
    maps = (4, 21, 128, 128)
    yield streaming_case(
        "pixel_softmax", "forward, 21 classes", maps, 2, bound(pixel_softmax.forward, maps, maps),
        None, lambda x, y: torch.softmax(x, 1, out=y), True,
    )  # fmt: skip
    for error in ("squared", "binary"):
        backward = bound(mean_loss.backward, maps, maps, maps, error=error)
        yield streaming_case("mean_loss", f"{error}, backward", maps, 3, backward)


def activation_cases(kind: str, form: Mapping[str, Any], shape: Shape) -> Iterator[Case]:
    """An element-wise kind with these options, forward and backward."""
    module, which = import_module(f"kernels.fast.{kind}"), "".join(f", {name}={value}" for name, value in form.items())

    yield streaming_case(
        kind, f"forward{which}", shape, 2, bound(partial(module.forward, **form), shape, shape),
        None, lambda x, y: by_torch(kind, x, form), True,
    )  # fmt: skip
    backward = bound(lambda read, dy: module.backward(read, dy, dy, **form), shape, shape)
    yield streaming_case(kind, f"backward{which}, in place", shape, 3, backward)


def concat_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    n, c, h, w = shape = map_shape(gpu, quick)
    parts = (n, c // 4, h, w), (n, c - c // 4, h, w)
    yield streaming_case(
        "concat", "forward, two", shape, 2, bound(lambda a, b, y: concat.forward([a, b], y), *parts, shape),
        lambda a, b, y: np.concatenate((a, b), axis=1, out=y), lambda a, b, y: torch.cat((a, b), dim=1, out=y), True,
    )  # fmt: skip
    backward = bound(lambda a, b, y: concat.backward(y, [a, b]), *parts, shape)
    yield streaming_case("concat", "backward, two", shape, 2, backward)


def pool_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    for mode, window, around in (("max", 2, 0), ("max", 3, 1), ("average", 2, 0)):
        yield from pool_case(map_shape(gpu, quick), mode, window, around)


def pool_case(shape: tuple[int, int, int, int], mode: str, window: int, around: int) -> Iterator[Case]:
    """A pooling forward and backward; the stride is 2."""
    n, c, h, w = shape
    how: dict[str, Any] = {"mode": mode, "window": (window, window), "stride": (2, 2), "pad": (around, around)}
    out = n, c, (h + 2 * around - window) // 2 + 1, (w + 2 * around - window) // 2 + 1
    small, what = math.prod(out) / math.prod(shape), f"{mode} {window}×{window}"

    def by_torch(x: Any, y: Any) -> Any:
        function = torch.nn.functional.max_pool2d if mode == "max" else torch.nn.functional.avg_pool2d
        return function(x, window, 2, around)

    def backward(device: Device) -> tuple[Sequence[KernelLaunch], Sequence[Any]]:
        x, y, dy, dx = (random(device, *s) for s in (shape, out, out, shape))
        pool.forward(x, y, **how)
        return bind(pool.backward, x, y, dy, dx, **how), ()

    forward = bound(pool.forward, shape, out, **how)
    yield streaming_case("pool", f"forward, {what}", shape, 1 + small, forward, None, by_torch, what == "max 2×2")
    reads = 1 + small if mode == "max" else 0  # the average's gradient needs neither x nor y
    yield streaming_case("pool", f"backward, {what}", shape, 1 + small + reads, backward)


def product_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    """By a gate of one number a map, and by a number a channel."""
    n, c, *_ = shape = map_shape(gpu, quick)
    gate, channels, sums = (n, c, 1, 1), (c,), (n * c,)
    yield streaming_case(
        "mul", "forward, a gate", shape, 2, bound(mul.forward, shape, gate, shape),
        lambda x, gate, y: np.multiply(x, gate, out=y), lambda x, gate, y: torch.mul(x, gate, out=y), True,
    )  # fmt: skip
    backward = bound(lambda x, gate, dy, dgate: mul.backward(x, gate, dy, dy, dgate), shape, gate, shape, gate)
    yield streaming_case("mul", "backward, a gate", shape, 3, backward)
    yield streaming_case(
        "mul", "forward, one shape", shape, 3, bound(mul.forward, shape, shape, shape),
        np.multiply, lambda x, gate, y: torch.mul(x, gate, out=y),
    )  # fmt: skip
    yield streaming_case("scale", "forward", shape, 2, bound(scale.forward, shape, channels, shape))
    scaled = bound(
        lambda x, w, dy, dw, sums: scale.backward(x, w, dy, dy, dw, workspace=sums),
        shape, channels, shape, channels, sums,
    )  # fmt: skip
    yield streaming_case("scale", "backward", shape, 3, scaled)


def upsample_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    """Maps twice as high and as wide."""
    n, c, h, w = shape = map_shape(gpu, quick)
    small = n, c, h // 2, w // 2
    for mode in upsample.MODES:
        yield streaming_case(
            "upsample", f"forward, {mode}", shape, 1.25, bound(upsample.forward, small, shape, mode=mode), None,
            lambda x, y, mode=mode: torch.nn.functional.interpolate(x, scale_factor=2, mode=mode), mode == "bilinear",
        )  # fmt: skip
        backward = bound(upsample.backward, shape, small, mode=mode)
        yield streaming_case("upsample", f"backward, {mode}", shape, 1.25, backward)


def moving_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    """What drops images, and what puts channels and rows elsewhere."""
    n, c, h, w = shape = map_shape(gpu, quick)
    chance = {"probability": 0.2, "seed": 1, "layer": 2, "iteration": 3}
    half, larger = (n, c // 2, h, w), (n, c, h + 2, w + 2)
    for module, small, large, how in (
        (drop_path, shape, shape, chance), (channel_shuffle, shape, shape, {"groups": 2}),
        (take, half, shape, {}), (pad, shape, larger, {"pad": (1, 1, 1, 1)}),
    ):  # fmt: skip
        name = module.__name__.removeprefix("kernels.fast.")
        shapes = (large, small) if module is take else (small, large)
        moved = 1 + math.prod(small) / math.prod(large)
        yield streaming_case(name, "forward", large, moved, bound(partial(module.forward, **how), *shapes))
        yield streaming_case(name, "backward", large, moved, bound(partial(module.backward, **how), *shapes[::-1]))
    for direction in ("forward", "backward"):
        move, longer = (getattr(module, direction) for module in (permute_channels, prepend))
        yield streaming_case("permute_channels", direction, shape, 2, reversed_channels(move, shape))
        token, tokens = (c, 1), (n, c, 1 + h * w, 1)
        given = (shape, token, tokens) if direction == "forward" else (tokens, shape, token)
        yield streaming_case("prepend", direction, shape, 2, bound(longer, *given))


def reversed_channels(function: Callable[..., Any], shape: Shape) -> Bound:
    """The launches of a permutation that has the last channel first."""

    def ours(device: Device) -> tuple[Sequence[KernelLaunch], Sequence[Any]]:
        arrays = [random(device, *shape), random(device, *shape)]
        order = device.array(np.arange(shape[1], dtype=np.int32)[::-1].copy())
        return bind(function, arrays[0], order, arrays[1]), arrays

    return ours


def token_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    """The first two layers of GPT-2, for a few windows of 1,024 tokens."""
    windows, words, channels, count = 8 if gpu else 2, 5003 if quick else 50257, 768, 1024
    maps, table, one = (windows, channels, count, 1), (words, channels), (channels, count, 1)

    def tokens(device: Device) -> Any:
        """As in a text: some words come often."""
        ranks = np.random.default_rng(0).zipf(1.2, (windows, count))
        return device.array((ranks % words).astype(np.int32))

    def forward(device: Device) -> tuple[Sequence[KernelLaunch], Sequence[Any]]:
        arrays = tokens(device), random(device, *table), random(device, *maps)
        return bind(embedding.forward, *arrays), arrays

    def backward(device: Device) -> tuple[Sequence[KernelLaunch], Sequence[Any]]:
        space = workspace(device, embedding.workspace_bytes((windows, count)))
        given = tokens(device), random(device, *maps), random(device, *table)
        return bind(embedding.backward, *given, workspace=space), ()

    yield streaming_case(
        "embedding", "forward", maps, 2, forward, None,
        lambda tokens, w, y: torch.nn.functional.embedding(tokens, w).movedim(-1, 1).contiguous(), True,
    )  # fmt: skip
    moved = 1 + math.prod(table) / math.prod(maps)
    yield streaming_case("embedding", "backward", maps, moved, backward)
    yield streaming_case(
        "position", "forward", maps, 2, bound(position.forward, maps, one, maps),
        np.add, lambda x, w, y: torch.add(x, w, out=y), True,
    )  # fmt: skip
    yield streaming_case(
        "position", "backward", maps, 1, bound(position.backward, maps, one),
        lambda dy, dw: np.sum(dy, axis=0, out=dw), lambda dy, dw: torch.sum(dy, dim=0, out=dw),
    )  # fmt: skip


def batchnorm_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    shape = map_shape(gpu, quick)
    channel, space = (shape[1],), batchnorm.workspace_bytes(shape)
    case = partial(streaming_case, "batchnorm")
    yield case(
        "forward, training", shape, 3,
        bound(batchnorm.forward, shape, channel, channel, shape, channel, channel, space=space), None,
        lambda x, gamma, beta, *_: torch.native_batch_norm(x, gamma, beta, None, None, True, 0.1, 1e-5), True,
    )  # fmt: skip
    yield case(
        "inference", shape, 2,
        bound(batchnorm.inference, shape, channel, channel, channel, channel, shape), None,
        lambda x, gamma, beta, mean, var, _: torch.native_batch_norm(x, gamma, beta, mean, var, False, 0.1, 1e-5),
    )  # fmt: skip
    yield case(
        "backward", shape, 5,
        bound(batchnorm.backward, shape, channel, channel, channel, shape, shape, channel, channel, space=space), None,
        lambda x, gamma, mean, inverse_std, dy, *_: torch.ops.aten.native_batch_norm_backward(
            dy, x, gamma, None, None, mean, inverse_std, True, 1e-5, [True, True, True]
        ),
    )  # fmt: skip


def layernorm_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    """Over the channels of each position, and over groups of them and all positions."""
    shape = map_shape(gpu, quick)
    channel, space = (shape[1],), layernorm.workspace_bytes(shape)
    for what, groups in (("layer", None), ("group, 32", 32)):
        kept = layernorm.Sets.of("bench", shape, groups).kept

        def by_torch(x: Any, gamma: Any, beta: Any, *_: Any, groups: int | None = groups) -> Any:
            functional = torch.nn.functional
            if groups:
                return functional.group_norm(x, groups, gamma, beta)
            return functional.layer_norm(x.movedim(1, -1), channel, gamma, beta).movedim(-1, 1).contiguous()

        forward = bound(layernorm.forward, shape, channel, channel, shape, kept, kept, groups=groups)
        yield streaming_case("layernorm", f"forward, {what}", shape, 2, forward, None, by_torch, groups is None)
        shapes = shape, channel, kept, kept, shape, shape, channel, channel
        backward = bound(layernorm.backward, *shapes, space=space, groups=groups)
        yield streaming_case("layernorm", f"backward, {what}", shape, 5, backward)


def rmsnorm_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    shape = map_shape(gpu, quick)
    channel, kept, space = (shape[1],), layernorm.Sets.of("bench", shape, None).kept, rmsnorm.workspace_bytes(shape)

    def by_torch(x: Any, gamma: Any, *_: Any) -> Any:
        return torch.nn.functional.rms_norm(x.movedim(1, -1), channel, gamma, 1e-6).movedim(-1, 1).contiguous()

    forward = bound(rmsnorm.forward, shape, channel, shape, kept)
    yield streaming_case("rmsnorm", "forward", shape, 2, forward, None, by_torch, True)
    backward = bound(rmsnorm.backward, shape, channel, kept, shape, shape, channel, space=space)
    yield streaming_case("rmsnorm", "backward", shape, 5, backward)


def rotary_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    """In place, of one map whose values stay as they are: two thirds are read and written."""
    shape = (64 if gpu else 2) // (2 if quick else 1), 3 * 12 * 64, 1024, 1
    for what, neighbours in (("halves", False), ("neighbours", True)):
        turned = bound(lambda x, neighbours=neighbours: rotary.forward(x, x, heads=12, neighbours=neighbours), shape)
        yield streaming_case("rotary", f"forward, {what}, in place", shape, 4 / 3, turned, headline=not neighbours)
    back = bound(lambda dy: rotary.backward(dy, dy, heads=12), shape)
    yield streaming_case("rotary", "backward, in place", shape, 4 / 3, back)


def attention_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    """Of ViT-B/16 and, causal, of GPT-2: 12 heads of 64 channels."""
    images, heads, width = (64 if gpu else 1) // (4 if gpu and quick else 1), 12, 64
    for what, tokens, causal in (("ViT", 197, False), ("GPT-2", 256 if quick else 1024, True)):
        for pass_ in attention.MATRICES:
            yield attention_case(what, pass_, (images, 3 * heads * width, tokens, 1), heads, causal)


def attention_case(what: str, pass_: str, x_shape: tuple[int, ...], heads: int, causal: bool) -> Case:
    """One map of queries, keys and values; PyTorch's fused kernels beside, forward with no gradient to come."""
    how: dict[str, Any] = {"heads": heads, "causal": causal}
    images, channels, tokens, _ = x_shape
    shape = attention.AttentionShape.of("bench", [x_shape], heads, None, causal)
    one = images, heads, tokens, shape.width

    def prepare(device: Device) -> Prepared:
        x, dx, y = random(device, *x_shape), random(device, *x_shape), random(device, images, channels // 3, tokens, 1)
        made = {}
        for name in attention.ALGORITHMS:
            given = how | {"algorithm": name, "workspace": workspace(device, shape.workspace_bytes(pass_))}
            of_pass = (attention.forward, [x], y) if pass_ == "forward" else (attention.backward, [x], y, [dx])
            made[name] = bind(*of_pass, **given)
        by_torch = rivals.torch_attention(torch, pass_, causal) if torch is not None else None
        return made, beside(device, [random(device, *one) for _ in range(4)], None, by_torch)

    label = f"{pass_}, {'causal' if causal else 'all'}"
    return Case(
        "attention", label, f"{what} {times(images, heads, shape.width, tokens)}", "GFLOP/s",
        shape.flops(pass_, shape.pairs), prepare, pass_ == "forward",
    )  # fmt: skip


def probability_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    """GPT-2's attention with its probabilities as a map, causal: its products, and the rows of the map."""
    images, heads, width, tokens = (64 if gpu else 1) // (4 if gpu and quick else 1), 12, 64, 256 if quick else 1024
    keyed, values, squares = (
        (images, 2 * heads * width, tokens, 1), (images, heads * width, tokens, 1), (images, heads, tokens, tokens)
    )  # fmt: skip
    how: dict[str, Any] = {"heads": heads, "causal": True}
    work, what = 2 * images * heads * width * tokens * (tokens + 1) // 2, times(images, heads, width, tokens)
    made = (
        ("scores", "forward, causal", 1, (scores.forward, keyed, squares), how),
        ("scores", "softmax, causal", 0, (scores.softmax, squares), {"causal": True}),
        ("scores", "softmax's backward, causal", 0, (scores.softmax_backward, squares, squares), {"causal": True}),
        ("scores", "backward, causal", 2, (scores.backward, keyed, squares, keyed), how),
        ("mix", "forward, causal", 1, (mix.forward, squares, values, values), {"causal": True}),
        ("mix", "backward, causal", 2, (mix.backward, squares, values, values, squares, values), {"causal": True}),
    )
    for family, label, products, (function, *shapes), options in made:

        def prepare(device: Device, function: Any = function, shapes: Any = shapes, options: Any = options) -> Prepared:
            return {"": bind(function, *(random(device, *shape) for shape in shapes), **options)}, {}

        if products:
            yield Case(family, label, what, "GFLOP/s", products * work, prepare, products == 1)
        else:
            yield Case(family, label, what, "GB/s", 4 * math.prod(squares) * (len(shapes) + 1), prepare)


MAKERS = (
    gemm_cases,
    conv_cases,
    fc_cases,
    map_cases,
    concat_cases,
    pool_cases,
    upsample_cases,
    product_cases,
    batchnorm_cases,
    layernorm_cases,
    rmsnorm_cases,
    rotary_cases,
    attention_cases,
    probability_cases,
    moving_cases,
    token_cases,
)


def cases(device: Device, quick: bool = False, family: str | None = None) -> list[Case]:
    """All cases for this device, or those of one family, in the order of FAMILIES."""
    made = (case for maker in MAKERS for case in maker(device.kind == "gpu", quick))
    return sorted((case for case in made if family in (None, case.family)), key=lambda c: FAMILIES.index(c.family))
