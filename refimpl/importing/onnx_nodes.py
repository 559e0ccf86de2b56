"""Networks from ONNX files: each operator that we understand has a small function; the table at the end has them all.

An optional input may be absent, an attribute may have its default, and newer files have inputs where older ones have
attributes; `Call` hides the difference.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from refimpl.importing import graph, onnx_parts
from refimpl.importing.graph import Translated, cleaned, translated
from refimpl.importing.nodes import Graph, Node, Unsupported
from refimpl.importing.onnx_file import OnnxFile, label
from refimpl.network.first_values import FirstValues
from refimpl.network.layer import NetworkError
from refimpl.text import counted


def graph_of_file(path: str) -> Graph:
    """The file's graph in our operations."""
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        raise NetworkError(f"there is no file {path}") from None
    return _graph(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=1)  # a search plans one network at many batches
def _graph(path: str, *changes: int) -> Graph:
    return graph_of(OnnxFile(path))


def graph_of(file: OnnxFile) -> Graph:
    name, batch, shapes = file.shapes()
    translation = _OnnxTranslation(file, batch, shapes)
    translation.names[name] = ""
    nodes = [made for node in file.graph.node for made in translation.nodes(node)]
    outputs = [translation.names[value.name] for value in file.graph.output if value.name in translation.names]
    return Graph(file.name, "ONNX", "", shapes[name], nodes, outputs, file.dtype, file.path)


