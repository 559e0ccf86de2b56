"""The common middle of both importers: a short list of nodes, from which the Builder makes a network.

An importer translates a file or a module into a `Graph`.  `built` walks it and calls one method of the Builder a node.
Every node says which shape its output has where it comes from, and the Builder's own shape is compared with it: a
difference in padding, rounding or the order of numbers is found here and not in a wrong result.

A view adds no layer: it is executed on the `Arrangement` of a layer's numbers.  Where the result is a part of the
channels or rows, that becomes a layer `take`, and shuffled channels a layer `channel_shuffle`.  Every operator asks the
arrangement that it reads: are these the maps in order?  Is the last axis all channels?

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
| pool_to | mode, size | |
| global_pool | mode; axes: None for all but images and channels | |
| upsample | mode, align_corners, size | |
| batchnorm | momentum, epsilon | gamma, beta, running_mean, running_variance |
| layernorm, groupnorm | epsilon, affine; groups | gamma, beta |
| rmsnorm | epsilon, affine | gamma |
| lrn | size, ahead, alpha, beta, k | |
| dropout | probability | |
| pad | pad: of the top, left, bottom and right; value | |
| drop_path | probability | |
| channel_shuffle | groups | |
| permute_channels | order: the number of each channel; axis | |
| mul | of two nodes: x and a gate | |
| scale | | w, one number a channel |
| concat | axis | |
| attention, of queries, keys and values | causal; scale: None for the usual; transposed: keys; packed: heads | |
| rotary | rotated, neighbours, base; tokens: their axis | |
| times | by: a number; of queries or keys attention multiplies, else a layer scale that learns nothing | |
| prepend | axis | w: of every image the same token |
| position | | w: of every image the same numbers, or of every channel the same number |
| embedding, of tokens | padding | w |
| view | move: of one arrangement another | |
| add, softmax, identity | | |
"""

from __future__ import annotations

import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from glob import escape
from math import prod
from typing import Any

import numpy as np

from refimpl.importing.arrangement import CHANNEL, IMAGE, POSITION, Arrangement, Factor, Mixed
from refimpl.importing.heads import attention, rotary
from refimpl.importing.nodes import NO_PAD, Graph, Made, Node, Unsupported, Value, another_shape, sizes
from refimpl.network.builder import LOSSES
from refimpl.network.first_values import FirstValues
from refimpl.network.kinds import TRAITS
from refimpl.network.later_layers import Builder
from refimpl.network.layer import Layer, NetworkError
from refimpl.network.network import Network
from refimpl.text import closest, counted, offer, shown

UNSUPPORTED = "unsupported"  #: the operation of a node that says why: it matters only if the output needs it
MOST_NUMBERS = (1 << 31) - 1  #: of one image's maps
LONGEST_NAME = 200  #: letters
MOST_TOLD, MOST_TOLD_WHY = 20, 3  #: operators, and other reasons, that one refusal names
STRANGE = re.compile(r"[^\w./:+-]")  #: letters that no layer's name has: names are printed, and written into scripts


Translated = tuple[Any, ...]  #: what a call is here: our operation, its attributes, its weights if it has any


class OperatorCall(ABC):
    """One call of an operator in a file or a module."""

    inputs: list[str]  #: names of our nodes
    whole: tuple[int, ...]  #: the shape of the output; empty where it is unknown
    images: int  #: in the file or in the module

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the output, for one image."""
        if len(self.whole) < 2 or self.whole[0] != self.images:
            raise Unsupported("its output is no batch of maps or of rows")
        return self.whole[1:]

    @abstractmethod
    def shape_of_input(self) -> tuple[int, ...]:
        """The whole shape of the first input, the batch included; empty where it is unknown."""

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
        if not call.whole:
            raise Unsupported(f"the shape of what {operator_name} makes is unknown")
    except Unsupported as error:
        operation, attributes, weights = UNSUPPORTED, {"why": str(error), "operator": operator_name}, []
    return Node(name, operation, call.inputs, call.whole, attributes, *weights)


def cleaned(name: str) -> str:
    """A node's name as our layers may have it; a long one ends in a number that follows from all of it."""
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 9]}-{zlib.crc32(name.encode(errors='surrogateescape')):08x}"
    return STRANGE.sub("_", name)


