"""The nodes of a graph, and what each has become: a layer, whose numbers are read in some arrangement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from refimpl.importing.arrangement import Arrangement
from refimpl.network.first_values import FirstValues
from refimpl.network.later_layers import Builder
from refimpl.network.layer import Layer, NetworkError

NO_PAD = (0, 0, 0, 0)


class Unsupported(Exception):
    """Why an operation cannot be translated."""


@dataclass
class Node:
    """One operation with one output, which has the node's name."""

    name: str
    operation: str
    inputs: list[str]  #: names of nodes, or of the graph's input
    shape: tuple[int, ...]  #: of the output, with the graph's number of images
    attributes: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, FirstValues] = field(default_factory=dict)
    origin: str = ""  #: of a module's: the node of its export


@dataclass
class Graph:
    """A network as a file or a module has it, in an order in which it can be computed."""

    name: str
    origin: str  #: "PyTorch" or "ONNX"
    input: str
    shape: tuple[int, ...]  #: of the input; its number of images is that of all shapes, and not the network's
    nodes: list[Node]
    outputs: list[str]
    dtype: str = "float32"  #: of the input; "int32": it is tokens
    file: str | None = None  #: that trained weights can be written back to
    script: Mapping[str, Any] = field(default_factory=dict)  #: of a module


class Value(NamedTuple):
    """What a node has become: a layer whose numbers are read in some arrangement, and then with zeros around them."""

    layer: Layer
    places: Arrangement
    pad: tuple[int, int, int, int] = NO_PAD
    times: float = 1.0  #: a number that all have to be multiplied by
    by: str = ""  #: the last view that left numbers out or changed their order


@dataclass(frozen=True)
class Made:
    """A network that is being built of a graph."""

    b: Builder
    images: int  #: of the graph; those of the network are others
    nodes: dict[Layer, Node] = field(default_factory=dict)  #: layer → the node whose weights it has
    readers: Mapping[str, set[str]] = field(default_factory=dict)  #: node → the operators that read it, or views of it

    def own(self, layer: Layer) -> Arrangement:
        """The layer's numbers as they are."""
        return Arrangement.of((self.images, *layer.shape[1:]))

    def value(self, node: Node, layer: Layer) -> Value:
        """The layer's numbers as the node's shape has them: with other axes of one number, but no other change."""
        if squeezed(layer.shape[1:]) != squeezed(node.shape[1:]) or node.shape[0] != self.images:
            raise another_shape(node, layer.shape[1:])
        return Value(layer, self.own(layer).reshaped(node.shape))


def another_shape(node: Node, found: tuple[int, ...], origin: str = "the original") -> NetworkError:
    return NetworkError(
        f"{node.name}: {sizes(found)} an image here, {sizes(node.shape[1:])} in {origin}: not supported"
    )


def sizes(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "one number"


def squeezed(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if size != 1]
