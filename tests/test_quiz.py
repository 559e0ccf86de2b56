"""The quiz: a notebook made from `tutorials/questions.json`; every answer is judged, and what can be is computed.

The papers with marks are `tutorials/quiz.py`'s.

`python -m tests.test_quiz --write` makes the notebook, and `python -m tests.test_tutorials --write quiz` runs it.
"""

from __future__ import annotations

import csv
import json
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl.text import RefimplError
from tests.matrix import some
from tutorials import quiz

TUTORIALS = Path(__file__).resolve().parent.parent / "tutorials"
NOTEBOOK = TUTORIALS / "quiz.ipynb"
QUESTIONS: list[dict[str, Any]] = json.loads((TUTORIALS / "questions.json").read_text(encoding="utf-8"))

TOP = """\
# Quiz

Forty questions on what the notebooks ask you to guess. Write a letter between the quotation marks and run the cell:
it says whether you are right, and why; a wrong answer that is often given is explained. It needs Python alone: no GPU,
no package.

*All cells run in about 1 second. The [glossary](../docs/glossary.md) explains the words.*"""
#: What a group of questions is about → the notebooks that its questions are from.
FROM = {
    "Kernels": ("K1_a_convolution_is_a_kernel",),
    "Where memory goes": ("01_where_the_memory_goes",),
    "Streams and vDNN": ("02_streams_events_pinned_memory", "03_vdnn", "05_vdnn_plus_plus"),
    "Recomputation and caches": ("04_superneurons",),
    "Fragmentation and bounds": ("06_accudnn", "07_four_papers_in_one", "K2_data_parallel_training"),
}
CHECK = '''\
import json
from pathlib import Path

questions = json.loads(Path("questions.json").read_text(encoding="utf-8"))
right = set()


def check(number, answer):
    """Say whether an answer is right, and why."""
    question = questions[number - 1]
    letter = str(answer).strip().lower()
    right.discard(number)
    if letter not in question["choices"]:
        print(f"{number}: write one of {', '.join(question['choices'])}")
    elif letter == question["answer"]:
        right.add(number)
        print(f"{number}: right. {question['because']}")
    else:
        print(f"{number}: no; {question['wrong'][letter]}.")'''
TWO = {"alexnet": (64, 128), "vgg19": (16, 32)}  #: networks, and batches that are drawn: planned once for all tests
SCORE = 'print(f"{len(right)} of {len(questions)} right")'
BOTTOM = """\
A figure that you doubt is one call away: `refimpl plan`, `refimpl compare`, or a cell of the notebook that it is from.
You can also look: [a page of a program](../docs/reports.md)."""


def cells() -> list[tuple[str, str]]:
    """Kind and source of each cell."""
    made, about = [("markdown", TOP), ("code", CHECK)], ""
    for number, question in enumerate(QUESTIONS, 1):
        read = ", ".join(f"[{name[:2]}]({name}.ipynb)" for name in FROM[question["about"]])
        heading = f"## {question['about']}\n\nFrom {read}.\n\n" if question["about"] != about else ""
        about = question["about"]
        choices = "\n".join(f"- **{letter}** {text}" for letter, text in question["choices"].items())
        letters = " or ".join(question["choices"])
        made.append(("markdown", f"{heading}**{number}.** {question['question']}\n\n{choices}"))
        made.append(("code", f'answer = ""  # {letters}\ncheck({number}, answer)'))
    return [*made, ("code", SCORE), ("markdown", BOTTOM)]


def test_the_notebook_is_made_from_the_questions() -> None:
    stored = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in stored]
    assert found == cells(), "python -m tests.test_quiz --write && python -m tests.test_tutorials --write quiz"


def test_there_are_forty_and_neither_letter_nor_length_gives_them_away() -> None:
    assert len(QUESTIONS) == 40 and len({question["question"] for question in QUESTIONS}) == 40
    answers = [question["answer"] for question in QUESTIONS]
    assert all(12 <= answers.count(letter) <= 15 for letter in "abc")
    lengths = [{letter: len(text) for letter, text in question["choices"].items()} for question in QUESTIONS]
    for extreme in (max, min):
        extremes = [extreme(given.values()) == given[answer] for given, answer in zip(lengths, answers, strict=True)]
        assert sum(extremes) <= 15, extreme


def test_the_right_answer_is_accepted_and_every_other_one_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TUTORIALS)
    exec(CHECK, names := dict[str, Any]())
    for number, question in enumerate(QUESTIONS, 1):
        assert question["wrong"].keys() | {question["answer"]} == question["choices"].keys()
        assert len({*question["choices"].values()}) == len(question["choices"])
        for letter in question["choices"]:
            names["check"](number, f" {letter.upper()} ")
            said = capsys.readouterr().out
            good = letter == question["answer"]
            assert said == (
                f"{number}: right. {question['because']}\n" if good else f"{number}: no; {question['wrong'][letter]}.\n"
            )
            assert (number in names["right"]) is good
        names["check"](number, question["answer"])
        names["check"](number, None)
        assert "write one of a, b, c" in capsys.readouterr().out and number not in names["right"]