def built(
    graph: Graph, batch: int, output: str | None = None, loss: str | Mapping[str, str] | None = None
) -> Network:  # fmt: skip
    """The network of a graph, with its first weights in `network.initial`.

    Args:
        graph: what an importer made.
        batch: images.
        output: the node that the loss reads (None: the graph's only output).
        loss: the method of `Builder` that adds the loss (None: softmax, which the graph may end in), or of several
            outputs the node of each and its loss, which is named after it, as in head.loss.

    Raises:
        NetworkError: one line that names the node, and what can be done.
    """
    nodes = {node.name: node for node in graph.nodes}
    ends = _ends(graph, nodes, output, loss)
    needed = _needed(graph, nodes, ends)
    its = [node for node in graph.nodes if node.name in needed]
    readers = _readers(its, ends)
    whole = {node.name for node in its if node.operation == "attention"}
    heads = whole | {node.name for node in its if node.operation == "rotary"}  # they read heads, any channels
    times = {node.name for node in its if node.operation == "times"}
    its = [
        replace(node, operation="factor") if node.name in times and not readers[node.name] <= whole else node
        for node in its
    ]
    if missing := what_is_missing(graph, its):
        raise NoKernel(missing)
    images, *shape = graph.shape
    if graph.dtype == "float32":
        shape = [*shape, 1, 1][: max(3, len(shape))]
    b = Builder(graph.name, (batch, *shape), dtype=graph.dtype)
    made = Made(b, images, readers=readers)
    values = {graph.input: Value(b.input, made.own(b.input).reshaped(graph.shape))}
    _check_size("the input", graph.shape)
    read = {name for node in its if node.operation != "view" for name in node.inputs} | {*ends}
    with no_kernel():
        for node in its:
            _check_size(node.name, node.shape)
            inputs = [_with_zeros(made, node, values[name]) for name in node.inputs]
            if node.operation == "softmax" and node.name not in ends:
                why = "a softmax inside the network is not supported; only its end can be one"
                raise NetworkError(f"{node.name}: {why}")
            try:
                value = OPERATIONS[node.operation](made, node, inputs)
                if node.operation == "view" and not made.readers[node.name] <= heads:
                    value = _settled(made, value, node.name in read)
            except Mixed as error:
                raise NetworkError(f"{node.name}: {error}; that is not supported") from None
            if node.operation != "view" and value.layer not in (given.layer for given in inputs):
                made.nodes[value.layer] = node
            values[node.name] = _checked(graph, node, value)
    for end, kind in ends.items():
        last = values[end]
        axes = len(last.places.axes)
        if kind is None and graph.dtype == "int32" and axes == 3:  # a language model
            kind = "pixel_softmax"
        alike = _plain(made, last) or (kind == "pixel_softmax" and _in_turn(made, last))
        if last.layer is b.input or (kind is None and axes != 2) or last.pad != NO_PAD or not alike:
            found = " × ".join(map(str, ("images", *last.places.shape[1:])))
            others = ", ".join(name for name in LOSSES if name != "softmax")
            raise NetworkError(
                f"{end}: the output is {found}, not a classifier's, images × classes; give FILE:=LOSS or loss=: "
                f"{others}"
            )
        own = end if kind is None and nodes[end].operation == "softmax" else None
        name = f"{end}.loss" if isinstance(loss, Mapping) else own
        getattr(b, kind or "softmax")(name=name, after=last.layer)
    layers = [*made.nodes.items()]
    with no_kernel():
        _share(b, layers)
    network = b.build()
    network.file = graph.file
    network.script = graph.script
    network.origins = {node.origin: values[node.name].layer.name for node in its if node.origin}
    with no_kernel():
        _give_weights(network, layers)
    frozen = [name for name, first in network.initial.items() if first.frozen]
    frozen += [one.weight.name for layer, node in layers if node.operation == "factor" for one in layer.own.values()]
    return network.trained_by(frozen=[*map(escape, frozen)])


class NoKernel(NetworkError):
    """There is no kernel of an operator, or none that reads numbers in this arrangement."""


@contextmanager
def no_kernel() -> Iterator[None]:
    """A refusal in here is one for want of a kernel."""
    try:
        yield
    except NetworkError as error:
        raise NoKernel(str(error)) from None


def _share(b: Builder, layers: list[tuple[Layer, Node]]) -> None:
    """Have layers whose weights are the same ones share them."""
    owners: dict[tuple[str, ...], list[tuple[Layer, Node]]] = {}
    for layer, node in layers:
        there = owners.setdefault(tuple(weight.source for weight in node.weights.values()), [])
        for owner, its in there if node.weights else ():
            pairs = zip(its.weights.values(), node.weights.values(), strict=True)
            if all(np.array_equal(one.values, other.values) for one, other in pairs):
                b.share(owner, layer)
                break
        else:
            there.append((layer, node))
    _share_weights(b, [one for there in owners.values() for one in there])


def _share_weights(b: Builder, layers: list[tuple[Layer, Node]]) -> None:
    """Have layers that share no bias share a weight that is the same."""
    owners: dict[str, list[tuple[Layer, Node]]] = {}
    for layer, node in layers:
        if "w" in node.weights and (layer.traits.work == "product" or layer.kind == "embedding"):
            owners.setdefault(node.weights["w"].source, []).append((layer, node))
    groups = {layer.shares for layer in b.layers}
    for (layer, node), *others in owners.values():
        w = node.weights["w"].values
        kinds = {layer.kind} | ({"conv"} if layer.kind == "embedding" else set())
        alike = [one for one, its in others if one.kind in kinds and np.array_equal(its.weights["w"].values, w)]
        if alike and not groups & {layer, *alike}:
            b.share(layer, *alike, own_bias=True)


