"""Operators of a node, remembered to run again in backward: the same outputs, bit by bit.

The inputs are what they were: values (computed again in their turn where they are gone), weights and the batch.  Batch
normalisation runs on copies of its running statistics, so that they are updated once; what is random runs with the
state that its generator had.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import ref

import torch

from refimpl.torch.module_script import SMALL, Facts
from refimpl.torch.private import as_below_autograd, gather
from refimpl.torch.values import StorageValue, StridedView

CLONE = torch.ops.aten.clone.default
PARTS = (torch.Tensor, list, tuple)


class Argument(NamedTuple):
    """An argument: a view of a value, by its number if the same calls make it; or a tensor that is not the plan's."""

    source: Any
    view: Any
    version: int = 0


class NodeCall:
    """An operator with its arguments, and the numbers of the values that it makes."""

    def __init__(self, func: Any) -> None:
        self.func = func
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}
        self.running: tuple[int, ...] = ()  #: places of statistics that it must not update again
        self.generator: tuple[Any, Any] | None = None  #: with its state
        self.numbers: list[int] = []  #: of values of its own calls that it reads, and then of those that it makes
        self.makes: list[tuple[int, int]] = []  #: place among its outputs, number
        self.overwrites: Any = None  #: the source of what it overwrites, and the number of what that becomes

    @property
    def results(self) -> list[int]:
        """Numbers of the values that it makes."""
        made = [number for _, number in self.makes]
        return made if self.overwrites is None else [*made, self.overwrites[1]]

    @property
    def is_copy(self) -> bool:
        """Whether it copies a whole value that others make: what an operator in place saves of what it overwrites."""
        given = self.args[0] if self.func is CLONE and not self.kwargs else None
        return (
            type(given) is Argument
            and isinstance(given.source, StorageValue)
            and given.view.is_whole(given.source.nbytes)
        )


