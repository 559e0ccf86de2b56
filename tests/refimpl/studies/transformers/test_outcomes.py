"""The study of transformers: outcomes at tiny sizes, the page held to the stored outcomes, and these to plans."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl import cli
from refimpl.names.presets import setup
from refimpl.report.markdown import put_between
from refimpl.studies.grid.rows import network_of
from refimpl.studies.transformers import command, written_page
from refimpl.studies.transformers.outcome_tables import fastest_table, largest_cell, of, slow_down_table
from refimpl.studies.transformers.outcomes import (
    MACHINES,
    NETWORKS,
    POLICIES,
    SHARES,
    Outcome,
    Question,
    budgets,
    fastest,
    mean,
    outcomes,
    questions,
    setup_of,
    written,
)
from refimpl.studies.transformers.probability_maps import (
    PROBABILITIES_AGAIN,
    SHOWN,
    TwoPlans,
    compared,
    maps_table,
    setups,
)
from refimpl.studies.transformers.probability_maps import SHARES as MAP_SHARES
from refimpl.studies.transformers.written_page import PAGE, STORED

ROOT = Path(__file__).parents[4]
TINY, MACHINE = {"tiny-gpt": 64}, "rtx-4090"
QUICK = POLICIES[:-1]  #: all but combined


@pytest.fixture(scope="module")
def found() -> list[Outcome]:
    """Both budgets of each policy that does not search for seconds, and the largest batch of one."""
    asked = questions(TINY, [MACHINE], [0.2, 0.6], policies=QUICK)
    return outcomes([one for one in asked if one.share is not None or one.policy == "vdnn-all"])


def test_an_outcome_for_each_policy_and_budget_and_one_with_the_largest_batch(found: list[Outcome]) -> None:
    asked = [(policy, share) for share in (None, 0.2) for policy in POLICIES]
    assert [(one.policy, one.share) for one in questions(TINY, [MACHINE], [0.2])] == asked
    assert [(one.policy, one.share) for one in found] == [
        ("vdnn-all", None), *((policy, share) for share in (0.2, 0.6) for policy in QUICK)
    ]  # fmt: skip
    assert {one.batch for one in found if one.share is not None} == {64}
    given = budgets("tiny-gpt", 64, MACHINE, [0.2, 0.6])
    assert all(one.budget_bytes == given[one.share] for one in found if one.share is not None)


def test_an_outcome_is_what_its_program_says(found: list[Outcome]) -> None:
    network = network_of("tiny-gpt", 64)
    floor = refimpl.plan(network, "baseline", MACHINE).planned_seconds
    for policy, share in (("per block", 0.6), ("vdnn-dyn", 0.6), ("superneurons", 0.2)):
        (one,) = of(found, policy=policy, share=share)
        program = refimpl.plan(network, setup(setup_of(policy)), MACHINE, one.budget_bytes)
        assert one.slow_down == pytest.approx(program.planned_seconds / floor)
        assert one.again == program.counts.recomputed_layers and one.peak_bytes == program.peak_bytes
        counts = program.counts
        assert policy != "superneurons" or counts.evicted_bytes
        assert one.moved_bytes == (
            counts.offloaded_bytes + counts.prefetched_bytes + counts.on_demand_bytes + counts.evicted_bytes
        )


def test_what_users_know_fits_less_and_nothing_kept_is_slow(found: list[Outcome]) -> None:
    """Everything kept needs nearly all of the way; what a policy moves or runs again takes time."""
    assert not any(one.fits for one in of(found, policy="everything kept") if one.share is not None)
    (again,) = of(found, policy="per block", share=0.6)
    assert again.fits and again.moved_bytes == 0 and again.again and again.slow_down and 1.0 < again.slow_down < 1.6


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
        outcomes([wrong])


def read_outcomes(path: Path) -> list[Outcome]:
    """The outcomes that `written` wrote."""

    def whole(text: str) -> int | None:
        return int(text) if text else None

    def real(text: str) -> float | None:
        return float(text) if text else None

    with path.open(encoding="utf-8", newline="") as file:
        return [
            Outcome(
                line["network"], line["machine"], line["policy"], real(line["share"]), int(line["budget_bytes"]),
                int(line["batch"]), line["fits"] == "1", real(line["slow_down"]), whole(line["moved_bytes"]),
                whole(line["again"]), whole(line["peak_bytes"]), line["kernels_limit"] == "1",
            )
            for line in csv.DictReader(file)
        ]  # fmt: skip


def test_outcomes_are_read_as_they_were_written(found: list[Outcome], tmp_path: Path) -> None:
    path = tmp_path / "outcomes.csv"
    path.write_text(written(found))
    again = read_outcomes(path)
    assert written(again) == written(found)
    assert [one.budget_bytes for one in again] == [one.budget_bytes for one in found]
    assert [one.fits for one in again] == [one.fits for one in found]


def test_the_speed_at_the_largest_batch_is_that_of_the_whole_search() -> None:
    """The largest batch is found by vDNN's frugal candidate, and at that batch another one may fit, too."""
    asked = questions({"tiny-vit": 8}, [MACHINE], [], ["vdnn-dyn"])
    wanted = [Question("vdnn-dyn", None, asked[0].point._replace(budget="6MiB"))]
    (one,) = outcomes(wanted)
    program = refimpl.plan(network_of("tiny-vit", one.batch), "vdnn-dyn", MACHINE, "6MiB")
    frugal = refimpl.plan(network_of("tiny-vit", one.batch), setup("vdnn-dyn").frugal, MACHINE, "6MiB")
    floor = refimpl.plan(network_of("tiny-vit", one.batch), "baseline", MACHINE).planned_seconds
    assert one.slow_down == pytest.approx(program.planned_seconds / floor)
    assert program.planned_seconds < frugal.planned_seconds and not one.kernels_limit


