"""`refimpl compare`: rows, labels, budgets that some do not fit."""

from __future__ import annotations

import json

import numpy as np
import pytest

from refimpl.machine import MACHINES
from refimpl.machine.possible import PossibleMachines
from refimpl.names.by_name import plan
from refimpl.names.networks import build
from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

MACHINE = ("--machine", "titan-x")


def test_a_policy_that_refuses_what_is_set_says_so(refimpl: Command) -> None:
    said = refimpl("compare", "lenet", "--set", "join=yes", "--json", *MACHINE)
    rows = {row["paper"]: row for row in json.loads(said.out)}
    assert rows["vDNN"]["fits"] and "combined chooses every slot itself" in rows["combined"]["why"]
    text = refimpl("compare", "lenet", "--set", "algorithms=memory", "--no-verify", *MACHINE).out
    assert "vdnn-dyn is refused: vdnn-dyn chooses offload and algorithms itself" in " ".join(text.split())


def test_an_interval_of_each_slow_down_and_where_the_order_of_rows_holds(refimpl: Command) -> None:
    """Against the baseline, or against the fastest row, whose own slow-down is 1 everywhere."""
    command = ("compare", "tiny-resnet", "--batch", 64, "--budget", 0.7, *MACHINE, "--spread")
    rows = json.loads(refimpl(*command, "--with", "vdnn-all", "--with", "superneurons", "--json").out)
    spreads = {row["setup"]: row["spread"] for row in rows}
    fast, slow = sorted(rows, key=lambda row: row["seconds"]["iteration"])
    assert spreads[fast["setup"]]["slow_down"] == [1.0, 1.0] and spreads[fast["setup"]]["faster_than"] == slow["setup"]
    low, high = spreads[slow["setup"]]["slow_down"]
    network, machine = build("tiny-resnet", 64), MACHINES["titan-x"]
    machines = PossibleMachines(machine)
    first, second = (plan(network, one["setup"], machine, 0.7).possible_seconds(machines) for one in (fast, slow))
    assert [low, high] == np.percentile(second / first, (5, 95)).tolist() and low < high
    assert spreads[fast["setup"]]["on"] == sum(first < second) and "faster_than" not in spreads[slow["setup"]]

    said = refimpl(*command, "--with", "vdnn-all", "--with", "superneurons").out
    assert lacks(said, "5 to 95 %", f"{low:.2f}–{high:.2f}", f"{fast['setup']} is faster than {slow['setup']}") == []
    assert "spread" not in json.loads(refimpl(*command[:-1], "--with", "vdnn-all", "--json").out)[0]


def test_rows_are_asked_for_in_words(refimpl: Command) -> None:
    said = refimpl(
        "compare", "lenet", "alexnet", "--batch", 4,
        "--with", "baseline", "--with", "liveness=layer-wise algorithms=memory",
        "--set", "allocator=both-ends", "--set", "algorithms=performance", "--json", *MACHINE,
    )  # fmt: skip
    rows, same = json.loads(said.out), ", allocator=both-ends"
    assert [(row["network"], row["setup"]) for row in rows] == [
        (network, setup)
        for network in ("lenet", "alexnet")
        for setup in (f"baseline{same}", f"baseline, liveness=layer-wise, algorithms=memory{same}")
    ]
    assert {row["slots"]["allocator"] for row in rows} == {"both-ends"}
    assert [row["slots"]["algorithms"] for row in rows] == ["performance", "memory"] * 2


def test_several_budgets_are_tables_one_after_another(refimpl: Command, wrong: Wrong) -> None:
    asked = ("compare", "tiny-vgg", "lenet", "--with", "baseline", "--with", "vdnn-all", *MACHINE)
    rows = json.loads(refimpl(*asked, "--budget", "0.7,32MiB,1.2", "--json").out)
    assert [(row["network"], row["budget_bytes"] == 32 << 20) for row in rows] == [
        (network, second) for network in ("tiny-vgg", "lenet") for second in (False, False, True, True, False, False)
    ]
    said = refimpl(*asked, "--budget", "0.7,32MiB").out
    assert said.count("· budget 32 MiB") == 2 and said.count("The budget is 0.7 of") == 2
    assert lacks(wrong(*asked, "--budget", "0.7,twelve"), "twelve") == []
    assert lacks(wrong("compare", "", "lenet"), "''", "alexnet") == []
    assert lacks(wrong("compare", "lenet", "--budget", "1GiB,2GiB", "--picture", "x.png"), "--picture") == []


@pytest.mark.slow
def test_processes_find_the_same_rows(refimpl: Command) -> None:
    setups = ("--with", "vdnn-all", "--with", "combined effort=1")
    asked = ("compare", "lenet", "--batch", 4, "--budget", "0.6,0.8", "--spread", "--least", *setups, "--json")
    assert refimpl(*asked, "--jobs", 2).out == refimpl(*asked).out != ""