@pytest.mark.slow
def test_computed_answers_are_what_the_library_computes() -> None:
    computed = [question for question in QUESTIONS if "shown" in question]
    assert len(computed) >= 17
    names = {"refimpl": refimpl, "planned": quiz.planned, "word": quiz.word}
    for question in computed:
        (value, *_) = str(eval(question["shown"], names)).split()
        fitting = [letter for letter, text in question["choices"].items() if text.split()[0].rstrip(",:") == value]
        assert fitting == [question["answer"]], (question["question"], value)


# -- papers with marks -------------------------------------------------------------------------------------------------


def test_a_comparison_says_what_becomes_of_both_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = {"one": 1000, "other": 1300}

    def planned(network: str, batch: int, policy: str) -> quiz.Figures:
        return quiz.Figures(peaks[policy], 1.0, {}, "")

    monkeypatch.setattr(quiz, "planned", planned)
    found = {}
    for seed in range(9):
        question = quiz.compared(("one", "other"), random.Random(seed))
        assert question and question.right not in question.wrong and len({*question.wrong}) == 2
        found[question.question.partition("you write ")[2]] = question.right
    assert found == {
        "`other` in place of `one`?": "the peak rises, the time stays the same",
        "`one` in place of `other`?": "the peak falls, the time stays the same",
    }
    peaks["other"] = 1010
    assert quiz.compared(("one", "other"), random.Random(1)) is None


def test_the_largest_figure_is_right_unless_another_one_is_near() -> None:
    question = quiz.most("Which?", {"one": 1.0, "two": 2.0, "three": 1.9}, str)
    assert question and (question.right, question.wrong) == ("two", ["three", "one"])
    assert question.because == "one: 1.0, two: 2.0, three: 1.9."
    assert quiz.most("Which?", {"one": 1.0, "two": 2.0, "three": 1.95}, str) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(3), 0))
def test_a_right_choice_is_the_planner_s(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiz, "BATCHES", TWO)
    asked = quiz.prediction(quiz.adopted, random.Random(seed))
    network, budget = planned_in(asked.question)
    trial = refimpl.plan(network, "vdnn-dyn", "titan-x", budget).adopted
    assert trial.setup == asked.right

    asked = quiz.prediction(quiz.fate, random.Random(seed))
    network, _ = planned_in(asked.question)
    (policy,) = re.findall("`(.*)`", asked.question)
    fates = {map_.name: fate.name for map_, fate in refimpl.plan(network, policy, budget="64GiB").fates.items()}
    (fate,) = (fate for fate in quiz.FATES if quiz.FATES[fate] in asked.question)
    assert fates[asked.right] == fate and fate not in [fates[name] for name in asked.wrong]

    asked = quiz.prediction(quiz.largest_least_budget, random.Random(seed))
    network, _ = planned_in(asked.question)
    least = {name: refimpl.least_budget(network, name, machine="titan-x") for name in (asked.right, *asked.wrong)}
    assert max(least, key=least.__getitem__) == asked.right

    asked = quiz.prediction(quiz.smaller_budget, random.Random(seed))
    network, before = planned_in(asked.question)
    (after,) = re.findall(r"to (\d+ MiB)", asked.question)
    slower = {}
    for name in (asked.right, *asked.wrong):
        plans = [refimpl.plan(network, name, "titan-x", given) for given in (before, after)]
        slower[name] = plans[1].planned_seconds / plans[0].planned_seconds
    assert max(slower, key=slower.__getitem__) == asked.right


def planned_in(question: str) -> tuple[Any, str]:
    """The network of a question, and the first budget."""
    network, batch = re.findall(r"(\w+) with (\d+) images", question)[0]
    return refimpl.networks.build(network, int(batch)), next(iter(re.findall(r"\d+ MiB", question)), "")


