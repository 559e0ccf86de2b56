"""Networks from PyTorch, and trained weights back into a module.

`torch.export` runs the module once without computing anything and lists the operators that it calls, whether a module
or a function called them, with every argument and every shape.  Each operator that we understand has a small function
here that translates its arguments; the table at the end has them all.  PyTorch is imported only here, when it is used.
"""

from __future__ import annotations

import io
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refimpl.importing import graph, torch_parts
from refimpl.importing.arrangement import IMAGE, Factor
from refimpl.importing.graph import Translated, translated
from refimpl.importing.nodes import Graph, Node, Unsupported
from refimpl.importing.torch_parts import COPIES, operator_of
from refimpl.network.first_values import FirstValues
from refimpl.network.layer import NetworkError
from refimpl.text import one_line

LARGEST_CONSTANT = 1 << 26  #: numbers
#: Errors of PyTorch's where Python asks for the values of a tensor that has none.
OF_VALUES = ("GuardOnDataDependentSymNode", "DataDependentOutputException", "DynamicOutputShapeException")
VALUES = "a shape, a number or a branch depends on a tensor's values, which no plan knows; torch.where keeps shapes"


class Example(NamedTuple):
    """What a module is called with: tensors without numbers, in order and by name, and anything else as it is."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, given: Any) -> Example:
        """Of a shape, of a tensor, of several arguments, of arguments by their names, or of both: (several, named)."""
        args: tuple[Any, ...] = ()
        kwargs: Mapping[str, Any] = {}
        if isinstance(given, Mapping):
            kwargs = dict(given)
        elif hasattr(given, "shape"):
            args = (given,)
        elif len(given := tuple(given)) == 2 and isinstance(given[0], tuple) and isinstance(given[1], Mapping):
            args, kwargs = given
        elif given and all(isinstance(size, int) and size > 0 for size in given):
            args = (np.broadcast_to(np.float32(0), given),)
        elif any(map(_shapes, given)):
            args = given
        else:
            raise NetworkError(f"the shape is {one_line(str(given))}; give (images, channels, height, width)")
        return cls(_each(args, _without_numbers), _each(dict(kwargs), _without_numbers))

    @property
    def alone(self) -> tuple[tuple[int, ...], str] | None:
        """Shape and type of the only input, if our kernels can read such: maps, rows or tokens."""
        if self.kwargs or len(self.args) != 1 or not 2 <= len(getattr(self.args[0], "shape", ())) <= 4:
            return None
        dtype = type_of(self.args[0])
        return (tuple(self.args[0].shape), "int32" if dtype == "int64" else dtype) if dtype != "float64" else None

    def zeros(self, torch: Any, device: Any) -> Example:
        """The same with numbers, on a device."""

        def zeros(one: Any) -> Any:
            return torch.zeros_like(one, device=device) if isinstance(one, torch.Tensor) else one

        return Example(_each(self.args, zeros), _each(self.kwargs, zeros))

    def __str__(self) -> str:
        shapes = _shapes([self.args, self.kwargs])
        return str(shapes[0]) if len(shapes) == 1 else f"shapes {', '.join(map(str, shapes))}"


def _each(value: Any, function: Callable[[Any], Any]) -> Any:
    """The same lists, tuples and dictionaries, with what a function makes of all else."""
    if isinstance(value, Mapping):
        return {key: _each(one, function) for key, one in value.items()}
    if isinstance(value, tuple | list):
        made = [_each(one, function) for one in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return function(value)


def _without_numbers(one: Any) -> Any:
    """A tensor of the same shape and type; whole numbers are of PyTorch's usual type."""
    if not hasattr(one, "shape"):
        return one
    import torch

    dtype = getattr(torch, type_of(one).replace("int32", "int64"))
    return torch.empty(tuple(one.shape), dtype=dtype, device="meta", requires_grad=getattr(one, "requires_grad", False))


def _shapes(value: Any) -> list[tuple[int, ...]]:
    """Of the tensors in a value."""
    found: list[tuple[int, ...]] = []
    _each(value, lambda one: found.append(tuple(one.shape)) if hasattr(one, "shape") else None)
    return found


def type_of(tensor: Any) -> str:
    """As in "float32"."""
    return str(tensor.dtype).removeprefix("torch.")


def imported_torch(module: Any) -> Any:
    """PyTorch, if it is installed and the module is one of its."""
    try:
        import torch
    except ImportError:
        raise NetworkError("PyTorch is not installed: pip install torch") from None
    if not isinstance(module, torch.nn.Module):
        raise NetworkError(f"{type(module).__name__} is not a torch.nn.Module")
    return torch


