"""Possible machines: all at once they give what each gives alone, and they differ as much as is known."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl.machine import HOST, MACHINES, Machine
from refimpl.machine.cpu_costs import reference
from refimpl.machine.cpu_model import COPY, FETCHED, LAUNCH, SHARED, with_costs
from refimpl.machine.here import rough_cpu
from refimpl.machine.possible import CPU_DOUBT, Doubt, PossibleMachines, doubt_of, interval, kernel_of
from refimpl.machine.ring import Ring
from refimpl.machine.simulator import simulate
from refimpl.names.networks import build
from refimpl.planner import Program
from tests.refimpl.machine.intervals_check import seconds_in_turn

#: GB/s of PCI Express, sixteen lanes of its third, fourth and fifth generation.
PEAKS = {"titan-x": 15.75, "k40c": 15.75, "v100": 15.75, "a100-40g": 31.5, "rtx-4090": 31.5, "h100": 63.0}


class OneMachine(Machine):
    """The slow twin: the possible machine of one number, asked alone."""

    machines: PossibleMachines
    number: int

    def __init__(self, machines: PossibleMachines, number: int) -> None:
        vars(self).update(vars(machines.machine), machines=machines, number=number)

    def seconds(self, call: Any, choice: Any = None) -> float:
        kernel = kernel_of(call, choice)
        factors = self.machines.network if call.collective else self.machines.kernel(kernel, call.choosable)
        return self.machines.machine.seconds(call, choice) * float(factors[self.number])

    def copy_seconds(self, nbytes: int, direction: Any, tier: str = HOST) -> float:
        return self.machines.machine.copy_seconds(nbytes, direction, tier) * float(self.machines.link[self.number])

    def host_seconds(self, nbytes: int) -> float:
        return self.machines.machine.host_seconds(nbytes) * float(self.machines.host[self.number])


def programs() -> list[Program]:
    """Of one stream, of three, with a host's threads, with calls of the driver, and with a network between ranks."""
    machine = MACHINES["titan-x"].with_ring(Ring(1e9, shares_link=True))
    several = build("tiny-resnet", 64).data_parallel(4, None)
    return [
        refimpl.plan("tiny-vgg", "baseline", "titan-x"),
        refimpl.plan("tiny-resnet", "superneurons", "titan-x", 0.5),
        refimpl.plan("tiny-vgg", "vdnnpp-all", "titan-x", 0.6),
        refimpl.plan("tiny-vgg", "vdnn-all, allocator=driver-calls", "titan-x", 0.8),
        refimpl.plan(several, "vdnn-all", machine, 1 << 30),
    ]


def test_all_machines_at_once_take_what_each_takes_alone() -> None:
    for program in programs():
        machines = PossibleMachines(program.machine, number=5)
        found = program.possible_seconds(machines)
        alone = [
            simulate(program.instructions, program.streams, one, program.setup.allocator.driver_calls).seconds
            for one in (OneMachine(machines, number) for number in range(5))
        ]
        assert found.tolist() == alone and len(set(alone)) == 5, program


def test_without_doubt_each_is_the_model() -> None:
    program = refimpl.plan("tiny-resnet", "superneurons", "titan-x", 0.5)
    found = program.possible_seconds(PossibleMachines(program.machine, 3, doubt=Doubt(0.0, 0.0, 0.0, 0.0)))
    assert found.tolist() == [program.planned_seconds] * 3


def test_programs_are_compared_on_the_same_machines() -> None:
    """The same kernels are off by the same factors in every program, and another seed has others."""
    first, again, other = (PossibleMachines(MACHINES["titan-x"], seed=seed) for seed in (1, 1, 2))
    assert first.kernel("pool.forward", False).tolist() == again.kernel("pool.forward", False).tolist()
    assert first.link.tolist() == again.link.tolist() != other.link.tolist()
    assert np.std(np.log(PossibleMachines(MACHINES["titan-x"], 4000).link)) == pytest.approx(Doubt().link, rel=0.05)
    low, high = interval(first.link)
    assert np.count_nonzero((first.link < low) | (first.link > high)) in (6, 7, 8)


def test_the_link_s_doubt_is_that_of_the_measured_links() -> None:
    """Machines without a measurement have another one's link, and do not count."""
    measured = {
        name
        for name, machine in MACHINES.items()
        if any("link" in source.of and source.how in ("measured", "paper") for source in machine.sources)
    }
    assert measured == set(PEAKS)
    shares = [math.log(MACHINES[name].link / 1e9 / peak) for name, peak in PEAKS.items()]
    assert round(statistics.stdev(shares), 2) == Doubt().link


@pytest.mark.matrix
def test_the_kernels_doubt_is_the_unseen_error_of_the_fit() -> None:
    from refimpl.studies.reproduce.machines.figures import unseen_widths, whole_networks

    whole, parts = unseen_widths(whole_networks())
    assert (round(whole, 2), round(parts, 2)) == (Doubt().compute, Doubt().kernel) and Doubt().simple == Doubt().kernel


def test_the_cpu_at_hand_is_as_uncertain_as_its_own_model_was_found_to_be() -> None:
    machine = with_costs(
        rough_cpu(), dict(reference()) | dict.fromkeys((LAUNCH, SHARED, FETCHED), (1e-6,)) | {COPY: (1e-6, 1e-10)}
    )
    assert doubt_of(machine) == CPU_DOUBT != doubt_of(MACHINES["titan-x"]) == Doubt()
    link = PossibleMachines(machine, 4000).link
    assert np.std(np.log(link)) == pytest.approx(CPU_DOUBT.link, rel=0.05)


def test_kernels_with_and_without_a_choice_have_widths_of_their_own() -> None:
    machines = PossibleMachines(MACHINES["titan-x"], 4000, doubt=Doubt(0.0, 0.2, 0.5, 0.0))
    for has_choice, width in ((True, 0.2), (False, 0.5)):
        assert np.std(np.log(machines.kernel("a", has_choice))) == pytest.approx(width, rel=0.05)


def test_the_same_work_at_other_addresses_is_off_by_the_program_s_width_once() -> None:
    """Two programs differ by it, whatever else they have in common; the same seconds are of the same work."""
    machines = PossibleMachines(MACHINES["titan-x"], 4000, doubt=Doubt(0.0, 0.0, 0.0, 0.0, program=0.03))
    one, same, other = (np.full(4000, seconds) for seconds in (1.0, 1.0, 1.1))
    ratio = np.log(machines.of_program(other) / machines.of_program(one))
    assert np.std(ratio) == pytest.approx(0.03 * math.sqrt(2), rel=0.1)
    assert machines.of_program(one).tolist() == machines.of_program(same).tolist()


def test_in_turn_nothing_hides() -> None:
    """What the check on the CPU compares with: all work is a sum, and longer than where copies hide."""
    program = refimpl.plan("tiny-vgg", "vdnn-all", "titan-x", 0.8)
    spans = program.simulate().spans
    found = seconds_in_turn(program, program.machine)
    assert found == pytest.approx(sum(span.end - span.start for span in spans)) and found > program.planned_seconds
    machines = PossibleMachines(program.machine, number=3, doubt=Doubt(0.0, 0.0, 0.0, 0.0))
    assert seconds_in_turn(program, machines).tolist() == pytest.approx([found] * 3)
