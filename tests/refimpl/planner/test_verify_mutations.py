"""`verify` against its slow twin: on drawn programs, and on every way to spoil one that `mutations` knows."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refimpl.network import Network
from refimpl.planner import DoesNotFit, Program, Setup
from refimpl.planner.verify import Unsafe
from tests.refimpl.modules import least_plan, machine, networks, setups
from tests.refimpl.planner.brute_force import fault
from tests.refimpl.planner.mutations import MOVING, WAYS, small_program

#: Slow links make copies overlap many steps; fast ones hide them at once.  Bytes a second.
LINKS = st.sampled_from((1e6, 1e8, 1e10))
TIGHTNESS = st.sampled_from((0.0, 0.1, 0.5))

relaxed = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def opinion(program: Program) -> Unsafe | None:
    try:
        program.verify()
    except Unsafe as unsafe:
        return unsafe
    return None


def compare(program: Program, seed: int, tally: Counter[tuple[str, str]]) -> None:
    """Spoil a right program in every way; both checks must say the same of what comes of it."""
    drawn = random.Random(seed)
    for way in WAYS:
        for what, mutant in way(program, drawn):
            ours, theirs = opinion(mutant), fault(mutant)
            assert (ours is None) == (theirs is None), f"{what}: verify says {ours}, brute force {theirs}"
            tally[what, "caught" if ours else "harmless"] += 1


def show(tally: Counter[tuple[str, str]]) -> None:
    for what, verdict in sorted(tally):
        print(f"{what:26} {verdict:10} {tally[what, verdict]:5}")


def test_all_ways_to_spoil_a_small_program() -> None:
    program = small_program(**MOVING)
    tally: Counter[tuple[str, str]] = Counter()
    compare(program, 0, tally)
    show(tally)
    ops = Counter(instruction.op for instruction in program.instructions)
    for op in ("launch", "record"):  # none of these is there in vain
        assert tally[f"{op} removed", "caught"] == ops[op]
    assert tally["wait removed", "caught"] + tally["wait removed", "harmless"] == ops["wait"]
    assert tally["wait removed", "caught"] > ops["wait"] / 2


@relaxed
@given(networks(), setups, TIGHTNESS, LINKS)
def test_drawn_programs_are_right(network: Network, setup: Setup, tightness: float, link: float) -> None:
    program = least_plan(network, setup, machine(link), tightness)
    program.verify()
    assert fault(program) is None


@pytest.mark.slow
def test_verify_and_brute_force_agree_on_every_mutation() -> None:
    tally: Counter[tuple[str, str]] = Counter()

    @settings(relaxed, max_examples=25)
    @given(networks(layers=6), setups, TIGHTNESS, LINKS, st.integers(0, 1000))
    def agree(network: Network, setup: Setup, tightness: float, link: float, seed: int) -> None:
        try:
            program = least_plan(network, setup, machine(link), tightness)
        except DoesNotFit:
            return
        compare(program, seed, tally)

    agree()
    show(tally)
    for what in ("wait removed", "launch removed", "copy in removed", "copy out removed", "neighbours swapped"):
        assert tally[what, "caught"] > 20
    for what in ("wait removed", "neighbours swapped", "copy on another stream"):
        assert tally[what, "harmless"] > 20  # a check that refuses everything would agree with nobody
