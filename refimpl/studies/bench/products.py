"""Matrix products and convolutions of the bench, and what all its cases share: arrays, workspaces, rivals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kernels.checks.conv_shape import PASSES, ConvShape
from kernels.fast import conv, gemm
from kernels.targets.launch import KernelLaunch, bind
from refimpl.machine.devices import Device
from refimpl.studies.bench import rivals
from refimpl.studies.bench.kernels import Case, Rival

Shape = Sequence[int]
Prepared = tuple[Mapping[str, Sequence[KernelLaunch]], Mapping[str, Rival]]
torch = rivals.torch_or_none()


def filled(device: Device, shape: Shape, dtype: str = "float32", most: int = 1) -> Any:
    """An array of the device: normally distributed numbers, along one axis ones; whole numbers below `most`."""
    count = math.prod(shape)
    if dtype == "float32":
        few = min(count, 1 << 20)  # repeated in large arrays: drawing takes long
        some = np.random.default_rng(0).standard_normal(few, np.float32) if len(shape) > 1 else np.ones(few, np.float32)
        return device.array(np.resize(some, shape))
    # as in a text: some words come often
    ranks = np.arange(count) if len(shape) == 1 else np.random.default_rng(0).zipf(1.2, count)
    return device.array((ranks % most).astype(dtype).reshape(shape))


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
    x, y = filled(device, shape), filled(device, shape)
    run = partial(np.copyto, y, x) if device.kind == "cpu" else partial(y.copy_to_device, x)
    return {"copy": Rival(run, 8.0 * math.prod(shape))}


def times(*sizes: int) -> str:
    return "×".join(str(n) for n in sizes)


# -- gemm --------------------------------------------------------------------------------------------------------------


def gemm_case(what: str, m: int, n: int, k: int, algorithm: str, headline: bool) -> Case:
    def prepare(device: Device) -> Prepared:
        a, b, c = filled(device, (m, k)), filled(device, (k, n)), filled(device, (m, n))
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


# -- conv --------------------------------------------------------------------------------------------------------------


class Convolved(NamedTuple):
    """Convolutions of one size, padded so that a stride of 1 keeps the size of the maps."""

    what: str
    images: int
    channels: int
    side: int
    filters: int
    window: int = 3
    groups: int = 1
    stride: int = 1
    passes: tuple[str, ...] = PASSES
    algorithms: tuple[str, ...] = ()  #: a case each; none: one case, of whichever is the fastest
    headline: tuple[str, ...] = ()  #: of these algorithms
    layers: int = 1  #: how many a network has

    @property
    def shape(self) -> ConvShape:
        around, step = (self.window // 2,) * 2, (self.stride,) * 2
        filters = (self.filters, self.channels // self.groups, self.window, self.window)
        return ConvShape.of((self.images, self.channels, self.side, self.side), filters, step, around)


#: VGG-16's convolutions: name, channels, filters, height and width, how many layers are like this.
VGG16 = (
    ("conv1_1", 3, 64, 224, 1), ("conv1_2", 64, 64, 224, 1), ("conv2_1", 64, 128, 112, 1),
    ("conv2_2", 128, 128, 112, 1), ("conv3_1", 128, 256, 56, 1), ("conv3_2", 256, 256, 56, 2),
    ("conv4_1", 256, 512, 28, 1), ("conv4_2", 512, 512, 28, 2), ("conv5", 512, 512, 14, 3),
)  # fmt: skip
FASTER = ("implicit_gemm", "vector_direct")  #: of a CPU
DEPTHWISE = ("direct", "vector_direct")


def convolutions(gpu: bool, quick: bool) -> Iterator[Convolved]:
    """VGG-16's on a GPU, or those of a CPU; then in both places those of ResNet, MobileNet v2 and ResNeXt-50."""
    few = 1 if quick else 4
    if gpu:
        for name, channels, filters, side, layers in VGG16:
            passes = tuple(one for one in PASSES if (name, one) != ("conv1_1", "backward_data"))  # it has no use
            yield Convolved(f"VGG {name}", 4 if quick else 32, channels, side, filters, passes=passes, layers=layers)
    else:
        yield Convolved("", 2 * few if few > 1 else 1, 64, 56, 64, algorithms=(*conv.ALGORITHMS,), headline=FASTER)
        yield Convolved("8 channels", 64, 8, 32, 8, algorithms=FASTER, headline=FASTER)
        yield Convolved("32 channels", 64, 32, 8, 32, algorithms=FASTER)
        yield Convolved("7×7, stride 2", few, 3, 112, 64, 7, stride=2, algorithms=FASTER[1:])
        yield Convolved("3×3, stride 2", few, 128, 28, 128, stride=2, algorithms=FASTER[1:])
    images = 32 if gpu else 4
    for channels, side in ((64, 56), (256, 14)) if quick else ((64, 56), (128, 28), (256, 14), (512, 7)):
        square = Convolved(f"{channels} channels", images, channels, side, channels)
        yield square._replace(passes=("forward",), algorithms=("implicit_gemm", "winograd"))
    made = ("direct", "implicit_gemm") if gpu else ("direct", *FASTER)
    for name, channels, groups in (("depthwise", 144, 144), ("32 groups", 128, 32))[: 1 if quick else 2]:
        yield Convolved(name, images, channels, 56, channels, 3, groups, algorithms=made, headline=FASTER[1:])
    if not gpu and not quick:  # of networks of today: whichever of a CPU's algorithms is the fastest
        one = Convolved("depthwise 3×3, stride 2", 16, 144, 56, 144, 3, 144, 2, headline=DEPTHWISE)
        yield one
        for channels, side in ((240, 14), (576, 7)):
            yield Convolved("depthwise 5×5", 16, channels, side, channels, 5, channels, headline=DEPTHWISE)
        for channels, side in ((512, 14), (1024, 7)):
            yield Convolved("32 groups", 16, channels, side, channels, 3, 32, headline=FASTER[1:])


