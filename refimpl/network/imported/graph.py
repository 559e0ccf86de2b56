"""The common middle of both importers: a short list of nodes, from which the Builder makes a network.

An importer translates a file or a module into a `Graph`.  `built` walks it and calls one method of the Builder a node.
Every node says which shape its output has where it comes from, and the Builder's own shape is compared with it: a
difference in padding, rounding or the order of numbers is found here and not in a wrong result.

| operation | attributes | weights |
| --- | --- | --- |
| conv | stride, pad, dilation, groups | w, b |
| conv_transpose | stride, pad, dilation, groups, out_pad | w, b |
| linear | | w, b |
| relu | at_most: 6 or None | |
| gelu | approximate: none or tanh | |
| leaky_relu | negative_slope | |
| silu, hardswish, sigmoid, hardsigmoid, tanh | | |
| pool | mode, window, stride, pad, ceil, count_padding | |
| pool_to, global_pool | mode, size | |
| upsample | mode, align_corners, size | |
| batchnorm | momentum, epsilon | gamma, beta, running_mean, running_variance |
| layernorm, groupnorm | epsilon, affine; groups | gamma, beta |
| permute | axes: the order of an image's three axes | |
| lrn | size, ahead, alpha, beta, k | |
| dropout | probability | |
| pad | pad: of the top, left, bottom and right; value | |
| drop_path | probability | |
| channel_shuffle | groups | |
| take | count, start, axis: 1 or 2 | |
| mul | of two nodes: x and a gate | |
| scale | | w, one number a channel |
| concat, add, softmax, identity, reshape | | |
"""

from __future__ import annotations

import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from math import prod
from typing import Any, NamedTuple

from refimpl.network.builder import LOSSES, Builder
from refimpl.network.kinds import TRAITS
from refimpl.network.layer import FirstValues, Layer, NetworkError
from refimpl.network.network import Network
from refimpl.text import closest, counted, offer, shown

UNSUPPORTED = "unsupported"  #: the operation of a node that says why: it matters only if the output needs it
BATCH = 32  #: images, where no batch is given
MOST_NUMBERS = (1 << 31) - 1  #: of one image's maps
LONGEST_NAME = 200  #: letters
MOST_TOLD, MOST_TOLD_WHY = 20, 3  #: operators, and other reasons, that one refusal names
STRANGE = re.compile(r"[^\w./:+-]")  #: letters that no layer's name has: names are printed, and written into scripts
NO_PAD = (0, 0, 0, 0)
IN_ORDER, CHANNELS_LAST = (0, 1, 2), (1, 2, 0)


class Unsupported(Exception):
    """Why an operation cannot be translated."""


@dataclass
class Node:
    """One operation with one output, which has the node's name."""

    name: str
    operation: str
    inputs: list[str]  #: names of nodes, or of the graph's input
    shape: tuple[int, ...]  #: of the output, for one image
    attributes: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, FirstValues] = field(default_factory=dict)


@dataclass
class Graph:
    """A network as a file or a module has it, for one image, in an order in which it can be computed."""

    name: str
    origin: str  #: "PyTorch" or "ONNX"
    input: str
    shape: tuple[int, ...]  #: of an image
    nodes: list[Node]
    outputs: list[str]
    file: str | None = None  #: that trained weights can be written back to


Translated = tuple[Any, ...]  #: what a call is here: our operation, its attributes, its weights if it has any


class OperatorCall(ABC):
    """One call of an operator in a file or a module."""

    inputs: list[str]  #: names of our nodes
    shape: tuple[int, ...] | None = None  #: of the output, for one image; None: it is no batch

    def find_shape(self, whole: tuple[int, ...], batch: int) -> None:
        """Fill `shape`, from the output's in the file or the module and the number of images there."""
        if len(whole) > 1 and whole[0] == batch:
            self.shape = tuple(map(int, whole[1:]))

    @abstractmethod
    def shape_of_input(self) -> tuple[int, ...]:
        """The whole shape of the first input, the batch included; empty where it is unknown."""

    @abstractmethod
    def inputs_of_view(self) -> list[str]:
        """Of the view of maps that is its input: what that one views, as maps."""

    @abstractmethod
    def attribute(self, name: str, default: Any) -> Any:
        """What the call is given beside its inputs."""

    def require(self, **values: Any) -> None:
        """Refuse an attribute with another value than these."""
        for name, value in values.items():
            if self.attribute(name, value) != value:
                raise Unsupported(f"{name}={self.attribute(name, value)} is not supported, only {value}")


