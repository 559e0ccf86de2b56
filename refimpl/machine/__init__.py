"""Models of GPUs, the catalogues of their convolution algorithms, profiles, and the simulator."""

from refimpl.machine.catalogues import CATALOGUES
from refimpl.machine.clock import Clock, Engine
from refimpl.machine.gpus import MACHINES, TITAN_X
from refimpl.machine.model import Choice, Machine
from refimpl.machine.ring import Ring, wire_bytes
from refimpl.machine.simulator import Span, Timeline, engine_of, simulate
from refimpl.memory.tiers import HOST, PEER, Tier
from refimpl.text import MachineError

__all__ = [
    "CATALOGUES", "HOST", "MACHINES", "PEER", "TITAN_X", "Choice", "Clock", "Engine", "Machine", "MachineError",
    "Ring", "Span", "Tier", "Timeline", "engine_of", "own_machine", "simulate", "wire_bytes",
]  # fmt: skip
