"""SuperNeurons measured on the device at hand: what does not depend on how fast it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from refimpl.backend.device import CallTimes
from refimpl.names import presets
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.planner import DoesNotFit, plan
from refimpl.studies.bench import pytorch
from refimpl.studies.reproduce import measured
from refimpl.studies.reproduce.evaluation import to_json
from refimpl.studies.reproduce.measured import Request
from refimpl.studies.reproduce.superneurons import measured as superneurons_measured
from refimpl.studies.reproduce.superneurons.measured import (
    MeasuredSuperNeurons,
    Pools,
    TorchRun,
    pools_table,
    rounds,
    torch_table,
)

pytestmark = pytest.mark.superneurons

BUDGET = 1536 << 10  # bytes
SEEN: list[str] = []


@pytest.fixture(scope="module")
def found() -> Iterator[MeasuredSuperNeurons]:
    SEEN.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytorch, "at_hand", lambda: False)
        yield superneurons_measured.measure(
            Request("tiny-vgg", 8, "superneurons", machine("here"), "1536KiB", "cpu", 1, SEEN.append)
        )


def test_the_most_images_are_trained_and_the_named_batch_is_compared(
    found: MeasuredSuperNeurons, tmp_path: Path
) -> None:
    ours, baseline = found.largest
    assert ours.setup == "superneurons" and baseline.setup == "baseline"
    assert ours.batch >= 8 > baseline.batch >= 1
    assert ours.peak_bytes <= ours.budget_bytes == BUDGET >= baseline.peak_bytes
    assert ours.seconds > 0 and ours.images_rate == pytest.approx(ours.batch / ours.seconds)
    comparison = found.comparison
    assert comparison is not None and comparison.batch == comparison.within.batch == comparison.without.batch == 8
    assert comparison.within.peak_bytes <= BUDGET < comparison.without.peak_bytes
    assert comparison.within.moved_bytes > 0 == comparison.without.moved_bytes
    assert len(SEEN) == rounds("cpu", 1) == 4
    assert found.pools is None and found.torch == ()
    assert [note.partition(": ")[2] for note in found.notes()] == [
        "the heap against driver calls; a CPU has no driver to call.",
        "PyTorch in the same budget; it is not installed: pip install torch.",
    ]
    page, document = found.write(tmp_path, "superneurons", "SuperNeurons")
    assert "the most images" in page.read_text() and page.name.startswith("superneurons-tiny-vgg-")
    assert json.loads(document.read_text())["largest"][0]["batch"] == ours.batch


def test_everything_held_takes_the_algorithms_call_by_call() -> None:
    """Under a budget SuperNeurons chooses at every call; without one it would choose otherwise."""
    network, here = build("tiny-vgg", 32), machine("here")
    tight, plenty = (plan(network, presets.superneurons(), here, budget) for budget in (6 << 20, 1 << 30))
    same = measured.SameAlgorithms.as_in(tight)
    held = plan(network, measured.everything_held(same), here, 1 << 30)
    assert measured.SameAlgorithms.as_in(held) == same != measured.SameAlgorithms.as_in(plenty)
    assert held.counts.recomputed_layers == 0 < tight.counts.recomputed_layers


def test_pytorch_is_beside_ours_each_against_its_own_plain_way(found: MeasuredSuperNeurons) -> None:
    plain, less = (TorchRun(way, batch, 1 << 20, 0, 0.5) for way, batch in (("plain", 10), ("checkpointing", 25)))
    table = torch_table(replace(found, torch=(plain, less), torch_version="PyTorch 0"))
    assert table.head == ["", "baseline", "superneurons", "PyTorch, plain", "PyTorch, checkpointing"]
    rows = {row[0]: row[1:] for row in table.rows}
    ours, baseline = found.largest
    assert rows["images, × plain"] == ["1.00 ×", f"{ours.batch / baseline.batch:.2f} ×", "1.00 ×", "2.50 ×"]
    assert rows["time an image, × plain"][2:] == ["1.00 ×", "0.40 ×"]
    assert "PyTorch 0" in table.title and "1.5 MiB" in table.title


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(DoesNotFit):
        superneurons_measured.measure(Request("lenet", None, "superneurons", machine("here"), "64KiB", "cpu", 1))


def test_shares_of_the_time(found: MeasuredSuperNeurons) -> None:
    """Of 4 ms with driver calls, 1 ms is what they cost; 3 are inside them, mostly waiting for the device."""
    heap = replace(found.largest[0], seconds=3e-3)
    calls = replace(heap, setup="driver-calls", seconds=4e-3, driver_calls=CallTimes(10, 10, 1e-3, 2e-3))
    pools = Pools("resnet50(32)", heap, calls, 1e-3, 2e-3)
    assert pools.share == pytest.approx(0.25) and pools.share_inside == pytest.approx(0.75)
    rows = pools_table(pools).rows
    assert ["share of the iteration that they cost", "", "25.0%"] in rows
    assert ["published share (ResNet-50)", "", "36.28 %"] in rows
    document = to_json(replace(found, pools=pools))
    assert document["pools"]["share"] == pytest.approx(0.25)
    assert document["pools"]["calls"]["driver_calls"]["allocations"] == 10
