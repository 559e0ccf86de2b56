"""Training networks that do not fit the GPU's memory: a reference implementation of papers, to read and to run.

    net = refimpl.networks.vgg16(batch=128)
    setup = refimpl.presets.vdnn_conv(algorithms="performance").replace(allocator=refimpl.superneurons.Heap())
    program = refimpl.plan(net, setup, machine=refimpl.machines.titan_x, budget="12GiB")
    print(program.simulate().seconds)

    trainer = refimpl.Trainer(program, backend="cpu")
    loss = trainer.step(images, labels)

`refimpl.plan("vgg16", "vdnn-all", "titan-x", "12GiB")` takes names as the command does.  A name is imported when
it is first used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

#: Public name → where it is; with a colon, an object of that module.
OFFERED = {
    # names by attribute: refimpl.networks.vgg16(batch=64), refimpl.machines.titan_x, refimpl.presets.vdnn_all()
    "networks": "refimpl.names.networks",
    "machines": "refimpl.names.machines",
    "presets": "refimpl.names.presets",
    "data": "refimpl.backend.data",
    "slots": "refimpl.slots",
    # what a program is made of, and what it is good for
    "Network": "refimpl.network:Network",
    "Builder": "refimpl.network.later_layers:Builder",
    "Setup": "refimpl.names.modules:Setup",  # whose `replace` knows names
    "Machine": "refimpl.machine:Machine",
    "plan": "refimpl.names.by_name:plan",
    "least_budget": "refimpl.names.by_name:least_budget",
    "Program": "refimpl.planner:Program",
    "Context": "refimpl.slots.context:Context",
    "Timeline": "refimpl.machine:Timeline",
    "Trainer": "refimpl.backend:Trainer",
    "Schedule": "refimpl.backend:Schedule",
    "write_page": "refimpl.report.page:write_page",
    "study": "refimpl.studies.grid.grid:study",
    # errors, each one line that says what to write
    "RefimplError": "refimpl.text:RefimplError",
    "NetworkError": "refimpl.network:NetworkError",
    "SetupError": "refimpl.slots.errors:SetupError",
    "MachineError": "refimpl.machine:MachineError",
    "BudgetError": "refimpl.names.budgets:BudgetError",
    "DoesNotFit": "refimpl.slots.errors:DoesNotFit",
    "Unsafe": "refimpl.planner.verify:Unsafe",
    "RunError": "refimpl.backend:RunError",
    "NotFinite": "refimpl.backend:NotFinite",
}

#: The rooms, and the papers' folders: `refimpl.memory.BestFit()`, `refimpl.superneurons.Heap()`.
ROOMS = (
    "network", "memory", "machine", "planner", "vdnn", "vdnnpp", "superneurons", "accudnn", "combined", "backend",
    "report",
)  # fmt: skip


def _refuse_other_kernels() -> None:
    """Raise ImportError if Python finds another project's package `kernels`; the name is a common one."""
    try:
        found = import_module("kernels")
    except Exception as error:
        where, project = f"{type(error).__name__}: {error}", None
    else:
        where, project = found.__file__ or ", ".join(found.__path__), getattr(found, "PROJECT", None)
    if project != "refimpl":
        raise ImportError(
            f"refimpl needs its own package kernels, in {Path(__file__).parent.parent}, but Python finds another "
            f"({where}); uninstall or rename that one and reinstall refimpl, or give refimpl its own environment"
        ) from None


_refuse_other_kernels()


def __getattr__(name: str) -> Any:
    if name in ROOMS:
        return import_module(f"refimpl.{name}")
    if name not in OFFERED:
        from refimpl.text import offer

        raise AttributeError(f"refimpl has no {name!r}{offer(name, [*OFFERED, *ROOMS])}")
    module, _, attribute = OFFERED[name].partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return ["__version__", *OFFERED, *ROOMS]