def _readers(nodes: Sequence[Node], ends: Collection[str]) -> dict[str, set[str]]:
    """Of every node the operators that read it, or views of it; the loss is one without a name."""
    read: dict[str, set[str]] = {end: {""} for end in ends}
    for node in reversed(nodes):
        through = node.operation in ("view", "identity", "times")
        for name in node.inputs:
            read.setdefault(name, set()).update(read.get(node.name, set()) if through else {node.name})
    return read


def _ends(
    graph: Graph, nodes: Mapping[str, Node], output: str | None, loss: str | Mapping[str, str] | None
) -> dict[str, str | None]:
    """The nodes that losses read → their losses; None: a softmax, which may be the node itself."""
    several = loss if isinstance(loss, Mapping) else {}
    for kind in several.values() if several else [] if loss is None else [loss]:
        if kind not in LOSSES:
            raise NetworkError(f"there is no loss {kind!r}{offer(str(kind), LOSSES)}")
    if not several:
        return {_end(graph, nodes, output): loss}  # type: ignore[dict-item]
    if output is not None:
        raise NetworkError(f"{graph.name}: end it at the node {shown(output)}, or at those that losses are given for")
    ends = {_end(graph, nodes, name): kind for name, kind in several.items()}
    if len(ends) < len(several):
        raise NetworkError(f"{graph.name}: give each output one loss; {', '.join(several)} are fewer outputs")
    return {**ends}


def _end(graph: Graph, nodes: Mapping[str, Node], output: str | None) -> str:
    if output is not None:
        if cleaned(output) not in nodes:
            near = closest(output, nodes)
            offered = f"did you mean {near}?" if near else f"its outputs are {', '.join(graph.outputs)}"
            raise NetworkError(f"{graph.name} has no node {shown(output)}; {offered}")
        return cleaned(output)
    if len(graph.outputs) != 1:
        raise NetworkError(
            f"{graph.name} has {counted(len(graph.outputs), 'output')}; end it at one node, as FILE.onnx:NODE or with "
            "output=NODE, or give each its loss, with FILE.onnx:NODE=LOSS or loss={NODE: LOSS}: "
            + ", ".join(graph.outputs)
        )
    if graph.outputs[0] not in nodes:
        raise NetworkError(f"{graph.name}: no node computes the output {graph.outputs[0]}")
    return graph.outputs[0]


def _check_size(name: str, shape: tuple[int, ...]) -> None:
    if min(shape, default=1) < 1:
        raise NetworkError(f"{name}: its output is said to be {sizes(shape[1:])}; is its kernel larger than its input?")
    if prod(shape[1:]) > MOST_NUMBERS:
        raise NetworkError(f"{name}: {sizes(shape[1:])} an image are more than {MOST_NUMBERS:,} numbers")


def _needed(graph: Graph, nodes: Mapping[str, Node], ends: Collection[str]) -> set[str]:
    """The nodes from which an end can be reached."""
    needed, waiting = {*ends}, [*ends]
    while waiting:
        for name in nodes[waiting.pop()].inputs:
            if name not in needed and name != graph.input:
                needed.add(name)
                waiting.append(name)
    return needed


def what_is_missing(graph: Graph, nodes: Sequence[Node] | None = None) -> str:
    """One line for everything that cannot be translated, with what can be done about it; empty: nothing is missing.

    Args:
        graph: what an importer made.
        nodes: that are needed (None: all that its outputs are computed from).
    """
    if nodes is None:
        every = {node.name: node for node in graph.nodes}
        needed = _needed(graph, every, [name for name in graph.outputs if name in every])
        nodes = [node for node in graph.nodes if node.name in needed]
    missing = [node for node in nodes if node.operation == UNSUPPORTED]
    if not missing:
        return ""
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
        advice += f", or end the network at {classifiers[-1]} as FILE.onnx:NODE or with output=NODE"
    return f"{'; '.join(said)}; {advice}"


def _after(nodes: Sequence[Node]) -> set[str]:
    """The nodes that cannot be translated, and all that follow from them."""
    after: set[str] = set()
    for node in nodes:
        if node.operation == UNSUPPORTED or after & {*node.inputs}:
            after.add(node.name)
    return after


def _checked(graph: Graph, node: Node, made: Value) -> Value:
    """What was made, if it has the shape that the node has in PyTorch or in the file."""
    if made.pad == NO_PAD and made.places.shape != node.shape:
        raise another_shape(node, made.places.shape[1:], graph.origin)
    return made


