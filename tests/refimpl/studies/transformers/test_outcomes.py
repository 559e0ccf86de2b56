"""The study of transformers: outcomes at tiny sizes, the tables of them, and the command."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl import cli
from refimpl.names.presets import setup
from refimpl.points.many_plans import Row
from refimpl.studies.grid.grid import study
from refimpl.studies.grid.rows import moved, network_of
from refimpl.studies.transformers import command
from refimpl.studies.transformers.outcomes import (
    POLICIES,
    SHARES,
    Question,
    budgets,
    fastest,
    fastest_table,
    largest_cell,
    largest_table,
    mean_table,
    of,
    outcomes,
    questions,
    slow_down_table,
    traffic_table,
)
from refimpl.studies.transformers.probability_maps import (
    PROBABILITIES_AGAIN,
    compared,
    maps_table,
)

ROOT = Path(__file__).parents[4]
TINY, MACHINE = {"tiny-gpt": 64}, "rtx-4090"
QUICK = POLICIES[:-1]  #: all but combined


def planned(asked: list[Question]) -> list[Row]:
    return outcomes(asked, lambda points: study(wanted=points))


@pytest.fixture(scope="module")
def found() -> list[Row]:
    """Both budgets of each policy that does not search for seconds, and the largest batch of one."""
    asked = questions(TINY, [MACHINE], [0.2, 0.6], policies=QUICK)
    return planned([one for one in asked if one.share is not None or one.policy == "vdnn-all"])


def test_an_outcome_for_each_policy_and_budget_and_one_with_the_largest_batch(found: list[Row]) -> None:
    asked = [(policy, share) for share in (None, 0.2) for policy in POLICIES]
    assert [(one.policy, one.share) for one in questions(TINY, [MACHINE], [0.2])] == asked
    assert [(one["policy"], one["share"]) for one in found] == [
        ("vdnn-all", None), *((policy, share) for share in (0.2, 0.6) for policy in QUICK)
    ]  # fmt: skip
    assert {one["batch"] for one in found if one["share"] is not None} == {64}
    given = budgets("tiny-gpt", 64, MACHINE, [0.2, 0.6])
    assert all(one["budget_bytes"] == given[one["share"]] for one in found if one["share"] is not None)


def test_what_users_know_fits_less_and_nothing_kept_is_slow(found: list[Row]) -> None:
    """Everything kept needs nearly all of the way; what a policy moves or runs again takes time."""
    assert not any(one["fits"] for one in of(found, policy="everything kept") if one["share"] is not None)
    (again,) = of(found, policy="per block", share=0.6)
    assert again["fits"] and moved(again) == 0 and again["again"] and 1.0 < again["slow_down"] < 1.6


def test_budgets_are_between_what_no_policy_can_do_without_and_what_the_baseline_needs() -> None:
    given = budgets("vit-b16", 64, "rtx-3060", (0, *SHARES, 1))
    assert list(given.values()) == sorted(given.values()) and len(given) == len(SHARES) + 2
    refimpl.plan(network_of("vit-b16", 64), "baseline", "rtx-3060", given[1])
    with pytest.raises(refimpl.DoesNotFit):
        refimpl.plan(network_of("vit-b16", 64), "vdnn-all", "rtx-3060", given[0] - (1 << 20))
    assert budgets("llama3-1b", 2, "rtx-3060") == {}, "the machine has less than its weights"


def test_a_question_that_is_refused_has_no_outcome() -> None:
    (asked, *_) = questions(TINY, [MACHINE], [])
    wrong = Question("vdnn-all", None, asked.point._replace(setup="nothing"))
    with pytest.raises(ValueError, match="nothing"):
        planned([wrong])


def test_the_speed_at_the_largest_batch_is_that_of_the_whole_search() -> None:
    """The largest batch is found by vDNN's frugal candidate, and at that batch another one may fit, too."""
    asked = questions({"tiny-vit": 8}, [MACHINE], [], ["vdnn-dyn"])
    wanted = [Question("vdnn-dyn", None, asked[0].point._replace(budget="6MiB"))]
    (one,) = planned(wanted)
    program = refimpl.plan(network_of("tiny-vit", one["batch"]), "vdnn-dyn", MACHINE, "6MiB")
    frugal = refimpl.plan(network_of("tiny-vit", one["batch"]), setup("vdnn-dyn").frugal, MACHINE, "6MiB")
    floor = refimpl.plan(network_of("tiny-vit", one["batch"]), "baseline", MACHINE).planned_seconds
    assert one["slow_down"] == pytest.approx(program.planned_seconds / floor)
    assert program.planned_seconds < frugal.planned_seconds and not one["kernels_limit"]


