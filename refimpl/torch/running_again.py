"""A node of the forward pass, run again in backward: the same output, bit by bit.

The inputs are what they were: blocks (computed again in their turn where they are gone), weights and the batch.  Batch
normalisation runs on copies of its running statistics, so that they are updated once; what is random runs with the
state that its generator had; autocast is as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch.autograd.graph import saved_tensors_hooks

from refimpl.torch.blocks import SavedTensor, StorageBlock
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
        self.inputs: dict[Slot, Any] = {}
        self.versions: list[tuple[Any, int]] = []  #: of weights
        running = {operator.args[place] for place in operator.running}
        for slot in operator.inputs:
            value, block = values[slot], blocks[slot]
            if block is not None and isinstance(value, torch.Tensor):
                self.inputs[slot] = SavedTensor(value, None if block is own else block)
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
            if isinstance(value, SavedTensor) and value.block is not None:
                value.block.read_by.append(ref(block))

    def reads_saved(self) -> bool:
        """Whether autograd has saved all blocks that it reads, so that they are there for its own sake."""
        its = [value.block for value in self.inputs.values() if isinstance(value, SavedTensor)]
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
            if recorded and operator.overwrites is not None:  # autograd allows this on no leaf
                values[operator.overwrites] = values[operator.overwrites].clone()
        args, kwargs = operator.filled(values)
        for place in operator.running:
            args[place] = None if args[place] is None else args[place].clone()
        for name in operator.running_named:
            kwargs[name] = kwargs[name].clone()
        kept: dict[int, Any] = {}
        wanted = {number for number, _ in missing}

        def pack(tensor: Any) -> None:
            number = pack.count  # type: ignore[attr-defined]
            pack.count += 1  # type: ignore[attr-defined]
            if number in wanted:
                kept[number] = tensor.untyped_storage()

        pack.count = 0  # type: ignore[attr-defined]
        with ExitStack() as stack:
            stack.enter_context(self._drawn_again())
            stack.enter_context(self.autocast.again())
            stack.enter_context(torch.set_grad_enabled(recorded))
            stack.enter_context(saved_tensors_hooks(pack, _never))
            out = operator.target(*args, **kwargs)
        for number, made in missing:
            made.storage = kept[number]
        return out.untyped_storage()

    def _input(self, value: Any, own: Any, device: Any, recorded: bool) -> Any:
        if not isinstance(value, SavedTensor):
            if recorded and isinstance(value, torch.Tensor) and value.requires_grad:
                return value.detach().requires_grad_()
            return value
        storage = own if value.block is None else value.block.have()
        tensor = value.tensor(storage, device if value.block is None else value.block.device)
        return tensor.requires_grad_(recorded and value.needs_grad)

    @contextmanager
    def _drawn_again(self) -> Iterator[None]:
        if self.generator is None:
            yield
            return
        generator, state = self.generator
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