class NodeCalls:
    """The operators of one node of the script, in their order."""

    def __init__(self, iteration: Any, node: str) -> None:
        self.iteration, self.node, self.recording = iteration, node, torch.is_grad_enabled()
        self.ref = ref(self)
        self.calls: list[NodeCall] = []
        self._made: list[ref[StorageValue]] = []

    def add(self, facts: Facts, func: Any, args: Any, kwargs: Any, own: StorageValue | None = None) -> NodeCall:
        """Remember a call that is about to run, and to overwrite a value, perhaps."""
        call = NodeCall(func)
        if facts.running:  # in eval mode it reads them, and does not change them
            places = {one.name: place for place, one in enumerate(func._schema.arguments)}
            place = places.get("training", places.get("train", 0))
            call.running = facts.running if place < len(args) and args[place] else ()
        if facts.random:
            its = kwargs.get("generator") or generator_of(args, kwargs)
            call.generator = its, its.get_state()
        part = self._part
        call.args = [part(one, call, own) if isinstance(one, PARTS) else one for one in args]
        for place in call.running:
            if call.args[place] is not None:
                call.args[place] = call.args[place]._replace(version=-1)
        if kwargs:
            call.kwargs = {name: part(one, call, own) for name, one in kwargs.items()}
        self.calls.append(call)
        return call

    def makes(self, value: StorageValue, call: NodeCall) -> int:
        """A call has made a value, which from now on can be dropped."""
        value.calls, value.number = self, len(self._made)
        self._made.append(value.ref)
        call.numbers.append(value.number)
        return value.number

    def _part(self, one: Any, call: NodeCall, own: StorageValue | None) -> Any:
        if isinstance(one, torch.Tensor):
            value = self.iteration.value_of(one)
            if value is None:
                self.iteration.is_read(one, self)
                return Argument(one, None, one._version)
            if value.unfilled and value is not own:
                value.calls = None  # who has filled it was not seen
            if value.calls is self:
                call.numbers.append(value.number)
                return Argument(value.number, StridedView(one))
            value.readers += (self.ref,)
            if value.calls is None and value.host is None:
                value.need(one)
            return Argument(value, StridedView(one))
        if isinstance(one, list | tuple):
            return type(one)([self._part(each, call, own) for each in one])
        return one

    def source_of(self, value: StorageValue) -> Any:
        """What stands for a value in these calls; None: it cannot be had again once it is overwritten."""
        if value.calls is self:
            return value.number
        return value if value.calls is not None or value.host is not None else None

    def settle(self) -> None:
        """What it reads is about to change: what it makes has to be there, and stays."""
        for known in self._made:
            value = known()
            if value is not None and value.calls is self:
                value.stay()

    def again(self, asked: StorageValue) -> Any:
        """Run again what makes a value, and fill others of the same calls that are missing.

        Returns:
            A tensor with the value's storage, which nothing else holds.
        """
        made = [known() for known in self._made]
        copies = {n for call in self.calls if call.is_copy for _, n in call.makes}
        wanted = {asked.number}
        if asked.number not in copies:
            most = asked.nbytes // SMALL if asked.stale else asked.nbytes * SMALL  # beside a means to another map
            wanted |= {n for n, one in enumerate(made) if one is not None and one.is_missing and one.nbytes <= most}
            wanted -= copies
        needed, last = set(wanted), dict[int, int]()  #: values, and after which call each ends
        calls = []
        for number, call in reversed([*enumerate(self.calls)]):
            if not needed.isdisjoint(call.results):
                calls.append((number, call))
                needed |= {*call.numbers}
                for n in call.numbers:
                    last.setdefault(n, number)
        there: dict[int, Any] = {}
        borrowed: list[StorageValue] = []
        drawn = self._state() if asked.original is not None else None
        with as_below_autograd(self.recording):
            for number, call in reversed(calls):
                self._run(call, there, borrowed)
                for n in call.numbers:
                    if last[n] == number and n not in wanted:
                        there.pop(n, None)
        if drawn is not None:
            drawn[0].set_state(drawn[1])
        for value in borrowed:
            value.free()
        for n in wanted:
            one = made[n]
            if one is not None and one is not asked:
                one.arrive(there[n])
        self.iteration.recomputed += 1
        return there[asked.number]

    def _state(self) -> Any:
        """A generator that an operator may draw from without a word, and its state."""
        device = next((one.device for known in self._made if (one := known()) is not None), torch.device("cpu"))
        generator = generator_of((), {"device": device})
        return generator, generator.get_state()

    def _run(self, call: NodeCall, there: dict[int, Any], borrowed: list[StorageValue]) -> None:
        own: Any = None  #: a tensor of the storage that is overwritten
        if call.overwrites is not None:
            source, number = call.overwrites
            own = there.pop(source) if isinstance(source, int) else source.alone(source in borrowed)
            there[number] = own
        elif call.is_copy and call.args[0].source.witness is None:  # then it needs no second one
            there[call.makes[0][1]] = call.args[0].source.alone()
            return
        args = [self._filled(one, call, own, there, borrowed) for one in call.args]
        kwargs = {name: self._filled(one, call, own, there, borrowed) for name, one in call.kwargs.items()}
        for place in call.running:
            args[place] = None if args[place] is None else args[place].clone()
        if call.generator is None:
            out = call.func(*args, **kwargs)
        else:  # what comes later is drawn as if nothing had run again
            generator, state = call.generator
            now = generator.get_state()
            generator.set_state(state)
            out = call.func(*args, **kwargs)
            generator.set_state(now)
        outs = (out,) if isinstance(out, torch.Tensor) else out
        for place, number in call.makes:
            there[number] = outs[place]

    def _filled(self, one: Any, call: NodeCall, own: Any, there: dict[int, Any], borrowed: list[StorageValue]) -> Any:
        """An argument, with tensors for what stands for them."""
        if type(one) is Argument:
            source, view, version = one
            if view is None:
                if version not in (-1, source._version):
                    raise RuntimeError(
                        f"{self.node} has to run again, and a tensor that it reads has changed since forward: "
                        "update the weights after backward"
                    )
                if source.numel() and not source.untyped_storage().nbytes():
                    gather(self.iteration.module, source)
                return source
            if call.overwrites is not None and source == call.overwrites[0]:
                tensor = view.tensor(own)
            elif isinstance(source, int):
                tensor = view.tensor(there[source])
            else:
                if source.witness is None and not source.saved and (source.label is None or source.stale):
                    borrowed.append(source)
                tensor = view.tensor(source.have())
            return tensor.requires_grad_() if view.needs_grad and self.recording else tensor
        if isinstance(one, list | tuple):
            return type(one)([self._filled(each, call, own, there, borrowed) for each in one])
        return one


def generator_of(args: Any, kwargs: Any) -> Any:
    """The default generator of the device that a call works on."""
    device = next((one.device for one in args if isinstance(one, torch.Tensor)), kwargs.get("device"))
    device = torch.device(device or "cpu")
    if device.type == "cuda":
        return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    return torch.default_generator
