"""Programs spoilt at random: `verify` says what its slow twin says, and what it accepts trains to the bit.

A mutant is a right program in which something was changed that a writer of programs by hand, or a planner with a bug,
could get wrong (`mutations.anything`).  `verify` may end in `Unsafe` and in nothing else.  If it accepts a mutant, two
iterations on the CPU, in the program's order beside the host's threads and in a drawn one with all dead bytes poisoned,
give the bits of the plain network.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refimpl.backend import Drawn, LegalOrder, NotFinite
from refimpl.machine import Tier
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Program, Setup, plan
from refimpl.planner.verify import Unsafe
from refimpl.superneurons import UnifiedTensorPool
from refimpl.vdnnpp import Compressed
from tests.refimpl.backend.running import differing, plain_training, trained
from tests.refimpl.modules import least_plan, machine, networks, setup, setups
from tests.refimpl.planner.brute_force import fault
from tests.refimpl.planner.mutations import (
    COMPRESSING,
    MOVING,
    Mutant,
    anything,
    removals,
    small_network,
    small_program,
)

ITERATIONS = 2
#: Slow links make copies overlap many steps; fast ones hide them at once.  Bytes a second.
LINKS = st.sampled_from((1e6, 1e8, 1e10))
HOSTS = st.sampled_from((1e6, 1e9, 1e12))  #: bytes a second that the host compresses
#: The same setups with maps compressed; a barrier gives the host's threads time.
compressing = st.builds(
    lambda setup, barrier, limit: setup.replace(pinned=Compressed(limit=limit), barrier=barrier),
    setups, st.booleans(), st.sampled_from((None, 1 << 13)),
)  # fmt: skip
#: Programs in which most maps are compressed, and decompressed again.
PACKING = st.tuples(
    networks(layers=8, kinds=("conv", "relu", "relu", "pool", "join")),
    st.builds(
        lambda streams, join, limit: setup(
            **COMPRESSING | {"copy_streams": streams, "join": join, "barrier": True, "pinned": Compressed(limit=limit)}
        ),
        st.sampled_from(("shared", "separate")), st.booleans(), st.sampled_from((None, 1 << 12, 1 << 13)),
    ),
    st.just(0.5), st.sampled_from((1e8, 1e10)), st.just(1e12),
)  # fmt: skip
DRAWN = st.one_of(
    st.tuples(networks(layers=6), st.one_of(setups, compressing), st.sampled_from((0.0, 0.1, 0.5)), LINKS, HOSTS),
    PACKING,
)
relaxed = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def in_tiers() -> Program:
    """Maps of equal size at equal addresses of two tiers, and a third for the rest."""
    size = next(it.nbytes for it in small_program(**MOVING).instructions if it.op == "copy out")
    tiers = [Tier("remote", size), Tier("peer", size), Tier("host")]
    wanted = setup(**MOVING | {"pinned": UnifiedTensorPool()})
    return plan(small_network(), wanted, machine().with_tiers(tiers), 1 << 26)


SMALL = {
    "moving": lambda: small_program(**MOVING),
    "compressing": lambda: small_program(**COMPRESSING),
    "one stream for copies": lambda: small_program(**COMPRESSING | {"copy_streams": "shared"}),
    "tiers": in_tiers,
}


def planned(network: Network, wanted: Setup, tightness: float, link: float, host_rate: float) -> Program | None:
    try:
        return least_plan(network, wanted, dataclasses.replace(machine(link), host_rate=host_rate), tightness)
    except DoesNotFit:
        return None


def opinion(program: Program) -> Unsafe | None:
    """What `verify` says; in one line."""
    try:
        program.verify()
    except Unsafe as unsafe:
        assert "\n" not in str(unsafe)
        return unsafe
    return None


def any_mutants(program: Program, count: int, number: int) -> Iterable[Mutant]:
    """One in five has several changes."""
    drawn = random.Random(number)
    for _ in range(count):
        what, mutant = anything(program, drawn)
        while drawn.random() < 0.2:
            _, mutant = anything(mutant, drawn)
        yield what, mutant


# -- the twin ----------------------------------------------------------------------------------------------------------


def compare(mutants: Iterable[Mutant], tally: Counter[tuple[str, bool]]) -> None:
    """Both checks must say the same; counts what was refused."""
    for what, mutant in mutants:
        ours, theirs = opinion(mutant), fault(mutant)
        assert (ours is None) == (theirs is None), f"{what}: verify says {ours}, brute force {theirs}"
        tally[what, ours is not None] += 1


@pytest.mark.parametrize("name", SMALL)
def test_whatever_is_removed_from_a_small_program(name: str) -> None:
    program, tally = SMALL[name](), Counter[tuple[str, bool]]()
    compare(removals(program, random.Random(0)), tally)
    ops = Counter(it.op for it in program.instructions)
    for op in ("launch", "record", "decompress"):  # none of these is there in vain
        assert tally[f"{op} removed", True] == ops[op]
    assert ops["wait"] > tally["wait removed", True] > ops["wait"] / 3


@pytest.mark.slow
def test_the_twin_agrees_on_drawn_programs_and_their_mutants() -> None:
    tally, compressed = Counter[tuple[str, bool]](), 0

    @settings(relaxed, max_examples=8)
    @given(DRAWN, st.integers(0, 1000))
    def agree(given: tuple[Network, Setup, float, float, float], number: int) -> None:
        nonlocal compressed
        if program := planned(*given):
            assert opinion(program) is None and fault(program) is None
            assert program.simulate().seconds == pytest.approx(program.planned_seconds)
            compressed += program.counts.compressed_bytes
            everything = [*removals(program, random.Random(number))]
            compare(random.Random(number).sample(everything, min(25, len(everything))), tally)
            compare(any_mutants(program, 25, number), tally)

    agree()
    for refused in (True, False):  # a check that refuses everything would never agree
        assert tally["wait removed", refused] > 5 and sum(n for (_, one), n in tally.items() if one is refused) > 50
    assert compressed > 0


# -- bits --------------------------------------------------------------------------------------------------------------


def wrong(mutant: Program, number: int) -> str | None:
    """What an accepted program does wrong when it is run; None: it trains as the plain network does."""
    orders: list[tuple[LegalOrder | None, bool]] = [(None, False), (Drawn(number), True)]
    expected = plain_training(mutant, ITERATIONS)
    for order, poison in orders:
        try:
            losses, state = trained(mutant, ITERATIONS, order=order, poison=poison)
        except NotFinite:
            continue  # so does the plain network, which does not stop
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        if names := differing(state, expected):
            return f"other bits in {', '.join(names)}"
        if abs(losses[-1] - float(expected["losses"].mean())) > 1e-4:
            return f"a loss of {losses[-1]}"
    return None


def spoil(program: Program, count: int, number: int, tally: Counter[bool]) -> list[str]:
    """Hold `count` mutants of a right program against the bits of training.  What is wrong."""
    faults = []
    for what, mutant in any_mutants(program, count, number):
        accepted = opinion(mutant) is None
        tally[accepted] += 1
        if accepted and (found := wrong(mutant, number)):
            faults.append(f"{what}: verify accepts it, and it gives {found}")
    return faults


@pytest.mark.slow
def test_mutants_of_small_programs() -> None:
    tally: Counter[bool] = Counter()
    for number, make in enumerate((*SMALL.values(),)[:3]):
        assert spoil(make(), 25, number, tally) == []
    assert tally[True] > 10
