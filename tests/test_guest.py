"""The guest lab, copied into an empty folder: what its skeleton, its solution and half solutions get."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix import some
from tests.test_docs import script

guest_chain = script("guest_chain")
TUTORIALS = Path(__file__).resolve().parents[1] / "tutorials"
SOLUTION = (TUTORIALS / "solutions" / "guest.py").read_text("utf-8")
EACH = """
def each(letter):
    def plan(chain, budget):
        return letter * (len(chain) - 1) + "k"
    return plan
"""
FIRST = """
def offloading(chain, budget):
    plan = kept = "k" * len(chain)
    for number in range(len(chain)):
        more = plan[:number] + "o" + plan[number + 1 :]
        if peak(chain, plan) > budget and time(chain, more) == time(chain, kept):
            plan = more
"""
KEPT_AGAIN = SOLUTION.partition('"ko")\n')[2]
#: Half solution → what it changes of the solution, and the points that it gets.
HALVES = {
    "solution": ("", "1234"),
    "all kept": (EACH + "checkpointing = offloading = both = each('k')", "1"),
    "all recomputed": (EACH + "checkpointing = both = each('c')", "13"),
    "all offloaded": (EACH + "offloading = both = each('o')", "12"),
    "the block that arrives is not counted": (
        "def peak(chain, plan):\n"
        "    inputs, kept, held = 0, 0, []\n"
        "    for block, fate in zip(chain, plan):\n"
        "        inputs += block.input\n"
        "        held.append(inputs + kept + block.rest)\n"
        "        kept += block.rest * (fate == 'k')\n"
        "    return max(held)",
        "24",
    ),
    "least time a byte": (
        "def checkpointing(chain, budget):\n"
        "    plan = ['k'] * len(chain)\n"
        "    for number in sorted(range(len(chain) - 1), key=lambda i: chain[i].forward / chain[i].rest):\n"
        "        if peak(chain, plan) > budget:\n"
        "            plan[number] = 'c'\n"
        "    return ''.join(plan)",
        "134",
    ),
    "the first ones, waits or not": (
        "def offloading(chain, budget):\n"
        "    plans = ('o' * first + 'k' * (len(chain) - first) for first in range(len(chain)))\n"
        "    return next(plan for plan in plans if peak(chain, plan) <= budget)",
        "124",
    ),
    "the first ones that do not wait": (FIRST + KEPT_AGAIN, "1234"),
    "the first ones that do not wait, none kept again": (FIRST + "    return plan", "124"),
    "better of checkpointing and offloading": (
        "def both(chain, budget):\n"
        "    plans = [checkpointing(chain, budget)]\n"
        "    if peak(chain, 'o' * len(chain)) <= budget:\n"
        "        plans.append(fastest(chain, budget, 'ko'))\n"
        "    return min(plans, key=lambda plan: time(chain, plan))",
        "123",
    ),
}  # fmt: skip


def points(folder: Path, adapters: str, *options: str, seed: int = 1) -> tuple[str, str]:
    """Which points a submission gets in a folder of its own, without this project, and what pytest prints."""
    shutil.copytree(TUTORIALS / "guest", folder, dirs_exist_ok=True)
    (folder / "adapters.py").write_text(adapters, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"SEED": str(seed), "COLUMNS": "400", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "test_guest.py", "-v", "-p", "no:cacheprovider", *options]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    return "".join(re.findall(r"test_point_(\d) PASSED", found.stdout)), found.stdout + found.stderr


def test_the_skeleton_says_what_to_write_next(tmp_path: Path) -> None:
    """And task 1 is not the simulator's."""
    asks = "\n\ndef time(chain, plan):\n    return simulate(chain, plan).time\n"
    found, out = points(tmp_path, (TUTORIALS / "guest" / "adapters.py").read_text("utf-8") + asks)
    assert found == "" and "18 failed" in out and out.count("NotImplementedError: both: ") >= 2, out
    assert "task 1 is done without the simulator" in out


@pytest.mark.slow
@pytest.mark.parametrize("name", some(HALVES, "solution"))
def test_a_half_solution_gets_the_points_of_what_it_does(name: str, tmp_path: Path) -> None:
    change, right = HALVES[name]
    found, out = points(tmp_path, f"{SOLUTION}\n\n{change}\n", *(["-k", "point"] if change else []))
    assert found == right and (change or "18 passed" in out), out
    assert f"| {name} | {', '.join(right)} |" in (TUTORIALS / "solutions" / "guest.md").read_text("utf-8")


@pytest.mark.campaign
@pytest.mark.parametrize("name", HALVES)
def test_the_points_are_the_same_of_twenty_draws(name: str, tmp_path: Path) -> None:
    change, right = HALVES[name]
    found = [points(tmp_path, f"{SOLUTION}\n\n{change}\n", "-k", "point", seed=seed)[0] for seed in range(1, 21)]
    assert {*found} == {right}


def test_what_is_no_plan_is_said() -> None:
    simulator = runpy.run_path(str(TUTORIALS / "guest" / "simulator.py"))
    for returned in (None, "kk", ["k"] * 7):
        with pytest.raises(ValueError, match="a plan is a string of 7 letters k, c or o, and not "):
            simulator["simulate"](simulator["chain_of"]("1.1"), returned)


def test_the_folder_needs_only_pytest() -> None:
    trees = [ast.parse(path.read_text("utf-8")) for path in (TUTORIALS / "guest").glob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {"pytest", "adapters", "simulator"}


def test_the_chain_is_what_the_planner_makes() -> None:
    assert guest_chain.chain() == (guest_chain.LAB / "chain.json").read_text("utf-8"), "python docs/guest_chain.py"
