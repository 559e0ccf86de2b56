"""A module as `torch.export` lists it: the operators of one forward pass, prepared to be run again and again.

The names of the nodes tie a plan to a module: the importer saw the same list (`refimpl.importing.torch_module`).
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from refimpl.torch.planned_error import PlannedError

#: Batch normalisations update these as they run; running one again must not.
RUNNING = ("running_mean", "running_var")


def fingerprint(nodes: Iterable[Any]) -> str:
    """A number that follows from an export's operators, their order and their shapes, and from no weight's value."""
    lines = [
        f"{node.name} {node.target} {getattr(node.meta.get('val'), 'shape', '')}"
        for node in nodes
        if node.op == "call_function"
    ]
    return f"{zlib.crc32(chr(10).join(lines).encode()):08x}"


class Slot(int):
    """The number of a value among those of a forward pass."""


class Operator:
    """One call of the list: what is called, with which values and constants."""

    def __init__(self, node: Any, slots: dict[Any, Slot]) -> None:
        self.name, self.target, self.out = node.name, node.target, slots[node]
        self.args = torch.fx.map_arg(node.args, slots.__getitem__)
        self.kwargs = torch.fx.map_arg(dict(node.kwargs), slots.__getitem__)
        self.inputs = tuple(slots[value] for value in node.all_input_nodes)
        self.done: tuple[Slot, ...] = ()  #: values that nothing reads after it
        #: From its output's node of autograd to the last of its own: places in `next_functions`.  None: not known yet.
        self.last_node: tuple[int, ...] | None = None
        schema = getattr(node.target, "_schema", None)
        names = [argument.name for argument in schema.arguments] if schema else []
        written = [place for place, one in enumerate(schema.arguments) if one.alias_info and one.alias_info.is_write] \
            if schema else []  # fmt: skip
        #: The value that it overwrites, if any.
        self.overwrites = next((self.args[place] for place in written if place < len(self.args)), None)
        self.running = [place for place, name in enumerate(names) if name in RUNNING and place < len(self.args)]
        self.running_named = [name for name in RUNNING if isinstance(self.kwargs.get(name), Slot)]
        self.is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        value = node.meta.get("val")
        self.device = getattr(value, "device", torch.device("cpu"))
        #: Arguments that are values, by their places; None: some are inside lists, or have names.
        self._places: list[tuple[int, Slot]] | None
        self._places = [(place, one) for place, one in enumerate(self.args) if isinstance(one, Slot)]
        if sum(isinstance(one, Slot) for one in _leaves((self.args, self.kwargs))) > len(self._places):
            self._places = None

    def filled(self, values: Any) -> tuple[list[Any], dict[str, Any]]:
        """Its arguments with these values, a mapping or a list by slot."""
        if self._places is not None:
            args = list(self.args)
            for place, slot in self._places:
                args[place] = values[slot]
            return args, self.kwargs
        fill = lambda one: values[one] if isinstance(one, Slot) else one  # noqa: E731
        args = torch.fx.node.map_aggregate(self.args, fill)
        return list(args), torch.fx.node.map_aggregate(self.kwargs, fill)


def _leaves(value: Any) -> Iterator[Any]:
    """What lists, tuples, mappings and slices in a node's arguments hold."""
    if isinstance(value, slice):
        value = (value.start, value.stop, value.step)
    if isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _leaves(one)
    else:
        yield value


