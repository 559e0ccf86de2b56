"""SuperNeurons' published memory curve: AlexNet, batch 200, all 46 steps under three set-ups, by the command.

Bytes within 0.02 MiB (the published curve was read off a vector figure), tensors exactly.  The data's source is in
tests/data/README.md.
"""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from refimpl.cli import main
from refimpl.names.networks import build
from refimpl.studies.reproduce.superneurons import memory

pytestmark = pytest.mark.superneurons

GOLDEN = Path(memory.__file__).with_name("alexnet200.csv")
MIB = 2**20
PLAN = ("plan", "alexnet:superneurons", "--batch", "200", "--json")

#: Set-up, the peak in MiB and its step.
PEAKS = {"liveness": (1489.355, 32, "POOL5"), "offload": (1132.056, 39, "POOL2"), "recompute": (886.230, 44, "LRN1")}


@cache
def golden() -> list[dict[str, str]]:
    with GOLDEN.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*PLAN, *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def compare(document: Any, column: str) -> None:
    """All 46 rows."""
    assert len(golden()) == len(document["steps"]) == 46
    for expected, step in zip(golden(), document["steps"], strict=True):
        where = step["step"], step["direction"], step["layer"]
        assert where == (int(expected["step"]), expected["direction"], expected["layer"])
        assert step["live_bytes"] / MIB == pytest.approx(float(expected[f"{column}_mib"]), abs=0.02), where
        assert step["live_tensors"] == int(expected[f"{column}_tensors"]), where


@pytest.mark.parametrize("column", PEAKS)
def test_every_step_of_the_published_curve(capsys: pytest.CaptureFixture[str], column: str) -> None:
    found = document(capsys, "--policy", f"superneurons-{column}", "--machine", "k40c")
    compare(found, column)
    mib, step, layer = PEAKS[column]
    peak = found["peak"]
    assert peak["live_bytes"] / MIB == pytest.approx(mib, abs=0.001)
    assert (peak["step"], peak["layer"], peak["direction"]) == (step, layer, "backward")
    assert max(row["live_bytes"] for row in found["steps"]) == peak["live_bytes"]


def test_the_last_curve_is_cost_awares_whose_peak_is_memory_centrics(capsys: pytest.CaptureFixture[str]) -> None:
    for how in ("memory-centric", "cost-aware"):
        found = document(capsys, "--policy", "superneurons-recompute", "--set", f"recompute={how}", "--machine", "k40c")
        assert found["peak"]["live_bytes"] / MIB == pytest.approx(PEAKS["recompute"][0], abs=0.001)
        if how == "cost-aware":
            compare(found, "recompute")
        else:
            with pytest.raises(AssertionError):
                compare(found, "recompute")


def test_every_tensor_allocated_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The paper's baseline: 2189.437 MiB in 36 tensors."""
    found = document(capsys, "--policy", "superneurons-liveness", "--machine", "k40c")
    assert found["network_wide_bytes"] / MIB == pytest.approx(2189.437, abs=0.001)
    managed = build("alexnet:superneurons", 200).managed
    assert len(managed) == 36 and sum(tensor.nbytes for tensor in managed) == found["network_wide_bytes"]
