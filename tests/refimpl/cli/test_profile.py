"""`refimpl profile` and `refimpl summary`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refimpl.cli import profile
from tests.messages import lacks
from tests.refimpl.cli.said import Command


@pytest.mark.slow
def test_a_profile_is_a_machine(refimpl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "TURNS", 1)
    monkeypatch.setattr(profile, "LIMIT", 1.0)
    path = tmp_path / "lenet.json"
    said = refimpl("profile", "lenet", "--batch", 2, "--out", path)
    assert said.status == 0 and f"--machine {path}" in said.out
    document = json.loads(refimpl("plan", "lenet", "--batch", 2, "--machine", path, "--json").out)
    assert document["machine"] == "lenet.json" and document["catalogue"] == "own"
    assert "has no" in refimpl("plan", "lenet", "--batch", 3, "--machine", path).err


def test_the_cpus_kernels_are_measured_again(refimpl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from refimpl.machine import cpu_costs, cpu_model, here

    costs = {
        "gemm_register_2d": (1e-11, 0.0, 0.0),
        "elementwise_copy": (4e-7,),
        cpu_model.LAUNCH: (1e-5,),
        cpu_model.SHARED: (1e-5,),
        cpu_model.FETCHED: (0.0,),
        cpu_model.COPY: (2e-6, 1e-10),
    }
    monkeypatch.setattr(cpu_costs, "calibrate", lambda watch, **busy: costs)
    monkeypatch.setattr(cpu_costs, "_costs", [])
    monkeypatch.setenv("REFIMPL_CACHE", str(tmp_path))
    monkeypatch.setattr(here, "load_average", lambda: 100.0)
    said = refimpl("profile", "--here")
    assert said.status == 0 and "Measure again on a quiet machine." in said.out and cpu_costs.read_costs() is None
    monkeypatch.setattr(here, "load_average", lambda: 0.0)
    said = refimpl("profile", "--here")
    assert "quiet" not in said.out
    assert said.status == 0 and "200 GFLOP/s" in said.out and "20.5 GB/s" in said.out
    assert "Measured: 2 kernels, a launch (10.0 µs" in " ".join(said.out.split())
    assert cpu_costs.read_costs() == costs and str(cpu_costs.costs_path()) in said.out.replace("\n", "")
    assert lacks(refimpl("profile", "lenet", "--here").err, "--here", "NETWORK", "--out") == []
    assert lacks(refimpl("profile", "--out", tmp_path / "a.json").err, "NETWORK", "--here") == []
