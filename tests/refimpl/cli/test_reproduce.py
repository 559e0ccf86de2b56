"""`refimpl reproduce`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refimpl.vdnn.figures import NETWORKS, POLICIES
from tests.refimpl.cli.said import Command, Wrong

pytestmark = pytest.mark.vdnn


@pytest.mark.slow
def test_vdnn(refimpl: Command, tmp_path: Path) -> None:
    said = refimpl("reproduce", "vdnn", "--picture", tmp_path / "vdnn.png")
    assert said.status == 0 and max(map(len, said.out.splitlines())) <= 100
    assert "TFLOP/s" in said.out and "copies ran at 12.8 GB/s" in said.out
    assert "met" in said.out and "missed" in said.out and "vgg416(32)" in said.out
    assert (tmp_path / "vdnn.png").stat().st_size > 20_000
    document = json.loads(refimpl("reproduce", "vdnn", "--json").out)
    assert {figure["met"] for figure in document["published"]} == {True, False}
    assert len(document["networks"]) == len(NETWORKS) * len(POLICIES)


def test_a_paper_that_is_not_there(wrong: Wrong) -> None:
    assert "vdn" in wrong("reproduce", "vdn") and "vdnn" in wrong("reproduce", "vdn")


def test_running_wants_a_gpu_or_a_small_network(wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refimpl.planning.gpu_at_hand", lambda: False)
    assert "no GPU here; a small network runs on the CPU: --network tiny-vgg" in wrong("reproduce", "vdnn", "--run")
    assert "--write belongs to --run" in wrong("reproduce", "vdnn", "--write")