def conv_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    for one in convolutions(gpu, quick):
        every = one.headline or tuple(name for name in conv.ALGORITHMS if not conv_is_cpu_only(name))
        size = one.what if one.what.startswith("VGG") else times(*one.shape.x_shape) + " 3×3" * (not one.what)
        what = "" if one.what == size else one.what
        for pass_ in one.passes:
            label = f"{what}, {pass_}" if what else pass_
            if not one.algorithms:
                yield conv_case(label, size, pass_, one, every)
            for name in one.algorithms:
                yield conv_case(f"{label}, {name}", size, pass_, one, [name])


def conv_is_cpu_only(algorithm: str) -> bool:
    return getattr(conv.ALGORITHMS[algorithm], "CPU_ONLY", False)


def conv_case(what: str, size: str, pass_: str, one: Convolved, algorithms: Sequence[str]) -> Case:
    """One pass of one convolution; of several algorithms the fastest counts."""
    shape = one.shape

    def prepare(device: Device) -> Prepared:
        x, w, y = (filled(device, s) for s in (shape.x_shape, shape.w_shape, shape.y_shape))
        arrays = {"forward": (x, w, y), "backward_data": (y, w, x), "backward_filter": (x, y, w)}[pass_]
        ours = {name: conv_launches(device, pass_, shape, name, arrays) for name in algorithms}
        by_numpy, by_torch = rivals.NUMPY_CONV[pass_], partial(rivals.torch_conv, torch, pass_, shape)
        found = beside(device, arrays, partial(by_numpy, shape), by_torch, "cuDNN")
        return {name: launches for name, launches in ours.items() if launches}, found

    headline = not {*algorithms}.isdisjoint(one.headline)
    return Case("conv", what, size, "GFLOP/s", shape.flops, prepare, headline, one.layers)


def conv_launches(
    device: Device, pass_: str, shape: ConvShape, algorithm: str, arrays: Sequence[Any]
) -> list[KernelLaunch]:
    """The launches of one algorithm, for as many images at a time as the device's memory allows; none if it cannot."""
    if conv.ALGORITHMS[algorithm].why_not(pass_, shape) is not None:
        return []
    stride, pad, dilation = shape.walk
    how: dict[str, Any] = {"stride": stride, "pad": pad, "dilation": dilation, "algorithm": algorithm}

    def need(images: int) -> int:
        return conv.workspace_bytes(pass_, shape.x_shape, shape.w_shape, images=images, **how)

    images, limit = shape.images, device.free_bytes // 3
    while images > 1 and need(images) > limit:
        images = -(-images // 2)
    if need(images) > limit:
        return []
    given = (*arrays[:2], None, arrays[2]) if pass_ == "forward" else arrays
    return bind(getattr(conv, pass_), *given, workspace=workspace(device, need(images)), **how)
