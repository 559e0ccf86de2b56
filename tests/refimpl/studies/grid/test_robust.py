"""Studies that are stopped, killed or started twice, and points and modules that are wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refimpl.points.many_plans import read
from refimpl.studies.grid.grid import study
from refimpl.studies.grid.rows import GridPoint
from tests.messages import lacks
from tests.refimpl.cli.said import Command
from tests.refimpl.cli.test_command import disk_that_fills

ROOT = Path(__file__).parents[4]
SETUPS = ("vdnn-all", "vdnn-dyn", "vdnnpp-all", "vdnnpp-dyn", "superneurons", "accudnn", "dtr", "save-on-cpu")


def grid(folder: Path, networks: tuple[str, ...], budgets: int) -> Path:
    """A study of eight setups."""
    path = folder / "grid.toml"
    path.write_text(
        f"networks = {list(networks)}\nsetups = {list(SETUPS)}\nbatches = [32, 64]\n"
        f"budgets = {[round(0.4 + 0.6 * place / budgets, 3) for place in range(budgets)]}\n"
    )
    return path


def begun(path: Path, out: Path) -> subprocess.Popen[str]:
    """`refimpl study` in a process group of its own."""
    command = [sys.executable, "-m", "refimpl", "study", str(path), "--jobs", "2", "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=path.parent,
        start_new_session=True,
    )  # fmt: skip


def until_rows(out: Path, rows: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and not (out.exists() and out.read_bytes().count(b"\n") >= rows):
        time.sleep(0.02)


@pytest.mark.slow
def test_a_second_study_on_a_file_is_refused_and_ctrl_c_keeps_the_rows(tmp_path: Path, refimpl: Command) -> None:
    path, out = grid(tmp_path, ("vgg16", "resnet50"), 6), tmp_path / "rows"
    first = begun(path, out)
    until_rows(out, 3)
    second = refimpl("study", path, "--jobs", 1, "--out", out)
    assert second.status == 2 and second.err.count("\n") == 1 and lacks(second.err, "another", out) == []
    os.killpg(first.pid, signal.SIGINT)
    _, err = first.communicate(timeout=60)
    kept = len(read(out)[0])
    assert first.returncode == 130 and err.count("\n") == 1 and lacks(err, kept, out) == [] and kept >= 3


@pytest.mark.parametrize("setup", ["baseline", "vdnn-all", "vdnnpp-dyn", "superneurons", "accudnn"])
@pytest.mark.parametrize("budget", [0.6, 0.2])
def test_a_row_has_the_figures_of_plan(refimpl: Command, setup: str, budget: float) -> None:
    (row,) = study(["tiny-vgg"], [setup], budgets=[budget], batches=[64])
    said = refimpl(
        "plan", "tiny-vgg", "--batch", 64, "--machine", "titan-x", "--policy", setup, "--budget", budget, "--json"
    )
    plan = json.loads(said.out)
    same = (
        "fits",
        "budget_bytes",
        "resident_bytes",
        "offloaded_bytes",
        "prefetched_bytes",
        "on_demand_bytes",
        "evicted_bytes",
    )
    for name in same:
        assert row[name] == plan[name] or (not row["fits"] and row[name] is None), name
    if not plan["fits"]:
        assert row["fits"] is False and row["why"].partition(";")[0] in plan["misfit"]["message"]
        return
    assert row["pool_bytes"] == plan["pool_bytes"] and row["peak_bytes"] == plan["peak"]["pool_bytes"]
    assert row["again"] == plan["recomputed_layers"] and row["waits"] == plan["counts"]["waits"]
    assert row["seconds"] == plan["seconds"]["iteration"]
    assert row["slow_down"] == plan["seconds"]["iteration"] / plan["seconds"]["baseline"]


def test_the_least_budget_is_a_field_of_a_row_that_asks_for_it() -> None:
    at_least, without = study(["tiny-vgg"], ["vdnn-all"], budgets=["least", "2MiB"], batches=[4])
    (asked,) = study(["tiny-vgg"], ["vdnn-all"], budgets=["2MiB"], batches=[4], least=True)
    assert at_least["least_bytes"] == at_least["budget_bytes"] == asked["least_bytes"]
    assert without["least_bytes"] is None


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


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_fails_in_a_network_of_ones_own_is_a_row_and_the_others_are_planned(
    tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    never, here, lenet = study(["own.py:never", "own.py:here_alone", "lenet"], ["baseline"], batches=[2], jobs=jobs)
    assert never["fits"] is None and lacks(never["why"], "own.py", "line 5", "no such network") == []
    assert lenet["fits"] and (here["fits"] or lacks(here["why"], "no_module_of_this_name") == [])
    assert (here["fits"] is None) == (jobs > 1)


DIES = """
import multiprocessing, os

