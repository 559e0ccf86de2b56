"""Parts of an export that we have as one layer: what a module writes out in arithmetic, and attention as two products.

A part is all that is between a node and the last node before it that every path goes through.  It is executed here in
double precision, and `written_out` compares what comes out with what our layers compute.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from refimpl.importing import graph, written_out
from refimpl.importing.graph import Translated
from refimpl.importing.nodes import Unsupported

LONGEST = 48  #: nodes of a part
COPIES = ("lift_fresh_copy", "lift_fresh", "detach", "clone", "alias", "to", "_to_copy", "type_as")  #: the same numbers
#: Operators of arithmetic, and those that move numbers about in it.
ARITHMETIC = {
    "mul", "add", "sub", "rsub", "div", "pow", "neg", "square", "sqrt", "rsqrt", "reciprocal", "exp", "erf", "tanh",
    "sigmoid", "abs", "mean", "cat", "stack", "flatten", "view", "reshape", "squeeze", "unsqueeze", "slice", "select",
    "chunk", "split", "split_with_sizes", "getitem", "unbind", "expand", "contiguous", *COPIES,
}  # fmt: skip
ENDS = ("mul", "add", "div", "cat", "flatten")  #: the last operator of what is written out
MASKS = {"where", "masked_fill", "minimum", "maximum", "clamp"}  #: what is done with attention's scores, besides
PRODUCTS = ("matmul", "bmm")


LEAVES = "torch.nn.modules."  #: a module of a class from here is one operation, and its name is the node's
#: Of those, classes that are several operations.
CONTAINERS = tuple(f"{LEAVES}{name}" for name in ("container.", "transformer.", "activation.MultiheadAttention"))


class Names:
    """A name for each node: the path of the layer of PyTorch's that was called, else the caller's and the operator."""

    def __init__(self) -> None:
        self._counts = Counter({"input": 1, "labels": 1})  # names that each network has

    def __call__(self, path: str, kind: Any, operator: str) -> str:
        """Args:
        path: of the module that called the operator.
        kind: its class, or the name of that.
        operator: as in "conv2d".
        """
        kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        if not kind.startswith(LEAVES) or kind.startswith(CONTAINERS):
            path = f"{path}.{operator}".lstrip(".")
        return self.free(graph.cleaned(path or operator))

    def free(self, name: str) -> str:
        """The name, with a number if another node has it."""
        self._counts[name] += 1
        return name if self._counts[name] == 1 else f"{name}_{self._counts[name]}"


def called_by(node: Any) -> tuple[str, Any]:
    """The path and the class of the module that a node of an export comes from."""
    path, kind = [*node.meta.get("nn_module_stack", {"": ("", "")}).values()][-1]
    return path, kind


def operator_of(node: Any) -> str:
    """As in "conv2d": without the overload, and without the underscore of an operator that works in place."""
    return str(getattr(node.target, "_opname", getattr(node.target, "__name__", node.target))).rstrip("_")


class GraphPart:
    """What is between a node and the node that it is a function of, `source`; None: it is no function of one.

    Args:
        of: the translation of `torch_module`, which has come as far as `node`.
        node: the last of the part.
        allowed: operators of the part.
        until: operators of the source; empty: any.
        past: nodes that every path goes through, too, which are not the source.
    """

    def __init__(
        self, of: Any, node: Any, allowed: set[str], until: tuple[str, ...] = (), past: int = 0
    ) -> None:  # fmt: skip
        self.of, self.nodes, self.source, self.learnt = of, list[Any](), None, False
        waiting, in_place = {node}, False
        while waiting and len(self.nodes) <= LONGEST:
            last = max(waiting, key=of.places.__getitem__)
            if len(waiting) == 1 and self.nodes and (not until or operator_of(last) in until):
                if past == 0:
                    self.source = None if in_place else last
                    break
                past -= 1
            waiting.remove(last)
            if last.op != "call_function" or operator_of(last) not in allowed:
                break
            self.nodes.insert(0, last)
            in_place = in_place or _overloaded(last).endswith("_")
            self.learnt = self.learnt or any(of.is_learnt(given) for given in last.all_input_nodes)
            waiting |= {given for given in last.all_input_nodes if given in of.names}

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        """The last node's numbers for these of the source."""
        torch = self.of.torch
        made = {self.source: torch.from_numpy(np.array(numbers, np.float64))}

        def found(given: Any) -> Any:
            if given in made:
                return made[given]
            value = self.of.constant(given)
            if value is None:
                raise ValueError(f"{given} is no constant")
            return value.double() if getattr(value, "is_floating_point", bool)() else value

        for node in self.nodes:
            if operator_of(node) in COPIES:
                made[node] = found(node.args[0])
            else:
                arguments, named = torch.fx.node.map_arg((node.args, node.kwargs), found)
                made[node] = node.target(*arguments, **{name: one for name, one in named.items() if name != "dtype"})
        result: np.ndarray = made[self.nodes[-1]].numpy()
        return result


