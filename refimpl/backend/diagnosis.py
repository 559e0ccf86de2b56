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
        step = self.step
        return (
            f"the first layer that shows it is {step.layer} ({step.direction}{step.of_parts}): {self.tensor} holds "
            f"{numbers(self.count)}, {self.worst} among them{already}"
        )


def diagnose(device: Device, replay: Replay, program: Program, until: int) -> Finding | None:
    """Run the program up to the launch at position `until`, looking at every number; None where all are finite."""
    launches = {
        position: instruction
        for position, instruction in enumerate(program.instructions[: until + 1])
        if isinstance(instruction, Launch)
    }
    calls = {call: step for step in program.network.steps for call in step.calls}

    finding: Finding | None = None

    def look(position: int, instruction: Launch) -> None:
        nonlocal finding
        finding = _look(device, instruction, calls[instruction.call])
        if finding is not None or position == until:
            raise StopIteration

    try:
        replay.issue({position: partial(look, position, instruction) for position, instruction in launches.items()})
    except StopIteration:
        pass
    finally:
        replay.finish()
    return finding


def _look(device: Device, instruction: Launch, step: Step) -> Finding | None:
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
            return Finding(step, tensor, int(bad.size), worst, weights)
    return None
