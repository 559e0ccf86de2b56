"""vDNN++ measured on the device at hand: what does not depend on how fast it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from refimpl.backend.host_thread import StoredMap
from refimpl.cli.compressed import compressed_table
from refimpl.names.machines import named as machine
from refimpl.planner import SetupError
from refimpl.studies.reproduce.evaluation import to_json
from refimpl.studies.reproduce.measured import Request
from refimpl.studies.reproduce.vdnnpp import measured as vdnnpp_measured
from refimpl.studies.reproduce.vdnnpp.measured import DENSITIES, MeasuredVdnnpp, Speed, rounds, speed_table, speeds
from tests.messages import raises_naming

pytestmark = pytest.mark.vdnnpp

SEEN: list[str] = []


@pytest.fixture(scope="module")
def found() -> MeasuredVdnnpp:
    SEEN.clear()
    patch = pytest.MonkeyPatch()
    patch.setattr(vdnnpp_measured, "MAP_BYTES", 1 << 20)
    patch.setattr(vdnnpp_measured, "TRIES", 1)
    here = replace(machine("here"), host_rate=1e12)  # whatever was measured here: the plan has maps compressed
    made = vdnnpp_measured.measure(Request("tiny-vgg:vdnnpp", 8, "vdnnpp-all", here, "1GiB", "cpu", 1, SEEN.append))
    patch.undo()
    return made


def test_the_same_maps_move_with_the_same_algorithms_in_less_pinned_memory(found: MeasuredVdnnpp) -> None:
    assert found.vdnn.setup == "vdnn-all" and found.on_demand.setup == "vdnnpp-all"
    assert found.on_demand.moved_bytes == found.compressed.moved_bytes > 0
    assert found.held is not None and found.held.moved_bytes == 0
    assert all(run.seconds > 0 and run.peak_bytes <= run.budget_bytes for run in found.runs())
    assert 0 < found.compressed.pinned_bytes < found.on_demand.pinned_bytes <= found.vdnn.pinned_bytes
    assert found.compressed.compressed and not found.vdnn.compressed and not found.on_demand.compressed
    assert len(SEEN) == rounds("cpu", 1)


def test_the_readings_are_those_of_the_iteration(found: MeasuredVdnnpp) -> None:
    assert found.held is not None
    made = replace(
        found, vdnn=replace(found.vdnn, seconds=3.0), compressed=replace(found.compressed, seconds=2.0),
        held=replace(found.held, seconds=1.0),
    )  # fmt: skip
    assert made.readings[made.compressed.setup] == {
        "speed-up": pytest.approx(0.5), "cut of time": pytest.approx(1 / 3), "cut of overhead": pytest.approx(0.5)
    }  # fmt: skip
    assert replace(made, held=None).readings[made.compressed.setup]["cut of overhead"] is None


def test_the_document_and_the_tables(found: MeasuredVdnnpp, tmp_path: Path) -> None:
    document = to_json(found)
    assert len(document["compressed"]["compressed"]) == len(found.compressed.compressed)
    assert set(document["readings"]) == {found.on_demand.setup, found.compressed.setup}
    tables = found.tables()
    assert len(tables) == 3
    assert all(len(row) == len(table.head) for table in tables for row in table.rows)
    assert "On a CPU" in found.notes()[-1]
    bare = replace(found, held=None, compressed=replace(found.compressed, compressed=()))
    assert len(bare.tables()) == 2 and len(bare.notes()) == 3
    (tmp_path / "docs").mkdir()
    page, data = found.write(tmp_path, "vdnnpp", "vDNN++")
    assert json.loads(data.read_text()) == document and page.read_text().count("\n## ") == 3


def test_a_policy_without_a_counterpart_is_refused() -> None:
    with raises_naming(SetupError, "vdnnpp-alternate-conv", "vDNN"):
        vdnnpp_measured.measure(Request("tiny-vgg", 8, "vdnnpp-alternate-conv", machine("here"), "1GiB", "cpu", 1))


def test_the_speed_of_compressing_is_measured_at_every_density() -> None:
    made = tuple(speeds(1 << 18, tries=2))
    assert [speed.density for speed in made] == list(DENSITIES)
    assert all(min(speed.copy, speed.compress, speed.decompress) > speed.both > 0 or speed.copy > 0 for speed in made)
    assert Speed(0.5, 9.0, 6.0, 3.0).both == pytest.approx(2.0)
    assert len(speed_table(made, 2).rows) == len(DENSITIES)


def test_the_table_of_compressed_maps_ends_with_their_sum() -> None:
    maps = [StoredMap("a", 4096, 1024, 2048, 0.25, 0.5, 0.25), StoredMap("b", 4096, 3072, 2048, 0.75, 0.5)]
    rows = compressed_table(maps).rows
    assert [row[0] for row in rows] == ["a", "b", "together"]
    assert rows[-1][1:5] == ["8 KiB", "4 KiB", "4 KiB", "50.0%"]
    assert rows[1][-1] == "–"  # it was prefetched before its buffer was another's
    assert [row[0] for row in compressed_table(maps[:1]).rows] == ["a"]
    assert compressed_table([]).rows == []
