"""The best of a paper's setups within a budget."""

from __future__ import annotations

from math import inf

import pytest

from refimpl.combined.papers import best_of, papers
from refimpl.machine import MACHINES
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.names.presets import PAPERS, setup
from refimpl.planner import Search

TITAN_X = MACHINES["titan-x"]
BUDGET = 6800 << 10
LENET = build("lenet")


def test_every_paper_has_its_presets_and_every_choice_of_algorithms() -> None:
    for paper, own in papers().items():
        names = {one.preset for one in own}
        assert names >= {name for name in PAPERS[paper] if not isinstance(setup(name), Search)}
        if paper not in ("baseline", "AccUDNN"):
            choices = {(one.preset, one.algorithms) for one in own}
            assert len(choices) == 3 * len(names)  # the least workspace, the fastest, the paper's own
    offload = {one.name: one for one in papers()["SuperNeurons"]}["superneurons-offload"]
    assert offload == setup("superneurons-offload") and offload.algorithms.name == "superneurons-dynamic"


@pytest.mark.slow
def test_the_best_is_the_fastest_that_fits_and_the_first_of_equals() -> None:
    for own in (papers()["vDNN"], papers()["SuperNeurons"], papers()["vDNN++"][:4]):
        programs = [attempt(LENET, one, TITAN_X, BUDGET) for one in own]
        seconds = [program.planned_seconds if program else inf for program in programs]
        best = best_of(own, LENET, TITAN_X, BUDGET)
        assert best.tried[0].seconds == min(seconds) and (best.program is None) == (min(seconds) == inf)
        if best.program:
            assert best.setup == own[seconds.index(min(seconds))]
            assert best.program.planned_seconds == min(seconds)
            for given_up in (inf, 1.001 * min(seconds)):
                again = best_of(own, LENET, TITAN_X, BUDGET, given_up)
                assert again.program and again.program.planned_seconds == min(seconds)
        assert [one.seconds for one in best.tried] == sorted(one.seconds for one in best.tried)
        assert all((one.failure is None) == (one.seconds < inf) for one in best.tried)


def test_compression_is_tried_only_where_the_same_setup_without_it_does_not_fit() -> None:
    own = papers()["vDNN++"]
    heard: list[str] = []
    best = best_of(own, LENET, TITAN_X, 1 << 30, watch=heard.append)
    assert sorted(heard) == sorted(one.name for one in own)
    assert not any(one.setup.pinned.uses_store for one in best.tried) and len(best.tried) == len(own) / 2
