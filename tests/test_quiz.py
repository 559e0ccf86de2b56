"""The quiz: a notebook made from `tutorials/questions.json`; every answer is judged, and what can be is computed.

`python -m tests.test_quiz --write` makes the notebook, and `python -m tests.test_tutorials --write quiz` runs it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

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


def checker() -> dict[str, Any]:
    """The names of the notebook's first code cell."""
    names: dict[str, Any] = {}
    here = Path.cwd()
    os.chdir(TUTORIALS)
    try:
        exec(CHECK, names)
    finally:
        os.chdir(here)
    return names


def test_the_notebook_is_made_from_the_questions() -> None:
    stored = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in stored]
    assert found == cells(), "python -m tests.test_quiz --write && python -m tests.test_tutorials --write quiz"


def test_there_are_forty_and_no_letter_gives_them_away() -> None:
    assert len(QUESTIONS) == 40 and len({question["question"] for question in QUESTIONS}) == 40
    answers = [question["answer"] for question in QUESTIONS]
    assert all(answers.count(letter) >= 10 for letter in "abc")


def test_the_right_answer_is_accepted_and_every_other_one_explained(capsys: pytest.CaptureFixture[str]) -> None:
    names = checker()
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
    import refimpl

    computed = [question for question in QUESTIONS if "shown" in question]
    assert len(computed) >= 12
    for question in computed:
        value = str(eval(question["shown"], {"refimpl": refimpl}))
        fitting = [letter for letter, text in question["choices"].items() if text.split()[0].rstrip(",") == value]
        assert fitting == [question["answer"]], (question["question"], value)


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
