"""Fates in a file: what every static policy writes is read as the same plan, and a slip is one line of error."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from refimpl.combined import Fates, load, text
from refimpl.combined.fates import by_name
from refimpl.combined.file import read, setup_with
from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.planner import Context, SetupError, plan
from tests.matrix import diagonal
from tests.messages import raises_naming

pytestmark = pytest.mark.combined

TITAN_X = MACHINES["titan-x"]
ROOMY = 12 << 30
STATIC = (
    "baseline", "vdnn-all", "vdnn-conv", "vdnnpp-all", "vdnnpp-conv", "vdnnpp-alternate-conv", "superneurons-liveness",
    "superneurons-offload", "superneurons-recompute", "superneurons-recompute, recompute=memory-centric",
)  # fmt: skip


@pytest.mark.parametrize(("network", "name"), diagonal(["alexnet", "resnet50:superneurons"], STATIC))
def test_a_static_policy_comes_back_with_the_same_time(network: str, name: str, tmp_path: Path) -> None:
    net, file = build(network, 16), tmp_path / "some.fates"
    program = plan(net, setup(name), TITAN_X, ROOMY)
    file.write_text(text(program))
    again = plan(net, setup("baseline", {"fates": str(file)}), TITAN_X, ROOMY)
    again.verify()
    assert again.planned_seconds == program.planned_seconds
    assert {tensor: fate.name for tensor, fate in again.fates.items()} == {
        tensor: fate.name for tensor, fate in program.fates.items()
    }
    assert read(text(again)).fates == load(file).fates


def test_one_edited_line_changes_one_fate(tmp_path: Path) -> None:
    net, file = build("alexnet", 16), tmp_path / "some.fates"
    file.write_text(text(plan(net, setup("vdnn-all"), TITAN_X, ROOMY)).replace("conv1    offload", "conv1    drop   "))
    changed = plan(net, setup(f"fates={file}"), TITAN_X, ROOMY)
    changed.verify()
    assert changed.counts.recomputed_layers > 0
    assert {tensor.name: fate.name for tensor, fate in changed.fates.items()}["conv1"] == "drop"


def test_lines_comments_and_slots() -> None:
    found = read("# all\nprefetch=vdnn-window\n\ninput offload # 147 MiB\nconv1\tdrop\na#b keep\n")
    assert found.fates == Fates.of({"input": "offload", "conv1": "drop"}) and found.slots == {"prefetch": "vdnn-window"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("conv1 ofload", ("conv1 ofload", 1, "conv1", "ofload")),
        ("conv1", ("conv1", 1)),
        ("a keep\na drop", (2, "a")),
        ("join=yes\njoin=no", (2, "join")),
    ],
)
def test_a_wrong_line_is_named(given: str, says: tuple[object, ...]) -> None:
    with raises_naming(SetupError, *says):
        read(given)


def test_fates_and_a_module_for_the_same_slot_contradict_each_other(tmp_path: Path) -> None:
    (file := tmp_path / "some.fates").write_text("conv1 offload\n")
    with raises_naming(SetupError, "offload=vdnn-all"):
        setup(f"fates={file} offload=vdnn-all")
    with raises_naming(SetupError, "vdnn-dyn", "vdnn-all", "vdnn-conv"):
        setup(f"vdnn-dyn fates={file}")
    with raises_naming(SetupError, "nowhere.fates"):
        setup("fates=nowhere.fates")


# -- a mapping of maps to fates: frozen, named, equal where it says the same -------------------------------------------


def test_equal_fates_are_equal_in_whatever_order_they_were_given() -> None:
    fates = Fates.of({"b": "drop", "a": "offload", "c": "keep"})
    assert fates == Fates.of({"a": "offload", "b": "drop"}) and hash(fates) == hash(
        Fates.of({"b": "drop", "a": "offload"})
    )
    assert [fates[name] for name in "abcd"] == ["offload", "drop", "keep", "keep"]
    assert fates.named("offload", "drop") == ["a", "b"] and str(fates) == "a offload, b drop"
    with pytest.raises(dataclasses.FrozenInstanceError):
        fates.chosen = ()  # type: ignore[misc]


def test_a_misspelt_map_and_a_dropped_batch_are_refused_in_one_line() -> None:
    maps = by_name(Context(build("alexnet", 2), MACHINES["titan-x"]))
    with raises_naming(SetupError, "con1", "conv1"):
        Fates.of({"con1": "offload"}).check(maps)
    with raises_naming(SetupError, "fates", "input"):
        plan(build("alexnet", 2), setup_with(Fates.of({"input": "drop"})), MACHINES["titan-x"], 1 << 40)