def net(batch):
    from refimpl.names.networks import lenet
    if batch == 3 and multiprocessing.parent_process():
        os.kill(os.getpid(), 9)
    return lenet(batch=batch)
"""


@pytest.mark.slow
def test_a_killed_worker_costs_its_point_which_is_named_and_planned_by_the_next_command(
    tmp_path: Path, refimpl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dies.py").write_text(DIES)
    Path("grid.toml").write_text('networks = ["dies.py:net"]\nsetups = ["baseline", "vdnn-all"]\nbatches = [2, 3, 4]\n')
    said = refimpl("study", "grid.toml", "--jobs", 2)
    assert said.status == 1 and said.err.count("\n") == 1
    assert lacks(said.err, "died", "dies.py:net (3) under baseline", "4 rows", "grid.jsonl") == []
    assert [row["batch"] for row in read(Path("grid.jsonl"))[0].values()].count(3) == 0
    assert refimpl("study", "grid.toml", "--jobs", 1).status == 0 and len(read(Path("grid.jsonl"))[0]) == 6


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
"""


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_module_that_raises_is_a_row_and_the_others_are_planned(
    tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("raising_modules.py").write_text(MODULES)
    Path("raising_import.py").write_text('raise OSError("import fails")')
    setups = [
        *(f"vdnn-all offload={name}" for name in ("raising_modules:Binds", "raising_modules:Hook", "raising_import:A")),
        "raising_import.py:SETUP", "vdnn-all",
    ]  # fmt: skip
    *raising, planned = study(["lenet"], setups, batches=[2], jobs=jobs)
    for row, says in zip(raising, ("bind fails", "hook fails", "import fails", "import fails"), strict=True):
        assert row["fits"] is None and "\n" not in row["why"], row["setup"]
        assert lacks(row["why"], says, "raising_import.py" if "import" in says else "raising_modules.py") == []
    assert planned["fits"]


@pytest.mark.parametrize("budget", ["-1", "0", "-3GiB", "12 apples", "0.4GiBs", "least+x%", "nan", "1e+30"])
def test_a_budget_that_makes_no_sense_is_a_row_that_says_so(budget: str) -> None:
    (row,) = study(["lenet"], ["baseline"], budgets=[budget], batches=[2])
    assert row["fits"] is None and lacks(row["why"], budget) == [] and row["seconds"] is None


@pytest.mark.parametrize(
    ("field", "name", "near"),
    [("network", "nolenet", "lenet"), ("setup", "vdnn-al", "vdnn-all"), ("machine", "titan-y", "titan-x"),
     ("setup", "vdnn-all ofload=all", "offload")],
)  # fmt: skip
def test_an_unknown_name_is_a_row_that_offers_the_nearest(field: str, name: str, near: str) -> None:
    (row,) = study(wanted=[GridPoint("lenet", "baseline", "titan-x", batch=2)._replace(**{field: name})])  # type: ignore[arg-type]
    assert row["fits"] is None and lacks(row["why"], near) == []


def test_a_full_disk_names_the_file(tmp_path: Path, refimpl: Command) -> None:
    path, out = tmp_path / "grid.toml", tmp_path / "rows"
    path.write_text('networks = ["lenet"]\nsetups = ["baseline"]\nbatches = [2]\n')
    with disk_that_fills() as fill:
        fill()
        said = refimpl("study", path, "--jobs", 1, "--out", out)
    assert said.status == 2 and said.err.count("\n") == 1 and lacks(said.err, out) == []
    assert refimpl("study", path, "--jobs", 1, "--out", out).status == 0  # half a row was left, and is cut off
    assert len(read(out)[0]) == 1


@pytest.mark.parametrize("out", ["/dev/full", "no_such_folder/rows"])
def test_a_file_that_cannot_be_written_is_named_before_anything_is_planned(
    tmp_path: Path, refimpl: Command, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text('networks = ["lenet"]\nsetups = ["baseline"]\nbatches = [2]\n')
    monkeypatch.setattr("refimpl.studies.grid.many_points.row", None)
    said = refimpl("study", "grid.toml", "--jobs", 1, "--out", out)
    assert said.status == 2 and said.err.count("\n") == 1 and lacks(said.err, out) == []