def _give_weights(network: Network, layers: list[tuple[Layer, Node]]) -> None:
    """Fill `network.initial`."""
    owners: dict[str, str] = {}
    parts: dict[str, set[int]] = {}  #: source → those of its numbers that a layer has
    for layer, node in layers:
        tensors = {name: parameter.weight for name, parameter in layer.own.items()} | layer.statistics
        for name, weight in node.weights.items():
            if layer.shares and name not in tensors:
                continue
            tensor = tensors[name]
            if weight.values.shape != tensor.shape:
                found, wanted = sizes(weight.values.shape), sizes(tensor.shape)
                raise NetworkError(f"{node.name}: the weight {weight.source} is {found}, and {wanted} is needed")
            first = owners.setdefault(weight.source, node.name)
            its = set(weight.places()) if weight.whole is not None else set()
            there = parts.setdefault(weight.source, set())
            if first != node.name and (not there or not its or there & its):
                raise NetworkError(
                    f"{node.name} and {first} share the weight {weight.source} and not all others: share all, or none"
                )
            there |= its
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


def normalised(call: OperatorCall, epsilon: float, weights: dict[str, FirstValues], groups: int | None) -> Translated:
    """A layer normalisation, or one of groups; it has a factor and a summand a channel, or neither."""
    how: dict[str, Any] = {"epsilon": epsilon} | ({} if groups is None else {"groups": groups})
    if len(weights) == 1:
        raise Unsupported("a normalisation needs a weight and a bias, or neither")
    call.inputs = call.inputs[:1]
    return ("layernorm" if groups is None else "groupnorm"), how | ({} if weights else {"affine": False}), weights


def view(move: Callable[[Arrangement], Arrangement]) -> Translated:
    return "view", {"move": move}


def reshaped(call: OperatorCall) -> Translated:
    """The same numbers in the same order, with the axes that the output has."""
    call.inputs, shape = call.inputs[:1], call.whole
    return view(lambda places: places.reshaped(shape))


def expanded(call: OperatorCall) -> Translated:
    """Axes of one number repeated, as often as the output has them."""
    call.inputs, shape = call.inputs[:1], call.whole
    return view(lambda places: places.expanded(shape))


def permuted(axes: Sequence[int]) -> Translated:
    """The axes in this order."""
    order = [axis % len(axes) for axis in axes]
    return view(lambda places: places.permuted(order))


def part(call: OperatorCall, axis: int, start: int, count: int, keep: bool = True) -> Translated:
    """`count` places of an axis from `start` on; of one place the axis may be left out."""
    call.inputs = call.inputs[:1]
    before, shape = call.shape_of_input(), call.whole
    axis %= max(1, len(before))
    if axis >= len(before) or not 0 <= start < start + count <= before[axis]:
        raise Unsupported(f"{count} from {start} on of axis {axis} of {[*before]} is not supported")
    if keep:
        return view(lambda places: places.part(axis, start, count))
    return view(lambda places: places.part(axis, start, count).reshaped(shape))


def gathered(call: OperatorCall, axis: int, numbers: Sequence[float]) -> Translated:
    """Places of an axis by their numbers: some in their own order, or all channels in any."""
    before = call.shape_of_input()
    axis %= max(1, len(before))
    count = before[axis] if before else 0
    order = [int(number) % max(1, count) for number in numbers]
    if order and order == [*range(order[0], order[0] + len(order))]:
        return part(call, axis, order[0], len(order), keep=len(call.whole) == len(before))
    if sorted(order) != [*range(count)]:
        found = f"{counted(len(order), 'number')} of the {count} of axis {axis}"
        raise Unsupported(f"{found} are not supported, only a permutation of the channels")
    call.inputs = call.inputs[:1]
    return "permute_channels", {"order": order, "axis": axis}


def upsampled(call: OperatorCall, mode: str, align_corners: bool, factors: Sequence[float] | None) -> Translated:
    """To the call's own shape; `factors` (height and width): those that it was computed from, if it was."""
    before, out = call.shape_of_input()[2:], call.shape[-2:]
    exact = factors is None or [size * by for size, by in zip(before, factors, strict=True)] == [*out]
    if len(out) != 2 or not exact:
        raise Unsupported(f"maps of {sizes(before)} times {factors} are supported if the products are whole numbers")
    return "upsample", {"mode": mode, "size": out} | ({"align_corners": True} if align_corners else {})


#: A map times this operation of it → what that is in one layer.
GATED = {"sigmoid": "silu", "hardsigmoid": "hardswish"}


def scaled(call: OperatorCall, weight: FirstValues) -> Translated:
    """Maps times a weight: one number a channel is a layer scale."""
    values = weight.values
    axes = [axis for axis, size in enumerate(values.shape, len(call.whole) - values.ndim) if size > 1]
    if len(axes) > 1 or values.ndim > len(call.whole):
        raise Unsupported(f"a multiplication by {sizes(values.shape)} numbers is not supported, only by one a channel")
    row = weight.moved(lambda values: values.reshape(-1))
    return "scale", {"axis": axes[0] if axes else 1}, {"w": row}


