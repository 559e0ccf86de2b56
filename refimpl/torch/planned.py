"""A PyTorch module whose maps are kept, offloaded and recomputed as a plan says.

    planned = Planned(module, program)          # or the decisions of a program, or a file with them
    loss = functional.cross_entropy(planned(images), labels)
    loss.backward()

Its parameters, buffers and modes are the module's own.  This room needs PyTorch and Python's own library only, so a
plan can be carried out where nothing else is installed.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from importlib import import_module
from typing import Any

import torch

from refimpl.torch.module_script import entries_of, inputs_of, script_in, shapes_of
from refimpl.torch.paths import Paths
from refimpl.torch.planned_error import PlannedError
from refimpl.torch.private import hooks_are_free, not_compiled
from refimpl.torch.reporting import report
from refimpl.torch.step_orders import read_plan
from refimpl.torch.transfers import Transfers, transfers_for
from refimpl.torch.watching import Iteration

#: Attributes of a planned module; a part of the user's module may have such a name, too, and keeps it there.
OWN = ("last", "orders", "training", "_paths", "_transfers")


class Planned(torch.nn.Module):
    """Trains as `module` does, bit for bit, and holds what the plan says.

    As a `DistributedDataParallel`, it is not an instance of the module's class: the module is `module`.  What it has
    not itself is read from there, and written there.
    """

    def __init__(self, module: Any, plan: Any, transfers: Transfers | None = None) -> None:
        """Args:
        module: as it was imported; its weights may have changed.
        plan: a program of `refimpl.networks.from_torch(module, ...)`, its `decisions()`, or a JSON file with them.
        transfers: how copies are made (None: as the device can).

        Raises:
            PlannedError: the plan is for another module.
        """
        super().__init__()
        kind = type(module).__name__
        if not isinstance(module, torch.nn.Module):
            raise PlannedError(f"{kind} is not a torch.nn.Module")
        if any(hasattr(weight, "device_mesh") for weight in module.parameters()):
            raise PlannedError(f"{kind} is sharded; shard what is planned: fully_shard(Planned(module, plan))")
        object.__setattr__(self, "module", module)  # not a child: the names in state_dict stay as they are
        for name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            object.__setattr__(self, name, getattr(module, name))
        self.training = module.training
        self.orders = read_plan(plan)
        self._transfers = transfers
        self._paths: Paths | None = None
        self.last: Iteration | None = None  #: of the latest forward pass in training that was watched
        self._check(script_in(self.orders.plan))
        classes: Any = type(self), type(module)
        object.__setattr__(self, "__class__", _called_as(*classes))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's outputs."""
        if not (self.module.training and torch.is_grad_enabled() and hooks_are_free()):
            return self.module(*args, **kwargs)
        self._check_inputs(args, kwargs)
        if self._paths is None:
            self._paths = Paths(entries_of(self._script(args, kwargs), self.orders))
        if self.last is not None and not self.orders.ordered:
            return self.module(*args, **kwargs)  # everything is kept, and was counted once
        self.last = Iteration(self._paths, self.orders, self.transfers)
        return self.last.run(self.module, args, kwargs)

    def train(self, mode: bool = True) -> Planned:
        self.training = mode
        self.module.train(mode)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN:
            object.__setattr__(self, name, value)
        elif name.startswith("_") or hasattr(torch.nn.Module, name) or not hasattr(self.module, name):
            super().__setattr__(name, value)
        else:
            setattr(self.module, name, value)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["module"], name)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """That of the module."""
        return self.module.state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any) -> None:
        self.module._load_from_state_dict(*args)

    def __reduce__(self) -> Any:
        state = {**self.__dict__, "last": None, "_paths": None, "_transfers": None}
        return _empty, (self._own, type(self.module)), state

    def extra_repr(self) -> str:
        plan = self.orders.plan
        return f"{plan['network']}, {plan['setup']}"

    @property
    def transfers(self) -> Transfers:
        if self._transfers is None:
            self._transfers = transfers_for(self._device())
        return self._transfers

    def _device(self) -> Any:
        return next((weight.device for weight in self.module.parameters()), torch.device("cpu"))

    def _script(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        """The plan's script; recorded here if the plan is from another kind of device, and all of refimpl is there."""
        script = script_in(self.orders.plan)
        if script["device"] != self._device().type:
            with suppress(ImportError):
                recorded = import_module("refimpl.importing.observed")
                script = recorded.script_here(self.module, args, kwargs) or script
        return script

    def _check(self, script: Mapping[str, Any]) -> None:
        """Whether the plan's module had the same weights."""
        if script["module"] != shapes_of(self.module):
            raise PlannedError(
                f"the plan is for {self.orders.plan['network']} as it was imported, and {type(self.module).__name__} "
                "has other weights or shapes; plan again for this module"
            )

    def _check_inputs(self, args: Any, kwargs: Any) -> None:
        """The planned shapes, or smaller ones; tensors that the plan does not know are the module's own matter."""
        planned = script_in(self.orders.plan).get("inputs", {})
        for name, one in inputs_of(self.module, args, kwargs).items():
            most = planned.get(name, one.shape)
            if len(one.shape) != len(most) or any(map(operator.gt, one.shape, most)):
                raise PlannedError(
                    f"{name} is {_times(one.shape)}, and the plan is for {_times(most)} or less: plan again for the "
                    "largest batch and the longest sequence"
                )

    def report(self, meter: Any = None) -> str:
        """What the latest iteration held and moved, beside the plan's prediction, as a table.

        Args:
            meter: a `Meter` that was entered for the iteration; without one, the peak is counted on CUDA only.
        """
        return report(self, meter)


@cache
def _called_as(own: Any, kind: Any) -> Any:
    """The class of planned modules whose forward has the signature of this kind's; a compiler leaves it alone."""
    forward = wraps(kind.forward, updated=())(not_compiled(own.forward))
    return type(own.__name__, (own,), {"forward": forward, "_own": own, "__module__": own.__module__})


def _empty(own: Any, kind: Any) -> Any:
    """Before its state is read from a file."""
    return torch.nn.Module.__new__(_called_as(own, kind))


def _times(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "a number"
