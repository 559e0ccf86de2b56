"""The calibration of the CPU at hand, on a made-up CPU whose clock shows what each launch costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.targets.cpu import build
from refimpl.machine import cpu_costs, cpu_model, here, timing
from refimpl.machine.cpu_costs import BETWEEN, FILLING, LARGE, MEASURED, SEVERAL, SMALL

POOL, COPY = "pool_max_backward_by_map_3_2", "elementwise_copy"
WARM, COLD = 1e-12, 3e-11  #: seconds of a byte in the caches, and what one costs more out of them
ANOTHER = 2e-6  #: seconds that a launch takes longer after another one
OUT, BACK = 1e-10, 3e-10  #: seconds of a byte copied to the host, and back


class MadeUpCpu:
    """Launches that take their time on its clock alone; it knows what ran last."""

    def __init__(self) -> None:
        self.now, self.last = 0.0, 0
        self.ran = Counter[int]()

    def clock(self) -> float:
        return self.now

    def launch(self, name: str, seconds: float, elements: int = 0) -> Any:
        def run(stream: None) -> None:
            self.ran[elements] += 1
            self.now += seconds + 8 * elements * (WARM + (COLD if self.last == FILLING != elements else 0.0))
            self.now += 0.0 if self.last == elements else ANOTHER
            self.last = elements

        return SimpleNamespace(kernel=SimpleNamespace(name=name), grid=(1, 1, 1), run=run)

    def copy_of(self, elements: int) -> Any:
        return self.launch(COPY, 1e-6 if elements == SMALL else 4e-6, elements)

    def copyto(self, to: np.ndarray, of: np.ndarray) -> None:
        """A copy between device and host; the device was filled with twos before its map is copied out."""
        assert to.shape == of.shape and self.last == (BETWEEN if of.size == SMALL else FILLING)
        self.now += 5e-6 + of.nbytes * (OUT if of[0] == 2 else BACK)


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> MadeUpCpu:
    made = MadeUpCpu()
    for module, name in ((cpu_costs, "perf_counter"), (cpu_costs, "process_time"), (timing, "perf_counter")):
        monkeypatch.setattr(module, name, made.clock)
    monkeypatch.setattr(cpu_costs, "copy_of", made.copy_of)
    numpy = SimpleNamespace(ones=np.ones, uint8=np.uint8, copyto=made.copyto)
    monkeypatch.setattr(cpu_costs, "np", numpy)
    monkeypatch.setattr(cpu_costs, "_threads", lambda: 1)
    monkeypatch.setattr(cpu_costs, "MAP", 1 << 10)
    return made


def test_a_calibration_finds_what_the_cpu_costs(cpu: MadeUpCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel is compiled once, in the order of `MEASURED`; what is as short as an empty launch is no sample."""
    runs = {
        (COPY, (1.0,)): cpu.launch(COPY, 1.1e-6),
        (POOL, (2.0,)): cpu.launch(POOL, 1.5e-6),
        (POOL, (200.0,)): cpu.launch(POOL, 50e-6),
    }
    compiled, told, samples = list[Any](), list[str](), dict[str, Any]()
    monkeypatch.setattr(cpu_costs, "cases", lambda every: runs)
    monkeypatch.setattr(cpu_costs, "helpers", nullcontext)
    monkeypatch.setattr(build, "load", lambda kernel: compiled.append(kernel.name))
    found = cpu_costs.calibrate(told.append, limit=0.02, model=lambda each: samples.update(each) or {"relu": (1.0,)})
    assert compiled == [POOL, COPY]
    assert told == [
        "what to measure", f"kernel 1 of 2: {POOL}", f"kernel 2 of 2: {COPY}", "measuring, 0.02 seconds", "done",
    ]  # fmt: skip
    overhead = 1e-6 + 8 * SMALL * WARM
    assert samples == {
        POOL: [((200.0,), pytest.approx(50e-6 - overhead))],
        COPY: [((1.0,), pytest.approx(1.1e-6 - overhead))],
    }
    assert {name: found[name] for name in found} == {
        "relu": (1.0,),
        cpu_model.LAUNCH: (pytest.approx(overhead + ANOTHER),),
        cpu_model.SHARED: (pytest.approx(4e-6 + 8 * SEVERAL * WARM + ANOTHER),),
        cpu_model.FETCHED: (pytest.approx(COLD * (LARGE - SEVERAL) / LARGE),),
        cpu_model.COPY: (pytest.approx(5e-6 + SMALL * OUT), pytest.approx((OUT + BACK) / 2 + 5e-6 / (1 << 10))),
    }


def test_a_copy_is_timed_after_the_same_one_or_after_another(cpu: MadeUpCpu) -> None:
    again, after = cpu_costs.copy_seconds(), cpu_costs.copy_seconds(cpu.copy_of(BETWEEN))
    starts = {SMALL: 1e-6, SEVERAL: 4e-6, LARGE: 4e-6}
    assert again == pytest.approx({size: start + 8 * size * WARM for size, start in starts.items()})
    assert after == pytest.approx({size: seconds + ANOTHER for size, seconds in again.items()})
    assert cpu.ran == dict.fromkeys(starts, 3 * cpu_costs.TURNS) | {BETWEEN: 3 * cpu_costs.TURNS}


