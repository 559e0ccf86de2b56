"""Training networks that do not fit the GPU's memory: vDNN, vDNN++, SuperNeurons and AccUDNN, readable and runnable.

    net = refimpl.networks.vgg16(batch=128)
    setup = refimpl.presets.vdnn_conv(algorithms="performance").replace(allocator=refimpl.superneurons.Heap())
    program = refimpl.plan(net, setup, machine=refimpl.machines.titan_x, budget="12GiB")
    print(program.simulate().seconds)

    trainer = refimpl.Trainer(program, backend="cpu")
    loss = trainer.step(images, labels)

Everything is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

#: What is offered here → where it is; with a colon, an object of that module.
OFFERED = {
    "networks": "refimpl.network.zoo",
    "machines": "refimpl.registry.machines",
    "presets": "refimpl.registry.presets",
    "data": "refimpl.backend.data",
    "slots": "refimpl.registry.slots",
    "Builder": "refimpl.network:Builder",
    "NetworkError": "refimpl.network:NetworkError",
    "Machine": "refimpl.machine:Machine",
    "Setup": "refimpl.planner:Setup",
    "SetupError": "refimpl.planner:SetupError",
    "PlanContext": "refimpl.planner:PlanContext",
    "Program": "refimpl.planner:Program",
    "plan": "refimpl.registry.planning:plan",
    "DoesNotFit": "refimpl.planner:DoesNotFit",
    "Trainer": "refimpl.backend:Trainer",
    "NotFinite": "refimpl.backend:NotFinite",
}

#: The rooms, and the papers' folders: `refimpl.memory.BestFit()`, `refimpl.superneurons.Heap()`.
ROOMS = ("network", "memory", "machine", "planner", "vdnn", "vdnnpp", "superneurons", "backend", "report")


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
        raise AttributeError(f"refimpl has no {name!r}; it has {', '.join((*OFFERED, *ROOMS))}")
    module, _, attribute = OFFERED[name].partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return ["__version__", *OFFERED, *ROOMS]
