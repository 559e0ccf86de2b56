"""Fates in a file: what every static policy writes is read as the same plan, and a slip is one line of error."""

from __future__ import annotations

from pathlib import Path

import pytest

from refimpl.combined import Fates, load, text
from refimpl.combined.file import read
from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.planner import SetupError, plan
from tests.messages import raises_naming

pytestmark = pytest.mark.combined

TITAN_X = MACHINES["titan-x"]
ROOMY = 12 << 30
STATIC = (
    "baseline",
    "vdnn-all",
    "vdnn-conv",
    "vdnnpp-all",
    "vdnnpp-conv",
    "vdnnpp-alternate-conv",
    "superneurons-liveness",
    "superneurons-offload",
    "superneurons-recompute",
    "superneurons-recompute, recompute=memory-centric",
)


@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize("network", ["alexnet", "resnet50:superneurons"])
def test_a_static_policy_comes_back_with_the_same_time(name: str, network: str, tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_two_maps_that_leave_at_one_step_leave_in_the_policy_s_order(tmp_path: Path) -> None:
    net, file = build("inceptionv4", 8), tmp_path / "some.fates"
    for name in ("vdnn-all", "vdnnpp-all"):
        program = plan(net, setup(name), TITAN_X, ROOMY)
        file.write_text(text(program))
        assert plan(net, setup(f"fates={file}"), TITAN_X, ROOMY).planned_seconds == program.planned_seconds


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