def with_factor(call: OperatorCall, nodes: Mapping[str, Node], weight: FirstValues) -> Translated | None:
    """An RMS normalisation times a number a channel: one layer, which the call's inputs become those of."""
    before = nodes.get(call.inputs[0])
    while before is not None and before.operation in ("identity", "view") and before.shape == call.whole:
        before = nodes.get(before.inputs[0])
    if before is None or before.operation != "rmsnorm" or before.weights:
        return None
    _, how, weights = scaled(call, weight)
    if how["axis"] != len(call.whole) - 1:
        return None
    call.inputs = before.inputs
    return "rmsnorm", {"epsilon": before.attributes["epsilon"]}, {"gamma": weights["w"]}


HIDDEN = -1e4  #: summands of attention's scores below that hide a token
BIASES = "relative position biases, summands of attention's scores, are not supported"


def is_causal(mask: np.ndarray) -> bool:
    """Whether a mask of attention is the causal one; a mask that hides nothing is not."""
    if mask.dtype != bool and np.any((mask != 0) & (mask > HIDDEN)):
        raise Unsupported(BIASES)
    seen = mask.astype(bool) if mask.dtype == bool else mask == 0
    hidden = np.logical_not(mask) if mask.dtype == bool else mask < HIDDEN
    causal = np.tri(*mask.shape[-2:]).astype(bool)
    if seen.all() or ((seen == causal).all() and (hidden == np.logical_not(causal)).all()):
        return not seen.all()
    raise Unsupported("a mask of attention is supported if it is causal, and hides what comes after a token")


def concat(call: OperatorCall, axis: int) -> Translated:
    return "concat", {"axis": axis % max(1, len(call.whole))}


def softmax(call: OperatorCall, axis: int) -> Translated:
    if len(call.shape) != 1 or axis not in (1, -1):
        raise Unsupported("a softmax is supported over the classes only")
    return "softmax", {}


# -- one function an operation -----------------------------------------------------------------------------------------


def _plain(made: Made, value: Value) -> bool:
    """Whether the numbers are the layer's, in the same order."""
    return value.places.flat() == made.own(value.layer).flat()


def _in_turn(made: Made, value: Value) -> bool:
    """Whether the positions of an image come one after the other, and the channels are anywhere."""
    places, layer = value.places, value.layer
    sizes = made.images, layer.shape[1], prod(layer.shape[2:])
    in_order = all(places.in_order(of, size) for of, size in zip((IMAGE, CHANNEL, POSITION), sizes, strict=True))
    return in_order and places.runs_through(0) <= {IMAGE}


def _maps(made: Made, node: Node, value: Value) -> Layer:
    """The layer whose maps are the input as they are."""
    own, places = made.own(value.layer), value.places
    areas = [[axis for axis in one.axes[2:] if axis] for one in (own, places)]
    if places.start == own.start and places.axes[:2] == own.axes[:2] and areas[0] == areas[1]:
        return value.layer
    if _plain(made, value):
        found, wanted = sizes(own.shape[1:]), sizes(places.shape[1:])
        raise NetworkError(f"{node.name}: its input is {found} reshaped to {wanted}; only a linear layer can read that")
    raise NetworkError(f"{node.name}: its input's axes are permuted; only some operators can read that")


def _any(made: Made, node: Node, value: Value) -> Layer:
    """The layer whose numbers are the input's, in any order."""
    return value.layer


def _channels_last(value: Value) -> bool:
    """Whether the last axis is all channels, in order, and no other axis has any."""
    channels, places = value.layer.shape[1], value.places
    last = len(places.axes) - 1
    return places.runs_through(last) <= {CHANNEL} and places.in_order(CHANNEL, channels, [last])


def _as_before(value: Value, layer: Layer) -> Value:
    """Another layer in the arrangement of the one that it reads, with its own channels as last axis."""
    places = value.places
    return Value(layer, places.with_axis(len(places.axes) - 1, Factor(CHANNEL, layer.shape[1], 1)))


def _with_zeros(made: Made, node: Node, value: Value) -> Value:
    """The input, its zeros as a layer: only a convolution has them as an option."""
    if value.pad == NO_PAD or node.operation == "conv":
        return value
    layer = made.b.pad(value.pad, after=value.layer)
    return Value(layer, made.own(layer))


def _view(made: Made, node: Node, inputs: list[Value]) -> Value:
    (value,) = inputs
    before, after = value.places, node.attributes["move"](value.places)
    return value._replace(places=after, by=value.by if before.flat() == after.flat() else node.name)


