"""`refimpl compare --bound`: figures that agree with each other, and what is left out where it does not apply."""

from __future__ import annotations

import json

import pytest

from refimpl.cli import compare
from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

MACHINE = ("--machine", "titan-x", "--bound")


def test_bound_enumeration_and_policies_are_in_order(refimpl: Command) -> None:
    pytest.importorskip("highspy")
    asked = ("compare", "alexnet", "--batch", 256, "--budget", "1340MiB", "--enumerate", 1, *MACHINE)
    some = ("--with", "vdnn-all", "--with", "vdnn-dyn", "--with", "superneurons", "--with", "accudnn")
    *policies, found = json.loads(refimpl(*asked, *some, "--json").out)
    bound, floor = found["bound"]["seconds"], found["floor_seconds"]
    assert floor < bound <= found["enumerated"]["seconds"] and found["bound"]["proved"]
    assert found["single_step_bytes"] < 1340 << 20
    assert len(found["enumerated"]["maps"]) == 1 and len(found["bound"]["left_out"]) >= 4
    seconds = [one["seconds"]["iteration"] for one in policies if one["fits"]]
    assert len(seconds) > 3 and min(seconds) >= bound * (1 - 1e-6)
    alone = found["recompute_alone"]
    assert alone["nothing_seconds"] < alone["enumerated"]["seconds"] <= alone["rotor_seconds"]


def test_a_network_with_branches_has_neither_rotor_nor_enumeration(
    refimpl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("highspy")
    monkeypatch.setattr(compare, "SOLVER_SECONDS", 0.2)
    asked = ("compare", "tiny-inception", "--budget", "0.6", "--with", "vdnn-all", *MACHINE)
    plan, found = json.loads(refimpl(*asked, "--json").out)
    assert plan["setup"] == "vdnn-all" and found["enumerated"] is None and found["recompute_alone"] is None
    said = " ".join(refimpl(*asked).out.split())
    assert "Rotor" not in said and "The budget is 0.6 of" in said and "A plan need not reach the bound" in said


def test_a_chain_has_all_of_them(refimpl: Command) -> None:
    pytest.importorskip("highspy")
    said = refimpl(
        "compare", "lenet", "--batch", 1024, "--budget", 0.9, "--enumerate", 1, "--with", "superneurons", *MACHINE
    )
    assert said.status == 0 and lacks(said.out, "floor", "bound", "enumerated", "superneurons", "Rotor's optimum") == []


def test_less_than_one_step_needs_is_status_3_and_one_line(refimpl: Command) -> None:
    pytest.importorskip("highspy")
    said = refimpl("compare", "lenet", "--budget", "1MiB", *MACHINE)
    assert said.status == 3 and said.out == "" and said.err.count("\n") == 1
    assert lacks(said.err, "lenet", "6.294 MiB", "1 MiB") == []


def test_without_the_solver_it_says_how_to_get_it(wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "highspy", None)
    for command in ("compare", "study"):
        assert lacks(wrong(command, "lenet", *MACHINE), "refimpl[optimum]") == []