@pytest.fixture
def class_of_two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the papers of two students, about two networks."""
    monkeypatch.setattr(quiz, "BATCHES", TWO)
    (tmp_path / "names").write_text("\ufeffAda Lovelace\n\n  Grace/../Hopper \n", encoding="utf-8")
    quiz.main("--students", str(tmp_path / "names"), "--seed", "7", "--out", str(tmp_path / "class"))
    return tmp_path / "class"


def answers_in(folder: Path) -> dict[str, list[dict[str, str]]]:
    papers: dict[str, list[dict[str, str]]] = json.loads((folder / "answers.json").read_text("utf-8"))["papers"]
    return papers


def filled(paper: Path, letters: Sequence[str]) -> str:
    given = iter(letters)
    return re.sub(r"(?m)^(Answer \d+:)$", lambda found: f"{found[1]} {next(given)}", paper.read_text("utf-8"))


def test_a_seed_and_a_name_give_a_paper_without_its_answers(class_of_two: Path, tmp_path: Path) -> None:
    texts = [path.read_text("utf-8") for path in sorted((class_of_two / "papers").iterdir())]
    assert sorted(path.name for path in (class_of_two / "papers").iterdir()) == ["Ada-Lovelace.md", "Grace-Hopper.md"]
    assert texts[0].partition("**1.**")[2] != texts[1].partition("**1.**")[2]
    for text, answers in zip(texts, answers_in(class_of_two).values(), strict=True):
        assert len(answers) == 20 and len({one["question"] for one in answers}) >= 19
        for one in answers:
            assert f"{one['question']}\n\n- **a** " in text and f"- **{one['answer']}** {one['right']}\n" in text
            assert one["because"] not in text
        assert sum(one["question"] in {known["question"] for known in QUESTIONS} for one in answers) == 8
        assert {one["answer"] for one in answers} == {"a", "b", "c"}
    for seed, same in (("7", True), ("8", False)):
        again = tmp_path / seed
        quiz.main("--students", str(tmp_path / "names"), "--seed", seed, "--out", str(again))
        assert ([path.read_text("utf-8") for path in sorted((again / "papers").iterdir())] == texts) is same


def test_marks_of_papers_that_are_right_partial_broken_and_missing(class_of_two: Path, tmp_path: Path) -> None:
    answers = answers_in(class_of_two)
    letters = [one["answer"] for one in answers["Ada Lovelace"]]
    paper = class_of_two / "papers" / "Ada-Lovelace.md"
    back = tmp_path / "back"
    (back / "folder.md").mkdir(parents=True)
    (back / "bytes.md").write_bytes(b"\xff\x00" * 99)
    (back / "lines.md").write_text(paper.read_text("utf-8").partition("\n")[0] + "\n" * 300_000 + "**" * 300_000)
    (back / "right.md").write_text("\ufeff" + filled(paper, [f"**{one.upper()}**." for one in letters]), "utf-8")
    others = ["b" if letters[0] == "a" else "a", "", "d", "a, b", *letters[4:18], "z", letters[19]]
    twice = f"\nAnswer 19: {letters[18]}\nAnswer 20: {letters[19]}\n"
    (back / "some.md").write_text(filled(paper, others) + twice, "utf-8")
    quiz.main("--mark", str(back), "--out", str(class_of_two))
    with (class_of_two / "marks.csv").open(encoding="utf-8", newline="") as file:
        rows = [[*row.values()] for row in csv.DictReader(file)]
    every = " ".join(map(str, range(1, 21)))
    assert rows == [
        ["bytes", "", "", "", "bytes.md: its first line is not that of a paper"],
        ["folder", "", "", "", f"{back / 'folder.md'}: it is a folder; give the name of a file"],
        ["Ada Lovelace", "0", "20", every, f"no letter at {every}"],
        ["Ada Lovelace", "20", "20", "", ""],
        ["Ada Lovelace", "15", "20", "1 2 3 4 19", "no letter at 2 3 4 19"],
        ["Grace/../Hopper", "0", "20", "", "no paper"],
    ]


def test_one_paper_for_everybody_is_marked_by_the_files_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(quiz, "BATCHES", TWO)
    quiz.main("--out", str(tmp_path))
    (answers,) = answers_in(tmp_path).values()
    assert len(json.loads((tmp_path / "answers.json").read_text("utf-8"))["seed"]) == 16
    (paper,) = (tmp_path / "papers").iterdir()
    (tmp_path / "alan.md").write_text(filled(paper, [one["answer"] for one in answers]), "utf-8")
    quiz.main("--mark", str(tmp_path), "--out", str(tmp_path))
    assert (tmp_path / "marks.csv").read_text("utf-8").splitlines()[1:] == ["alan,20,20,,"]


def test_errors_are_one_line(tmp_path: Path) -> None:
    names, out = tmp_path / "names", ("--out", str(tmp_path / "out"))
    (tmp_path / "out").mkdir()
    for text, what in (("\n", "has no names"), ("a b\na-b\n", "would have the paper a-b.md"), ("a\na\n", "paper a.md")):
        names.write_text(text)
        with pytest.raises(RefimplError, match=what):
            quiz.main("--students", str(names), *out)
    names.write_bytes(b"\xff")
    with pytest.raises(RefimplError, match="UTF-8"):
        quiz.main("--students", str(names), *out)
    (tmp_path / "out" / "answers.json").write_text("[]")
    with pytest.raises(RefimplError, match="has the answers of other papers"):
        quiz.main(*out)
    with pytest.raises(RefimplError, match="is not a file of answers"):
        quiz.main("--mark", str(tmp_path), *out)
    (tmp_path / "out" / "answers.json").write_text('{"papers": {}}')
    with pytest.raises(RefimplError, match="has no paper"):
        quiz.main("--mark", str(tmp_path), *out)
    words = ("--students", "nowhere", *out)
    ran = subprocess.run([sys.executable, "-m", "tutorials.quiz", *words], capture_output=True, text=True)
    assert ran.returncode == 1 and ran.stderr.startswith("quiz: ") and ran.stderr.count("\n") == 1


if __name__ == "__main__":
    import nbformat

    if "--write" not in sys.argv:
        sys.exit(__doc__)
    made = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    notebook = nbformat.v4.new_notebook(
        cells=[made[kind](source, id=f"quiz-{number}") for number, (kind, source) in enumerate(cells())]
    )
    notebook.metadata.kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(notebook, NOTEBOOK)