def _shape(node: Any) -> tuple[int, ...]:
    """Of its output; empty where it has several."""
    return tuple(map(int, getattr(node.meta.get("val"), "shape", ())))


def _overloaded(node: Any) -> str:
    """The operator's name with the underscore of one that works in place."""
    schema = getattr(node.target, "_schema", None)
    return schema.name if schema is not None else ""


def one_layer(call: Any) -> Translated | None:
    """What a call ends that is one layer: its operation and attributes, and the call's inputs are that layer's."""
    if call.operator not in ENDS:
        return None
    for past in range(written_out.MOST_SOURCES):
        part = GraphPart(call.of, call.node, ARITHMETIC, past=past)
        if part.source is None or part.learnt:
            return None
        if written_out.computes(list(map(operator_of, part.nodes))) and (
            found := written_out.recognised(part, _shape(part.source))
        ):
            call.inputs = [call.of.names[part.source]]
            return found
    return None


def attention(call: Any) -> Translated:
    """A product of maps: attention, as softmax(queries · keysᵀ · factor + mask) · values."""
    refused = Unsupported("a product of two maps is supported as attention only: softmax(queries · keysᵀ) · values")
    of, (node, values) = call.of, call.node.args[:2]
    call.inputs = []
    while operator_of(node) in ("dropout", "expand", "view", "reshape", "contiguous", *COPIES):
        if operator_of(node) == "dropout" and node.args[1] and node.args[2]:
            raise Unsupported(f"dropout_p={node.args[1]} of attention is not supported, only 0.0")
        node = node.args[0]
    if operator_of(node) not in ("softmax", "_softmax") or node.args[1] not in (-1, len(_shape(node)) - 1):
        raise refused
    last = node.args[0]
    causal, factor = False, 1.0
    if operator_of(last) not in PRODUCTS:
        part = GraphPart(of, last, ARITHMETIC | MASKS, PRODUCTS)
        if part.learnt:
            raise Unsupported(graph.BIASES)
        if part.source is None:
            raise refused
        found = written_out.scores(part, _shape(part.source))
        if found is None:
            raise refused
        last, (factor, mask) = part.source, found
        causal = graph.is_causal(mask)
    queries, keys = last.args[:2]
    if any(given not in of.names for given in (queries, keys, values)):
        raise refused
    call.inputs = [of.names[given] for given in (queries, keys, values)]
    return "attention", {"causal": causal, "scale": factor, "transposed": True}


class Vmaps:
    """The vmaps of PyTorch in which an export computes constants, such as masks.  Inside, its order is to be kept."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._open = torch, 0

    def are_open(self, node: Any) -> bool:
        """Whether a node is in a vmap, or opens or closes one."""
        operator = operator_of(node)
        if operator == "_vmap_increment_nesting":
            node.target(*node.args)
            self._open += 1
        elif operator == "_vmap_decrement_nesting":
            self._close_one()
        return self._open > 0 and not operator.startswith("_vmap")

    def _close_one(self) -> None:
        self._torch._C._functorch._vmap_decrement_nesting()
        self._open -= 1

    def close(self) -> None:
        """All that an error has left open."""
        while self._open:
            self._close_one()
