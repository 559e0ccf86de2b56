"""Tables as Markdown, and of the kernels: cells, widths and files by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refimpl.report import kernels_table
from refimpl.report.kernels_table import KernelRow, Usage, first_sentence
from refimpl.report.markdown import escaped, markdown_table, paragraph, slug, write_measurement


@pytest.mark.parametrize(
    ("cell", "as_markdown"),
    [
        ("plain", "plain"), ("a_b*c", r"a\_b\*c"), ("<x> [y]", r"\<x\> \[y\]"), ("`a_b` c_d", r"`a_b` c\_d"),
        ("a|b", r"a\|b"), ("`a|b`", r"`a\|b`"), ("", " "), ("  in", "&nbsp;&nbsp;`in`"),
        (" in_side ", "&nbsp;&nbsp;`in_side`"),
    ],
)  # fmt: skip
def test_a_cell_is_no_markup(cell: str, as_markdown: str) -> None:
    assert escaped(cell) == as_markdown


def test_a_table_a_paragraph_and_a_name() -> None:
    assert markdown_table(["a", "b_c"], [["1", ""], ["2", "x"]]) == (
        "| a | b\\_c |\n| --- | --- |\n| 1 |   |\n| 2 | x |"
    )  # fmt: skip
    words = paragraph(" ".join(["word-and-word"] * 20)).splitlines()
    assert len(words) == 3 and max(map(len, words)) <= 120 and not any(line.endswith("-") for line in words)
    assert paragraph("x" * 130) == "x" * 130
    assert slug("AMD EPYC 7B13, 2 cores (x86)") == "amd-epyc-7b13-2-cores-x86"


def test_a_measurement_is_a_page_and_its_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "measurements"
    measured = {"name": "é", "few": [1, 2], "rows": [{"a": [1, {"b": 2}]}, {"a": []}], "none": []}
    assert [*write_measurement(tmp_path, "here-1", "a page\n\n", measured)] == [
        folder / "here-1.md",
        folder / "here-1.json",
    ]
    assert (folder / "here-1.md").read_text() == "a page\n"
    text = (folder / "here-1.json").read_text(encoding="utf-8")
    assert json.loads(text) == measured and '\n  {"a": [1, {"b": 2}]},\n  {"a": []}\n ],\n' in text
    assert text.splitlines()[1:3] == [' "name": "é",', ' "few": [1, 2],']


# -- of the kernels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, ""), ("One thread an element.", "One thread an element"),
        ("Two lines\n    of it.  More.", "Two lines of it"),
        ("Sums, 1.5 of them: a list.\n\nMore", "Sums, 1.5 of them: a list"), ("Ends so:\n\n- a", "Ends so"),
        ("Of x, y, … and z.  More", "Of x, y, … and z"),
    ],
)  # fmt: skip
def test_the_first_sentence(text: str | None, sentence: str) -> None:
    assert first_sentence(text) == sentence


def test_a_line_a_file_and_a_line_a_kernel() -> None:
    used = [Usage("7.5", 32, 0), Usage("9.0", 40, 1024)]
    rows = [
        KernelRow("conv.direct", "forward", "convolves", "one output a thread", (16, 16), used),
        KernelRow("conv.direct", "backward", "convolves", "", (256,), used),
        KernelRow("relu", "relu", "rectifies", "an element", (8, 1, 8), used[::-1]),
    ]
    head, lines = kernels_table.table(rows)
    assert head == ["file, kernel", "what it does", "block", "7.5", "9.0"]
    assert lines == [
        ["conv.direct", "convolves", "", "", ""], ["  forward", "one output a thread", "16×16", "32 / 0", "40 / 1024"],
        ["  backward", "", "256", "32 / 0", "40 / 1024"], ["relu", "rectifies", "", "", ""],
        ["  relu", "an element", "8×1×8", "32 / 0", "40 / 1024"],
    ]  # fmt: skip
    assert kernels_table.table([]) == (["file, kernel", "what it does", "block"], [])
