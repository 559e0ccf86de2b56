"""vDNN's published figures: all that the sources have, each with its mark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from refimpl.studies.reproduce.published import Published
from refimpl.studies.reproduce.vdnn import published

pytestmark = pytest.mark.vdnn


def figures(value: object) -> Iterator[Published]:
    """Every one in the module, in order."""
    if isinstance(value, Published):
        yield value
    elif isinstance(value, (dict, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from figures(part)


ALL = [figure for value in vars(published).values() for figure in figures(value)]


def test_every_figure_has_a_name_of_its_own_and_one_of_two_marks() -> None:
    assert len({figure.what for figure in ALL}) == len(ALL) == 42
    assert {figure.mark for figure in ALL} == {"P", "p"}


def test_printed_figures_are_those_of_the_two_abstracts_and_the_introduction() -> None:
    ranges = [6, 14, 67, 73, 98, 1, 18]
    printed = {published.ABSTRACT: [28, 89, 91, 95, 18], published.FIRST: [61, 83, 22], published.INTRODUCTION: ranges}
    for source, values in printed.items():
        assert [figure.value for figure in ALL if figure.source == source] == values
    assert all((figure.mark == "P") == (figure.source in printed) for figure in ALL)


def test_recalled_figures_say_where_in_the_paper_they_are() -> None:
    recalled = Counter(figure.source for figure in ALL if figure.mark == "p")
    counts = ((6, 2), (11, 8), (12, 1), (13, 1), (14, 6), (15, 5))
    assert recalled == {published.BODY: 4, **{published.figure(number): count for number, count in counts}}
    assert [figure.value for figure in ALL if figure.source == published.figure(11)] == [73, 93, 64, 90, 52, 76, 49, 69]


def test_only_waits_are_published_as_more_than() -> None:
    assert [figure for figure in ALL if figure.above] == [*published.REUSE.values()]
