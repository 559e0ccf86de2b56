"""`refimpl optimum`: figures that agree with each other, and what is left out where it does not apply."""

from __future__ import annotations

import json

import pytest

from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

MACHINE = ("--machine", "titan-x")


@pytest.mark.slow
def test_bound_enumeration_and_policies_are_in_order(refimpl: Command) -> None:
    said = refimpl(
        "optimum",
        "alexnet",
        "--batch",
        256,
        "--budget",
        "1340MiB",
        "--enumerate",
        2,
        "--effort",
        60,
        *MACHINE,
        "--json",
    )
    found = json.loads(said.out)
    bound, floor = found["bound"]["seconds"], found["floor_seconds"]
    assert floor < bound <= found["enumerated"]["seconds"] and found["bound"]["proved"]
    assert found["single_step_bytes"] < found["budget_bytes"] == 1340 << 20
    assert len(found["enumerated"]["maps"]) == 2 and len(found["bound"]["left_out"]) >= 4
    times = {one["policy"]: one["seconds"] for one in found["policies"]}
    assert {"vDNN", "vDNN++", "SuperNeurons", "AccUDNN"} < {*times} and times["baseline"] is None
    setups = {one["policy"]: one["setup"] for one in found["policies"]}
    assert setups["baseline"] is None and "vdnn" in setups["vDNN"]
    for one in found["policies"]:
        if one["seconds"]:
            assert one["over_bound"] == one["seconds"] / bound >= 1 and one["over_floor"] >= one["over_bound"]
    assert min(one for one in times.values() if one) == times["combined"]
    alone = found["recompute_alone"]
    assert alone["nothing_seconds"] < alone["enumerated"]["seconds"] <= alone["rotor_seconds"]


@pytest.mark.slow
def test_a_network_with_branches_has_neither_rotor_nor_enumeration(refimpl: Command) -> None:
    asked = ("optimum", "tiny-inception", "--budget", "0.6", "--time-limit", "0.2", "--effort", 20, *MACHINE)
    found = json.loads(refimpl(*asked, "--json").out)
    assert found["enumerated"] is None and found["recompute_alone"] is None
    said = refimpl(*asked).out
    assert "Rotor" not in said and "The budget is 0.6 of" in said and "A plan need not reach the bound" in said


def test_less_than_one_step_needs_is_status_3_and_one_line(refimpl: Command) -> None:
    said = refimpl("optimum", "lenet", "--budget", "1MiB", *MACHINE)
    assert said.status == 3 and said.out == "" and said.err.count("\n") == 1
    assert lacks(said.err, "lenet", "6.294 MiB", "1 MiB") == []


def test_without_the_solver_it_says_how_to_get_it(wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "highspy", None)
    for command in ("optimum", "pareto"):
        assert lacks(wrong(command, "lenet", *MACHINE), "refimpl[optimum]") == []
