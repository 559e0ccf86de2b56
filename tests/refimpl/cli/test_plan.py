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
    assert lacks(said.err, "6.738 GiB", "8.264 GiB") == [] and found
    enough = int(found[1])
    assert refimpl("plan", "vgg16", "--batch", 64, "--budget", f"{enough}MiB", *MACHINE).status == 0
    assert refimpl("plan", "vgg16", "--batch", 64, "--budget", f"{enough - 1}MiB", *MACHINE).status == 3
    offered = (*found[2].split(), "--budget", "6900MiB")
    assert refimpl("plan", "vgg16", "--batch", 64, *offered, *MACHINE).status == 0


def test_a_share_says_of_what(refimpl: Command, tmp_path: Path) -> None:
    sentence = "The budget is 1.2 of 8.375 MiB, the least budget of the preset baseline on lenet."
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


def test_tiers_are_a_part_of_the_machine(refimpl: Command, wrong: Wrong) -> None:
    asked = ("alexnet", "--batch", 32, "--policy", "vdnn-all", *MACHINE)
    pool, tiers = ("--set", "pinned=superneurons-unified-pool"), ("--tiers", "peer:30MiB@10GB/s,host:1GiB@8GB/s")
    document = json.loads(refimpl("plan", *asked, *pool, *tiers, "--json").out)
    assert 0 < document["tier_bytes"]["peer"] <= 30 << 20 and document["pinned_bytes"] <= 1 << 30
    alone = json.loads(refimpl("plan", *asked, "--json").out)
    assert alone["tier_bytes"] == {}
    assert document["pinned_bytes"] + document["tier_bytes"]["peer"] == alone["pinned_bytes"]
    assert "peer tier" in refimpl("plan", *asked, *pool, *tiers).out
    assert lacks(wrong("plan", *asked, *tiers), "peer", "pinned=superneurons-unified-pool") == []
    assert lacks(wrong("plan", *asked, "--tiers", "host:half"), "host:half", "NAME:CAPACITY@RATE") == []


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


@pytest.mark.parametrize(("kind", "output"), [("memory", "--json"), ("pool", "--listing"), ("timeline", "--steps")])
def test_a_picture_beside_another_output(refimpl: Command, tmp_path: Path, kind: str, output: str) -> None:
    path = tmp_path / "lenet.svg"
    assert refimpl("plan", "lenet", "--picture", path, "--draw", kind, output, *MACHINE).status == 0
    assert "<svg" in path.read_text()


@pytest.mark.vdnn
def test_a_policy_that_searches_says_what_it_tried(refimpl: Command) -> None:
    asked = ("plan", "vgg16", "--batch", 256, "--machine", "titan-x", "--budget", "12GiB", "--policy", "vdnn-dyn")
    said = refimpl(*asked)
    assert said.status == 0 and "What was tried, in this order" in said.out
    assert "TFLOP/s" in said.out and "17 times, 12.8 GB/s" in said.out
    assert max(map(len, said.out.splitlines())) <= 100
    document = json.loads(refimpl(*asked, "--json").out)
    assert document["policy"] == document["chosen"]["setup"] == "vdnn-dyn: all (p)"
    tried = document["chosen"]["tried"]
    assert [trial["setup"] for trial in tried] == ["all (m)", "none (p)", "conv (p)", "all (p)"]
    assert [trial["fits"] for trial in tried] == [True, False, False, True]
    assert tried[-1]["peak_bytes"] == document["peak"]["pool_bytes"]
    assert tried[-1]["seconds"] == pytest.approx(document["seconds"]["iteration"])