def translated(name: str, operator_name: str, operator: Callable[[Any], Translated] | None, call: OperatorCall) -> Node:
    """The node of one call in a file or a module; what cannot be translated becomes a node that says why.

    Args:
        name: of the node.
        called: the operator's name there, for errors.
        operator: gives our operation, its attributes and its weights; None: the operator is unknown.
        call: what `operator` reads.
    """
    try:
        if operator is None:
            raise Unsupported
        operation, attributes, *weights = operator(call)
        if call.shape is None:
            raise Unsupported(f"{operator_name} makes no batch of maps or of rows")
    except Unsupported as error:
        operation, attributes, weights = UNSUPPORTED, {"why": str(error), "operator": operator_name}, []
    return Node(name, operation, call.inputs, call.shape or (), attributes, *weights)


class Value(NamedTuple):
    """What a node has become: a layer whose output is read as `shape`, and then with zeros around it."""

    layer: Layer
    shape: tuple[int, ...]
    pad: tuple[int, int, int, int] = NO_PAD
    axes: tuple[int, ...] = IN_ORDER  #: of the maps, in the order in which they are read: (1, 2, 0): channels last


def cleaned(name: str) -> str:
    """A node's name as our layers may have it; a long one ends in a number that follows from all of it."""
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 9]}-{zlib.crc32(name.encode(errors='surrogateescape')):08x}"
    return STRANGE.sub("_", name)


def built(graph: Graph, batch: int, output: str | None = None, loss: str | None = None) -> Network:
    """The network of a graph, with its first weights in `network.initial`.

    Args:
        graph: what an importer made.
        batch: images.
        output: the node that the loss reads (None: the graph's only output).
        loss: the method of `Builder` that adds the loss (None: softmax, which the graph may end in).

    Raises:
        NetworkError: one line that names the node, and what can be done.
    """
    nodes = {node.name: node for node in graph.nodes}
    end = _end(graph, nodes, output)
    needed = _needed(graph, nodes, end)
    _refuse_what_is_missing(graph, [node for node in graph.nodes if node.name in needed])
    shape = (*graph.shape, 1, 1)[:3] if len(graph.shape) < 3 else graph.shape
    b = Builder(graph.name, (batch, *shape))
    values = {graph.input: Value(b.input, graph.shape)}
    _check_size("the input", graph.shape)
    layers: list[tuple[Layer, Node]] = []
    for node in graph.nodes:
        if node.name not in needed:
            continue
        _check_size(node.name, node.shape)
        inputs = [_with_zeros(b, node, values[name]) for name in node.inputs]
        if node.operation == "softmax" and node.name != end:
            raise NetworkError(f"{node.name}: a softmax inside the network is not supported; only its end can be one")
        made = OPERATIONS[node.operation](b, node, inputs)
        if made.layer not in (value.layer for value in inputs):
            layers.append((made.layer, node))
        values[node.name] = _checked(graph, node, made)
    last = values[end]
    if loss is not None and loss not in LOSSES:
        raise NetworkError(f"there is no loss {loss!r}{offer(loss, LOSSES)}")
    if last.layer is b.input or (loss is None and len(last.shape) != 1) or last.pad != NO_PAD or last.axes != IN_ORDER:
        shown = " × ".join(map(str, ("images", *last.shape)))
        others = ", ".join(f"loss={name!r}" for name in LOSSES if name != "softmax")
        raise NetworkError(f"{end}: the output is {shown}, not a classifier's, images × classes; give {others}")
    if loss is None:
        b.softmax(name=end if nodes[end].operation == "softmax" else None, after=last.layer)
    else:
        getattr(b, loss)(after=last.layer)
    _share(b, layers)
    network = b.build()
    network.file = graph.file
    _give_weights(network, layers)
    return network.trained_by(frozen=[escape(name) for name, first in network.initial.items() if first.frozen])


def _share(b: Builder, layers: list[tuple[Layer, Node]]) -> None:
    """Have layers whose weights are the same ones share them."""
    owners: dict[tuple[str, ...], Layer] = {}
    for layer, node in layers:
        sources = tuple(weight.source for weight in node.weights.values())
        if sources and owners.setdefault(sources, layer) is not layer:
            b.share(owners[sources], layer)


