"""`refimpl list`."""

from __future__ import annotations

import json
import re

import pytest

from kernels.targets.launch import REGISTRY
from refimpl.machine import MACHINES
from refimpl.machine.model import FIGURES
from refimpl.names.modules import ABOUT_SWITCHES, MODULES, SWITCHES
from refimpl.names.networks import NETWORKS, PLAIN
from refimpl.names.presets import PRESETS
from refimpl.network.conventions import SUFFIXES
from refimpl.report import kernels_table as listing
from tests.refimpl.cli.said import Command, Wrong


def words(text: str) -> set[str]:
    return {word.strip(",;:=") for word in text.replace("=", "= ").split()}


def test_the_overview_names_everything(refimpl: Command) -> None:
    said = refimpl("list")
    assert said.status == 0
    assert {*PLAIN, *MACHINES, *PRESETS, *(name for found in MODULES.values() for name in found)} <= words(said.out)


@pytest.mark.parametrize(
    ("thing", "names"),
    [
        ("networks", set(PLAIN)),
        ("machines", {*MACHINES, "here"}),
        ("presets", set(PRESETS)),
        ("modules", {name for found in MODULES.values() for name in found}),
    ],
)
def test_each_thing_within_100_columns_and_as_json(refimpl: Command, thing: str, names: set[str]) -> None:
    said = refimpl("list", thing)
    assert said.status == 0 and names <= words(said.out)
    rows = json.loads(refimpl("list", thing, "--json").out)
    listed = {row["module" if thing == "modules" else "name"] for row in rows}
    assert names <= listed if thing == "networks" else names == listed
    if thing == "networks":
        assert set(NETWORKS) <= listed
    table = said.out.split("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 100


def test_presets_are_shown_with_what_their_slots_hold(refimpl: Command) -> None:
    said = refimpl("list", "presets").out
    assert max(map(len, said.splitlines())) <= 100 and "=none" not in said
    assert {"superneurons-checkpoints", "vdnn-window", "superneurons-lru", "cost-aware"} <= words(said)
    assert {"vdnnpp-alternate-conv", "vdnnpp-window", "vdnnpp-pool", "vdnnpp-compressed"} <= words(said)


@pytest.mark.vdnnpp
def test_what_a_preset_fixes_beside_its_slots_is_told(refimpl: Command) -> None:
    rows = {row["name"]: row["beside"] for row in json.loads(refimpl("list", "presets", "--json").out)}
    assert rows["vdnnpp-dyn"] == {"copy-streams": "shared", "join": "no", "barrier": "yes"}
    assert rows["vdnn-dyn"] == {"copy-streams": "shared", "join": "yes", "barrier": "no"}
    assert rows["superneurons"] == {"copy-streams": "separate", "join": "no", "barrier": "no"}
    table = refimpl("list", "presets").out.partition("their modules")[2]
    assert table.count("join=yes") == sum(beside["join"] == "yes" for beside in rows.values()) == 3
    assert table.count("barrier=yes") == sum(beside["barrier"] == "yes" for beside in rows.values()) == 4


def test_what_is_set_beside_the_slots_is_listed_with_its_values(refimpl: Command) -> None:
    said = refimpl("list", "modules").out.partition("not slots")[2].partition("\n\n")[0]
    assert {line.split("  ")[0] for line in said.splitlines()[2:] if line[:1].strip()} == set(SWITCHES)
    assert set(ABOUT_SWITCHES) == set(SWITCHES)


@pytest.mark.parametrize("thing", ["networks", "machines", "presets", "modules", "kernels"])
def test_json_may_stand_before_the_thing(refimpl: Command, thing: str) -> None:
    assert json.loads(refimpl("list", "--json", thing).out) == json.loads(refimpl("list", thing, "--json").out)


def test_every_way_to_build_a_network_is_told(refimpl: Command) -> None:
    said = refimpl("list", "networks").out
    for suffix in SUFFIXES:
        assert f"NAME{suffix}: " in said and suffix in refimpl("list").out


def test_machines_come_with_the_source_of_every_figure(refimpl: Command) -> None:
    figures, _, sources = refimpl("list", "machines").out.partition("where their figures come from")
    blocks = re.split(r"\n(?=[a-z])", sources)
    for name in MACHINES:
        assert f"\n{name} " in figures
        (block,) = (block for block in blocks if block.startswith(f"{name} "))
        assert all(figure in block for figure in FIGURES.values())
        assert "assumed     Titan X's" in block or name == "titan-x"


def test_kernels_within_100_columns(refimpl: Command) -> None:
    lines = refimpl("list", "kernels").out.splitlines()
    assert max(map(len, lines)) <= 100
    assert set(REGISTRY) <= {word for line in lines for word in line.split()} and len(REGISTRY) > 30


def test_kernels_as_json(refimpl: Command) -> None:
    rows = json.loads(refimpl("list", "kernels", "--family", "conv", "--json").out)
    assert {"conv.grouped", "conv.bias"} <= {row["family"] for row in rows}
    assert all(row["family"].startswith("conv.") and row["file_does"] and row["block"] for row in rows)


def test_kernels_as_markdown(refimpl: Command) -> None:
    head, rule, *rows = refimpl("list", "kernels", "--family", "relu", "--markdown").out.strip().splitlines()
    assert head == "| file, kernel | what it does | block |" and set(rule) <= set("|- ") and len(rows) == 5


def test_every_kernel_says_what_it_does() -> None:
    assert [row.kernel for row in listing.rows() if not (row.does or row.file_does)] == []


@pytest.mark.slow
def test_kernels_with_machine_code(refimpl: Command) -> None:
    from kernels.targets import machine_code

    why_not = machine_code.why_not()
    if why_not:
        pytest.skip(why_not)
    said = refimpl("list", "kernels", "--family", "relu", "--machine-code", "--json")
    for row in json.loads(said.out):
        assert [used["target"] for used in row["machine_code"]] == ["7.5", "8.0", "9.0"]
        assert all(0 < used["registers"] <= 255 for used in row["machine_code"])


def test_without_the_cuda_wheels_machine_code_says_what_to_install(
    wrong: Wrong, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernels.targets import machine_code

    monkeypatch.setattr(machine_code, "why_not", lambda: "no compiler: pip install it")
    assert wrong("list", "kernels", "--machine-code") == "refimpl list kernels: no compiler: pip install it"
