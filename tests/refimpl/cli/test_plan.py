"""`refimpl plan`: the answer, its JSON document, and what it says when something does not fit or cannot be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from refimpl.report.json import FIELDS
from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

MACHINE = ("--machine", "titan-x")


def test_the_document_keeps_the_contract(refimpl: Command) -> None:
    said = refimpl("plan", "alexnet", "--batch", 8, "--json", *MACHINE)
    assert said.status == 0 and said.err == ""
    document = json.loads(said.out)
    assert document["fits"] and document["network"] == "alexnet" and document["batch"] == 8
    assert document["budget_bytes"] == 12 << 30 and document["policy"] == "baseline" and document["chosen"] is None
    assert document["slots"]["liveness"] == "network-wide" and document["slots"]["algorithms"] == "performance"
    assert document["peak"]["live_bytes"] == max(step["live_bytes"] for step in document["steps"])
    assert document["seconds"]["baseline"] == pytest.approx(document["seconds"]["iteration"])
    assert {field.split(".")[0].split("[")[0] for field in FIELDS} == set(document)


@pytest.mark.slow
def test_what_does_not_fit_is_status_3_and_says_what_would(refimpl: Command) -> None:
    said = refimpl("plan", "vgg16", "--batch", 64, "--budget", "6900MiB", *MACHINE)
    assert said.status == 3 and said.out == "" and said.err.count("\n") == 1
    found = re.search(r"--budget (\d+)MiB\b.* 6\.738 GiB, (--set \S+(?: --set \S+)*)", said.err)
    assert lacks(said.err, "6.738 GiB", "7.253 GiB") == [] and found
    enough = int(found[1])
    assert refimpl("plan", "vgg16", "--batch", 64, "--budget", f"{enough}MiB", *MACHINE).status == 0
    assert refimpl("plan", "vgg16", "--batch", 64, "--budget", f"{enough - 1}MiB", *MACHINE).status == 3
    offered = (*found[2].split(), "--budget", "6900MiB")
    assert refimpl("plan", "vgg16", "--batch", 64, *offered, *MACHINE).status == 0


def test_a_share_says_of_what(refimpl: Command, tmp_path: Path) -> None:
    sentence = "The budget is 1.2 of 10.7 MiB, the least budget of the preset baseline on lenet."
    asked = ("lenet", "--budget", "1.2", *MACHINE)
    out = ("--out", tmp_path / "view.html")
    for command in (("plan", "--set", "algorithms=memory"), ("compare", "--with", "vdnn-all"), ("view", *out)):
        assert sentence in refimpl(command[0], *asked, *command[1:]).out
    tight = refimpl("plan", "lenet", "--budget", "30%", *MACHINE)
    assert tight.status == 3 and tight.err.endswith(sentence.replace("1.2", "0.3") + "\n")
    assert "The budget is" not in refimpl("plan", "lenet", *MACHINE).out


@pytest.mark.slow
def test_what_does_not_fit_as_json(refimpl: Command) -> None:
    said = refimpl("plan", "vgg16", "--batch", 64, "--budget", "6900MiB", "--json", *MACHINE)
    document = json.loads(said.out)
    assert said.status == 3 and said.err.count("\n") == 1
    assert document["fits"] is False and document["steps"] == [] and document["peak"] is None
    misfit = document["misfit"]
    assert misfit["asked_bytes"] > misfit["largest_hole_bytes"] and misfit["layer"] and misfit["message"] in said.err
    assert document["cheapest"]["set"] == {"liveness": "layer-wise"} and document["cheapest"]["seconds"] > 0
    assert document["least_budget_bytes"] > 6900 << 20
    assert set(document) >= {field.split(".")[0].split("[")[0] for field in FIELDS} - {"misfit", "cheapest"}


def test_a_combination_that_makes_no_sense_is_refused(wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that needs what no other offers, as a prefetch would without an offload."""
    from refimpl.names import modules
    from refimpl.slots.baseline import NoPrefetch

    class Greedy(NoPrefetch):
        name, needs = "greedy", frozenset({"offload"})

    monkeypatch.setitem(modules.MODULES, "prefetch", {**modules.MODULES["prefetch"], "greedy": Greedy()})
    assert lacks(wrong("plan", "lenet", "--set", "prefetch=greedy"), "prefetch=greedy", "prefetch=none") == []


@pytest.mark.slow
def test_the_largest_batch(refimpl: Command) -> None:
    asked = ("plan", "vgg16", "--budget", "4GiB", "--largest-batch", *MACHINE)
    said = refimpl(*asked, "--batch", 1)
    found = re.search(r"Largest batch: (\d+) images, the most that fit of \d+ batches tried", said.out)
    assert said.status == 0 and found
    most = int(found[1])
    document = json.loads(refimpl(*asked, "--batch", most, "--json").out)
    assert document["fits"] and document["largest_batch"] == most
    assert {"batch": most, "fits": True} in document["tried_batches"]
    refused = refimpl(*asked, "--batch", most + 1)
    assert refused.status == 3 and lacks(refused.err, most) == []
    refused = refimpl(*asked, "--batch", most + 1, "--json")
    assert refused.status == 3 and json.loads(refused.out)["largest_batch"] == most
    hopeless = refimpl("plan", "vgg16", "--budget", "1GiB", "--largest-batch", *MACHINE)
    assert hopeless.status == 3 and hopeless.err.count("\n") == 1


def test_a_program_that_is_not_safe_is_not_shown(refimpl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from refimpl.planner import Program
    from refimpl.planner.verify import Unsafe

    def unsafe(_: Program) -> None:
        raise Unsafe(1, "two instructions touch the same bytes")

    monkeypatch.setattr(Program, "verify", unsafe)
    said = refimpl("plan", "lenet", *MACHINE)
    assert said.status == 1 and said.out == "" and lacks(said.err, 1, "order") == []
    assert refimpl("plan", "lenet", "--no-verify", *MACHINE).status == 0
