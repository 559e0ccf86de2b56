"""The authors' microbenchmark: its layers, the algorithms that fit, and which copies do not hide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from refimpl.machine import MACHINES
from refimpl.machine.work import Option
from refimpl.network import Call
from refimpl.studies.reproduce.published import Found
from refimpl.studies.reproduce.vdnnpp import microbenchmark
from refimpl.studies.reproduce.vdnnpp.microbenchmark import LAYERS, MACHINE_NAMES, HidingRow, modelled, network, rows

pytestmark = pytest.mark.vdnnpp

GTX_970, TITAN_X = MACHINES["gtx-970"], MACHINES["titan-x"]
SEEN: list[str] = []


@pytest.fixture(scope="module")
def found() -> Found:
    SEEN.clear()
    return microbenchmark.simulated(SEEN.append)


def test_the_layers_are_those_of_the_authors_code() -> None:
    """Equal inputs of 128 × 128 × 112 × 112 numbers; filters of 1 to 19, then a pool of 2."""
    made = network()
    inputs = [layer.inputs[0].shape for layer in made.layers[:LAYERS]]
    assert set(inputs) == {(128, 128, 112, 112)}
    assert [layer.options["window"][0] for layer in made.layers[:LAYERS]] == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 2]
    assert all(len(step.calls) == 2 for step in made.steps[: LAYERS - 1]), "a convolution with its bias, and a ReLU"


def test_a_row_by_hand() -> None:
    """The kernels of a layer add up; the copy is that of its input."""
    machine, made = TITAN_X, network(2, 4, 16)
    first, *_, last = rows("titan-x", made, partial(modelled, machine), machine.copy_seconds(2 * 4 * 16**2 * 4, "out"),
                           SEEN.append)  # fmt: skip
    convolution, relu = made.steps[0].calls
    fastest = machine.choices(convolution)[0]
    assert first.kernel_seconds == fastest.seconds + machine.seconds(relu)
    assert (first.algorithm, first.workspace_bytes) == (fastest.algorithm, fastest.workspace_bytes)
    assert first.copy_seconds == last.copy_seconds == machine.copy_start_seconds + 8192 / machine.link
    (pool,) = made.steps[LAYERS - 1].calls
    assert last == HidingRow("titan-x", "pool 2×2", "", 0, machine.seconds(pool), first.copy_seconds)


def test_measured_rows_are_the_fastest_ways_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    made, runs = network(2, 4, 16), list[str]()
    options = {name: Option(name, nbytes, ()) for name, nbytes in (("slow", 64), ("fast", 32))}
    times: dict[bool, list[tuple[Option | None, float]]] = {
        True: [(options["slow"], 3.0), (options["fast"], 2.0)],
        False: [(None, 0.5)],
    }

    def copy(direction: str, elements: int) -> Callable[[], None]:
        assert (direction, elements) == ("out", 2 * 4 * 16 * 16)
        return lambda: runs.append("copy")

    bench = SimpleNamespace(time=lambda call, turns, limit: times[call.choosable])
    monkeypatch.setattr(microbenchmark, "Bench", lambda device, timed: bench)
    device: Any = SimpleNamespace(name="here", copy=copy, seconds=lambda run, count: [run(), float(len(runs))][1])
    first, *_, last = microbenchmark.measured(device, made)
    assert first == HidingRow("here", "conv 1×1", "fast", 32, 2.5, 2.0), "the first copy is not timed"
    assert last == HidingRow("here", "pool 2×2", "", 0, 0.5, 2.0)


def test_the_wait_is_what_is_left_of_the_copy() -> None:
    row = HidingRow("x", "conv", "a", 0, kernel_seconds=2.0, copy_seconds=3.0)
    assert row.wait_seconds == 1.0 and replace(row, kernel_seconds=4.0).wait_seconds == 0.0


def test_an_algorithm_whose_workspace_does_not_fit_is_not_taken() -> None:
    """The FFT's 3 GiB beside two maps of 784 MiB: too much for a GTX 970, not for a Titan X."""
    call: Call = network().steps[1].calls[0]
    assert TITAN_X.choices(call)[0].algorithm == GTX_970.choices(call)[0].algorithm == "FFT"
    assert modelled(TITAN_X, call).algorithm == "FFT"
    small = modelled(GTX_970, call)
    assert small.algorithm == "FFT_TILING" and small.seconds > GTX_970.choices(call)[0].seconds


def test_only_the_1x1_and_the_pool_are_shorter_than_the_copy(found: Found) -> None:
    assert len(found.rows) == len(SEEN) == len(MACHINE_NAMES) * LAYERS and not found.figures
    for name in MACHINE_NAMES:
        waits = {row.layer: 1e3 * row.wait_seconds for row in found.rows if row.device == name and row.wait_seconds}
        expected = {"gtx-970": (21.1, 57.7), "titan-x": (39.0, 59.9)}[name]
        assert waits == pytest.approx(dict(zip(("conv 1×1", "pool 2×2"), expected, strict=True)), abs=0.05)
