"""The bench's cases: those of every kernel family, their sizes by device, and their rivals.

A laptop's two cores get sizes that take milliseconds, a GPU those of a real network.  `LAYERS` is a table of layers:
each is built as a network has it, and its calls say what is launched, on which arrays, and how many bytes must move at
least; PyTorch's twin of the layer is the rival.  Products of matrices and convolutions are in `products`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kernels import adamw, clip
from kernels.fast import elementwise, fc, sgd
from kernels.targets.launch import bind
from refimpl.machine.catalogues import options
from refimpl.machine.cpu_model import SETTINGS, launches
from refimpl.machine.devices import Device
from refimpl.network import Builder, Conventions, Layer, Tensor
from refimpl.network.call import Call, Setting
from refimpl.network.kinds import TRAITS
from refimpl.studies.bench import rivals
from refimpl.studies.bench.kernels import Case, Rival
from refimpl.studies.bench.products import (
    Prepared,
    Shape,
    beside,
    conv_cases,
    filled,
    gemm_cases,
    plain_copy,
    times,
    torch,
    workspace,
)

#: The element-wise kinds of layers beside the ReLU.
ACTIVATIONS = tuple(kind for kind, traits in TRAITS.items() if traits.elementwise and kind != "relu")

FAMILIES = (
    "gemm", "conv", "fc", "pool", "upsample", "relu", *ACTIVATIONS, "mul", "scale", "lrn", "batchnorm", "layernorm",
    "rmsnorm", "rotary", "attention", "scores", "mix", "dropout", "drop_path", "channel_shuffle",
    "permute_channels", "take", "pad", "prepend", "embedding", "position",
    "softmax", "pixel_softmax", "mean_loss", "concat", "join", "elementwise", "sgd", "adamw", "clip", "launch",
)  # fmt: skip


# -- layers ------------------------------------------------------------------------------------------------------------


class BenchSizes(NamedTuple):
    """The table of sizes: what layers read."""

    maps: Shape
    inputs: Shape  #: of the fully connected layer
    tokens: Shape
    embedded: Shape
    words: int
    attended: Shape  #: GPT-2's queries, keys and values; ViT-B/16's
    images: Shape
    packed: Shape
    rows: Shape = (4096, 1000, 1, 1)
    pixels: Shape = (4, 21, 128, 128)
    outputs: int = 4096

    @classmethod
    def of(cls, gpu: bool, quick: bool) -> BenchSizes:
        """Maps take 26 MB on a CPU (more than its cache), 411 MB on a GPU."""
        n, c, h, w = (32, 256, 112, 112) if gpu else (32, 64, 56, 56)
        many, windows = (64 if gpu else 1) // (4 if gpu and quick else 1), 8 if gpu else 2
        return cls(
            maps=(n // 4 if quick else n, c, h, w), inputs=(32, 25088 if gpu else 4096, 1, 1),
            tokens=(windows, 1024), embedded=(windows, 768, 1024, 1), words=5003 if quick else 50257,
            attended=(many, 3 * 768, 256 if quick else 1024, 1), images=(many, 3 * 768, 197, 1),
            packed=((64 if gpu else 2) // (2 if quick else 1), 3 * 768, 1024, 1),
            rows=(65536 if gpu else 4096, 1000, 1, 1), outputs=1024 if quick else 4096,
        )  # fmt: skip


class OneLayer(NamedTuple):
    """A layer of the table: how it is added to a network whose input is of a size, with the words for it."""

    add: Callable[[Builder, BenchSizes], object]
    reads: str = "maps"  #: a field of `BenchSizes`
    what: str = ""
    headline: bool = True  #: its forward is in the short table of the pages


def gate(b: Builder, sizes: BenchSizes) -> object:
    x = b.conv(sizes.maps[1], 1)
    return b.mul(x, b.conv(sizes.maps[1], 1, after=b.global_pool(after=x)))


def two(b: Builder, sizes: BenchSizes) -> tuple[Any, Any]:
    x = b.conv(sizes.maps[1], 1)
    return x, b.conv(sizes.maps[1], 1)


def parts(b: Builder, sizes: BenchSizes) -> object:
    quarter = b.conv(sizes.maps[1] // 4, 1)
    return b.concat(quarter, b.conv(sizes.maps[1] - sizes.maps[1] // 4, 1))


def mixed(b: Builder, sizes: BenchSizes) -> object:
    values = b.conv(768, 1)
    return b.mix(b.scores(12, causal=True, after=b.conv(2 * 768, 1)), values)


def activation(kind: str, form: Mapping[str, Any]) -> OneLayer:
    said = ", ".join(f"{name}={value}" for name, value in form.items())
    return OneLayer(lambda b, s: getattr(b, kind)(**form), what=said)


LAYERS = (
    OneLayer(lambda b, s: b.fc(s.outputs), "inputs"),
    OneLayer(lambda b, s: b.pool(2, 2), what="max 2×2"),
    OneLayer(lambda b, s: b.pool(3, 2, pad=1), what="max 3×3", headline=False),
    OneLayer(lambda b, s: b.pool(2, 2, mode="average"), what="average 2×2", headline=False),
    OneLayer(lambda b, s: (b.pool(2, 2), b.upsample(2)), what="nearest", headline=False),
    OneLayer(lambda b, s: (b.pool(2, 2), b.upsample(2, mode="bilinear")), what="bilinear"),
    OneLayer(lambda b, s: b.relu()),
    *(activation(kind, form) for kind in ACTIVATIONS for form in TRAITS[kind].forms),
    OneLayer(gate, what="a gate"),
    OneLayer(lambda b, s: b.mul(*two(b, s)), what="one shape", headline=False),
    OneLayer(lambda b, s: b.scale(), headline=False),
    OneLayer(lambda b, s: b.lrn(), what="5 channels"),
    OneLayer(lambda b, s: b.batchnorm(), what="training"),
    OneLayer(lambda b, s: b.layernorm(), what="layer"),
    OneLayer(lambda b, s: b.groupnorm(32), what="group, 32", headline=False),
    OneLayer(lambda b, s: b.rmsnorm()),
    OneLayer(lambda b, s: b.rotary(12), "packed", "halves"),
    OneLayer(lambda b, s: b.rotary(12, neighbours=True), "packed", "neighbours", headline=False),
    OneLayer(lambda b, s: b.attention(12), "images", "all"),
    OneLayer(lambda b, s: b.attention(12, causal=True), "attended", "causal"),
    OneLayer(lambda b, s: (b.conv(2 * 768, 1), b.scores(12, causal=True)), "attended", "causal"),
    OneLayer(mixed, "attended", "causal"),
    OneLayer(lambda b, s: b.dropout()),
    OneLayer(lambda b, s: b.drop_path(0.2), headline=False),
    OneLayer(lambda b, s: b.channel_shuffle(2), headline=False),
    OneLayer(lambda b, s: b.permute_channels([*range(s.maps[1])][::-1]), headline=False),
    OneLayer(lambda b, s: b.take(s.maps[1] // 2), headline=False),
    OneLayer(lambda b, s: b.pad(1), headline=False),
    OneLayer(lambda b, s: b.prepend(), headline=False),
    OneLayer(lambda b, s: b.embedding(s.words, 768), "tokens"),
    OneLayer(lambda b, s: b.position(), "embedded"),
    OneLayer(lambda b, s: b.softmax(), "rows"),
    OneLayer(lambda b, s: b.pixel_softmax(), "pixels", "21 classes"),
    OneLayer(lambda b, s: b.mean_squared_error(), "pixels", "squared", headline=False),
    OneLayer(lambda b, s: b.binary_cross_entropy(), "pixels", "binary", headline=False),
    OneLayer(parts, what="two"),
    OneLayer(lambda b, s: b.join(*two(b, s)), what="two"),
)  # fmt: skip

#: Maps of the layer's size that a function's kernels read twice, as a sum comes before their use.
READ_TWICE = {"batchnorm.forward": 1, "batchnorm.backward": 2, "layernorm.backward": 2, "rmsnorm.backward": 2}

#: Function → what NumPy has for it, of the call's arrays by name.
BY_NUMPY: Mapping[str, Callable[..., Any]] = {
    "fc.forward": lambda b, x, w, y: np.add(np.matmul(x.reshape(len(x), -1), w.T, out=y), b, out=y),
    "fc.backward_data": lambda dy, w, dx: np.matmul(dy, w, out=dx.reshape(len(dx), -1)),
    "fc.backward_filter": lambda x, dy, dw: np.matmul(dy.T, x.reshape(len(x), -1), out=dw),
    "relu.forward": lambda x, y: np.maximum(x, 0, out=y),
    "relu.backward": lambda y, dy, dx: np.multiply(y > 0, dy, out=dx),
    "mul.forward": lambda x, gate, y: np.multiply(x, gate, out=y),
    "join.forward": lambda inputs, y: np.add(inputs[0], inputs[1], out=y),
    "concat.forward": lambda inputs, y: np.concatenate(inputs, axis=1, out=y),
    "position.forward": lambda x, w, y: np.add(x, w, out=y),
    "position.backward": lambda dy, dw: np.sum(dy, axis=0, out=dw),
}

#: No rivals: twins that compute in a way that no user of PyTorch would, and what PyTorch answers by a view.
NO_RIVAL = (
    "rotary", "scores", "mix", "drop_path", "permute_channels", "mean_loss", "softmax.backward",
    "pixel_softmax.backward", "take", "concat.backward", "join.backward", "prepend.backward",
)  # fmt: skip


def layer_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    """A case for each call of each layer of the table: forward, backward, and inference where it is another call."""
    sizes = BenchSizes.of(gpu, quick)
    for one in LAYERS:
        alone = Conventions(relu_in_place=False, input_gradient=True)
        b = Builder("bench", getattr(sizes, one.reads), alone, "int32" if one.reads == "tokens" else "float32")
        one.add(b, sizes)
        layer = b.last
        if layer.traits.work != "loss":
            b.fc(1)
            b.softmax()
        network = b.build()
        steps = [step for step in (*network.steps, *network.inference().steps) if step.layer.name == layer.name]
        measured = {call.function: call for step in steps for call in step.calls if is_measured(call)}
        yield from (layer_case(one, layer, call, sizes) for call in measured.values())


def is_measured(call: Call) -> bool:
    """Neither updates of weights nor what takes a number a channel or an image."""
    wanted = ("forward", "inference", "softmax", "backward", "backward_data", "backward_filter", "softmax_backward")
    return call.function.partition(".")[2] in wanted and call.family not in ("sgd", "elementwise")


def layer_case(one: OneLayer, layer: Layer, call: Call, sizes: BenchSizes) -> Case:
    """One call, bound to arrays of its own for each argument."""
    family, _, name = call.function.partition(".")
    largest = max(call.operands, key=lambda tensor: tensor.nbytes)
    by_arithmetic = call.flops > 0 and family != "fc"
    if call.function == "embedding.forward":
        largest = layer.y

    def prepare(device: Device) -> Prepared:
        make = partial(filled, device, most=sizes.words if family == "embedding" else layer.shape[1])

        def given(value: Any) -> Any:
            if isinstance(value, Tensor):
                return make(value.shape, value.dtype)
            if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
                return [given(part) for part in value]
            return SETTINGS[value.name] if isinstance(value, Setting) else value

        arguments = {name: given(value) for name, value in call.arguments.items()}
        found: dict[str, Rival] = {}
        if call.function in BY_NUMPY and device.kind == "cpu":
            found["NumPy"] = Rival(partial(BY_NUMPY[call.function], **arguments))
        if (
            torch is not None
            and not call.function.startswith(NO_RIVAL)
            and (device.kind == "cpu" or torch.cuda.is_available())
        ):
            found |= by_twin(device, make, layer, call)
        if not by_arithmetic:
            found |= plain_copy(device, largest.shape)
        if call.choosable:
            chosen = max(options("own", call), key=lambda option: option.workspace_bytes)
            arguments |= {"algorithm": chosen.algorithm, "workspace": workspace(device, chosen.workspace_bytes)}
        elif family == "fc":
            space = fc.workspace_bytes(name, layer.x.shape, layer.parameters["w"].weight.shape)
            arguments |= {"workspace": workspace(device, space)}
        return {arguments.get("algorithm", family): launches(call.function, arguments)}, found

    amount, unit = (call.flops, "GFLOP/s") if by_arithmetic else (least_bytes(layer, call), "GB/s")
    label = ", ".join(filter(None, (name, one.what)))
    return Case(family, label, times(*largest.shape), unit, amount, prepare, one.headline and name == "forward")


def least_bytes(layer: Layer, call: Call) -> int:
    """What a call has to move."""
    if call.function == "embedding.forward":  # a row of the table for each token, and not all rows
        return 2 * layer.y.nbytes
    if call.function == "pool.backward" and layer.options["mode"] == "average":  # of the gradients alone
        return layer.x.nbytes + layer.y.nbytes
    return call.nbytes + READ_TWICE.get(call.function, 0) * layer.x.nbytes


def by_twin(device: Device, make: Callable[..., Any], layer: Layer, call: Call) -> dict[str, Rival]:
    """PyTorch's twin of the layer; of a backward call, its gradients of what that call writes."""
    from refimpl.studies.bench.pytorch_twins import by_torch

    if layer.kind == "attention":  # of queries, keys and values as PyTorch has them, each a tensor of its own
        images, channels, tokens, _ = layer.y.shape
        one = images, layer.options["heads"], tokens, channels // layer.options["heads"]
        attend = rivals.torch_attention(torch, call.function.partition(".")[2], layer.options["causal"])
        return beside(device, [make(one, "float32") for _ in range(4)], None, attend)

    def tensor(of: Tensor) -> Any:
        return device.tensor(torch, make(of.shape, of.dtype))

    weights = {one.weight: tensor(one.weight) for one in layer.parameters.values()}
    maps = [tensor(x) for x in layer.inputs]
    if layer.traits.loss:  # whose twin is what PyTorch's loss reads
        return {"PyTorch": Rival(partial(torch.softmax, maps[0], 1))}
    state = {one.name: value for one, value in weights.items()}
    state |= {one.name: tensor(one) for one in layer.statistics.values()}
    if "backward" not in call.function:
        return {"PyTorch": Rival(partial(by_torch, layer, maps, state))} if call.function.endswith("forward") else {}
    gradients = {layer.parameters[name].gradient: weights[layer.parameters[name].weight] for name in layer.parameters}
    wanted = [value for gradient, value in gradients.items() if gradient in call.writes]
    if layer.inputs[0].dtype == "float32" and not call.function.endswith("_filter"):
        wanted += maps
    dy = tensor(layer.y)
    made: list[Any] = []  # forward runs once, before anything is timed

    def run() -> Any:
        if not made:
            for value in wanted:
                value.requires_grad_()
            made.append(by_torch(layer, maps, state))
        return torch.autograd.grad(made[0], wanted, dy.reshape(made[0].shape), retain_graph=True)

    return {"PyTorch": Rival(run)}


