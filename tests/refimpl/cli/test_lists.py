"""`refimpl list`."""

from __future__ import annotations

import json

import pytest

from kernels.targets.launch import REGISTRY
from refimpl.machine import MACHINES
from refimpl.names.modules import MODULES
from refimpl.names.networks import NETWORKS, PLAIN
from refimpl.names.presets import PRESETS
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


@pytest.mark.parametrize("thing", ["presets", "kernels"])
def test_json_may_stand_before_the_thing(refimpl: Command, thing: str) -> None:
    assert json.loads(refimpl("list", "--json", thing).out) == json.loads(refimpl("list", thing, "--json").out)


def test_kernels_within_100_columns(refimpl: Command) -> None:
    lines = refimpl("list", "kernels").out.splitlines()
    assert max(map(len, lines)) <= 100
    assert set(REGISTRY) <= {word for line in lines for word in line.split()} and len(REGISTRY) > 30


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
