"""A PyTorch module whose maps are kept, offloaded and recomputed as a plan says.

    planned = Planned(module, program)          # or the decisions of a program, or a file with them
    loss = functional.cross_entropy(planned(images), labels)
    loss.backward()

Its parameters, buffers and modes are the module's own.  This room needs PyTorch and Python's own library only, so a
plan can be carried out where nothing else is installed.
"""

from __future__ import annotations

from typing import Any

import torch

from refimpl.torch.exporting import ExportedModule
from refimpl.torch.iteration import Iteration
from refimpl.torch.planned_error import PlannedError
from refimpl.torch.reporting import report
from refimpl.torch.step_orders import read_plan
from refimpl.torch.transfers import Transfers, transfers_for

#: Attributes of a planned module; a part of the user's module may have such a name, too, and keeps it there.
OWN = ("last", "lean", "orders", "training", "_exports", "_parts", "_transfers")


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
        self._transfers, self._parts = transfers, list(module.modules())
        self._exports: dict[Any, ExportedModule] = {}
        self.last: Iteration | None = None  #: of the latest forward pass in training
        if len(self.orders.plan["inputs"]) == 1:  # several have names, perhaps, and are checked when they come
            ((shape, dtype),) = self.orders.plan["inputs"]
            kind = getattr(torch, "int64" if dtype == "int32" else dtype)
            self._exported((torch.zeros(shape, dtype=kind, device=self._device()),), {})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's outputs."""
        if not self.training or not torch.is_grad_enabled():
            return self.module(*args, **kwargs)
        if not all(part.training for part in self._parts):
            name = next(name for name, part in self.module.named_modules() if not part.training)
            raise PlannedError(f"{name} is in eval mode and the module in train mode; a plan is for all in train mode")
        exported = self._exported(args, kwargs)
        self.last = Iteration(exported, self.orders, self.transfers, self.lean)
        return exported.packed(self.last.forward(exported.flat(args, kwargs)))

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

    def _exported(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedModule:
        """The operators for inputs of these shapes; those of a smaller batch are exported when it comes."""
        flat = [*args, *kwargs.values()]
        key = tuple(
            (tuple(value.shape), value.dtype, value.device) if isinstance(value, torch.Tensor) else repr(value)
            for value in flat
        )
        if key not in self._exports:
            self._check_shape(flat)
            made = ExportedModule(self.module, *_without_values(args, kwargs))
            self._check(made, whole=not self._exports)
            self._exports[key] = made
        return self._exports[key]

    def _check_shape(self, given: list[Any]) -> None:
        """The planned shapes, or fewer images."""
        wanted = [tuple(shape) for shape, _ in self.orders.plan["inputs"]]
        found = [tuple(value.shape) for value in given if isinstance(value, torch.Tensor)]
        alike = [
            one[1:] == other[1:] and 0 < one[0] <= other[0] for one, other in zip(found, wanted, strict=False) if one
        ]
        if len(found) != len(wanted) or len(alike) != len(wanted) or not all(alike):
            raise PlannedError(
                f"the plan is for inputs of {', '.join(map(_times, wanted))}, or fewer; got "
                f"{', '.join(map(_times, found)) or 'no tensor'}: plan again for that"
            )

    def _check(self, exported: ExportedModule, whole: bool) -> None:
        """Whether the plan's operators are the module's; those of a smaller batch have the same names."""
        own = {operator.name for operator in exported.operators}
        if self.orders.of.keys() <= own and not (whole and exported.fingerprint != self.orders.plan["fingerprint"]):
            return
        raise PlannedError(
            f"the plan is for {self.orders.plan['network']} as it was imported, and {type(self.module).__name__} lists "
            "other operators or shapes; plan again for this module, with this version of PyTorch"
        )

    def report(self, meter: Any = None) -> str:
        """What the latest iteration held and moved, beside the plan's prediction, as a table.

        Args:
            meter: a `Meter` that was entered for the iteration; without one, the peak is counted on CUDA only.
        """
        return report(self, meter)


def _without_values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs of the same shapes that need no gradients."""

    def plain(value: Any) -> Any:
        return torch.zeros_like(value.detach()) if isinstance(value, torch.Tensor) else value

    return tuple(plain(value) for value in args), {name: plain(value) for name, value in kwargs.items()}


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "no tensor"
