"""Rows beside what `refimpl plan` says, and points, modules and files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refimpl.studies.grid.grid import study
from tests.messages import lacks
from tests.refimpl.cli.said import Command

SAME = "fits budget_bytes resident_bytes offloaded_bytes prefetched_bytes on_demand_bytes evicted_bytes"


@pytest.mark.parametrize(("setup", "budget"), [("vdnnpp-dyn", 0.6), ("superneurons", 0.6), ("vdnnpp-dyn", 0.2)])
def test_a_row_has_the_figures_of_plan(refimpl: Command, setup: str, budget: float) -> None:
    (row,) = study(["tiny-vgg"], [setup], budgets=[budget], batches=[64])
    asked = ("--batch", 64, "--machine", "titan-x", "--policy", setup, "--budget", budget, "--json")
    plan = json.loads(refimpl("plan", "tiny-vgg", *asked).out)
    for name in SAME.split():
        assert row[name] == plan[name] or (not row["fits"] and row[name] is None), name
    if not plan["fits"]:
        assert row["fits"] is False and row["why"].partition(";")[0] in plan["misfit"]["message"]
        return
    assert row["pool_bytes"] == plan["pool_bytes"] and row["peak_bytes"] == plan["peak"]["pool_bytes"]
    assert row["again"] == plan["recomputed_layers"] and row["waits"] == plan["counts"]["waits"]
    assert row["seconds"] == plan["seconds"]["iteration"]
    assert row["slow_down"] == plan["seconds"]["iteration"] / plan["seconds"]["baseline"]


OWN = """
import multiprocessing

def never(batch):
    raise ValueError("no such network")

def here_alone(batch):
    from refimpl.names.networks import lenet
    if multiprocessing.parent_process():
        import no_module_of_this_name
    return lenet(batch=batch)
"""


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=[pytest.mark.slow, pytest.mark.matrix])])
def test_what_fails_in_a_network_of_ones_own_is_a_row_and_the_others_are_planned(
    tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    never, here, lenet = study(["own.py:never", "own.py:here_alone", "lenet"], ["baseline"], batches=[2], jobs=jobs)
    assert never["fits"] is None and lacks(never["why"], "own.py", "line 5", "no such network") == []
    assert lenet["fits"] and (here["fits"] or lacks(here["why"], "no_module_of_this_name") == [])
    assert (here["fits"] is None) == (jobs > 1)


MODULES = """
import refimpl

class Binds(refimpl.slots.Offload):
    name, summary, offers = "binds", "raises in bind", frozenset({"offload"})
    def bind(self, context):
        raise RuntimeError("bind fails")

class Hook(refimpl.slots.Offload):
    name, summary, offers = "hook", "raises in a hook", frozenset({"offload"})
    def bind(self, context):
        return self
    def offloads(self):
        return {}["hook fails"]
    def leaves(self, step):
        return ()
"""


def test_a_module_that_raises_is_a_row_and_the_others_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("raising_modules.py").write_text(MODULES)
    Path("raising_import.py").write_text('raise OSError("import fails")')
    setups = [
        *(f"vdnn-all offload={name}" for name in ("raising_modules:Binds", "raising_modules:Hook", "raising_import:A")),
        "raising_import.py:SETUP", "vdnn-all",
    ]  # fmt: skip
    *raising, planned = study(["lenet"], setups, batches=[2])
    for row, says in zip(raising, ("bind fails", "hook fails", "import fails", "import fails"), strict=True):
        assert row["fits"] is None and "\n" not in row["why"], row["setup"]
        assert lacks(row["why"], says, "raising_import.py" if "import" in says else "raising_modules.py") == []
    assert planned["fits"]


def test_a_budget_that_makes_no_sense_is_a_row_that_says_so() -> None:
    for row in study(["lenet"], ["baseline"], budgets=["-1", "12 apples", "least+x%", "nan"], batches=[2]):
        assert row["fits"] is None and lacks(row["why"], row["budget"]) == [] and row["seconds"] is None


@pytest.mark.parametrize("out", ["/dev/full", "no_such_folder/rows"])
def test_a_file_that_cannot_be_written_is_named_before_anything_is_planned(
    tmp_path: Path, refimpl: Command, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text('networks = ["lenet"]\nsetups = ["baseline"]\nbatches = [2]\n')
    monkeypatch.setattr("refimpl.studies.grid.many_points.row", None)
    said = refimpl("study", "grid.toml", "--jobs", 1, "--out", out)
    assert said.status == 2 and said.err.count("\n") == 1 and lacks(said.err, out) == []
