"""Grids: a row for each point, kept as they come, and none is planned twice."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl import cli
from refimpl.combined.papers import papers
from refimpl.names.least_budget import least_budget, needed_by_baseline
from refimpl.names.machines import named
from refimpl.names.presets import PRESETS
from refimpl.points.many_plans import Row
from refimpl.studies.grid.command import as_csv, points_of
from refimpl.studies.grid.grid import study
from refimpl.studies.grid.rows import FIELDS, GridPoint, fingerprint

ROOT = Path(__file__).parents[4]
SETUPS, BUDGETS = ["baseline", "vdnn-dyn", "superneurons"], [0.6, "least+50%"]


def small(**changed: Any) -> list[Row]:
    given: dict[str, Any] = {"networks": ["tiny-vgg"], "setups": SETUPS, "budgets": BUDGETS, "batches": [4]}
    return study(**given | changed)


def without_seconds(rows: list[Row]) -> list[Row]:
    return [one | {"planning_seconds": 0} for one in rows]


def test_a_row_for_each_point_of_the_product_in_its_order() -> None:
    rows = small(machines=["titan-x", "k40c"])
    assert [[one[name] for name in ("machine", "budget", "setup")] for one in rows] == [
        [machine, str(budget), setup] for machine in ("titan-x", "k40c") for budget in BUDGETS for setup in SETUPS
    ]
    assert all([*one] == [*FIELDS] for one in rows)


def test_what_does_not_fit_and_what_is_refused_have_rows_that_say_why() -> None:
    tight, wrong = study(
        wanted=[GridPoint("tiny-vgg", "vdnn-all", "titan-x", "30%"), GridPoint("tiny-vgg", "x", "titan-x")]
    )
    assert tight["fits"] is False and "does not fit" in tight["why"] and tight["seconds"] is None
    assert tight["why"].endswith("384 KiB of inputs, 1 MiB of maps")  # whole: what fills the device is at the end
    assert wrong["fits"] is None and "'x'" in wrong["why"]


def test_the_largest_batch_is_a_row_of_its_program() -> None:
    (one,) = study(["tiny-vgg"], ["vdnn-all"], budgets=["8MiB"], batches=["largest"])
    assert one["largest"] and one["fits"] and one["batch"] > 1
    program = refimpl.plan(refimpl.networks.build("tiny-vgg", one["batch"]), "vdnn-all", "titan-x", "8MiB")
    assert one["peak_bytes"] == program.peak_bytes and one["program"] == fingerprint(program)
    more, same = study(["tiny-vgg"], ["vdnn-all"], budgets=["8MiB"], batches=[one["batch"] + 1, one["batch"]])
    assert more["fits"] is False and same["fits"] and not same["largest"]


def test_a_largest_batch_that_is_none_or_has_no_bytes() -> None:
    none, share, least, other = study(
        wanted=[
            GridPoint("tiny-vgg", "vdnn-all", "titan-x", budget, batch)
            for budget, batch in (("512KiB", "largest"), ("0.4", "largest"), ("least", "largest"), ("", "most"))
        ]
    )
    assert none["fits"] is False and none["batch"] == 0 and "512 KiB" in none["why"]
    assert all(one["fits"] is None for one in (share, least, other))
    assert "0.4" in share["why"] and "least" in least["why"] and "most" in other["why"]


def test_least_and_a_share_of_the_way() -> None:
    network = refimpl.networks.build("tiny-vgg", 4)
    least = refimpl.least_budget(network, "vdnn-all") or 0
    enough = needed_by_baseline(network, named("titan-x"))
    budgets = ["least", "least+25%", "least + 100 %", "least*1.25"]
    made = study(["tiny-vgg"], ["vdnn-all"], budgets=budgets, batches=[4])
    assert [one["budget_bytes"] for one in made] == [least, least + (enough - least) // 4, enough, least * 5 // 4]
    assert all(one["fits"] and one["least_bytes"] == least for one in made)
    own = [study(["tiny-vgg"], ["vdnn-all"], budgets=["2MiB"], batches=[4], least=asked) for asked in (False, True)]
    assert [one["least_bytes"] for (one,) in own] == [None, least]


def test_the_least_budget_of_a_paper_is_that_of_one_of_its_setups() -> None:
    network, machine = refimpl.networks.build("tiny-vgg", 32), named("titan-x")
    least = {setup.name: least_budget(network, setup, machine) or 0 for setup in papers()["SuperNeurons"]}
    (one,) = study(["tiny-vgg"], ["SuperNeurons"], budgets=["least"], batches=[32])
    assert one["fits"] and one["least_bytes"] == one["budget_bytes"] == min(least.values()) < [*least.values()][0]
    assert one["adopted"] in least


def test_another_text_of_ones_own_file_is_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain = GridPoint("tiny-vgg", "baseline", "titan-x")
    own = [plain._replace(setup=setup) for setup in ("vdnn-all offload=mine:Big", "mine:SETUP")]
    own += [plain._replace(network="nets.py:unet"), plain._replace(machine="box.toml")]

    def keys(text: str) -> list[str]:
        for file in ("nets.py", "mine.py", "box.toml"):
            Path(file).write_text(text)
        return [point.key for point in (plain, *own)]

    first, again, other = keys("1"), keys("1"), keys("2")
    assert first == again and first[0] == other[0] and all(one != two for one, two in zip(first[1:], other[1:]))  # noqa: B905


@pytest.fixture(scope="module")
def all_kinds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """A file with rows of all kinds: one does not fit, and one is refused."""
    out = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    never = GridPoint("tiny-vgg", "vdnn-all", "titan-x", "1000", 4)
    refused = GridPoint("tiny-vgg", "no-such", "titan-x", batch="largest")
    largest = GridPoint("tiny-vgg", "vdnn-all", "titan-x", "2MiB", "largest")
    asked = small(budgets=["least"], least=True, spread=True, setups=["superneurons"], out=out)
    return out, [*study(wanted=[never, refused, largest], out=out), *asked]


def test_a_row_is_flat_and_a_field_has_one_type_in_all_rows(all_kinds: tuple[Path, list[Row]]) -> None:
    types = {name: {type(one[name]) for one in all_kinds[1]} - {type(None)} for name in FIELDS}
    assert {
        name: found for name, found in types.items() if len(found) != 1 or not found <= {str, int, float, bool}
    } == {}


def test_rows_as_csv(all_kinds: tuple[Path, list[Row]], capsys: Any) -> None:
    out, rows = all_kinds
    assert cli.main(["study", str(out), "--csv"]) == 0
    found = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert [[*one] for one in found] == [[*FIELDS]] * len(rows)
    assert sorted(one["program"] for one in found) == sorted(one["program"] or "" for one in rows)
    texts = ("-x", "=1+1", "@x", "\t=1", "-1", "+1e-3", "x=y", "", -1, None)
    given = [{"key": "1", "setup": value} for value in texts]
    shown = [line["setup"] for line in csv.DictReader(StringIO(as_csv(given)))]
    assert shown == ["'-x", "'=1+1", "'@x", "'\t=1", "-1", "+1e-3", "x=y", "", "-1", ""]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('network = ["a"]', ["networks"]),
        ('networks = "vgg16"', ["networks", "vgg16"]),
        ("[[points]]\nnetwork = 'vgg16'", ["setup", "machine"]),
        ("[[points]]\nnetwork = 'a'\nsetup = 'b'\nmachine = 'c'\nbatches = 1", ["batch"]),
        ("", ["networks"]),
        ("networks = [", ["TOML"]),
        ("networks = ['lenet']\nsetups = []", ["setups", "one or more"]),
        ("networks = [3]\nsetups = ['baseline']", ["network", "3"]),
        ("networks = ['lenet']\nsetups = [['baseline']]", ["setup"]),
        ("networks = ['lenet']\nsetups = ['baseline']\nmachines = [1.5]", ["machine", "1.5"]),
        ("networks = ['lenet']\nsetups = ['baseline']\nbudgets = [true]", ["budget", "True"]),
        ("networks = ['lenet']\nsetups = ['baseline']\nbatches = [2.5]", ["batch", "2.5"]),
        ("networks = ['lenet']\nsetups = ['baseline']\nbatches = ['most']", ["batch", "most"]),
        ("points = 3", ["point", "3"]),
        ("[[points]]\nnetwork = ['a']\nsetup = 'b'\nmachine = 'c'", ["network", "a"]),
    ],
)
def test_a_study_that_makes_no_sense_is_one_line(tmp_path: Path, text: str, names: list[str], capsys: Any) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    assert cli.main(["study", str(path)]) != 0
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and all(name in said for name in names)
    assert not path.with_suffix(".jsonl").exists()


def test_the_trial_of_the_page_has_fifty_points_and_every_preset_and_its_policy_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    mine, every = "docs/trial/my_policy.py:MINE", points_of("docs/trial/trial.toml")
    assert len({(one.network, one.machine, one.budget) for one in every}) == 50 and len(every) == 50 * 16
    assert {one.setup.split()[0] for one in every} == {mine, *PRESETS}
    (row,) = study(["tiny-vgg"], [mine], budgets=[0.6])
    assert row["fits"] and row["offloaded_bytes"]


def test_the_command_keeps_the_rows_beside_its_file(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "grid.toml"
    path.write_text('networks = ["tiny-vgg"]\nsetups = ["baseline", "vdnn-all"]\nbudgets = [0.6]\nbatches = [4]\n')
    assert cli.main(["study", str(path), "--jobs", "1"]) == 0
    assert "vdnn-all" in capsys.readouterr().out
    rows = [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()]
    assert [one["setup"] for one in rows] == ["baseline", "vdnn-all"]
    assert cli.main(["study", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == rows
