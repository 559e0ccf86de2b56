"""What an ONNX file computes from constants alone: limits, axes and paddings, which exporters write as small graphs.

A value is computed when it is asked for, by the library's own evaluator, one node at a time.  Everything is small:
at most `SMALL` numbers go into a node, as many come out, and a chain has at most `DEEPEST` nodes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

SMALL = 1 << 10  #: numbers of a constant that is computed, or shown to the shape inference
LARGE = 1 << 22  #: of a mask that is computed
DEEPEST = 100  #: nodes from a constant to what is computed of it
MOST = 20_000  #: nodes that are computed in all
IMAGES = (1_000_003, 2_000_006)  #: what is computed from a shape is a constant if it is the same for both batches

#: Operators with as many numbers as their inputs have when they are broadcast.
OF_EACH_NUMBER = {
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Neg", "Abs", "Min", "Max", "Floor", "Ceil", "Round", "Sqrt", "Exp",
    "Reciprocal", "Sign", "Where", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or",
    "Cast", "CastLike", "Sin", "Cos",
}  # fmt: skip
#: Operators that move numbers, or reduce them.
MOVES = {
    "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Concat", "Slice", "Gather", "Split",
    "ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "Trilu",
}  # fmt: skip
FROM_A_SHAPE = {"ConstantOfShape": 0, "Expand": 1}  #: operator → the input that is the shape of what it makes


class Constants:
    """The constants of a graph, computed when they are asked for.

    Args:
        onnx: the library.
        tensors: name → the file's own constants; it may grow.
        nodes: of the graph.
        opset: the version of the operators.
    """

    def __init__(self, onnx: Any, tensors: Mapping[str, Any], nodes: Iterable[Any], opset: int) -> None:
        self._onnx, self._tensors, self._opset = onnx, tensors, opset
        self._makers = {name: node for node in nodes for name in node.output if name}
        self._found: dict[tuple[str, int, int], np.ndarray | None] = {}
        self._shapes: Mapping[str, tuple[int, ...]] = {}  #: of values that are not constant, and
        self._batch = 0  #: the number of images in them
        self._left = MOST

    def learn(self, shapes: Mapping[str, tuple[int, ...]], batch: int) -> None:
        """The shapes of all values for a batch: what is computed from them is known from now on."""
        self._shapes, self._batch = shapes, batch
        self._found.clear()

    def large(self, name: str) -> np.ndarray | None:
        """As `value`, and up to `LARGE` numbers: masks and tables of positions."""
        return self.value(name, LARGE)

    def value(self, name: str, most: int = SMALL) -> np.ndarray | None:
        """The constant of that name; None: it is no constant, not a small one, or follows from the number of images."""
        one, other = (self._value(name, images, most) for images in IMAGES)
        same = one is not None and other is not None and one.shape == other.shape and np.array_equal(one, other)
        return one if same else None

    def moved(self, node: Any, first: np.ndarray) -> np.ndarray | None:
        """What a node makes that moves the numbers of its first input, of any size, or takes some, each at most once.

        None: it does something else.
        """
        given = [self.large(name) if name else None for name in node.input[1:]]
        if any(value is None for name, value in zip(node.input[1:], given, strict=True) if name):
            return None
        takes = node.op_type in ("Gather", "Slice")
        source = np.arange(first.size).reshape(first.shape) if takes else first
        try:
            made = self.evaluated(node, node.output[0], [source, *given])
        except Exception:  # as in _computed
            return None
        if takes:
            return first.reshape(-1)[made] if len(np.unique(made)) == made.size else None
        return made if made.size == first.size else None

    def _value(self, name: str, images: int, most: int, depth: int = 0) -> np.ndarray | None:
        key = name, images, most
        if key not in self._found and depth <= DEEPEST:
            tensor, maker = self._tensors.get(name), self._makers.get(name)
            if tensor is not None:
                few = prod(tensor.dims) <= most and len(tensor.raw_data) <= 8 * most
                self._found[key] = self._onnx.numpy_helper.to_array(tensor) if few else None
            elif maker is not None:
                self._found[key] = self._computed(maker, name, images, most, depth)
        return self._found.get(key)

    def _computed(self, node: Any, name: str, images: int, most: int, depth: int) -> np.ndarray | None:
        kind = node.op_type
        if kind == "Shape":
            return self._shape(node, images, most, depth)
        if self._left < 1 or kind not in OF_EACH_NUMBER | MOVES | FROM_A_SHAPE.keys():
            return None
        given = [self._value(one, images, most, depth + 1) if one else None for one in node.input]
        if any(value is None for one, value in zip(node.input, given, strict=True) if one):
            return None
        there = [value for value in given if value is not None]
        try:
            if sum(value.size for value in there) > most or _made(kind, there) > most:
                return None
            made = self.evaluated(node, name, given)
            return made if made.size <= most else None
        except Exception:  # of many classes: the node's inputs or attributes are not what its operator takes
            return None

    def _shape(self, node: Any, images: int, most: int, depth: int) -> np.ndarray | None:
        """What the operator Shape says of its input, for another number of images."""
        of = node.input[0]
        tensor, value, whole = self._tensors.get(of), self._value(of, images, most, depth + 1), self._shapes.get(of)
        if tensor is not None:
            whole = tuple(tensor.dims)
        elif value is not None:
            whole = value.shape
        elif whole is not None and whole[:1] == (self._batch,):
            whole = (images, *whole[1:])
        bounds = {one.name: int(one.i) for one in node.attribute}
        return None if whole is None else np.array(whole, np.int64)[bounds.get("start", 0) : bounds.get("end")]

    def evaluated(self, node: Any, name: str, given: list[np.ndarray | None]) -> np.ndarray:
        """One output of a node for these inputs."""
        from onnx.reference import ReferenceEvaluator

        self._left -= 1 + sum(value.size for value in given if value is not None) // (64 * SMALL)
        evaluator = ReferenceEvaluator(node, opsets={"": self._opset})
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = evaluator.run(None, {one: value for one, value in zip(node.input, given, strict=True) if one})
        return np.asarray(found[list(node.output).index(name)])


def _made(kind: str, given: list[np.ndarray]) -> int:
    """About how many numbers an operator makes, before it makes them."""
    if kind in FROM_A_SHAPE:
        return abs(prod(int(size) for size in given[FROM_A_SHAPE[kind]].reshape(-1)))
    if kind in OF_EACH_NUMBER:
        return prod(np.broadcast_shapes(*(value.shape for value in given)))
    return 0