def test_who_is_fastest_and_the_mean() -> None:
    def one(policy: str, slow_down: float | None) -> Outcome:
        return Outcome("n", "m", policy, 0.1, 1, 1, slow_down is not None, slow_down, 0, 0, 1)

    made = [one("vdnn-all", 1.5), one("accudnn", 1.2), one("combined", 1.2), one("per block", None)]
    assert fastest(made) == ["accudnn", "combined"] and fastest([one("per block", None)]) == []
    table = fastest_table(made)
    assert {row[0]: row[1:] for row in table.rows} == {
        "per block": ["0", "0", "0", "–"],
        "vdnn-all": ["1", "0", "0", "0"],
        "accudnn": ["1", "1", "1", "1"],
        "combined": ["1", "1", "–", "–"],
    }
    assert mean([1.0, 4.0]) == pytest.approx(2.0)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_and_its_pictures_are_those_of_the_stored_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`refimpl transformers --all --write` with them leaves all as it is."""
    drawn: dict[Path, str] = {}
    monkeypatch.setattr(written_page, "save", lambda figure, path: drawn.update({path: figure.texts[0].get_text()}))
    for path in (PAGE, STORED):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes((ROOT / path).read_bytes())
    text = (tmp_path / PAGE).read_text(encoding="utf-8")
    (tmp_path / PAGE).write_text(put_between(text, "mean slow-down", "another"), encoding="utf-8")
    (tmp_path / STORED).write_text("", encoding="utf-8")
    stored = read_outcomes(ROOT / STORED)
    assert {one.network for one in stored} == {*NETWORKS} and {one.machine for one in stored} == {*MACHINES}
    paths = [*written_page.write(stored, NETWORKS, tmp_path)]
    assert (tmp_path / PAGE).read_text(encoding="utf-8") == text
    assert (tmp_path / STORED).read_bytes() == (ROOT / STORED).read_bytes()
    pictures = tmp_path / "docs" / "pictures"
    assert drawn == {
        pictures / "transformers-over-budget.png": "Transformers: slow-down over budget",
        pictures / "transformers-largest.png": "Transformers: the largest batch",
        pictures / "transformers-block.png": "A block of gpt2: what each rule does",
    }
    assert paths == [tmp_path / STORED, tmp_path / PAGE, *drawn]


@pytest.mark.parametrize(
    ("network", "policy"),
    [("gpt2", "vdnn-dyn"), ("vit-b16", "superneurons"), ("bert-base", "accudnn"), ("llama3-1b", "per block")],
)
def test_the_stored_outcomes_are_those_of_plans(network: str, policy: str) -> None:
    stored = [one for one in read_outcomes(ROOT / STORED) if one.network == network and one.policy == policy]
    for one in of(stored, machine=MACHINE, share=0.2):
        built = network_of(network, NETWORKS[network])
        program = refimpl.plan(built, setup(setup_of(policy)), MACHINE, one.budget_bytes)
        assert one.peak_bytes == program.peak_bytes and one.again == program.counts.recomputed_layers


@pytest.mark.campaign
def test_all_stored_outcomes_are_those_of_plans() -> None:
    assert written(outcomes(questions(NETWORKS), jobs=2)) == (ROOT / STORED).read_text(encoding="utf-8")


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_keeps_rows_draws_and_writes_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few, some = (0.2, 0.7), ("per block", "vdnn-all", "combined")
    monkeypatch.setattr(command, "NETWORKS", TINY)
    monkeypatch.setattr(command, "questions", partial(questions, shares=few, policies=some))
    out, picture = tmp_path / "rows.jsonl", tmp_path / "drawn.svg"
    box = tmp_path / "box.toml"
    box.write_text(f'like = "{MACHINE}"\nmemory = "1GiB"')
    words = ["transformers", "--network", "tiny-gpt", "--machine", str(box), "--effort", "2", "--jobs", "1"]
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


def test_a_table_has_a_row_for_each_policy(found: list[Outcome]) -> None:
    here = [one for one in found if one.share is not None]
    table = slow_down_table(here, "tiny-gpt", MACHINE)
    assert [row[0] for row in table.rows] == [*QUICK] and len(table.head) == 3
    (largest,) = of(found, share=None)
    assert largest_cell([replace(largest, slow_down=1.238)]) == f"{largest.batch} (1.24)"
    assert largest_cell([replace(largest, slow_down=1.0, kernels_limit=True)]) == f"{largest.batch}+ (1.00)"
    assert largest_cell([replace(largest, slow_down=None)]) == "–"


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


@pytest.mark.slow
def test_the_pages_table_of_maps_is_the_commands() -> None:
    """Without the search that takes most of the time; its row is there, and its maps are computed again."""
    name, batch, machine = SHOWN
    page = (ROOT / PAGE).read_text(encoding="utf-8").split("<!-- begin probability maps -->")[1]
    made = compared(name, batch, machine, policies=[one for one in setups() if one != "combined"])
    for row in maps_table(made, *SHOWN).rows:
        assert f"| {' | '.join(row)} |" in page, "refimpl transformers --maps --write"
    assert "| combined |" in page and "(0, 12)" in page


@pytest.mark.parametrize(
    "words",
    [
        ["--all", "--network", "gpt2"], ["--write"], ["--network", "gtp2"], ["--maps", "--network", "llama3-1b"],
        ["--maps", "--all"], ["--maps", "--write", "--machine", "h100"],
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused_in_a_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["transformers", *words]) != 0
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.strip().splitlines()) == 1


# -- the command and the page, of outcomes and plans that are made by hand ---------------------------------------------


def bar(steps: list[Any]) -> Callable[[str, int], Any]:
    """In place of `progress`: how many steps it is to have, then what is announced."""

    def progress(_: str, count: int) -> Any:
        steps.append(count)
        return nullcontext(steps.append)

    return progress


def by_hand(name: str, batch: int, machine: str, effort: int, watch: Callable[[str], None]) -> list[TwoPlans]:
    """In place of planning: the numbers say what was asked."""
    watch(f"{name}, {machine}")
    return [TwoPlans("vdnn-all", share, 2**30, 1.0 + effort, float(batch), 3, 4, 12) for share in (0.5, None)]


def test_maps_of_every_network_on_every_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps: list[Any] = []
    monkeypatch.setattr(command, "compared", by_hand)
    monkeypatch.setattr(command, "progress", bar(steps))
    networks = ("--network", "gpt2", "--network", "bert-base", "--network", "gpt2")
    words = ["transformers", "--maps", *networks, "--machine", "h100", "--machine", "a100-80g", "--effort", "7"]
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    asked = [(one["network"], one["batch"], one["machine"]) for one in found]
    assert asked == [(name, NETWORKS[name], on) for name in ("gpt2", "bert-base") for on in ("h100", "a100-80g")]
    assert [one["plans"][0]["workspace"] for one in found] == [8.0] * 4
    assert steps[0] == 4 * len(MAP_SHARES) * len(setups()) and len(steps) == 5
    assert cli.main(words) == 0
    assert "bert-base(16) on a100-80g" in capsys.readouterr().out
    (tmp_path / "docs").mkdir()
    page = tmp_path / PAGE
    page.write_text("a\n<!-- begin probability maps -->\nold\n<!-- end probability maps -->\nb\n")
    monkeypatch.setattr(refimpl, "__file__", str(tmp_path / "refimpl" / "__init__.py"))
    assert cli.main(["transformers", "--maps", "--write", "--effort", "7"]) == 0
    said = capsys.readouterr()
    assert said.err.endswith(f"written: {page}\n") and "| vdnn-all | 8.000 / 8.000 (3, 4) |" in page.read_text()
    assert "old" not in page.read_text()


def test_a_largest_batch_is_announced_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is planned once more, so the bar has a step for it."""
    steps: list[Any] = []

    def answered(asked: list[Question], jobs: int, out: Path, watch: Callable[[dict[str, Any]], None]) -> None:
        steps.append((len(asked), jobs, out))
        watch({"network": "a name"})

    monkeypatch.setattr(command, "progress", bar(steps))
    monkeypatch.setattr(command, "outcomes", answered)
    command.planned(argparse.Namespace(effort=3, out="rows.jsonl", jobs=5), TINY, [MACHINE])
    asked = questions(TINY, [MACHINE], effort=3)
    assert steps == [len(asked) + len(POLICIES), (len(asked), 5, Path("rows.jsonl")), "a name"]