def _end(graph: Graph, nodes: Mapping[str, Node], output: str | None) -> str:
    if output is not None:
        if cleaned(output) not in nodes:
            near = closest(output, nodes)
            offered = f"did you mean {near}?" if near else f"its outputs are {', '.join(graph.outputs)}"
            raise NetworkError(f"{graph.name} has no node {shown(output)}; {offered}")
        return cleaned(output)
    if len(graph.outputs) != 1:
        raise NetworkError(
            f"{graph.name} has {counted(len(graph.outputs), 'output')}; end it at one node, with --output NODE or "
            "output=NODE: " + ", ".join(graph.outputs)
        )
    if graph.outputs[0] not in nodes:
        raise NetworkError(f"{graph.name}: no node computes the output {graph.outputs[0]}")
    return graph.outputs[0]


def _check_size(name: str, shape: tuple[int, ...]) -> None:
    if min(shape, default=1) < 1:
        raise NetworkError(f"{name}: its output is said to be {_by(shape)}; is its kernel larger than its input?")
    if prod(shape) > MOST_NUMBERS:
        raise NetworkError(f"{name}: {_by(shape)} an image are more than {MOST_NUMBERS:,} numbers")


def _needed(graph: Graph, nodes: Mapping[str, Node], end: str) -> set[str]:
    """The nodes from which the end can be reached."""
    needed, waiting = {end}, [end]
    while waiting:
        for name in nodes[waiting.pop()].inputs:
            if name not in needed and name != graph.input:
                needed.add(name)
                waiting.append(name)
    return needed


def _refuse_what_is_missing(graph: Graph, nodes: list[Node]) -> None:
    """Raise one error for everything that cannot be translated, with what can be done about it."""
    missing = [node for node in nodes if node.operation == UNSUPPORTED]
    if not missing:
        return
    unknown = Counter(node.attributes["operator"] for node in missing if not node.attributes["why"])
    said = []
    if unknown:
        names = [name + f" ({number} times)" * (number > 1) for name, number in unknown.most_common(MOST_TOLD)]
        names += [f"{len(unknown) - MOST_TOLD} more"] * (len(unknown) > MOST_TOLD)
        listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        first = next(node.name for node in missing if not node.attributes["why"])
        where = f"{first}: " if unknown.total() == 1 else f"{graph.name}, first {first}: "
        several = len(unknown) > 1
        said.append(f"{where}the operator{'s' * several} {listed} {'are' if several else 'is'} not supported")
    after = _after(nodes)  # there a shape is unknown, and a reason may follow from that
    own = [node for node in missing if node.attributes["why"] and not after & {*node.inputs}]
    others = Counter(node.attributes["why"] for node in own)
    for why, number in [*others.items()][:MOST_TOLD_WHY]:
        first = next(node.name for node in own if node.attributes["why"] == why)
        said.append(f"{first}: {why}" + f" ({number} times)" * (number > 1))
    if len(others) > MOST_TOLD_WHY:
        said.append(f"{len(others) - MOST_TOLD_WHY} other reasons")
    it = "it" if len(own) + unknown.total() == 1 else "them"
    advice = f"replace {it} (docs/your-own-network.md lists what is supported)"
    if classifiers := [node.name for node in nodes if node.operation == "linear" and node.name not in after]:
        advice += f", or end the network at {classifiers[-1]} with --output NODE or output=NODE"
    raise NetworkError(f"{'; '.join(said)}; {advice}")


def _after(nodes: list[Node]) -> set[str]:
    """The nodes that cannot be translated, and all that follow from them."""
    after: set[str] = set()
    for node in nodes:
        if node.operation == UNSUPPORTED or after & {*node.inputs}:
            after.add(node.name)
    return after


def _checked(graph: Graph, node: Node, made: Value) -> Value:
    """What was made, if it has the shape that the node has in PyTorch or in the file."""
    found, wanted = made.layer.shape[1:], node.shape
    if made.pad != NO_PAD:
        return made
    if made.axes != IN_ORDER:
        found = tuple(found[axis] for axis in made.axes)
    alike = len(wanted) == 1 or node.operation == "reshape" or _squeezed(found) == _squeezed(wanted)
    if found != wanted and not (alike and prod(found) == prod(wanted)):
        raise NetworkError(f"{node.name}: {_by(found)} an image here, {_by(wanted)} in {graph.origin}: not supported")
    return made._replace(shape=wanted)