class ExportedModule:
    """The operators of a module's forward pass in training, for inputs of one shape."""

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        exported = _exported(module, args, kwargs)
        signature = exported.graph_signature
        nodes = list(exported.graph.nodes)
        slots = {node: Slot(number) for number, node in enumerate(nodes)}
        names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self.module, self.width, self.fingerprint = module, len(nodes), fingerprint(nodes)
        #: Slot → the parameters or the buffers of a part of the module, and the name there.
        self.state: list[tuple[Slot, Any, str]] = []
        self.constants: list[tuple[Slot, Any]] = []
        self.given: list[Slot] = []  #: of the inputs, flattened
        self.operators: list[Operator] = []
        lifted = signature.inputs_to_lifted_tensor_constants
        for node in nodes:
            if node.op == "placeholder" and node.name in names:
                path, _, name = names[node.name].rpartition(".")
                part = module.get_submodule(path)
                self.state.append((slots[node], part._parameters if name in part._parameters else part._buffers, name))
            elif node.op == "placeholder" and node.name in lifted:
                self.constants.append((slots[node], exported.constants[lifted[node.name]]))
            elif node.op == "placeholder":
                self.given.append(slots[node])
            elif node.op == "get_attr":
                self.constants.append((slots[node], getattr(exported.graph_module, node.target)))
            elif node.op == "call_function":
                self.operators.append(Operator(node, slots))
        returned = torch.fx.map_arg(nodes[-1].args[0], slots.__getitem__)
        pairs = list(zip(signature.output_specs, returned, strict=True))
        self.outputs = [one for spec, one in pairs if spec.kind.name == "USER_OUTPUT"]
        #: Buffers that get a value at the end.
        self.written = [(spec.target, one) for spec, one in pairs if spec.kind.name == "BUFFER_MUTATION"]
        self._in, self._out = exported.call_spec.in_spec, exported.call_spec.out_spec
        last: dict[Slot, Operator] = {slot: one for one in self.operators for slot in one.inputs}
        ends = {one for one in returned if isinstance(one, Slot)}
        for one in self.operators:
            last.setdefault(one.out, one)
        done: dict[Operator, list[Slot]] = {}
        for slot, one in last.items():
            if slot not in ends:
                done.setdefault(one, []).append(slot)
        for one, its in done.items():
            one.done = tuple(its)

    def flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The inputs in the order of `given`."""
        found: list[Any]
        found, spec = tree_flatten((args, kwargs))
        if spec != self._in:
            raise PlannedError("the module was planned for other inputs: give as many, by the same names")
        return found

    def packed(self, outputs: Sequence[Any]) -> Any:
        """The outputs as the module returns them."""
        return tree_unflatten(list(outputs), self._out)


def _masks_in_training(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """What functions of `transformers.masking_utils` return where a model trains.

    Where the package transformers exports a model, it builds a mask for attention that it leaves out where it trains,
    and with a mask PyTorch's kernel has other bits.  Only given position numbers can say that a row has several texts.
    """
    functions: dict[str, Callable[..., Any]] = {"is_torchdynamo_exporting": lambda: False}
    if len(args) <= 1 and "position_ids" not in kwargs:
        functions["find_packed_sequence_indices"] = lambda position_ids: None
    return functions


@contextmanager
def as_it_trains(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """The module in train mode, recording nothing; a model that writes text does not keep what it has read."""
    masks = sys.modules.get("transformers.masking_utils")
    stand_ins = {name: one for name, one in _masks_in_training(args, kwargs).items() if hasattr(masks, name)}
    own = {name: getattr(masks, name) for name in stand_ins}
    modes = {part: part.training for part in module.modules()}
    configs: list[Any] = [getattr(part, "config", None) for part in modes]
    caching = {id(config): config for config in configs if getattr(config, "use_cache", False) is True}.values()
    try:
        module.train()
        for config in caching:
            config.use_cache = False
        if masks is not None:
            vars(masks).update(stand_ins)
        with torch.no_grad():
            yield
    finally:
        if masks is not None:
            vars(masks).update(own)
        for part, mode in modes.items():
            part.training = mode
        for config in caching:
            config.use_cache = True


def _exported(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `torch.export` lists of the module as it trains, without computing anything; with autocast, the same."""
    kinds = {value.device.type for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)}
    try:
        with as_it_trains(module, args, kwargs), ExitStack() as stack:
            for kind in kinds & {"cpu", "cuda"}:
                stack.enter_context(torch.autocast(kind, enabled=False))
            return torch.export.export(module, args, kwargs or None, strict=False)
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise PlannedError(
            f"torch.export cannot follow {type(module).__name__}: {type(error).__name__}: {first[:300]}"
        ) from None
