"""Parts of an ONNX file that we have as one layer: what is written out in arithmetic, and attention as two products.

As `torch_parts`, with the nodes of a file, which the library's own evaluator executes.  A file does not say which of
its constants are learnt, so what has tables in it is a rotary position or a mask, or nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.importing import graph, written_out
from refimpl.importing.graph import Translated
from refimpl.importing.nodes import Unsupported

LONGEST = 48  #: nodes of a part
COPIES = ("Identity", "Cast", "CastLike")
ARITHMETIC = {
    "Add", "Sub", "Mul", "Div", "Pow", "Neg", "Sqrt", "Reciprocal", "Exp", "Erf", "Tanh", "Sigmoid", "Abs",
    "ReduceMean", "Concat", "Slice", "Split", "Gather", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Expand", *COPIES,
}  # fmt: skip
ENDS = ("Mul", "Add", "Div", "Concat", "Reshape", "RotaryEmbedding")  #: the last operator of what is written out
MASKS = {"Where", "Min", "Max", "Clip"}  #: what is done with attention's scores, besides


class FilePart:
    """As `torch_parts.GraphPart`, of values in place of nodes; `of`: the translation of `onnx_nodes`."""

    def __init__(self, of: Any, value: str, allowed: set[str], until: str = "", past: int = 0) -> None:
        self.of, self.values, self.source, self.tables = of, list[str](), None, False
        waiting = {value}
        while waiting and len(self.values) <= LONGEST:
            last = max(waiting, key=lambda name: of.order.get(name, -1))
            maker = of.makers.get(last)
            operator = maker.op_type if maker is not None else ""
            if len(waiting) == 1 and self.values and (not until or operator == until):
                if past == 0:
                    self.source = last
                    break
                past -= 1
            waiting.remove(last)
            if operator not in allowed:
                break
            self.values.insert(0, last)
            given = [name for name in maker.input if name]
            self.tables = self.tables or any(self._size(name) > 1 for name in given if name not in of.names)
            waiting |= {name for name in given if name in of.names}

    def _size(self, name: str) -> int:
        """Of a constant of floating point."""
        tensor, found = self.of.file.weights.get(name), None
        if tensor is None:
            found = self.of.file.constants.large(name)
        elif tensor.data_type == self.of.file.onnx.TensorProto.FLOAT:
            return int(np.prod(tensor.dims, dtype=np.int64))
        return found.size if found is not None and found.dtype.kind == "f" else 0

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        """The last value's numbers for these of the source."""
        made: dict[str | None, np.ndarray | None] = {self.source: np.array(numbers, np.float64)}
        for value in self.values:
            node = self.of.makers[value]
            given = [made[name] if name in made else self.constant(name) for name in node.input]
            if node.op_type in COPIES:
                made[value] = given[0]
            else:
                made[value] = self.of.file.constants.evaluated(node, value, given)
        return np.asarray(made[self.values[-1]])

    def constant(self, name: str) -> np.ndarray | None:
        """A weight or what is computed of constants; an absent input is None."""
        if not name:
            return None
        tensor = self.of.file.weights.get(name)
        found = self.of.file.onnx.numpy_helper.to_array(tensor) if tensor is not None else None
        found = self.of.file.constants.large(name) if found is None else found
        if found is None:
            raise ValueError(f"{name} is no constant")
        return np.asarray(found, np.float64) if found.dtype.kind == "f" else np.asarray(found)


def one_layer(call: Any) -> Translated | None:
    """What a node ends that is one layer: its operation and attributes, and the call's inputs are that layer's."""
    if call.node.op_type not in ENDS:
        return None
    for past in range(written_out.MOST_SOURCES):
        part = FilePart(call.of, call.node.output[0], ARITHMETIC | {"RotaryEmbedding"}, past=past)
        if part.source not in call.of.shapes:
            return None
        operators = [call.of.makers[value].op_type for value in part.values]
        if written_out.computes(operators) and (
            found := written_out.recognised(part, call.of.shapes[part.source], part.tables)
        ):
            call.inputs = [call.of.names[part.source]]
            return found
    return None


def attention(call: Any) -> Translated:
    """A product of maps: attention, as softmax(queries · keysᵀ · factor + mask) · values."""
    refused = Unsupported("a product of two maps is supported as attention only: softmax(queries · keysᵀ) · values")
    of, (value, values) = call.of, call.node.input
    call.inputs = []
    node = of.makers.get(value)
    while node is not None and node.op_type in ("Dropout", "Reshape", "Expand", "Where", *COPIES):
        if node.op_type == "Dropout" and (of.file.numbers(node.input[1]) if len(node.input) > 1 else [0.5]) != [0.0]:
            raise Unsupported("dropout of attention's probabilities is not supported; export it with a ratio of 0")
        chosen = node.input[2 if node.op_type == "Where" else 0]
        if node.op_type == "Where":  # "0 where it is no number": of a token that sees none
            asked = of.makers.get(node.input[0])
            if asked is None or asked.op_type != "IsNaN" or asked.input[0] != chosen:
                raise refused
        node = of.makers.get(chosen)
    if node is None or node.op_type != "Softmax":
        raise refused
    axis = next((one.i for one in node.attribute if one.name == "axis"), -1 if of.file.opset > 12 else 1)
    last = node.input[0]
    if axis not in (-1, len(of.shapes.get(last, ())) - 1):
        raise refused
    causal, factor = False, 1.0
    if of.makers[last].op_type != "MatMul":
        part = FilePart(of, last, ARITHMETIC | MASKS, "MatMul")
        if part.source is None:
            raise refused
        found = written_out.scores(part, of.shapes.get(part.source, ()))
        if found is None:
            raise refused
        last, (factor, mask) = part.source, found
        causal = graph.is_causal(mask)
    queries, keys = of.makers[last].input
    if any(name not in of.names for name in (queries, keys, values)):
        raise refused
    call.inputs = [of.names[name] for name in (queries, keys, values)]
    return "attention", {"causal": causal, "scale": factor, "transposed": True}


def attention_operator(call: Any) -> Translated:
    """ONNX's own, of operator set 23: of maps with an axis of heads, or of (images, tokens, channels)."""
    of, given = call.of, [call.optional(place) for place in range(7)]
    if any(given[4:]):
        raise Unsupported("attention with keys and values of earlier tokens is not supported")
    if any(name not in of.names for name in given[:3]):
        raise Unsupported("attention with a query, key or value that is no map is not supported")
    call.require(softcap=0.0)
    call.inputs = [of.names[name] for name in given[:3]]
    causal, how = bool(call.attribute("is_causal", 0)), dict[str, Any]()
    if given[3]:
        mask = FilePart(of, given[3], set()).constant(given[3]) if given[3] not in of.names else None
        if mask is None:
            raise Unsupported("attention with a mask that is computed from the input is not supported")
        causal = causal or graph.is_causal(mask)
    if len(call.shape_of_input()) == 3:
        how["packed"] = (int(call.attribute("q_num_heads", 1)), int(call.attribute("kv_num_heads", 1)))
    return "attention", {"causal": causal, "scale": call.attribute("scale", None), **how}