# -- other calls -------------------------------------------------------------------------------------------------------


def other_cases(gpu: bool, quick: bool) -> Iterator[Case]:
    """What no layer calls by itself: filling, copying and adding, and the optimisers' updates."""
    one, weights = BenchSizes.of(gpu, quick).maps, (4096, 25088 if gpu else 1024)
    case = partial(other_case, "elementwise")
    yield case("fill", partial(elementwise.fill, value=0.0), [one], lambda x: x.fill(0), lambda x: x.zero_())
    yield case("copy", elementwise.copy, [one] * 2, lambda x, y: np.copyto(y, x), lambda x, y: y.copy_(x), True)
    yield case(
        "axpy", partial(elementwise.axpy, 0.5), [one] * 2,
        lambda x, y: np.add(y, np.float32(0.5) * x, out=y), lambda x, y: y.add_(x, alpha=0.5), moved=3,
    )  # fmt: skip
    step = partial(sgd.update, rate=1e-3, momentum=0.9, decay=1e-4)
    yield other_case("sgd", "momentum and decay", step, [weights] * 3, headline=True, moved=5)
    step = partial(adamw.update, iteration=3, rate=1e-3, decay=1e-2)
    yield other_case("adamw", "update", step, [weights] * 4, headline=True, moved=7)
    yield other_case("clip", "apply", partial(clip.apply, max_norm=1.0), [(1,), weights])


def other_case(
    family: str, what: str, function: Callable[..., Any], shapes: Sequence[Shape],
    by_numpy: Callable[..., Any] | None = None, by_torch: Callable[..., Any] | None = None,
    headline: bool = False, moved: int = 0,
) -> Case:  # fmt: skip
    """A function of arrays of these shapes; `moved`: how many are read or written, where one is both."""

    def prepare(device: Device) -> Prepared:
        arrays = [filled(device, shape) for shape in shapes]
        found = beside(device, arrays, by_numpy, by_torch) | plain_copy(device, shapes[-1])
        return {family: bind(function, *arrays)}, found

    amount = 4.0 * (moved or len(shapes)) * math.prod(shapes[-1])
    return Case(family, what, times(*shapes[-1]), "GB/s", amount, prepare, headline)


def cases(device: Device, quick: bool = False, family: str | None = None) -> list[Case]:
    """All cases for this device, or those of one family, in the order of FAMILIES."""
    makers = (gemm_cases, conv_cases, layer_cases, other_cases)
    made = (case for maker in makers for case in maker(device.kind == "gpu", quick))
    return sorted((case for case in made if family in (None, case.family)), key=lambda c: FAMILIES.index(c.family))
