"""A PyTorch module whose maps are kept, offloaded and recomputed as a plan says.

    planned = Planned(module, program)          # or the decisions of a program, or a file with them
    loss = functional.cross_entropy(planned(images), labels)
    loss.backward()

Its parameters, buffers and modes are the module's own.  This room needs PyTorch and Python's own library only, so a
plan can be carried out where nothing else is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

import torch

from refimpl.torch.module_script import entries_of, script_in, shapes_of
from refimpl.torch.paths import Paths
from refimpl.torch.planned_error import PlannedError
from refimpl.torch.reporting import report
from refimpl.torch.step_orders import read_plan
from refimpl.torch.transfers import Transfers, transfers_for
from refimpl.torch.watching import Iteration

#: Attributes of a planned module; a part of the user's module may have such a name, too, and keeps it there.
OWN = ("last", "lean", "orders", "training", "_paths", "_transfers")


class Planned(torch.nn.Module):
    """Trains as `module` does, bit for bit, and holds what the plan says."""

    def __init__(self, module: Any, plan: Any, lean: bool = False, transfers: Transfers | None = None) -> None:
        """Args:
        module: as it was imported; its weights may have changed.
        plan: a program of `refimpl.networks.from_torch(module, ...)`, its `decisions()`, or a JSON file with them.
        lean: recompute also masks and indices that the plan does not know of, where their inputs are held anyway.
        transfers: how copies are made (None: as the device can).

        Raises:
            PlannedError: the plan is for another module.
        """
        super().__init__()
        if not isinstance(module, torch.nn.Module):
            raise PlannedError(f"{type(module).__name__} is not a torch.nn.Module")
        object.__setattr__(self, "module", module)  # not a child: the names in state_dict stay as they are
        for name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            object.__setattr__(self, name, getattr(module, name))
        self.training = module.training
        self.orders, self.lean = read_plan(plan), lean
        self._transfers = transfers
        self._paths: Paths | None = None
        self.last: Iteration | None = None  #: of the latest forward pass in training that was watched
        self._check(script_in(self.orders.plan))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's outputs."""
        if not self.module.training or not torch.is_grad_enabled():
            return self.module(*args, **kwargs)
        self._check_shapes([*args, *kwargs.values()])
        if self._paths is None:
            self._paths = Paths(entries_of(self._script(args, kwargs), self.orders, self.lean))
        if self.last is not None and not self.lean and not self.orders.ordered:
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
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["module"], name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "last": None, "_paths": None, "_transfers": None}

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

    def _check_shapes(self, given: list[Any]) -> None:
        """The planned shapes, or smaller ones."""
        wanted = [tuple(shape) for shape, _ in self.orders.plan["inputs"]]
        found = [tuple(value.shape) for value in given if isinstance(value, torch.Tensor)]
        alike = [
            len(one) == len(other) and all(0 < a <= b for a, b in zip(one, other, strict=True))
            for one, other in zip(found, wanted, strict=False)
        ]
        if len(found) != len(wanted) or not all(alike):
            raise PlannedError(
                f"the plan is for inputs of {', '.join(map(_times, wanted))}, or fewer; got "
                f"{', '.join(map(_times, found)) or 'no tensor'}: plan again for that"
            )

    def report(self, meter: Any = None) -> str:
        """What the latest iteration held and moved, beside the plan's prediction, as a table.

        Args:
            meter: a `Meter` that was entered for the iteration; without one, the peak is counted on CUDA only.
        """
        return report(self, meter)


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "no tensor"