def graph_of(module: Any, exported: Any, shape: tuple[int, ...], dtype: str = "float32") -> Graph:
    """The module's graph in our operations, for an input of this shape; "int32": of tokens."""
    return TorchTranslation(imported_torch(module), module, exported, shape, dtype).graph


def fill_module(module: Any, trained: Mapping[str, np.ndarray]) -> None:
    """Write trained values into a module's parameters and buffers.  A wrong one changes nothing.

    Args:
        module: of the architecture that the network came from.
        trained: name in the module's state_dict → values.
    """
    import torch

    state = module.state_dict()
    for name, values in trained.items():
        if name not in state:
            raise NetworkError(f"the module {type(module).__name__} has no weight {name}")
        if tuple(state[name].shape) != values.shape or state[name].dtype != torch.float32:
            found = f"{state[name].dtype} of shape {tuple(state[name].shape)}"
            raise NetworkError(f"the module's weight {name} is {found}; trained was float32 of shape {values.shape}")
    with torch.no_grad():
        for name, values in trained.items():
            state[name].copy_(torch.from_numpy(np.array(values)))  # a state_dict's tensors are the module's own


def exported_module(module: Any, example: Example) -> Any:
    """What `torch.export` makes of the module as it trains."""
    torch = imported_torch(module)
    from refimpl.importing.recorded import as_it_trains
    from refimpl.torch.private import FakeTensorMode

    inputs, named = example.zeros(torch, next((parameter.device for parameter in module.parameters()), "cpu"))
    try:
        with as_it_trains(module, inputs, named, exports=True):
            exported = torch.export.export(module, inputs, named, strict=False)
            if any("unbacked_bindings" in node.meta for node in exported.graph.nodes):  # numbers that it has not
                with FakeTensorMode(allow_non_fake_inputs=True):  # which says in which line they are asked for
                    module(*inputs, **named)
    except Exception as error:
        raise cannot_follow(module, example, error, "torch.export") from None
    return exported


def cannot_follow(module: Any, example: Example, error: Exception, who: str = "a run without numbers") -> NetworkError:
    """The error that says what a module's own code did, and where."""
    first = f"{type(error).__name__}: {one_line(next(iter(str(error).splitlines()), ''))}"
    why = VALUES if type(error).__name__ in OF_VALUES else first
    what = f"{type(module).__name__} on an input of {example}"
    return NetworkError(f"{who} cannot follow {what}: {why}{_where(imported_torch(module), error)}")


def _where(torch: Any, error: BaseException) -> str:
    """The line of the user's own code in which an error was raised, if it has passed one."""
    others = Path(torch.__file__).parent, Path(__file__).parents[1]
    passed = [(one, Path(one.filename)) for one in traceback.extract_tb(error.__traceback__)]
    frames = [one for one, path in passed if not any(path.is_relative_to(other) for other in others)]
    own = [one for one in frames if "site-packages" not in one.filename] or frames
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno}, in {own[-1].name})" if own else ""


@contextmanager
def quiet() -> Iterator[None]:
    """No word of PyTorch's while a module is read: its warnings, loggers and pieces of graphs are about the export."""
    loggers = [one for name, one in logging.root.manager.loggerDict.items() if name.partition(".")[0] == "torch"]
    levels = {handler: handler.level for one in loggers for handler in getattr(one, "handlers", ())}
    try:
        for handler in levels:
            handler.setLevel(logging.CRITICAL + 1)
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler, level in levels.items():
            handler.setLevel(level)


