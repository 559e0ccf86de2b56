"""A plan carried out in PyTorch's own training.  Needs PyTorch, and nothing else that Python does not have.

step_orders    what the plan orders before and after each step      module_script  its operators, and their maps
watching       one forward and its backward pass                    paths          the ways that a module has taken
values         what a storage holds, wherever its bytes are         running_again  operators of forward, run again
planned        the module that a user calls                         reporting      held and moved beside predicted
transfers      copies: on the CPU, on CUDA, emulated                private        PyTorch's names that are not public
module_plan    import and plan in one call; it needs all of refimpl
meter          bytes of live tensors, counted on the CPU            planned_error  one line that says what to do
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from refimpl.torch.meter import Meter
from refimpl.torch.planned import Planned
from refimpl.torch.planned_error import PlannedError
from refimpl.torch.transfers import DeferredTransfers, Transfers

__all__ = ["DeferredTransfers", "Meter", "Planned", "PlannedError", "Transfers", "plan"]


def __getattr__(name: str) -> Any:
    """`refimpl.torch.plan` needs the planner, which is imported when it is first used."""
    if name != "plan":
        raise AttributeError(f"refimpl.torch has no {name!r}; it has {', '.join(__all__)}")
    return import_module("refimpl.names.by_module").plan