def test_who_is_fastest_and_the_mean() -> None:
    def one(policy: str, slow_down: float | None) -> Row:
        return {"network": "n", "machine": "m", "policy": policy, "share": 0.1, "fits": slow_down is not None,
                "slow_down": slow_down}  # fmt: skip

    made = [one("vdnn-all", 1.5), one("accudnn", 1.2), one("combined", 1.2), one("per block", None)]
    assert fastest(made) == ["accudnn", "combined"] and fastest([one("per block", None)]) == []
    table = fastest_table(made)
    assert {row[0]: row[1:] for row in table.rows} == {
        "per block": ["0", "0", "0", "–"],
        "vdnn-all": ["1", "0", "0", "0"],
        "accudnn": ["1", "1", "1", "1"],
        "combined": ["1", "1", "–", "–"],
    }
    one_line = mean_table([*made, one("vdnn-all", 6.0)])
    cells = dict(zip(one_line.head, one_line.rows[0], strict=True))
    assert (cells["vdnn-all"], cells["per block"], cells["budget"]) == ("3.000", "0 of 1", "10%")


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_keeps_rows_draws_and_writes_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few, some = (0.2, 0.7), ("per block", "vdnn-all")
    monkeypatch.setattr(command, "NETWORKS", TINY)
    monkeypatch.setattr(command, "questions", partial(questions, shares=few, policies=some))
    out, picture = tmp_path / "rows.jsonl", tmp_path / "drawn.svg"
    box = tmp_path / "box.toml"
    box.write_text(f'like = "{MACHINE}"\nmemory = "1GiB"')
    words = ["study", "transformers", "--network", "tiny-gpt", "--machine", str(box), "--effort", "2", "--jobs", "1"]
    assert cli.main([*words, "--out", str(out), "--picture", str(picture)]) == 0
    shown = capsys.readouterr().out
    rows = out.read_text()
    assert "per block" in shown and "largest batch" in shown and picture.stat().st_size > 1000
    assert cli.main([*words, "--out", str(out), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert out.read_text() == rows, "nothing was planned again"
    assert sum(one["units"] for one in document["blocks"]["tiny-gpt"]) == 16
    assert len(document["outcomes"]) == len(some) * (1 + len(few))
    assert len(rows.splitlines()) == len(some) * (2 + len(few)), "each largest batch is planned once more"


def test_a_table_has_a_row_for_each_policy(found: list[Row]) -> None:
    (largest,) = of(found, share=None)
    every = [*found, *(largest | {"policy": policy} for policy in QUICK if policy != "vdnn-all")]
    table = slow_down_table(every, "tiny-gpt", MACHINE)
    assert [row[0] for row in table.rows] == [*QUICK] and len(table.head) == 4
    assert largest_cell([largest | {"slow_down": 1.238}]) == f"{largest['batch']} (1.24)"
    assert largest_cell([largest | {"slow_down": 1.0, "kernels_limit": True}]) == f"{largest['batch']}+ (1.00)"
    assert largest_cell([largest | {"fits": False}]) == "–"
    (line,) = largest_table([*every, largest | {"policy": "combined"}]).rows
    assert line[:2] == ["tiny-gpt", MACHINE] and line[2].startswith(str(largest["batch"]))
    moves = {row[0]: row[1] for row in traffic_table(found, MACHINE, 0.6).rows}
    assert moves["everything kept"] == "–" and moves["per block"].startswith("0.0 / ")


def test_what_becomes_of_probabilities_that_are_maps(capsys: pytest.CaptureFixture[str]) -> None:
    """vDNN copies each of them, and the yardstick computes each again: what keeps them all is faster, where it fits."""
    policies = ["everything kept", PROBABILITIES_AGAIN, "vdnn-all"]
    found = compared("tiny-gpt", 64, MACHINE, [0.9, None], policies)
    assert [(one.policy, one.share) for one in found] == [
        (policy, share) for share in (0.9, None) for policy in policies
    ]
    kept, again, copied = found[:3]
    assert kept.workspace == pytest.approx(1.0, rel=0.02) and kept.maps and (kept.moved, kept.again) == (0, 0)
    assert again.maps and again.maps > kept.maps and (again.moved, again.again, again.layers) == (0, 2, 2)
    assert copied.maps and copied.workspace and (copied.moved, copied.again) == (2, 0)
    assert copied.maps > kept.maps and all(one.maps for one in found[3:])
    rows = maps_table(found, "tiny-gpt", 64, MACHINE).rows
    assert rows[0][1].endswith("(0, 0)") and rows[1][1].endswith("(0, 2)") and rows[2][2].endswith("(2, 0)")


@pytest.mark.parametrize(
    "words",
    [
        ["--all", "--network", "gpt2"], ["--network", "gtp2"],
        ["--maps", "--network", "llama3-1b"], ["--maps", "--all"],
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused_in_a_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["study", "transformers", *words]) != 0
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.strip().splitlines()) == 1