def _by(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "one number"


def _squeezed(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if size != 1]


def _give_weights(network: Network, layers: list[tuple[Layer, Node]]) -> None:
    """Fill `network.initial`."""
    owners: dict[str, str] = {}
    for layer, node in layers:
        if layer.shares:
            continue
        tensors = {name: parameter.weight for name, parameter in layer.parameters.items()} | layer.statistics
        for name, weight in node.weights.items():
            tensor = tensors[name]
            if weight.values.shape != tensor.shape:
                found, wanted = _by(weight.values.shape), _by(tensor.shape)
                raise NetworkError(f"{node.name}: the weight {weight.source} is {found}, and {wanted} is needed")
            first = owners.setdefault(weight.source, node.name)
            if first != node.name:
                raise NetworkError(
                    f"{node.name} and {first} share the weight {weight.source} and not all others: share all, or none"
                )
            network.initial[tensor.name] = weight


# -- operators that both importers translate alike ---------------------------------------------------------------------


#: Operators of one input: the name in ONNX → the name in PyTorch, which is ours, too.
OF_ONE_INPUT = {
    "Relu": "relu", "Gelu": "gelu", "Swish": "silu", "HardSwish": "hardswish", "Sigmoid": "sigmoid",
    "HardSigmoid": "hardsigmoid", "Tanh": "tanh", "LeakyRelu": "leaky_relu",
}  # fmt: skip

#: Options of these in PyTorch, which are ours, and their defaults.
OPTIONS: Mapping[str, Mapping[str, Any]] = {"gelu": {"approximate": "none"}, "leaky_relu": {"negative_slope": 0.01}}


def of_one_input(kind: str) -> Callable[[OperatorCall], Translated]:
    """What makes a layer of this kind, with its options."""
    defaults = OPTIONS.get(kind, {})
    return lambda call: (kind, {name: call.attribute(name, default) for name, default in defaults.items()})


def limited(low: float | None, high: float | None) -> Translated:
    """A ReLU or a ReLU6 written as limits."""
    if low == 0 and high is None:
        return "relu", {}
    if low == 0 and high == 6:
        return "relu", {"at_most": 6}
    raise Unsupported(f"limits of {low} and {high} are not supported, only ReLU's and ReLU6's")


def reduced(mode: str, axes: Collection[float] | None, rank: int = 4) -> Translated:
    """A reduction of something with `rank` axes, which must be maps."""
    if rank not in (3, 4) or sorted(int(axis) % rank for axis in axes or ()) != [*range(2, rank)]:
        raise Unsupported(f"a reduction over {axes} is not supported, only over height and width")
    return "global_pool", {"mode": mode}


def normalised(call: OperatorCall, epsilon: float, weights: dict[str, FirstValues], groups: int | None) -> Translated:
    """A layer normalisation, or one of groups; it has a factor and a summand a channel, or neither."""
    how: dict[str, Any] = {"epsilon": epsilon} | ({} if groups is None else {"groups": groups})
    if len(weights) == 1:
        raise Unsupported("a normalisation needs a weight and a bias, or neither")
    call.inputs = call.inputs[:1]
    return ("layernorm" if groups is None else "groupnorm"), how | ({} if weights else {"affine": False}), weights


def permuted(call: OperatorCall, axes: Sequence[int]) -> Translated:
    """The axes of a batch of maps in this order; of maps whose channels are viewed as a matrix: its transpose."""
    axes = [axis % len(axes) for axis in axes]
    if axes == [0, 2, 1, 3, 4] and call.shape:
        per_group, groups, *area = call.shape
        call.inputs, call.shape = call.inputs_of_view(), (groups * per_group, *area)
        return "channel_shuffle", {"groups": groups}
    if len(axes) != 4 or axes[0] != 0:
        raise Unsupported(f"a permutation of the axes {[*axes]} is not supported, only of an image's maps")
    return "permute", {"axes": tuple(axis - 1 for axis in axes[1:])}


def taken(call: OperatorCall, axis: int, start: int, count: int) -> Translated:
    """A part of one axis of a batch."""
    whole = call.shape_of_input()
    axis %= max(1, len(whole))
    if axis >= len(whole) or count == whole[axis]:
        return "identity", {}
    if axis not in (1, 2) or not 0 < count <= whole[axis] - start:
        raise Unsupported(f"a part of axis {axis} is not supported, only of channels or rows")
    call.inputs = call.inputs[:1]
    return "take", {"count": count, "start": start, "axis": axis}


def upsampled(call: OperatorCall, mode: str, align_corners: bool, factors: Sequence[float] | None) -> Translated:
    """To the call's own shape; `factors` (height and width): those that it was computed from, if it was."""
    before, out = call.shape_of_input()[2:], (call.shape or ())[-2:]
    exact = factors is None or [size * by for size, by in zip(before, factors, strict=True)] == [*out]
    if len(out) != 2 or not exact:
        raise Unsupported(f"maps of {_by(before)} times {factors} are supported if the products are whole numbers")
    return "upsample", {"mode": mode, "size": out} | ({"align_corners": True} if align_corners else {})


#: A map times this operation of it → what that is in one layer.
GATED = {"sigmoid": "silu", "hardsigmoid": "hardswish"}


def scaled(call: OperatorCall, weight: FirstValues) -> Translated:
    """Maps times a weight: one number a channel is a layer scale."""
    rank, shape = len(call.shape or ()), weight.values.shape
    for_one_image = (1,) * (rank - len(shape)) + shape[max(0, len(shape) - rank) :]
    if not call.shape or for_one_image != (call.shape[0], *(1 for _ in call.shape[1:])):
        raise Unsupported(f"a multiplication by {_by(shape)} numbers is not supported, only by one a channel")
    return "scale", {}, {"w": replace(weight, values=weight.values.reshape(-1), shape=shape)}


def concat(call: OperatorCall, axis: int) -> Translated:
    if axis != 1 and not (call.shape and axis == -len(call.shape)):
        raise Unsupported(f"a concatenation along axis {axis} is not supported, only along the channels")
    return "concat", {}


def softmax(call: OperatorCall, axis: int) -> Translated:
    if call.shape is None or len(call.shape) != 1 or axis not in (1, -1):
        raise Unsupported("a softmax is supported over the classes only")
    return "softmax", {}


def reshape(call: OperatorCall) -> Translated:
    if call.shape is None:
        raise Unsupported("a reshape that mixes the images of a batch is not supported")
    call.inputs = call.inputs[:1]
    return "reshape", {}


# -- one function an operation -----------------------------------------------------------------------------------------


def _maps(node: Node, value: Value) -> Layer:
    """The layer whose maps are the input as they are."""
    _plain(node, value)
    if value.shape != value.layer.shape[1:] and prod(value.shape[1:]) != prod(value.layer.shape[2:]):
        found, wanted = _by(value.layer.shape[1:]), _by(value.shape)
        raise NetworkError(f"{node.name}: its input is {found} reshaped to {wanted}; only a linear layer can read that")
    return value.layer


def _plain(node: Node, value: Value) -> Layer:
    """The layer whose numbers are the input's, in the same order."""
    if value.axes != IN_ORDER:
        raise NetworkError(f"{node.name}: its input's axes are permuted; only some operators can read that")
    return _permuted(node, value)


def _permuted(node: Node, value: Value) -> Layer:
    """The layer whose numbers are the input's, its axes perhaps in another order."""
    return value.layer


def _with_zeros(b: Builder, node: Node, value: Value) -> Value:
    """The input, its zeros as a layer: only a convolution has them as an option."""
    if value.pad == NO_PAD or node.operation == "conv":
        return value
    layer = b.pad(value.pad, after=value.layer)
    return Value(layer, layer.shape[1:])


def _conv(b: Builder, node: Node, inputs: list[Value]) -> Value:
    (value,), w = inputs, node.weights["w"].values
    given = {**node.attributes, "pad": tuple(a + b for a, b in zip(node.attributes["pad"], value.pad, strict=True))}
    x = _maps(node, value._replace(pad=NO_PAD))
    layer = b.conv(w.shape[0], (w.shape[2], w.shape[3]), bias="b" in node.weights, name=node.name, after=x, **given)
    return Value(layer, node.shape)


def _conv_transpose(b: Builder, node: Node, inputs: list[Value]) -> Value:
    (value,), w = inputs, node.weights["w"].values
    how, window = node.attributes, (w.shape[2], w.shape[3])
    x, filters = _maps(node, value), w.shape[1] * how["groups"]
    return Value(
        b.conv_transpose(filters, window, bias="b" in node.weights, name=node.name, after=x, **how), node.shape
    )


def _linear(b: Builder, node: Node, inputs: list[Value]) -> Value:
    (value,) = inputs
    if len(value.shape) == 3 and value.axes == CHANNELS_LAST:
        node.weights["w"] = node.weights["w"].as_filters()
        filters = len(node.weights["w"].values)
        x = _permuted(node, value)
        return value._replace(layer=b.conv(filters, 1, bias="b" in node.weights, name=node.name, after=x))
    if len(value.shape) != 1:
        raise NetworkError(f"{node.name}: a linear layer reads {_by(value.shape)} an image; flatten it before")
    w = node.weights["w"].values
    return Value(b.fc(w.shape[0], bias="b" in node.weights, name=node.name, after=_plain(node, value)), node.shape)


def _method(of: str, read: Callable[[Node, Value], Layer]) -> Callable[[Builder, Node, list[Value]], Value]:
    """A layer with one input, whose options are the node's attributes."""

    def make(b: Builder, node: Node, inputs: list[Value]) -> Value:
        (value,) = inputs
        layer = getattr(b, of)(name=node.name, after=read(node, value), **node.attributes)
        return Value(layer, node.shape, axes=value.axes)

    return make


def _several(of: str) -> Callable[[Builder, Node, list[Value]], Value]:
    """A concat or a join; of one input it is that input."""

    def make(b: Builder, node: Node, inputs: list[Value]) -> Value:
        alike = of == "join" and len({value.axes for value in inputs}) == 1
        layers = [(_permuted if alike else _plain)(node, value) for value in inputs]
        layer = layers[0] if len(layers) == 1 else getattr(b, of)(*layers, name=node.name)
        return Value(layer, node.shape, axes=inputs[0].axes)

    return make


def _mul(b: Builder, node: Node, inputs: list[Value]) -> Value:
    x, gate = (_maps(node, value) for value in inputs)
    return Value(b.mul(x, gate, name=node.name), node.shape)


def _as_it_is(b: Builder, node: Node, inputs: list[Value]) -> Value:
    """The same numbers, perhaps read as a matrix; a softmax at the end is added by `built`."""
    (value,) = inputs
    if node.shape == value.shape:
        return value._replace(layer=_permuted(node, value))
    return Value(_plain(node, value), node.shape)


def _permute(b: Builder, node: Node, inputs: list[Value]) -> Value:
    """The same maps, read in another order."""
    (value,) = inputs
    own = value.layer.shape[1:]
    if len(own) != 3 or value.shape != tuple(own[axis] for axis in value.axes):
        raise NetworkError(f"{node.name}: only the axes of maps can be permuted, not those of {_by(value.shape)}")
    return value._replace(shape=node.shape, axes=tuple(value.axes[axis] for axis in node.attributes["axes"]))


def _layernorm(b: Builder, node: Node, inputs: list[Value]) -> Value:
    """Over the last axis, which has to be the channels."""
    (value,) = inputs
    x, row = _permuted(node, value), len(value.shape) == 1 and value.axes == IN_ORDER
    if value.axes == CHANNELS_LAST or (row and prod(x.shape[2:]) == 1):
        return value._replace(layer=b.layernorm(name=node.name, after=x, **node.attributes), shape=node.shape)
    if row and not node.weights:  # of all maps of an image
        return value._replace(layer=b.groupnorm(1, name=node.name, after=x, **node.attributes), shape=node.shape)
    raise NetworkError(f"{node.name}: a layer normalisation is supported over the channels, with these as last axis")


def _pad(b: Builder, node: Node, inputs: list[Value]) -> Value:
    (value,) = inputs
    if node.attributes["value"]:
        made = b.pad(node.attributes["pad"], node.attributes["value"], name=node.name, after=_maps(node, value))
        return Value(made, node.shape)
    return Value(_maps(node, value), value.shape, node.attributes["pad"])


OPERATIONS: dict[str, Callable[[Builder, Node, list[Value]], Value]] = {
    "conv": _conv, "conv_transpose": _conv_transpose, "linear": _linear, "pool": _method("pool", _maps),
    "pool_to": _method("pool_to", _maps), "global_pool": _method("global_pool", _maps),
    "upsample": _method("upsample_to", _maps),
    "batchnorm": _method("batchnorm", _maps), "lrn": _method("lrn", _maps), "dropout": _method("dropout", _plain),
    "drop_path": _method("drop_path", _permuted), "channel_shuffle": _method("channel_shuffle", _maps),
    "take": _method("take", _maps),
    "layernorm": _layernorm, "groupnorm": _method("groupnorm", _maps), "permute": _permute,
    "concat": _several("concat"), "add": _several("join"), "pad": _pad,
    "mul": _mul, "scale": _method("scale", _maps),
    "softmax": _as_it_is, "identity": _as_it_is, "reshape": _as_it_is,
} | {kind: _method(kind, _permuted) for kind, traits in TRAITS.items() if traits.elementwise}  # fmt: skip
