"""The first layer whose output has a number that is not finite.

The iteration is run again, slowly: after every launch the host looks at all that it wrote.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from refimpl.backend.batches import numbers
from refimpl.backend.device import Device, Replay
from refimpl.network import Step, Tensor
from refimpl.planner import Launch, Program


@dataclass(frozen=True)
class Finding:
    """The first output that is not finite."""

    step: Step
    tensor: Tensor
    count: int  #: numbers in it that are not finite
    worst: float  #: one of them
    weights: list[str]  #: of this layer, those that were not finite either

    def __str__(self) -> str:
        already = f"; its {' and '.join(self.weights)} held such numbers before" if self.weights else ""
        return (
            f"the first layer that shows it is {self.step.layer} ({self.step.direction}): {self.tensor} holds "
            f"{numbers(self.count)}, {self.worst} among them{already}"
        )


class Diagnosed(Exception):
    """Ends the iteration that looks for it."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding


def diagnose(device: Device, replay: Replay, program: Program, until: int) -> Finding | None:
    """Run the program up to the launch at position `until`, looking at every number; None where all are finite."""
    launches = {
        position: instruction
        for position, instruction in enumerate(program.instructions[: until + 1])
        if isinstance(instruction, Launch)
    }
    calls = {call: step for step in program.network.steps for call in step.calls}

    def look(position: int, instruction: Launch) -> None:
        _look(device, instruction, calls[instruction.call])
        if position == until:
            raise StopIteration

    try:
        replay.issue({position: partial(look, position, instruction) for position, instruction in launches.items()})
    except Diagnosed as found:
        return found.finding
    except StopIteration:
        return None
    finally:
        replay.finish()
    return None


def _look(device: Device, instruction: Launch, step: Step) -> None:
    address = dict(zip(instruction.call.operands, instruction.addresses, strict=True))
    for tensor in (*instruction.call.updates, *instruction.call.writes):
        if tensor.kind in ("labels", "scratch"):
            continue
        values = device.read(address[tensor], tensor.shape, tensor.dtype)
        bad = values[~np.isfinite(values)]
        if bad.size:
            weights = [
                t.name
                for t in instruction.call.reads
                if t.kind == "weight" and not np.isfinite(device.read(address[t], t.shape, t.dtype)).all()
            ]
            worst = float(bad[np.isnan(bad)][0]) if np.isnan(bad).any() else float(bad[0])
            assert not math.isfinite(worst)
            raise Diagnosed(Finding(step, tensor, int(bad.size), worst, weights))