def test_what_counts_is_the_usual_turn_or_the_least(cpu: MadeUpCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seldom disturbed turn of a copy counts neither way."""

    def disturbed(to: np.ndarray, of: np.ndarray) -> None:
        cpu.copyto(to, of)
        cpu.now += next(more)

    monkeypatch.setattr(cpu_costs, "np", SimpleNamespace(ones=np.ones, uint8=np.uint8, copyto=disturbed))
    more = iter([0.0, 1e-3, 1.0] * cpu_costs.TURNS)
    assert cpu_costs.map_copy_costs(max)[0] == pytest.approx(1.0, rel=1e-3)
    more = iter([0.0, 1e-3, 1.0] * cpu_costs.TURNS)
    assert cpu_costs.map_copy_costs()[0] == pytest.approx(1e-3, rel=1e-2)
    more = iter([0.0, 1e-3, 1.0] * cpu_costs.TURNS)
    assert cpu_costs.map_copy_costs(min)[0] == pytest.approx(5e-6 + SMALL * OUT)


def test_the_peaks_of_a_measured_cpu_are_those_of_its_product_and_its_copy() -> None:
    """A product of 512 x 512 x 512, in tiles of the register kernel where the CPU has no wider vectors."""
    costs: dict[str, cpu_model.Units] = {
        "gemm_register_2d": (1e-12, 0.0, 0.0), COPY: (8192e-10,), cpu_model.FETCHED: (1e-10,),
        cpu_model.COPY: (3e-6, 2e-10), cpu_model.LAUNCH: (7e-6,),
    }  # fmt: skip
    rough = here.rough_cpu()
    made = cpu_model.with_costs(rough, costs)
    assert (made.flops, made.bandwidth, made.link) == pytest.approx((2e12, 5e9, 5e9))
    assert (made.copy_start_seconds, made.launch_seconds, made.memory_bytes) == (3e-6, 7e-6, rough.memory_bytes)
    assert made.copy_seconds(1 << 20, "out") == made.copy_seconds(1 << 20, "in") == pytest.approx(3e-6 + 2e-10 * 2**20)
    wider = cpu_model.with_costs(rough, costs | {"gemm_vector_rows_nn": (0.5e-12, 0.0, 0.0, 0.0)})
    assert wider.flops == pytest.approx(4e12) and wider.multiprocessors == rough.multiprocessors
    assert [(source.how, source.of) for source in made.sources] == [
        ("system", ("memory_bytes", "multiprocessors")), ("measured", ("flops", "bandwidth", "link", "efficiency")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "units"),
    [
        (cpu_model._register_2d, (3 * 16 * 24 * 7, 2 * 3 * 7, 3 * 16 * 24)),
        (cpu_model._tiled, (2 * 3 * 16, 2 * 3)),
        (cpu_model._skinny, (3 * 16 * 17 * 7, 3 * 17 * 7, 2 * 3 * 9 * 7, 3 * 9 * 17)),
    ],
)
def test_units_of_a_product_by_hand(count: Callable[..., cpu_model.Units], units: cpu_model.Units) -> None:
    """Of 9 x 17 x 7, in a grid of 2 x 3 blocks: tiles of 8 rows and 8 columns, of 16 deep."""
    assert count({"m": 9, "n": 17, "k": 7}, (2, 3)) == units


@pytest.mark.parametrize(
    ("helper", "compiled"),
    [((0, 1), ["copy", "b", "a"]), ((0, 2), ["copy", "a"]), ((1, 2), ["b"])],
)
def test_helpers_share_the_kernels_from_the_last_on(
    helper: tuple[int, int], compiled: list[str], cpu: MadeUpCpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who compiles the last also compiles what shares a launch out over threads, by launching a copy."""
    names = ("a", "b", "copy")
    made: list[str] = []
    monkeypatch.setattr(cpu_costs, "MEASURED", names)
    monkeypatch.setattr(cpu_costs, "cases", lambda: {(name, (1.0,)): cpu.launch(name, 0.0) for name in names})
    monkeypatch.setattr(build, "load", lambda kernel: made.append(kernel.name))
    monkeypatch.setattr(build, "cache_directory", lambda: Path("folder"))
    monkeypatch.setattr(build, "key", lambda kernel, checked: "checked" if checked else "key")
    monkeypatch.setattr(build, "intact", lambda path: False)
    cpu_costs.help_to_compile(*helper)
    assert made == compiled and cpu.ran[SEVERAL] == ("copy" in compiled)
    made.clear()
    monkeypatch.setattr(build, "intact", lambda path: path == Path("folder/a_key"))
    cpu_costs.help_to_compile(*helper)
    assert made == [name for name in compiled if name != "a"], "another process has come as far as a"
    made.clear()
    monkeypatch.setattr(build, "cache_directory", lambda: None)
    cpu_costs.help_to_compile(*helper)
    assert made == [], "nothing can be kept for the process that measures"


def test_progress_is_a_line_of_a_terminal_that_is_written_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu_costs._shown("unseen")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    cpu_costs._shown("kernel 1")
    cpu_costs._shown("done")
    assert capsys.readouterr().err == f"\r  {'kernel 1':70}\r  {'done':70}\n"


def test_a_kernel_stands_in_for_those_that_are_most_like_it() -> None:
    assert all(cpu_costs.stand_in(name) == name for name in MEASURED)
    of = {
        "conv_vector_depthwise_sums_3": "conv_vector_sums", "conv_depthwise_forward": "im2col_columns",
        "winograd_filters": "winograd_data", "im2col_add": COPY, "gemm_skinny_t": "gemm_register_2d",
        "pool_average": POOL, "softmax_forward": COPY, "lrn_forward": "conv_gather_by_tap",
    }  # fmt: skip
    assert {name: cpu_costs.stand_in(name) for name in of} == of
