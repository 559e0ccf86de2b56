"""Faults of machines: what work costs, and how long a program takes."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "two kernels of different streams run at once",
        "refimpl/machine/clock.py",
        "start = self.later(self.now[stream], self._free[engine])",
        "start = self.now[stream]",
        "tests/refimpl/machine",
    ),
    Fault(
        "the simulator does not wait for events",
        "refimpl/machine/simulator.py",
        "clock.wait(instruction.stream, events[instruction.event])",
        "clock.wait(instruction.stream, 0.0)",
        "tests/refimpl/machine tests/refimpl/planner",
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
        "a kernel of few tiles reaches its whole rate",
        "refimpl/machine/model.py",
        "tiling.flops * (1 + more / tiling.tiles)",
        "tiling.flops",
        "tests/refimpl/machine/test_tiling.py",
    ),
    Fault(
        "the FFT of a backward data pass has the plane of x's padded map",
        "refimpl/machine/catalogues/cudnn4.py",
        'if conv.pass_ != "backward_data":',
        "if conv:",
        "tests/refimpl/machine/test_cudnn4.py",
    ),
    Fault(
        "a damaged calibration is used",
        "refimpl/machine/cpu_costs.py",
        "if sound and whole and complete",
        "if whole and complete",
        "tests/refimpl/machine/test_cpu_model.py::test_a_calibration_with_one_wrong_cost_is_measured_again",
    ),
    Fault(
        "programs that do the same work differ on possible machines",
        "refimpl/machine/possible.py",
        "self.program(crc32(seconds.tobytes()))",
        "self.program(id(seconds))",
        "tests/refimpl/machine/test_possible.py",
    ),
)