def _as_called(module: Any, exported: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Node of an export → the operator that the module calls there, and the module's script.

    Raises:
        NoKernel: the module has a gradient that is not that of its operators, and an export does not say so.
    """
    from refimpl.importing.observed import Observed

    observed = Observed(module, *exported.example_inputs)
    for seen in observed.seen:
        if seen.hides:
            where = f"{seen.path}: " if seen.path else ""
            raise graph.NoKernel(f"{where}{seen.operator} {seen.hides}; our own kernels would not have its gradient")
    found, waiting = {}, iter(observed.seen)
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            found[node.name] = node.name
        elif node.op == "call_function":  # an export leaves some out
            value = node.meta.get("val")
            value = value[0] if isinstance(value, tuple | list) and value else value
            shape = tuple(getattr(value, "shape", ()))
            its = next((one for one in waiting if (one.operator, one.shape) == (operator_of(node), shape)), None)
            if its is None:
                return {}, {}
            found[node.name] = its.name
    return found, observed.script


class Weight(NamedTuple):
    """A parameter or a buffer, and views of it."""

    name: str  #: in the module's state_dict
    views: tuple[Any, ...] = ()  #: nodes of the export, each a view of the one before


class TorchTranslation:
    """The graph of one module."""

    def __init__(self, torch: Any, module: Any, exported: Any, shape: tuple[int, ...], dtype: str) -> None:
        signature = exported.graph_signature
        stored = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self.torch, self.batch = torch, shape[0]
        self.state = {**exported.constants, **exported.state_dict}
        lifted = signature.inputs_to_lifted_tensor_constants
        self.constants: dict[Any, Any] = {}  #: node of the export → what it is for all inputs; None: no constant
        every = module.named_parameters(remove_duplicate=False)  # the export takes one of the names of a shared one
        self.frozen = {name for name, parameter in every if not parameter.requires_grad}
        self.weights: dict[Any, Weight] = {}  #: node of the export → the parameter or buffer that it is, or views
        self.names: dict[Any, str] = {}  #: node of the export → our node that has its value now
        self.nodes: list[Node] = []
        self.made: dict[str, Node] = {}  #: by their names
        self.places = {node: place for place, node in enumerate(exported.graph.nodes)}  #: in the order of computation
        self.vmaps = torch_parts.Vmaps(torch)
        self._parameters = {*signature.inputs_to_parameters.values()}
        self._learnt: dict[Any, bool] = {}
        self.trained: set[Any] = set()  #: nodes through which a gradient reaches a parameter
        self._name = torch_parts.Names()
        self._called, script = _as_called(module, exported)
        outputs: list[str] = []
        try:
            for node in exported.graph.nodes:
                if node.op == "placeholder" and node.name in lifted:
                    self.constants[node] = exported.constants[lifted[node.name]]
                elif node.op == "placeholder" and node.name in stored:
                    self.weights[node] = Weight(stored[node.name])
                    self.trained |= {node} if stored[node.name] in self._parameters - self.frozen else set()
                    if node.name in signature.inputs_to_buffers:
                        self.constants[node] = self.state[stored[node.name]]
                elif node.op == "placeholder" and node.name in signature.user_inputs:
                    self.names[node] = ""
                elif node.op == "get_attr":  # a function that an operator calls
                    self.constants[node] = getattr(exported.graph_module, node.target, None)
                elif node.op == "call_function":
                    self._translate(node)
                elif node.op == "output":
                    outputs = [self.names[value] for value in node.args[0] if value in self.names]
        finally:
            self.vmaps.close()
        self.graph = Graph(type(module).__name__, "PyTorch", "", shape, self.nodes, outputs, dtype)
        self.graph.script = script

    def _translate(self, node: Any) -> None:
        call = TorchCall(self, node)
        if self.trained & {*node.all_input_nodes}:
            self.trained.add(node)
        if call.operator == "_assert_tensor_metadata":  # the export's own check before a cast
            return
        if not call.inputs:  # it views a weight, or computes constants
            if self.vmaps.are_open(node):
                self.constant(node)
            if call.operator in OF_WEIGHTS and node.args[0] in self.weights:
                weight = self.weights[node.args[0]]
                self.weights[node] = weight._replace(views=(*weight.views, node))
            return
        name = self._name(*torch_parts.called_by(node), call.operator)
        whole = torch_parts.one_layer(call)
        operator = OPERATORS.get(call.operator) if whole is None else (lambda call: whole)
        made = translated(name, str(node.target), operator and guarded(operator), call)
        self.names[node] = made.name
        self.made[made.name], made.origin = made, self._called.get(node.name, "")
        self.nodes.append(made)
        if call.in_place:  # who reads its input from here on reads its output
            self.names[node.args[0]] = made.name

    def is_learnt(self, node: Any) -> bool:
        """Whether a node is a parameter, or computed of one and not of the input."""
        if node not in self._learnt:
            own = node in self.weights and not node.all_input_nodes and self.weights[node].name in self._parameters
            through = node not in self.names and any(self.is_learnt(given) for given in node.all_input_nodes)
            self._learnt[node] = own or through
        return self._learnt[node]

    def constant(self, value: Any) -> Any:
        """What an argument is for all inputs: itself, or computed of constants alone; None: it is no constant."""
        if not hasattr(value, "all_input_nodes"):
            return value
        if value not in self.constants:
            tags, size = getattr(value.target, "tags", ()), getattr(value.meta.get("val"), "numel", lambda: 1)()
            drawn = self.torch.Tag.nondeterministic_seeded in tags or operator_of(value).startswith("empty")
            found = None
            if value.op == "call_function" and not drawn and size <= LARGEST_CONSTANT:
                with suppress(Exception):  # of many classes: it has an argument that is not there without the input
                    found = self.run(value, *value.args)
            self.constants[value] = found
        return self.constants[value]

    def run(self, node: Any, *given: Any) -> Any:
        """What an operator makes of these arguments; None: one is no constant."""
        lacking = []

        def found(argument: Any) -> Any:
            made = self.constant(argument)
            if made is None:
                lacking.append(argument)
            return made

        map_arg = self.torch.fx.node.map_arg
        arguments, named = map_arg(given, found), map_arg(node.kwargs, found)
        return None if lacking else node.target(*arguments, **named)

    def viewed(self, weight: Weight, tensor: Any) -> Any:
        """A tensor in a weight's place, after the views of it."""
        for node in weight.views:
            if operator_of(node) in COPIES:  # one may have a type, and places are numbers of another
                continue
            tensor = self.run(node, tensor, *node.args[1:])
            if tensor is None:
                raise Unsupported(f"{weight.name} is viewed as {node.name}, which is computed from the input")
        return tensor


def guarded(operator: Callable[[TorchCall], Translated]) -> Callable[[TorchCall], Translated]:
    """The operator; a call with arguments that it does not expect is one that is not supported."""

    def guard(call: TorchCall) -> Translated:
        try:
            return operator(call)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise Unsupported(
                f"{call.node.target} is not supported with such arguments ({one_line(str(error))})"
            ) from None

    return guard


class TorchCall(graph.OperatorCall):
    """One call of an operator, its arguments by name."""

    def __init__(self, translation: TorchTranslation, node: Any) -> None:
        self.of, self.node, self.operator = translation, node, operator_of(node)
        schema: Any = getattr(node.target, "_schema", None)
        self.in_place = schema is not None and schema.name.endswith("_")
        self.arguments: dict[str, Any] = {}
        if schema is not None:
            names = [argument.name for argument in schema.arguments]
            defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
            self.arguments = defaults | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        self.inputs = [translation.names[value] for value in node.all_input_nodes if value in translation.names]
        value = node.meta.get("val")
        value = value[0] if isinstance(value, tuple | list) else value
        self.whole, self.images = tuple(map(int, getattr(value, "shape", ()))), translation.batch

    def attribute(self, name: str, default: Any) -> Any:
        return self.arguments.get(name, default)

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def shape_of_input(self) -> tuple[int, ...]:
        value = self.node.args[0].meta.get("val")
        return tuple(map(int, getattr(value, "shape", ())))

    def pair(self, name: str) -> tuple[int, int]:
        """A number for both axes, or one for each; of an operator over one axis that of the rows, of one column."""
        given = self[name]
        values = tuple(given) if isinstance(given, list | tuple) else (given,)
        if self.operator.endswith("1d"):
            return int(values[0]), 0 if "padding" in name else 1
        return (int(values[0]), int(values[-1]))

    def filters(self) -> dict[str, FirstValues]:
        """The weights of a convolution, over one axis or two."""
        return {name: weight.as_columns() for name, weight in self.weights(w="weight", b="bias").items()}

    def number(self, name: str) -> Any:
        """A number, or a tensor of one that is a constant; anything else as it is."""
        value = self.attribute(name, None)
        found = self.of.constant(value) if hasattr(value, "all_input_nodes") else None
        return float(found) if found is not None and found.numel() == 1 else value

    def one_number(self, value: Any) -> float | None:
        """A number, or a constant of one; None: it is something else."""
        found = self.of.constant(value)
        one = found is not None and getattr(found, "numel", lambda: 1)() == 1
        return float(found) if one else None

    def numbers(self, value: Any) -> list[float]:
        """The numbers of a constant."""
        found = self.of.constant(value)
        if found is None or found.dim() != 1:
            raise Unsupported(f"its numbers are computed by {value}; only a buffer or a constant is supported")
        numbers: list[float] = found.tolist()
        return numbers

    def weights(self, **parameters: str) -> dict[str, FirstValues]:
        """Our name = the argument's name; an argument that is None is left out."""
        return {ours: self.weight_of(self[name], name) for ours, name in parameters.items() if self[name] is not None}

    def weight_of(self, value: Any, what: str) -> FirstValues:
        """A parameter or a buffer, or a view of one."""
        weight = self.of.weights.get(value)
        if weight is None:
            raise Unsupported(f"its {what} is computed by {value}; only a parameter or a buffer is supported")
        tensor = self.of.state[weight.name].detach().cpu()
        if str(tensor.dtype) != "torch.float32":
            raise Unsupported(f"{weight.name} is {tensor.dtype}; give the module in float32")
        first = FirstValues(weight.name, tensor.numpy().copy(), frozen=weight.name in self.of.frozen)
        if not weight.views:
            return first
        torch = self.of.torch
        made = first.moved(lambda values: self.of.viewed(weight, torch.from_numpy(values)).numpy())
        return replace(made, whole=first.values)


# -- the operators: what each is here, its attributes, its weights -----------------------------------------------------


def _conv2d(call: TorchCall) -> Translated:
    weights = call.filters()
    dilation = call.pair("dilation")
    if isinstance(call["padding"], str):
        spans = [(size - 1) * d for size, d in zip(weights["w"].values.shape[2:], dilation, strict=True)]
        spans = spans if call["padding"] == "same" else [0, 0]
        pad = (spans[0] // 2, spans[1] // 2, spans[0] - spans[0] // 2, spans[1] - spans[1] // 2)
    else:
        pad = call.pair("padding") * 2
    how = {"stride": call.pair("stride"), "pad": pad, "dilation": dilation, "groups": call["groups"]}
    return "conv", how, weights


def _conv_transpose2d(call: TorchCall) -> Translated:
    how: dict[str, Any] = {name: call.pair(name) for name in ("stride", "dilation")}
    how |= {"pad": call.pair("padding") * 2, "out_pad": call.pair("output_padding"), "groups": call["groups"]}
    return "conv_transpose", how, call.filters()


def _addmm(call: TorchCall) -> Translated:
    """b + x · w"""
    call.require(alpha=1, beta=1)
    call.inputs = [call.of.names[call["mat1"]]]
    return "linear", {}, {"w": call.weight_of(call["mat2"], "factor").moved(np.transpose)} | call.weights(b="self")


def _matmul(call: TorchCall) -> Translated:
    """x · w, or the end of attention."""
    x, w = call.node.args[:2]
    if w in call.of.weights and x in call.of.names and len(w.meta["val"].shape) == 2:
        return "linear", {}, {"w": call.weight_of(w, "factor").moved(np.transpose)}
    if call.operator == "mm":
        raise Unsupported("a product is supported with a weight as its second factor only")
    return torch_parts.attention(call)


def _einsum(call: TorchCall) -> Translated:
    """The same: the last axis of x and an axis of a matrix are what is summed over, and the other becomes the last."""
    terms, _, out = call["equation"].replace(" ", "").replace("...", ".").partition("->")
    pairs = [*zip(terms.split(","), call["tensors"], strict=False)]
    for (its, x), (axes, w) in (pairs, pairs[::-1]) if len(pairs) == 2 else ():
        alike = its[:-1] == out[:-1] and sorted(axes) == sorted(its[-1:] + out[-1:])
        if x in call.of.names and w in call.of.weights and alike and len({*its, *axes}) == len(its) + 1:
            weight = call.weight_of(w, "factor")
            return "linear", {}, {"w": weight if axes[1] == its[-1] else weight.moved(np.transpose)}
    raise Unsupported("an einsum is supported of the last axis of a map and a weight of two axes only")


def _clamped(low: str, high: str) -> Callable[[TorchCall], Translated]:
    return lambda call: graph.limited(call.number(low), call.number(high))


def _pool(mode: str) -> Callable[[TorchCall], Translated]:
    def translated(call: TorchCall) -> Translated:
        how = {"mode": mode, "window": call.pair("kernel_size"), "pad": call.pair("padding"), "ceil": call["ceil_mode"]}
        how["stride"] = call.pair("stride" if call["stride"] else "kernel_size")
        if mode == "max":
            if call.pair("dilation") != (1, 1):
                raise Unsupported("a dilated pooling is not supported")
        else:
            call.require(divisor_override=None)
            how["count_padding"] = call["count_include_pad"]
        return "pool", how

    return translated


def _pool_to(mode: str) -> Callable[[TorchCall], Translated]:
    return lambda call: ("pool_to", {"mode": mode, "size": (*call.shape[1:], 1)[:2]})


def _global(mode: str) -> Callable[[TorchCall], Translated]:
    return lambda call: ("global_pool", {"mode": mode, "axes": [*(call["dim"] or ())]})


def _batch_norm(call: TorchCall) -> Translated:
    if call["weight"] is None or call["running_mean"] is None or call["momentum"] is None:
        raise Unsupported("a batch normalisation needs affine=True, track_running_stats=True and a momentum")
    how = {"momentum": call["momentum"], "epsilon": call["eps"]}
    running = {"running_mean": "running_mean", "running_variance": "running_var"}
    return "batchnorm", how, call.weights(gamma="weight", beta="bias", **running)


def _set_norm(call: TorchCall) -> Translated:
    """A layer, group or instance normalisation."""
    groups = call.attribute("num_groups", None)
    if call.operator == "layer_norm" and len(call["normalized_shape"]) != 1:
        raise Unsupported(f"a layer normalisation over {list(call['normalized_shape'])} is not supported")
    if call.operator == "instance_norm":
        call.require(use_input_stats=True, running_mean=None, running_var=None)
        groups = call.shape_of_input()[1]
    return graph.normalised(call, call["eps"], call.weights(gamma="weight", beta="bias"), groups)


def _rms_norm(call: TorchCall) -> Translated:
    if len(call["normalized_shape"]) != 1:
        raise Unsupported(f"an RMS normalisation over {list(call['normalized_shape'])} is not supported")
    weights = call.weights(gamma="weight")
    epsilon = 2.0**-23 if call["eps"] is None else call["eps"]  # PyTorch's own is the type's
    return "rmsnorm", {"epsilon": epsilon} | ({} if weights else {"affine": False}), weights


def _permuted(call: TorchCall) -> Translated:
    """Axes in another order: the sizes of what the operator makes of axes of 0, 1, 2, … numbers."""
    sizes = call.of.torch.empty([*range(len(call.whole))], device="meta")
    return graph.permuted(call.node.target(sizes, *call.node.args[1:], **call.node.kwargs).shape)


def _dropout(call: TorchCall) -> Translated:
    return ("dropout", {"probability": call["p"]}) if call["train"] and call["p"] else ("identity", {})


#: A local response normalisation as PyTorch spells it out: what is computed → the operator that computes it, from the
#: one before.  The last is what x is divided by.
LRN = {
    "square": "mul", "volume": "view", "padded": "pad", "mean": "avg_pool3d", "squeezed": "squeeze", "map": "view",
    "scaled": "mul", "sum": "add", "power": "pow",
}  # fmt: skip


def _lrn(call: TorchCall) -> Translated:
    """x / (k + alpha · mean of the squares in a window of channels)^beta."""
    x, node = call["self"], call["other"]
    number = None if node in call.of.names else call.one_number(node)
    if number:
        return "times", {"by": 1 / number}
    refused = Unsupported("a division is supported as the end of a local response normalisation only")
    found: dict[str, TorchCall] = {}
    for what, operator in reversed(LRN.items()):
        if not hasattr(node, "target") or operator_of(node) != operator:
            raise refused
        found[what] = TorchCall(call.of, node)
        node = node.args[0]
    square, size = found["square"], found["mean"]["kernel_size"][0]
    around = [size // 2, (size - 1) // 2]  # channels before and after the window's own
    if square["self"] is not x or square["other"] is not x or found["padded"]["pad"][-2:] != around:
        raise refused
    call.inputs = [call.of.names[x]]
    alpha, k, beta = found["scaled"]["other"], found["sum"]["other"], found["power"]["exponent"]
    return "lrn", {"size": size, "alpha": alpha, "beta": beta, "k": k}


def _cat(call: TorchCall) -> Translated:
    first, *others = call["tensors"]
    call.inputs = [call.of.names[value] for value in call["tensors"] if value in call.of.names]
    if first in call.of.weights and len(others) == len(call.inputs) == 1:
        return "prepend", {"axis": call["dim"] % len(call.whole)}, {"w": call.weight_of(first, "first part")}
    if len(call.inputs) <= len(others):
        raise Unsupported("a concatenation with a weight or a constant is supported as a token before others only")
    return graph.concat(call, call["dim"])


def _add(call: TorchCall) -> Translated:
    values = [call["self"], call["other"]]
    weights = [value for value in values if value in call.of.weights]
    call.inputs = [call.of.names[value] for value in values if value in call.of.names]
    if len(weights) == len(call.inputs) == 1 and call["alpha"] == 1:
        return "position", {}, {"w": call.weight_of(weights[0], "summand")}
    if len(call.inputs) < 2 or call["alpha"] != 1:
        raise Unsupported("an addition of a number is not supported, only of two maps or of a weight")
    return "add", {}


def _embedding(call: TorchCall) -> Translated:
    if call["indices"] not in call.of.names:
        raise Unsupported("an embedding is supported of the network's input only")
    call.require(scale_grad_by_freq=False)
    call.inputs = [call.of.names[call["indices"]]]
    padding = {} if call["padding_idx"] < 0 else {"padding": call["padding_idx"]}
    return "embedding", padding, {"w": call.weight_of(call["weight"], "table")}


def _attention(call: TorchCall) -> Translated:
    call.require(dropout_p=0.0)
    given = [call[name] for name in ("query", "key", "value")]
    if any(value not in call.of.names for value in given):
        raise Unsupported("attention with a query, key or value that is no map is not supported")
    call.inputs = [call.of.names[value] for value in given]
    mask, causal = call["attn_mask"], call["is_causal"]
    if mask is not None:
        found = call.of.constant(mask)
        if call.of.is_learnt(mask):
            raise Unsupported(graph.BIASES)
        if found is None:
            raise Unsupported("attention with a mask that is computed from the input is not supported")
        causal = causal or graph.is_causal(found.numpy())
    return "attention", {"causal": bool(causal), "scale": call["scale"]}


def _mul(call: TorchCall) -> Translated:
    """Two maps, maps and a number a channel, or what is SiLU or hard Swish in one."""
    values = [call["self"], call["other"]]
    maps = [value for value in values if value in call.of.names]
    call.inputs = [call.of.names[value] for value in maps]
    if len(maps) == 1 and (drawn := _stochastic_depth(call, values[values[0] is maps[0]])):
        return drawn
    weights = [value for value in values if value in call.of.weights]
    if len(maps) == 1 and weights:
        weight = call.weight_of(weights[0], "factor")
        return graph.with_factor(call, call.of.made, weight) or graph.scaled(call, weight)
    if len(maps) == 1 and (number := call.one_number(values[values[0] is maps[0]])) is not None:
        return "times", {"by": number}
    if len(maps) < 2 or maps[0] is maps[1]:
        raise Unsupported  # a square, or a multiplication by a number: no operator of ours
    for x, gate in (maps, maps[::-1]):
        if gate.op == "call_function" and operator_of(gate) in graph.GATED and gate.args[0] is x:
            call.inputs = [call.of.names[x]]
            return graph.GATED[operator_of(gate)], {}
    return "mul", {}


def _pad(call: TorchCall) -> Translated:
    call.require(mode="constant")
    if not any(call["pad"]):
        return "identity", {}
    if len(call["pad"]) not in (2, 4) or min(call["pad"]) < 0:
        raise Unsupported("only rows and columns around height and width are supported")
    sides = [0, 0, *call["pad"]] if len(call.shape_of_input()) == 3 else [*call["pad"], 0, 0]
    left, right, top, bottom = sides[:4]
    return "pad", {"pad": (top, left, bottom, right), "value": float(call["value"] or 0)}


def _slice(call: TorchCall) -> Translated:
    call.require(step=1)
    axis, whole = call["dim"], call.shape_of_input()
    start, end, _ = slice(call["start"], call["end"]).indices(whole[axis])
    return graph.part(call, axis, start, end - start)


def _select(call: TorchCall) -> Translated:
    place = call["index"] % call.shape_of_input()[call["dim"]]
    return graph.part(call, call["dim"], place, 1, keep=False)


def _index(call: TorchCall) -> Translated:
    """x[:, numbers]"""
    given = [(axis, value) for axis, value in enumerate(call["indices"]) if value is not None]
    if len(given) != 1:
        raise Unsupported("numbers of several axes are not supported, only of the channels")
    return graph.gathered(call, given[0][0], call.numbers(given[0][1]))


def _stochastic_depth(call: TorchCall, noise: Any) -> Translated | None:
    """Maps times a number an image that is drawn as torchvision draws it: 0, or 1 over the probability to stay."""
    scale = drawn = noise
    if getattr(scale, "op", "") == "call_function" and operator_of(scale) == "div":
        drawn = scale.args[0]
    if getattr(drawn, "op", "") != "call_function" or operator_of(drawn) != "bernoulli":
        return None
    stays = drawn.args[1] if len(drawn.args) > 1 else 0.5  # an export leaves out what is the operator's default
    shape = tuple(noise.meta["val"].shape)
    if scale is drawn or scale.args[1] != stays or shape != (call.of.batch, *(1 for _ in shape[1:])):
        raise Unsupported(f"drawn numbers of shape {list(shape)} are supported as stochastic depth of images only")
    return "drop_path", {"probability": round(1 - stays, 6)}


def _upsample(mode: str) -> Callable[[TorchCall], Translated]:
    def translated(call: TorchCall) -> Translated:
        factors = call["scale_factors"] if call["output_size"] is None else None
        return graph.upsampled(call, mode, bool(call.attribute("align_corners", False)), factors)

    return translated


def _of_several(call: TorchCall) -> Translated:
    """One output of several: the maps of a pooling that has their positions, too, or a part of an axis."""
    several, number = call.node.args
    if operator_of(several) in PARTS:
        parent = TorchCall(call.of, several)
        axis, shapes = parent["dim"], [tuple(value.shape) for value in several.meta["val"]]
        call.node, call.inputs = several, parent.inputs
        if operator_of(several) == "unbind":
            return graph.part(call, axis, number, 1, keep=False)
        sizes = [shape[axis] for shape in shapes]
        return graph.part(call, axis, sum(sizes[:number]), sizes[number])
    if number != 0:
        raise Unsupported("only the first output of this operator is supported")
    return "identity", {}


def _repeat_interleave(call: TorchCall) -> Translated:
    """Every head several times, one after the other."""
    times, axis = call["repeats"], call["dim"]
    if axis is None or not isinstance(times, int):
        raise Unsupported("repeats are supported of one axis, all as often")
    axis %= len(call.whole)
    return graph.view(lambda places: places.with_axis(axis, *places.axes[axis], Factor(IMAGE, times, 0)))


def _detach(call: TorchCall) -> Translated:
    if call.node in call.of.trained:
        raise Unsupported("detach() cuts a gradient, which is not supported; freeze what is before it")
    return "identity", {}


PARTS = ("chunk", "split", "split_with_sizes", "tensor_split", "unbind")  #: have several outputs, which are views
#: An operator that arranges numbers, and computes none.
VIEWS: Mapping[str, Callable[[TorchCall], Translated]] = {
    "slice": _slice, "select": _select, "expand": graph.expanded, "repeat_interleave": _repeat_interleave,
    "getitem": _of_several,
} | dict.fromkeys(
    ("permute", "transpose", "t", "numpy_T", "mT", "mH", "swapaxes", "swapdims", "movedim", "moveaxis"), _permuted
) | dict.fromkeys(
    ("flatten", "view", "reshape", "squeeze", "unsqueeze", "unflatten", "contiguous", *COPIES), graph.reshaped
)  # fmt: skip
#: What may be done with a weight before a layer reads it: its numbers stay as they are.
OF_WEIGHTS = {*VIEWS, *PARTS, *COPIES, "embedding", "index_select"}

OPERATORS: Mapping[str, Callable[[TorchCall], Translated]] = {
    "scaled_dot_product_attention": _attention, "embedding": _embedding,
    "channel_shuffle": lambda call: ("channel_shuffle", {"groups": call["groups"]}), "index": _index,
    "index_select": lambda call: graph.gathered(call, call["dim"], call.numbers(call["index"])),
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm"), _set_norm), "rms_norm": _rms_norm,
    "addmm": _addmm, "mm": _matmul, "matmul": _matmul, "bmm": _matmul, "einsum": _einsum,
    "linear": lambda call: ("linear", {}, call.weights(w="weight", b="bias")), "batch_norm": _batch_norm, "div": _lrn,
    "cat": _cat, "concat": _cat, "pad": _pad, "constant_pad_nd": _pad,
    "relu6": lambda call: graph.limited(0, 6), "hardtanh": _clamped("min_val", "max_val"),
    "clamp": _clamped("min", "max"), "clamp_min": _clamped("min", ""), "max_pool2d_with_indices": _pool("max"),
    "upsample_nearest2d": _upsample("nearest"), "upsample_bilinear2d": _upsample("bilinear"),
    "mean": _global("average"), "amax": _global("max"), "dropout": _dropout, "add": _add, "mul": _mul,
    **dict.fromkeys(("softmax", "log_softmax"), lambda call: graph.softmax(call, call["dim"])),
} | {
    f"{name}{axes}d": operator for axes in (1, 2) for name, operator in {
        "conv": _conv2d, "conv_transpose": _conv_transpose2d, "max_pool": _pool("max"), "avg_pool": _pool("average"),
        "adaptive_avg_pool": _pool_to("average"), "adaptive_max_pool": _pool_to("max"),
    }.items()
} | {**VIEWS, "detach": _detach} | {kind: graph.of_one_input(kind) for kind in graph.OF_ONE_INPUT.values()}  # fmt: skip
