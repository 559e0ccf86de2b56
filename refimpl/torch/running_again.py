"""A node of the forward pass, run again in backward: the same output, bit by bit.

The inputs are what they were: blocks (computed again in their turn where they are gone), weights and the batch.  Batch
normalisation runs on copies of its running statistics, so that they are updated once; what is random runs with the
state that its generator had; autocast is as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch.autograd.graph import saved_tensors_hooks

from refimpl.torch.blocks import StorageBlock, StridedView
from refimpl.torch.exporting import Operator, Slot


class Autocast(NamedTuple):
    """The state of autocast on one kind of device."""

    kind: str
    enabled: bool
    dtype: Any

    @staticmethod
    def now(kind: str) -> Autocast:
        return Autocast(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))

    def again(self) -> Any:
        return torch.autocast(self.kind, enabled=self.enabled, dtype=self.dtype, cache_enabled=False)


class RunInput(NamedTuple):
    """An input of a run: a view of a block, wherever that is.  `block` is None: the one that the run overwrites."""

    block: StorageBlock | None
    view: StridedView


class NodeRun:
    """One run of a node, and all that it takes to run it again."""

    __slots__ = ("autocast", "generator", "inputs", "missing", "operator", "versions")

    def __init__(
        self, operator: Operator, values: list[Any], blocks: list[Any], own: StorageBlock | None, autocast: Autocast
    ) -> None:
        """Args:
        operator: the node.
        values: of the forward pass, by slot.
        blocks: of each value; None: a weight's, the batch's, or no tensor.
        own: the block that the node overwrites.
        autocast: as it is.
        """
        self.operator, self.autocast = operator, autocast
        self.inputs: dict[Slot, Any] = {}  #: values, or what stands for them: a block (None: the own) and a view of it
        self.versions: list[tuple[Any, int]] = []  #: of weights
        running = {operator.args[place] for place in operator.running}
        for slot in operator.inputs:
            value, block = values[slot], blocks[slot]
            if block is not None and isinstance(value, torch.Tensor):
                self.inputs[slot] = RunInput(None if block is own else block, StridedView(value))
            else:
                self.inputs[slot] = value
                if isinstance(value, torch.Tensor) and slot not in running:
                    self.versions.append((value, value._version))
        self.missing: dict[int, ref[StorageBlock]] = {}  #: by-products, by their numbers among what the node saved
        self.generator: tuple[Any, Any] | None = None
        if operator.is_random:
            generator = generator_of(operator.device)
            self.generator = generator, generator.get_state()

    def read(self, block: StorageBlock) -> None:
        """Note in each input's block that this one is computed from it."""
        for value in self.inputs.values():
            if isinstance(value, RunInput) and value.block is not None:
                value.block.read_by.append(ref(block))

    def start_from(self, clone: StorageBlock) -> None:
        """From now on it works on a copy of the clone that it saved of what it overwrote."""
        slot = self.operator.overwrites
        assert slot is not None
        self.inputs[slot] = RunInput(clone, self.inputs[slot].view)

    def reads_saved(self) -> bool:
        """Whether autograd has saved all blocks that it reads, so that they are there for its own sake."""
        its = [value.block for value in self.inputs.values() if isinstance(value, RunInput)]
        return all(block is None or block.saved for block in its)

    def again(self, own: Any) -> Any:
        """Run the node again.

        Args:
            own: the storage that it overwrites, if it works in place.

        Returns:
            The storage of its output.  By-products that are gone are filled on the way.
        """
        for value, version in self.versions:
            if value._version != version:
                raise RuntimeError(
                    f"{self.operator.name} has to run again, and a weight that it reads has changed since forward: "
                    "update the weights after backward"
                )
        missing = [(number, made) for number, saved in self.missing.items() if (made := saved()) is not None]
        missing = [(number, made) for number, made in missing if made.storage is None and made.host is None]
        operator, device = self.operator, self.operator.device
        recorded = operator.overwrites is None or bool(missing)  # kernels may differ where a gradient is needed
        with torch.set_grad_enabled(recorded):
            values = {slot: self._input(value, own, device, recorded) for slot, value in self.inputs.items()}
            if operator.overwrites is not None and (recorded or self.inputs[operator.overwrites].block is not None):
                values[operator.overwrites] = values[operator.overwrites].clone()  # autograd overwrites no leaf
        args, kwargs = operator.filled(values)
        for place in operator.running:
            args[place] = None if args[place] is None else args[place].clone()
        for name in operator.running_named:
            kwargs[name] = kwargs[name].clone()
        numbers, saved = count(), dict[int, Any]()  #: storages that the node saves for backward, and that are missing
        wanted = dict(missing).keys()

        def note(tensor: Any) -> None:
            if (number := next(numbers)) in wanted:
                saved[number] = tensor.untyped_storage()

        with ExitStack() as stack:
            if self.generator is not None:
                stack.enter_context(_drawn_again(*self.generator))
            if self.autocast != Autocast.now(self.autocast.kind):
                stack.enter_context(self.autocast.again())
            if missing:
                stack.enter_context(saved_tensors_hooks(note, _never))
            stack.enter_context(torch.set_grad_enabled(recorded))
            out = operator.target(*args, **kwargs)
        for number, made in missing:
            made.storage = saved[number]
        return out.untyped_storage()

    def _input(self, value: Any, own: Any, device: Any, recorded: bool) -> Any:
        if not isinstance(value, RunInput):
            if recorded and isinstance(value, torch.Tensor) and value.requires_grad:
                return value.detach().requires_grad_()
            return value
        block, view = value
        tensor = view.tensor(own, device) if block is None else view.tensor(block.have(), block.device)
        return tensor.requires_grad_(recorded and view.needs_grad)


@contextmanager
def _drawn_again(generator: Any, state: Any) -> Iterator[None]:
    """What is random is drawn as in forward, and what comes later as if nothing had run again."""
    now = generator.get_state()
    generator.set_state(state)
    try:
        yield
    finally:
        generator.set_state(now)


def _never(packed: Any) -> Any:
    raise AssertionError("no backward pass goes through a node that is run again")


def generator_of(device: Any) -> Any:
    """The device's default generator."""
    if device.type == "cuda":
        return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    return torch.default_generator
