"""Faults of machines: what work costs, and how long a program takes."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "a kernel whose cost is not known takes no time but a launch's",
        "refimpl/machine/cpu_model.py",
        "        if name not in self.costs:\n            raise",
        "        if name not in self.costs:\n            return self.launch_seconds\n            raise",
        "tests/refimpl/machine",
    ),
    Fault(
        "two kernels of different streams run at once",
        "refimpl/machine/clock.py",
        "start = max(self.now[stream], self._free[engine])",
        "start = self.now[stream]",
        "tests/refimpl/machine",
    ),
    Fault(
        "the simulator does not wait for events",
        "refimpl/machine/simulate.py",
        "clock.wait(instruction.stream, events[instruction.event])",
        "clock.wait(instruction.stream, 0.0)",
        "tests/refimpl/machine tests/refimpl/planner",
    ),
    Fault(
        "an overlap ends with the shorter of two copies",
        "refimpl/machine/simulate.py",
        "merged[-1] = merged[-1][0], max(end, merged[-1][1])",
        "merged[-1] = merged[-1][0], end",
        "tests/refimpl/machine",
    ),
    Fault(
        "a kernel takes the shorter of arithmetic and traffic",
        "refimpl/machine/model.py",
        "max(arithmetic, traffic)",
        "min(arithmetic, traffic)",
        "tests/refimpl/machine",
        slow=True,
    ),
    Fault(
        "the FFT's workspace leaves out the filters",
        "refimpl/machine/catalogues/cudnn4.py",
        "planes = conv.images * (conv.channels + conv.filters) + conv.channels * conv.filters",
        "planes = conv.images * (conv.channels + conv.filters)",
        "tests/refimpl/machine",
        slow=True,
    ),
    Fault(
        "cores without a block cost nothing on the calibrated CPU",
        "refimpl/machine/cpu_model.py",
        "return round_up(blocks, threads) / blocks if blocks < 8 * threads else 1.0",
        "return round_up(blocks, threads) / blocks if blocks < 0 else 1.0",
        "tests/refimpl/machine/test_cpu_model.py",
    ),
    Fault(
        "a damaged calibration is used",
        "refimpl/machine/cpu_costs.py",
        "if sound and whole and NEEDED",
        "if whole and NEEDED",
        "tests/refimpl/machine/test_cpu_model.py::test_a_calibration_with_one_wrong_cost_is_measured_again",
    ),
    Fault(
        "costs that were measured of other kernels are used",
        "refimpl/machine/cpu_costs.py",
        "        digest.update(source.read_bytes())\n",
        "        source.read_bytes()\n",
        "tests/refimpl/machine/test_cpu_model.py::test_costs_of_other_kernels_are_another_calibration",
    ),
    Fault(
        "of several turns the slowest counts",
        "refimpl/machine/timing.py",
        "float] = min,",
        "float] = max,",
        "tests/refimpl/machine/test_timing.py",
    ),
    Fault(
        "the CPU's intervals have a GPU's widths",
        "refimpl/machine/possible.py",
        "return CPU_DOUBT if isinstance(machine, CalibratedCpu) else Doubt()",
        "return Doubt()",
        "tests/refimpl/machine/test_possible.py",
    ),
    Fault(
        "possible machines copy as fast as the model",
        "refimpl/machine/possible.py",
        "return self.machine.copy_seconds(nbytes, direction, tier) * self.link",
        "return self.machine.copy_seconds(nbytes, direction, tier) + 0 * self.link",
        "tests/refimpl/machine/test_possible.py",
    ),
    Fault(
        "what a busy machine measured is kept as its own",
        "refimpl/machine/cpu_costs.py",
        "busy = is_busy() if busy is None else busy",
        "busy = False",
        "tests/refimpl/machine/test_cpu_model.py -k busy",
    ),
    Fault(
        "a call is offered every algorithm, whichever it is given",
        "refimpl/machine/model.py",
        "one = tuple(choice for choice in whole.choices if choice.algorithm == algorithm)",
        "one = whole.choices",
        "tests/refimpl/cli/test_run.py -k calibration",
        slow=True,
    ),
)