def _settled(made: Made, value: Value, read: bool) -> Value:
    """With parts of the channels or rows, and another order of the channels, as layers.

    Args:
        read: by an operator, which needs all of a layer's numbers; a view may leave out more.
    """
    b, layer, places, name = made.b, value.layer, value.places, value.by
    if _plain(made, value):
        return value
    width = prod(layer.shape[3:])
    images, channels, positions = (places.range(of) for of in (IMAGE, CHANNEL, POSITION))
    for what, found, step in (
        ("images", images, made.images),
        ("channels", channels, 1),
        ("columns", positions, width),
    ):
        if found is None or found[0] % step or found[1] % step:
            if not read:
                return value
            raise NetworkError(f"{name}: a part of the {what} is not supported, only of channels or rows in one piece")
    assert channels is not None and positions is not None
    if channels != (0, layer.shape[1]):
        layer, places = b.take(channels[1], channels[0], name=name, after=layer), places.begun(CHANNEL)
    if positions != (0, prod(layer.shape[2:])):
        layer = b.take(positions[1] // width, positions[0] // width, 2, name, layer)
        places = places.begun(POSITION)
    for axis, factors in enumerate(places.axes):
        if len(factors) > 1 and factors == places.factors(CHANNEL):
            (_, size, step), (_, groups, far) = factors[:2]
            if len(factors) == 2 and (step, far) == (1, size):
                layer = b.channel_shuffle(groups, name=name, after=layer)
            else:
                layer = b.permute_channels(places.numbers([axis], channel=1).tolist(), name=name, after=layer)
            places = places.with_axis(axis, Factor(CHANNEL, layer.shape[1], 1))
    return value._replace(layer=layer, places=places, by=name)


def _conv(made: Made, node: Node, inputs: list[Value]) -> Value:
    """A convolution, which may have its input's zeros as an option, or a transposed one."""
    (value,), w, given = inputs, node.weights["w"].values, dict(node.attributes)
    filters = w.shape[0] if node.operation == "conv" else w.shape[1] * given["groups"]
    given["pad"] = tuple(a + b for a, b in zip(given["pad"], value.pad, strict=True))
    given |= {"bias": "b" in node.weights, "name": node.name, "after": _maps(made, node, value)}
    return made.value(node, getattr(made.b, node.operation)(filters, w.shape[2:], **given))


def _linear(made: Made, node: Node, inputs: list[Value]) -> Value:
    """Of a row of an image's numbers, in any order; or of every position's channels: a 1×1 convolution."""
    (value,), places = inputs, inputs[0].places
    outputs, bias = len(node.weights["w"].values), "b" in node.weights
    is_row = len(places.axes) == 2 and places.runs_through(0) <= {IMAGE}
    if _channels_last(value) and not is_row:
        node.weights["w"] = node.weights["w"].as_filters()
        return _as_before(value, made.b.conv(outputs, 1, bias=bias, name=node.name, after=value.layer))
    if not is_row:
        raise NetworkError(
            f"{node.name}: a linear layer reads {sizes(places.shape[1:])} an image; flatten it, or have all channels "
            "as last axis, before"
        )
    size = prod(value.layer.shape[2:])
    numbers = places.numbers([1], channel=size, position=1)
    if not np.array_equal(np.sort(numbers), np.arange(prod(value.layer.shape[1:]))):
        raise NetworkError(f"{node.name}: its input is a part of {value.layer}'s numbers; that is not supported")
    if not _plain(made, value):
        node.weights["w"] = node.weights["w"].in_order(1, np.argsort(numbers))
    return made.value(node, made.b.fc(outputs, bias=bias, name=node.name, after=value.layer))


def _prepend(made: Made, node: Node, inputs: list[Value]) -> Value:
    """One token before an image's own."""
    (value,), w, axis = inputs, node.weights["w"], node.attributes["axis"]
    layer, places = value.layer, value.places
    tokens, channels = prod(layer.shape[2:]), layer.shape[1]
    others = [one for one in range(len(places.axes)) if one != axis and places.runs_through(one) != {IMAGE}]
    if (
        not places.in_order(POSITION, tokens, [axis])
        or not places.in_order(CHANNEL, channels, others)
        or POSITION in {of for one in others for of in places.runs_through(one)}
        or w.values.shape[axis] != 1
        or prod(w.shape or w.values.shape) != channels
    ):
        raise NetworkError(f"{node.name}: a concatenation with a weight is supported as one token before others only")
    node.weights["w"] = w.moved(lambda values: values.reshape(-1)[:channels, None])
    return Value(made.b.prepend(name=node.name, after=layer), places.with_axis(axis, Factor(POSITION, 1 + tokens, 1)))


def _position(made: Made, node: Node, inputs: list[Value]) -> Value:
    """A learnt number for each of an image's, which the weight has in the order of the input's axes; or a bias."""
    (value,), places, w = inputs, inputs[0].places, node.weights["w"]
    if (bias := _alike(made, value, w)) is not None:
        node.weights["w"] = bias
        return Value(made.b.position(name=node.name, after=value.layer, alike=True), places)
    shape, rank = value.layer.shape[1:], len(places.axes)
    its = [axis for axis in range(rank) if places.runs_through(axis) != {IMAGE}]
    wanted = tuple(places.shape[axis] if axis in its else 1 for axis in range(rank))
    numbers = places.numbers(its, channel=prod(shape[1:]), position=1)
    if (1,) * (rank - w.values.ndim) + w.values.shape != wanted or numbers.size != prod(shape):
        by = sizes(w.values.shape)
        raise NetworkError(
            f"{node.name}: an addition of {by} numbers is not supported, only of one for each of an image's"
        )
    order = np.argsort(numbers)
    node.weights["w"] = w.moved(lambda values: values.reshape(-1)[order].reshape(shape))
    return Value(made.b.position(name=node.name, after=value.layer), places)


def _alike(made: Made, value: Value, w: FirstValues) -> FirstValues | None:
    """One number a channel, if that is what a weight has: in one row, or in a row that its views have repeated."""
    layer, last = value.layer, len(value.places.axes) - 1
    its = [axis for axis in range(last + 1) if CHANNEL in value.places.runs_through(axis)]
    if len(its) != 1 or not value.places.in_order(CHANNEL, layer.shape[1], its) or len(layer.shape) != 4:
        return None
    axis, rank = its[0] - last - 1, w.values.ndim  # from the last on
    if rank < -axis or w.values.shape[axis] != layer.shape[1] or value.places.runs_through(its[0]) != {CHANNEL}:
        return None

    def row(values: np.ndarray) -> np.ndarray:
        first: np.ndarray = np.moveaxis(values, axis, -1).reshape(-1, values.shape[axis])[0]
        return first

    numbers = np.moveaxis(w.places().reshape(w.values.shape), axis, -1)
    return w.moved(row) if (numbers == row(w.places().reshape(w.values.shape))).all() else None


def _embedding(made: Made, node: Node, inputs: list[Value]) -> Value:
    """A row of the table for every token; the channels become the last axis."""
    (value,), (words, channels) = inputs, node.weights["w"].values.shape
    node.weights["w"] = node.weights["w"].as_filters()
    layer = made.b.embedding(words, channels, name=node.name, after=value.layer, **node.attributes)
    tokens = made.own(layer)
    return Value(layer, tokens.permuted((0, 2, 3, 1)).reshaped((*node.shape[:-1], channels)))


Read = Callable[[Made, Node, Value], Layer]
Operation = Callable[[Made, Node, list[Value]], Value]


def _method(of: str, read: Read = _maps) -> Operation:
    """A layer with one input, whose options are the node's attributes; one that reads any order keeps it."""

    def make(made: Made, node: Node, inputs: list[Value]) -> Value:
        (value,) = inputs
        layer = getattr(made.b, of)(name=node.name, after=read(made, node, value), **node.attributes)
        return Value(layer, value.places) if read is _any else made.value(node, layer)

    return make


def _global_pool(made: Made, node: Node, inputs: list[Value]) -> Value:
    """Over all positions, wherever they are."""
    (value,), places = inputs, inputs[0].places
    axes = node.attributes["axes"]
    axes = range(2, len(places.axes)) if axes is None else [int(axis) % len(places.axes) for axis in axes]
    over = {axis for axis in range(len(places.axes)) if POSITION in places.runs_through(axis)}
    alone = all(places.runs_through(axis) <= {POSITION} for axis in axes)
    if not over <= {*axes} or not alone or not axes or places.range(POSITION) != (0, prod(value.layer.shape[2:])):
        raise NetworkError(f"{node.name}: a reduction over {[*axes]} is not supported, only over height and width")
    layer = made.b.global_pool(node.attributes["mode"], name=node.name, after=value.layer)
    for axis in over:
        places = places.with_axis(axis)
    return Value(layer, places.reshaped(node.shape))


def _join(made: Made, node: Node, inputs: list[Value]) -> Value:
    """A sum; of one input it is that input."""
    layers, first = [value.layer for value in inputs], inputs[0]
    if len({value.places for value in inputs}) > 1 and len({layer.shape for layer in layers}) == 1:
        raise NetworkError(f"{node.name}: its inputs' axes are in different orders; that is not supported")
    return first if len(layers) == 1 else Value(made.b.join(*layers, name=node.name), first.places)


def _concat(made: Made, node: Node, inputs: list[Value]) -> Value:
    """Along the channels, wherever they are; of one input it is that input."""
    axis, first = node.attributes["axis"], inputs[0]
    if len(inputs) == 1:
        return first
    for value in inputs:
        places = value.places
        others = {one for place in range(len(places.axes)) if place != axis for one in places.runs_through(place)}
        alone = places.in_order(CHANNEL, value.layer.shape[1], [axis]) and places.runs_through(axis) <= {CHANNEL}
        row = CHANNEL not in others and POSITION not in others and _plain(made, value)
        if CHANNEL in others or not (alone or row) or len(places.axes) != len(first.places.axes):
            raise NetworkError(
                f"{node.name}: a concatenation along axis {axis} is not supported, only along the channels"
            )
    layer = made.b.concat(*(value.layer for value in inputs), name=node.name)
    factors = [factor for factor in first.places.axes[axis] if factor.of != CHANNEL]
    return Value(layer, first.places.with_axis(axis, Factor(CHANNEL, layer.shape[1], 1), *factors))


def _mul(made: Made, node: Node, inputs: list[Value]) -> Value:
    """Of two alike, or of maps and one number a map."""
    x, gate = sorted(inputs, key=lambda value: -prod(value.places.shape))
    pairs = zip(x.places.axes, gate.places.axes, strict=False)
    if len(x.places.axes) != len(gate.places.axes) or any(theirs not in (ours, ()) for ours, theirs in pairs):
        raise NetworkError(f"{node.name}: its inputs' axes are in different orders; that is not supported")
    return Value(made.b.mul(inputs[0].layer, inputs[1].layer, name=node.name), x.places)


def _scale(made: Made, node: Node, inputs: list[Value]) -> Value:
    """By one number a channel."""
    (value,), axis, (w,) = inputs, node.attributes["axis"], node.weights.values()
    channels, places = value.layer.shape[1], value.places
    if w.values.size != channels or not places.in_order(CHANNEL, channels, [axis]):
        by = sizes(w.shape or ())
        raise NetworkError(f"{node.name}: a multiplication by {by} numbers is not supported, only by one a channel")
    return Value(made.b.scale(name=node.name, after=value.layer), places)


def _as_it_is(made: Made, node: Node, inputs: list[Value]) -> Value:
    """The same numbers; a softmax at the end is added by `built`."""
    return inputs[0]


def _times(made: Made, node: Node, inputs: list[Value]) -> Value:
    """The same numbers, which have yet to be multiplied."""
    return inputs[0]._replace(times=inputs[0].times * node.attributes["by"])


def _factor(made: Made, node: Node, inputs: list[Value]) -> Value:
    """The same numbers times one, by a layer that has it once a channel and learns nothing."""
    (value,) = inputs
    return Value(made.b.scale(node.attributes["by"], name=node.name, after=value.layer), value.places)


def _permute_channels(made: Made, node: Node, inputs: list[Value]) -> Value:
    (value,), axis = inputs, node.attributes["axis"]
    places = value.places
    if not (places.in_order(CHANNEL, value.layer.shape[1], [axis]) and places.runs_through(axis) <= {CHANNEL}):
        raise NetworkError(f"{node.name}: the numbers along axis {axis} are no channels; only these can be permuted")
    return Value(made.b.permute_channels(node.attributes["order"], name=node.name, after=value.layer), places)


def _of_channels(made: Made, node: Node, inputs: list[Value]) -> Value:
    """A layer or an RMS normalisation: over the last axis, which has to be the channels."""
    (value,), of, options = inputs, node.operation, {"name": node.name, "after": inputs[0].layer, **node.attributes}
    if _channels_last(value):
        return Value(getattr(made.b, of)(**options), value.places)
    if of == "layernorm" and len(value.places.axes) == 2 and not node.weights and _plain(made, value):
        return Value(made.b.groupnorm(1, **options), value.places)  # of all maps of an image
    raise NetworkError(f"{node.name}: a layer normalisation is supported over the channels, with these as last axis")


def _groupnorm(made: Made, node: Node, inputs: list[Value]) -> Value:
    """Of maps, or of a view of them whose second axis is the groups."""
    (value,), places = inputs, inputs[0].places
    of_groups = _plain(made, value) and places.axes[0] == made.own(value.layer).axes[0]
    if not of_groups or places.shape[1] != node.attributes["groups"]:
        _maps(made, node, value)
    return Value(made.b.groupnorm(name=node.name, after=value.layer, **node.attributes), places)


def _pad(made: Made, node: Node, inputs: list[Value]) -> Value:
    (value,), how = inputs, node.attributes
    x = _maps(made, node, value)
    if how["value"]:
        return made.value(node, made.b.pad(how["pad"], how["value"], name=node.name, after=x))
    return value._replace(pad=how["pad"])


OPERATIONS: dict[str, Operation] = {
    "conv": _conv, "conv_transpose": _conv, "linear": _linear, "pool": _method("pool"),
    "pool_to": _method("pool_to"), "global_pool": _global_pool, "upsample": _method("upsample_to"),
    "batchnorm": _method("batchnorm"), "lrn": _method("lrn"), "dropout": _method("dropout", _any),
    "drop_path": _method("drop_path", _any), "channel_shuffle": _method("channel_shuffle"),
    "permute_channels": _permute_channels,
    "layernorm": _of_channels, "rmsnorm": _of_channels, "groupnorm": _groupnorm, "view": _view,
    "concat": _concat, "add": _join, "pad": _pad, "mul": _mul, "scale": _scale,
    "softmax": _as_it_is, "identity": _as_it_is, "attention": attention, "prepend": _prepend,
    "position": _position, "embedding": _embedding, "rotary": rotary, "times": _times, "factor": _factor,
} | {kind: _method(kind, _any) for kind, traits in TRAITS.items() if traits.elementwise}  # fmt: skip