class _OnnxTranslation:
    def __init__(self, file: OnnxFile, batch: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.file, self.batch, self.shapes = file, batch, shapes
        self.names: dict[str, str] = {}  #: value → our node that computes it
        self.made: dict[str, Node] = {}  #: value → that node
        self.nodes_by_name: dict[str, Node] = {}
        self.makers = {name: node for node in file.graph.node for name in node.output}
        self.order = {name: place for place, node in enumerate(file.graph.node) for name in node.output}
        self.readers = Counter(name for node in file.graph.node for name in node.input)
        file.constants.learn(shapes, batch)

    def nodes(self, node: Any) -> Iterator[Node]:
        """A node in our operations, one for each output; none where it computes no map, but a shape or an axis."""
        for number, output in enumerate(node.output if node.op_type == "Split" else node.output[:1]):
            call = OnnxCall(self, node, number)
            if call.inputs and node.op_type not in OF_SHAPES:
                name = f"{label(node)}.{number}" if number else label(node)
                whole = onnx_parts.one_layer(call)
                operator = OPERATORS.get(node.op_type) if whole is None else (lambda call, whole=whole: whole)
                made = translated(name, node.op_type, operator, call)
                self.names[output], self.made[output] = made.name, made
                self.nodes_by_name[made.name] = made
                yield made


class OnnxCall(graph.OperatorCall):
    """One node: its attributes and its inputs; of several outputs one has this number."""

    def __init__(self, translation: _OnnxTranslation, node: Any, number: int = 0) -> None:
        self.of, self.node, self.number = translation, node, number
        get = translation.file.onnx.helper.get_attribute_value
        self.attributes = {attribute.name: get(attribute) for attribute in node.attribute}
        self.inputs = [translation.names[name] for name in node.input if name in translation.names]
        self.whole = translation.shapes.get(node.output[number], ()) if node.output else ()
        self.images = translation.batch

    def shape_of_input(self) -> tuple[int, ...]:
        return self.of.shapes.get(self.node.input[0], ())

    def channels(self) -> int:
        """Of the maps that the first input is, or is a view of."""
        name = self.node.input[0]
        while (maker := self.of.makers.get(name)) is not None and maker.op_type in RESHAPES:
            name = maker.input[0]
        return [*self.of.shapes.get(name, ()), 0, 0][1]

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute; a text is decoded."""
        value = self.attributes.get(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def pair(self, name: str, default: int) -> tuple[int, int]:
        """One whole number of at least 1 for each axis; of rows alone, one column."""
        values = [*self.attribute(name, (default, default))]
        if len(values) == 1 and len(self.shape_of_input()) == 3:
            values += [1]
        if len(values) != 2 or min(values) < 1:
            raise Unsupported(f"{name} is {list(values)}; two numbers of at least 1 are supported")
        return int(values[0]), int(values[1])

    def optional(self, place: int) -> str:
        """The name of an input, which may be absent."""
        return self.node.input[place] if len(self.node.input) > place else ""

    def numbers(self, attribute: str, place: int) -> list[float] | None:
        """Numbers that are an attribute or, in newer files, an input."""
        if attribute in self.attributes:
            value = self.attributes[attribute]
            return [float(one) for one in (value if isinstance(value, Sequence) else [value])]
        name = self.optional(place)
        if not name:
            return None
        found = self.of.file.numbers(name)
        if found is None:
            raise Unsupported(f"its {attribute} is computed; only a constant is supported")
        return found

    def one_number(self, place: int) -> float | None:
        """An input that is a constant of one number; None: it is something else."""
        name = self.optional(place)
        tensor, found = self.of.file.weights.get(name), None
        if tensor is not None and len(tensor.dims) == 1 and list(tensor.dims) != [1]:
            return None
        with suppress(NetworkError):
            found = self.of.file.numbers(name)
        return found[0] if found is not None and len(found) == 1 else None

    def weight(self, place: int, transposed: bool = False) -> FirstValues:
        return self.weight_named(self.optional(place), transposed)

    def weight_named(self, name: str, transposed: bool = False) -> FirstValues:
        tensor = self.of.file.weights.get(name)
        if tensor is None:
            raise Unsupported(f"its input {cleaned(name)} is computed; only a weight of the file is supported")
        if table := self.of.file.turned_tables.get(name):
            return self.weight_named(table, not transposed)
        values = self.of.file.values(tensor)
        first = FirstValues(tensor.name, np.array(values, order="C"))
        return first.moved(np.transpose) if transposed else first

    def padding(self, window: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]) -> tuple[int, ...]:
        """Top, left, bottom, right."""
        how = self.attribute("auto_pad", "NOTSET")
        if how == "NOTSET":
            pads = tuple(int(pad) for pad in self.attribute("pads", (0, 0, 0, 0)))
            if len(pads) == 2 and len(self.shape_of_input()) == 3:
                pads = pads[0], 0, pads[1], 0
            if len(pads) != 4:
                raise Unsupported(f"pads is {list(pads)}; four numbers are supported")
            return pads
        if how == "VALID":
            return 0, 0, 0, 0
        before, after = [], []
        for size, k, s, d in zip((*self.shape_of_input()[2:], 1)[:2], window, stride, dilation, strict=True):
            total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
            less, more = total // 2, total - total // 2
            before.append(less if how == "SAME_UPPER" else more)
            after.append(more if how == "SAME_UPPER" else less)
        return *before, *after


# -- the operators: what each is here, its attributes, its weights -----------------------------------------------------


def _conv(call: OnnxCall) -> Translated:
    weights = {"w": call.weight(1).as_columns()} | ({"b": call.weight(2)} if call.optional(2) else {})
    window = weights["w"].values.shape[2:]
    if len(window) != 2:
        raise Unsupported(f"a convolution over {counted(len(window), 'axis')} is not supported, only over one or two")
    stride, dilation = call.pair("strides", 1), call.pair("dilations", 1)
    pad = call.padding(window, stride, dilation)
    how = {"stride": stride, "pad": pad, "dilation": dilation, "groups": int(call.attribute("group", 1))}
    return "conv", how, weights


def _conv_transpose(call: OnnxCall) -> Translated:
    call.require(auto_pad="NOTSET", output_shape=None)
    weights = {"w": call.weight(1).as_columns()} | ({"b": call.weight(2)} if call.optional(2) else {})
    if weights["w"].values.ndim != 4:
        raise Unsupported("a transposed convolution is supported over one or two axes only")
    more = [*call.attribute("output_padding", (0, 0))]
    more += [0] if len(more) == 1 else []
    if len(more) != 2:
        raise Unsupported(f"output_padding is {more}; two numbers are supported")
    how = {"stride": call.pair("strides", 1), "dilation": call.pair("dilations", 1), "out_pad": tuple(map(int, more))}
    pad = call.padding((1, 1), (1, 1), (1, 1))
    return "conv_transpose", how | {"pad": pad, "groups": int(call.attribute("group", 1))}, weights


def _gemm(call: OnnxCall) -> Translated:
    call.require(transA=0, alpha=1.0, beta=1.0)
    weights = {"w": call.weight(1, transposed=not call.attribute("transB", 0))}
    if call.optional(2):
        weights["b"] = call.weight(2)
    return "linear", {}, weights


def _matmul(call: OnnxCall) -> Translated:
    if len(call.inputs) == 2:
        return onnx_parts.attention(call)
    return "linear", {}, {"w": call.weight(1, transposed=True)}


def _add(call: OnnxCall) -> Translated:
    """The sum of maps, or the bias of the linear layer or the normalisation of groups before it."""
    given = list(call.node.input)
    constant = [place for place, name in enumerate(given) if name in call.of.file.weights]
    if len(constant) == 1 and len(given) == 2:
        before = given[1 - constant[0]]
        linear = call.of.made.get(before)
        if linear and linear.operation == "linear" and "b" not in linear.weights and call.of.readers[before] == 1:
            linear.weights["b"] = call.weight(constant[0])
            return "identity", {}
        scaled = linear and linear.operation == "scale" and call.of.readers[before] == 1
        if linear and scaled and (made := _of_groups(call, linear, constant[0])):
            return made
    if len(constant) == len(call.inputs) == 1 and len(given) == 2:
        return "position", {}, {"w": call.weight(constant[0])}
    if len(call.inputs) < len(given):
        raise Unsupported("an addition of a number is not supported, only of two maps or of a weight")
    return "add", {}


def _stochastic_depth(call: OnnxCall, factors: Sequence[str]) -> Translated | None:
    """Maps times a number an image that is drawn, as PyTorch's exporter writes it: random < p, over p."""
    chain: list[Any] = []
    for operator in ("Div", "Cast", "Less", "RandomUniformLike"):
        node = call.of.makers.get(chain[-1].input[0] if chain else "".join(factors))
        if node is None or node.op_type != operator:
            return None
        chain.append(node)
    scale, _, less, _ = chain
    (stays, over), shape = (call.of.file.numbers(node.input[1]) for node in (less, scale)), call.of.shapes[factors[0]]
    if not stays or stays != over or shape != (call.of.batch, *(1 for _ in shape[1:])):
        raise Unsupported(f"drawn numbers of shape {list(shape)} are supported as stochastic depth of images only")
    return "drop_path", {"probability": round(1 - _short(stays[0]), 6)}


def _mul(call: OnnxCall) -> Translated:
    """Two maps, maps and a number a channel, or what is SiLU or hard Swish in one, as PyTorch's exporters write it."""
    given, file = list(call.node.input), call.of.file
    constant = [place for place, name in enumerate(given) if name in file.weights]
    others = [place for place, name in enumerate(given) if name not in call.of.names]
    if len(others) == len(call.inputs) == 1 and (number := call.one_number(others[0])) not in (None, 1.0):
        return "times", {"by": number}
    if len(constant) == 1 and len(call.inputs) == 1:
        weight = call.weight(constant[0])
        return graph.with_factor(call, call.of.nodes_by_name, weight) or graph.scaled(call, weight)
    if len(call.inputs) == 1 and (drawn := _stochastic_depth(call, [x for x in given if x not in call.of.names])):
        return drawn
    if len(call.inputs) < 2 or given[0] == given[1]:
        raise Unsupported  # a square, or a multiplication by a number: no operator of ours
    for x, gate in (given, given[::-1]):
        made = call.of.made.get(gate)
        if made and made.operation in graph.GATED and call.of.makers[gate].input[0] == x:
            call.inputs = [call.of.names[x]]
            return graph.GATED[made.operation], {}
    return "mul", {}


def _clip(call: OnnxCall) -> Translated:
    limits = call.numbers("min", 1), call.numbers("max", 2)
    low, high = (None if numbers is None else numbers[0] for numbers in limits)
    call.inputs = call.inputs[:1]
    return graph.limited(low, None if high is None or high > 3e38 else high)


def _pool(mode: str) -> Callable[[OnnxCall], Translated]:
    def translated(call: OnnxCall) -> Translated:
        window, stride, dilation = call.pair("kernel_shape", 1), call.pair("strides", 1), call.pair("dilations", 1)
        if dilation != (1, 1):
            raise Unsupported("a dilated pooling is not supported")
        pad = call.padding(window, stride, dilation)
        if window == stride == (1, 1) and not any(pad):  # an exporter's pooling to the size that the maps have
            return "identity", {}
        how = {
            "mode": mode,
            "window": window,
            "stride": stride,
            "pad": pad,
            "ceil": bool(call.attribute("ceil_mode", 0)),
        }
        if mode == "average":
            how["count_padding"] = bool(call.attribute("count_include_pad", 0)) or not any(pad)
        return "pool", how

    return translated


def _global(call: OnnxCall) -> Translated:
    """Over all positions, or over the axes that a reduction is given."""
    reduces = call.node.op_type.startswith("Reduce")
    axes = (call.numbers("axes", 1) or []) if reduces else None
    call.inputs = call.inputs[:1]
    return "global_pool", {"mode": "max" if call.node.op_type.endswith(("Max", "MaxPool")) else "average", "axes": axes}


#: Of a Resize, by its mode: how it may find positions, and how it may round them.  Where maps grow by whole factors all
#: of these are one rule.
NEAREST = {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")}
LINEAR = {"half_pixel": False, "pytorch_half_pixel": False, "align_corners": True}


def _resize(call: OnnxCall) -> Translated:
    mode, how = call.attribute("mode", "nearest"), call.attribute("coordinate_transformation_mode", "half_pixel")
    rounding, scales = call.attribute("nearest_mode", "round_prefer_floor"), call.numbers("scales", 2)
    call.inputs = call.inputs[:1]
    call.require(antialias=0)
    before, out = call.shape_of_input()[2:], call.shape[-2:]
    whole = len(before) == len(out) == 2 and not any(large % small for large, small in zip(out, before, strict=True))
    if mode == "linear" and how in LINEAR and (how != "pytorch_half_pixel" or 1 not in out):
        return graph.upsampled(call, "bilinear", LINEAR[how], scales[-2:] if scales else None)
    if mode == "nearest" and (how, rounding) in NEAREST and (whole or how == "asymmetric"):
        return graph.upsampled(call, "nearest", False, scales[-2:] if scales else None)
    raise Unsupported(f"a resize with mode={mode}, {how} and {rounding} is not supported as it is in PyTorch")


def _batchnorm(call: OnnxCall) -> Translated:
    call.require(spatial=1)
    names = ("gamma", "beta", "running_mean", "running_variance")
    how = {
        "momentum": round(1 - call.attribute("momentum", 0.9), 6),  # the share that stays, here that of the new
        "epsilon": _short(call.attribute("epsilon", 1e-5)),
    }
    return "batchnorm", how, {name: call.weight(place) for place, name in enumerate(names, 1)}


def _set_norm(call: OnnxCall) -> Translated:
    """A layer, group or instance normalisation."""
    whole, of = call.shape_of_input(), call.node.op_type
    given = {"GroupNormalization": int(call.attribute("num_groups", 1)), "InstanceNormalization": [*whole, 0, 0][1]}
    groups = given.get(of)
    call.require(axis=-1 if call.attribute("axis", -1) == -1 else len(whole) - 1)
    weights = {name: call.weight(place) for place, name in ((1, "gamma"), (2, "beta")) if call.optional(place)}
    if of == "InstanceNormalization" and groups != call.channels() and _does_nothing(weights):
        weights = {}  # groups of channels, as PyTorch's exporters write them
    return graph.normalised(call, _short(call.attribute("epsilon", 1e-5)), weights, groups)


def _does_nothing(weights: Mapping[str, FirstValues]) -> bool:
    """Whether the factors of a normalisation are 1, and the summands 0."""
    return all((weight.values == (1 if name == "gamma" else 0)).all() for name, weight in weights.items())


def _of_groups(call: OnnxCall, scale: Node, constant: int) -> Translated | None:
    """The factors and summands of the channels after a normalisation of groups of them, which has none: its own."""
    before = call.of.nodes_by_name[scale.inputs[0]]
    while before.operation == "view":
        before = call.of.nodes_by_name[before.inputs[0]]
    if before.operation != "groupnorm" or not _does_nothing(before.weights):
        return None
    beta = call.weight(constant)
    if beta.values.size != scale.weights["w"].values.size:
        return None
    weights = {"gamma": scale.weights["w"], "beta": beta.moved(lambda values: values.reshape(-1))}
    if beta.values.size > 1 or not _does_nothing(weights):  # one factor for all channels: none in PyTorch
        before.weights = weights
        before.attributes.pop("affine", None)
    scale.operation, scale.attributes, scale.weights = "identity", {}, {}
    return "identity", {}


def _rms_norm(call: OnnxCall) -> Translated:
    call.require(axis=-1 if call.attribute("axis", -1) == -1 else len(call.shape_of_input()) - 1)
    return "rmsnorm", {"epsilon": _short(call.attribute("epsilon", 1e-5))}, {"gamma": call.weight(1)}


def _transpose(call: OnnxCall) -> Translated:
    axes = [*range(len(call.shape_of_input()))]
    return graph.permuted([int(axis) for axis in call.attribute("perm", axes[::-1])])


def _lrn(call: OnnxCall) -> Translated:
    size = int(call.attribute("size", 0))
    how = {"size": size, "ahead": size // 2, "alpha": _short(call.attribute("alpha", 1e-4))}
    return "lrn", how | {"beta": _short(call.attribute("beta", 0.75)), "k": _short(call.attribute("bias", 1.0))}


def _divide(call: OnnxCall) -> Translated:
    """x / (k + alpha · mean of the squares in a window of channels)^beta, as PyTorch's exporters spell it out."""
    x, below = call.node.input
    if x in call.of.names and below not in call.of.names and (number := call.one_number(1)):
        return "times", {"by": 1 / number}
    chain: list[Any] = []
    refused = Unsupported()  # any other division is no operator of ours
    for operator in LRN:
        node = call.of.makers.get(below)
        while node is not None and node.op_type in RESHAPES:
            node = call.of.makers.get(node.input[0])
        if node is None or node.op_type != operator:
            raise refused
        chain.append(node)
        below = node.input[0]
    power, sum_, scaled, mean, padded, square = (OnnxCall(call.of, node) for node in chain)
    images, *shape = call.of.shapes.get(x, (0,))
    size = int([*mean.attribute("kernel_shape", []), 0][0])
    around = [0, 0, size // 2, 0, 0, 0, 0, (size - 1) // 2, 0, 0]
    exponent, k, alpha = (call.of.file.numbers(one.optional(1)) or [] for one in (power, sum_, scaled))
    if (
        [*square.node.input] != [x, x]
        or padded.shape_of_input() != (images, 1, *shape)
        or padded.numbers("pads", 1) != around
        or padded.numbers("value", 2) not in (None, [], [0.0])
        or padded.attribute("mode", "constant") != "constant"
        or mean.attribute("kernel_shape", []) != [size, 1, 1]
        or any(mean.attribute("pads", [])) or {*mean.attribute("strides", [1])} != {1}
        or scaled.shape_of_input() != (images, *shape)
        or not len(exponent) == len(k) == len(alpha) == 1
    ):  # fmt: skip
        raise refused
    call.inputs = [call.of.names[x]]
    return "lrn", {"size": size, "alpha": _short(alpha[0]), "beta": _short(exponent[0]), "k": _short(k[0])}


def _short(value: float) -> float:
    """The shortest decimal number that a float32 can be: 1e-05 and not 9.99999974737875e-06."""
    return float(str(np.float32(value)))


def _dropout(call: OnnxCall) -> Translated:
    ratio = (call.numbers("ratio", 1) or [0.5])[0]
    call.inputs = call.inputs[:1]
    return ("dropout", {"probability": _short(ratio)}) if ratio else ("identity", {})


def _concat(call: OnnxCall) -> Translated:
    first = call.node.input[0]
    while (maker := call.of.makers.get(first)) is not None and maker.op_type == "Expand":
        first = maker.input[0]  # a token of one image for all
    if len(call.node.input) == 2 and len(call.inputs) == 1 and first in call.of.file.weights:
        axis = call.attribute("axis", 1) % max(1, len(call.whole))
        return "prepend", {"axis": axis}, {"w": call.weight_named(first)}
    if len(call.inputs) < len(call.node.input):
        raise Unsupported("a concatenation with a constant is not supported")
    return graph.concat(call, call.attribute("axis", 1))


def _softmax(call: OnnxCall) -> Translated:
    return graph.softmax(call, call.attribute("axis", -1 if call.of.file.opset > 12 else 1))


def _hard_sigmoid(call: OnnxCall) -> Translated:
    alpha, beta = _short(call.attribute("alpha", 0.2)), _short(call.attribute("beta", 0.5))
    if (alpha, beta) != (_short(1 / 6), 0.5):
        raise Unsupported(f"alpha={alpha} and beta={beta} are not supported, only 1/6 and 1/2, as PyTorch has them")
    return "hardsigmoid", {}


def _swish(call: OnnxCall) -> Translated:
    call.require(alpha=1.0)
    return "silu", {}


def _pad(call: OnnxCall) -> Translated:
    pads, value = call.numbers("pads", 1), call.numbers("value", 2)
    call.inputs = call.inputs[:1]
    call.require(mode="constant")
    if pads is not None and len(pads) == 6:  # rows alone
        pads = [*pads[:3], 0, *pads[3:], 0]
    if call.optional(3) or pads is None or len(pads) != 8 or any(pads[:2] + pads[4:6]) or min(pads) < 0:
        raise Unsupported("only rows and columns around height and width are supported")
    return "pad", {"pad": tuple(int(pads[place]) for place in (2, 3, 6, 7)), "value": (value or [0.0])[0]}


def _slice(call: OnnxCall) -> Translated:
    starts, ends, steps = call.numbers("starts", 1), call.numbers("ends", 2), call.numbers("steps", 4) or [1.0]
    axes, whole = call.numbers("axes", 3) or [0.0], call.shape_of_input()
    if not starts or not ends or len(starts) != 1 or len(axes) != 1 or steps != [1.0]:
        raise Unsupported("a part of several axes, or every second row, is not supported")
    axis = int(axes[0])
    start, end, _ = slice(int(starts[0]), int(ends[0])).indices(([*whole, 0] if whole else [0])[axis])
    return graph.part(call, axis, start, end - start)


def _gather(call: OnnxCall) -> Translated:
    table, indices = call.node.input
    if table in call.of.file.weights and indices in call.of.names:
        call.require(axis=0)
        if len(call.of.file.weights[table].dims) != 2:
            raise Unsupported("rows of a table with other than two axes are not supported")
        return "embedding", {}, {"w": call.weight(0)}
    numbers = call.numbers("indices", 1)
    if numbers is None:
        raise Unsupported("channels by numbers that are no constants are not supported")
    return graph.gathered(call, int(call.attribute("axis", 0)), numbers)


def _split(call: OnnxCall) -> Translated:
    axis = int(call.attribute("axis", 0))
    sizes = [(call.of.shapes.get(name, ()) or (0,))[axis] for name in call.node.output]
    return graph.part(call, axis, sum(sizes[: call.number]), sizes[call.number])


RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity")
#: What PyTorch's exporters make of a local response normalisation, from the divisor up, and reshapes between.
LRN = ("Pow", "Add", "Mul", "AveragePool", "Pad", "Mul")
OF_SHAPES = ("Shape", "Size")  #: their outputs are no maps, whatever their inputs are

OPERATORS: Mapping[str, Callable[[OnnxCall], Translated]] = {
    "Slice": _slice, "Split": _split, "Gather": _gather,
    "Attention": onnx_parts.attention_operator, "RMSNormalization": _rms_norm,
    **dict.fromkeys(("LayerNormalization", "GroupNormalization", "InstanceNormalization"), _set_norm),
    "Transpose": _transpose,
    "Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": _matmul, "Add": _add, "Sum": _add,
    "Mul": _mul, "Clip": _clip,
    "MaxPool": _pool("max"), "AveragePool": _pool("average"),
    **dict.fromkeys(("GlobalMaxPool", "GlobalAveragePool", "ReduceMean", "ReduceMax"), _global),
    "BatchNormalization": _batchnorm, "LRN": _lrn, "Dropout": _dropout, "Concat": _concat, "Pad": _pad,
    "Softmax": _softmax, "LogSoftmax": _softmax, "Div": _divide, "Resize": _resize,
} | dict.fromkeys(RESHAPES, graph.reshaped) | {"Expand": graph.expanded} | {
    name: graph.of_one_input(kind) for name, kind in graph.OF_ONE_INPUT.items()
} | {
    "LeakyRelu": lambda call: ("leaky_relu", {"negative_slope": _short(call.attribute("alpha", 0.01))}),
    "HardSigmoid": _hard_sigmoid, "Swish": _swish,
}  # fmt: skip
