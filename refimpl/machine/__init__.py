"""Models of GPUs, the catalogues of their convolution algorithms, profiles, and the simulator."""

from refimpl.machine.catalogues import CATALOGUES
from refimpl.machine.clock import Clock, Engine
from refimpl.machine.machines import MACHINES, TITAN_X
from refimpl.machine.model import Choice, Machine
from refimpl.machine.named import machine, summary
from refimpl.machine.profile import Profile, machine_from_profile
from refimpl.machine.simulate import Span, Timeline, simulate
from refimpl.machine.work import MachineError

__all__ = [
    "CATALOGUES", "MACHINES", "TITAN_X", "Choice", "Clock", "Engine", "Machine", "MachineError", "Profile", "Span",
    "Timeline", "machine", "machine_from_profile", "simulate", "summary",
]  # fmt: skip
