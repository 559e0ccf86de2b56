"""The script of a module: the operators that PyTorch runs below autograd, and which maps their outputs are.

It is made at planning (`refimpl.importing.observed`), and is part of the plan's file, so nothing is recorded where the
plan is carried out.  An operator is a list of four:

    "aten.relu_.default"   its name
    "relu_1"               the node that it is a part of: an operator as the module calls it
    [null, "relu", 64]     its outputs that are no views: a node's value, the bytes of what is saved beside that, or
                           neither of the two
    "relu_1"               the node's value that it makes of what it overwrites, or bytes, or null

A script belongs to a version of PyTorch and to a kind of device, since they choose other kernels.  Under another
version the operators that are not in it are kept, and counted; for another device it is recorded there.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path

from refimpl.torch.planned_error import PlannedError
from refimpl.torch.step_orders import NodeOrders, Order, StepOrders

NOTHING = NodeOrders()  #: of a node that no layer stands for
SMALL = 16  #: a by-product of fewer bytes than the output's over this is kept: batch statistics
#: Views that do not say so in their schema.
VIEWS = (torch.ops.aten._unsafe_view.default, torch.ops.aten._reshape_alias.default)


class Facts:
    """What the schema of an operator says."""

    __slots__ = ("fills", "fresh", "is_empty", "random", "running", "writes")

    def __init__(self, func: Any) -> None:
        given, made = func._schema.arguments, func._schema.returns
        names = [one.name for one in given]
        tensors = all(str(one.type) == "Tensor" for one in made)  # a list's length is known only when it has run
        #: Outputs that are no views of inputs.
        self.fresh = tuple(place for place, one in enumerate(made) if one.alias_info is None and tensors)
        if func in VIEWS:
            self.fresh = ()
        #: Batch normalisations update these as they run; running one again must not.
        self.running = tuple(
            place for place, name in enumerate(names)
            if name in ("running_mean", "running_var") and ("training" in names or "train" in names)
        )  # fmt: skip
        #: Arguments that it overwrites: their places, and their names.
        self.writes = tuple(
            (place, one.name) for place, one in enumerate(given)
            if one.alias_info is not None and one.alias_info.is_write and place not in self.running
        )  # fmt: skip
        self.random = torch.Tag.nondeterministic_seeded in func.tags
        name = func._schema.name.partition("::")[2]
        self.is_empty = name.startswith(("empty", "new_empty"))
        self.fills = self.random or name in ("copy_", "fill_", "zero_")  #: it overwrites without reading

    def written(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The tensors that a call overwrites."""
        found: list[Any] = []
        for place, name in self.writes:
            one = args[place] if place < len(args) else kwargs.get(name)
            found += [one] if isinstance(one, torch.Tensor) else one or []
        return found


_FACTS: dict[Any, Facts] = {}


def facts_of(func: Any) -> Facts:
    found = _FACTS.get(func)
    if found is None:
        found = _FACTS[func] = Facts(func)
    return found


def shapes_of(module: Any) -> str:
    """A number that follows from the names and shapes of a module's parameters and buffers."""
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    lines = [f"{name} {tuple(one.shape)}" for name, one in sorted(state.items())]
    return f"{zlib.crc32(chr(10).join(lines).encode()):08x}"


def inputs_of(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors that a module is called with, by its own names for them, as in "x" and "batch['image']"."""
    try:
        given = {**signature(module.forward).bind(*args, **kwargs).arguments}
    except (TypeError, ValueError):  # the module says what is wrong
        given = {**{f"argument {place}": one for place, one in enumerate(args)}, **kwargs}
    leaves, _ = tree_flatten_with_path(given)
    return {f"{first.key}{keystr(rest)}": one for (first, *rest), one in leaves if isinstance(one, torch.Tensor)}


class Entry:
    """An operator of the script, with what a plan says of it."""

    __slots__ = (
        "after", "before", "differs", "end", "func", "index", "is_dropped", "labels", "name", "node", "start", "write",
    )  # fmt: skip

    def __init__(self, index: int, name: str, node: str) -> None:
        self.index, self.name, self.node, self.func = index, name, node, _operator(name)
        self.labels: tuple[str | None, ...] = ()  #: the map that each output is, if the plan orders anything of it
        self.write: str | None = None  #: the same of what it overwrites
        self.is_dropped = False  #: it runs again in backward, if need be
        self.before: tuple[Order, ...] = ()
        self.after: tuple[Order, ...] = ()
        self.start: tuple[Order, ...] = ()  #: before the backward step of its layer
        self.end: tuple[Order, ...] = ()  #: after it
        self.differs: dict[int, int] = {}  #: outputs that are not what it computes, which are kept → bytes


def _operator(name: str) -> Any:
    """The operator of that name; None: this PyTorch has none."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def entries_of(script: Mapping[str, Any], orders: StepOrders) -> list[Entry]:
    """The script's operators, with a plan's orders."""
    entries: list[Entry] = []
    of_node: dict[str, list[Entry]] = {}
    for name, node, makes, write in script["operators"]:
        entry = Entry(len(entries), name, node)
        entries.append(entry)
        its = of_node.setdefault(node, [])
        if not its:
            rest = [*orders.of.get(node, NOTHING).maps[1:]]
        its.append(entry)
        maps = orders.of.get(node, NOTHING).maps

        def label(value: str | int | None, maps: Any = maps, rest: Any = rest) -> str | None:
            if isinstance(value, str):
                named = orders.of.get(value, NOTHING).maps
                found = named[0] if named else None
            elif value is None or not maps:
                found = None
            elif alike := [one for one in rest if orders.bytes.get(one) == value]:
                rest.remove(alike[0])
                found = alike[0]
            else:
                found = None if 0 < value * SMALL < orders.bytes.get(maps[0], 0) else maps[0]  # 0: of no known size
            return found if found in orders.ordered else None

        entry.labels, entry.write = tuple(label(one) for one in makes), label(write)
        entry.is_dropped = orders.of.get(node, NOTHING).is_dropped
    waiting: tuple[Order, ...] = ()
    for node, (_, _, forward, backward) in orders.of.items():
        its = of_node.get(node, [])
        if forward is not None and its:
            its[0].before, its[-1].after, waiting = (*waiting, *forward.before), forward.after, ()
        elif forward is not None:  # a view
            waiting += (*forward.before, *forward.after)
        if backward is not None and its:
            its[-1].start = backward.before
            for one in its:
                one.end = backward.after
    return entries


def script_in(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """The script in a plan."""
    if not plan.get("script"):
        raise PlannedError(
            f"the plan is for {plan['network']} and has no script of the module's operators: plan the module itself, "
            "without a loss, for the batch that it was given"
        )
    found: Mapping[str, Any] = plan["script"]
    return found
