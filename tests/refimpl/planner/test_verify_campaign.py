"""Hand-made programs of every kind: what `verify` accepts trains to the bit, and what it refuses it refuses clearly.

A mutant is a drawn program in which something was changed that a writer of programs by hand, or a planner with a
bug, could get wrong (`mutations.anything`).  `verify` may end in `Unsafe` and in nothing else.  If it accepts a mutant,
two iterations on the CPU, in the program's order beside the host's threads and in a drawn one with all dead bytes
poisoned, give the bits of the plain network.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from refimpl.backend import Drawn, LegalOrder, NotFinite
from refimpl.names import presets
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Program, Setup
from refimpl.planner.verify import Unsafe
from refimpl.vdnnpp import Compressed
from tests.refimpl.backend.running import differing, plain_training, trained
from tests.refimpl.modules import least_plan, machine, networks, setup, setups
from tests.refimpl.planner.mutations import COMPRESSING, MOVING, anything, small_program
from tests.refimpl.planner.test_verify_mutations import LINKS, TIGHTNESS, compressing, relaxed

ITERATIONS = 2
HOSTS = st.sampled_from((1e6, 1e9, 1e12))  #: bytes a second that the host compresses
ANY = st.tuples(networks(layers=6), st.one_of(setups, compressing), TIGHTNESS, LINKS, HOSTS)
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
SMALL: tuple[dict[str, Any], ...] = (MOVING, COMPRESSING, COMPRESSING | {"copy_streams": "shared"})
A_PROGRAM = 50  #: mutants of a program


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


def spoil(program: Program, count: int, number: int, tally: Counter[tuple[str, str]]) -> list[str]:
    """Hold `count` mutants of a right program against both claims; one in five has several changes.  What is wrong."""
    faults = []
    drawn = random.Random(number)
    for _ in range(count):
        what, mutant = anything(program, drawn)
        while drawn.random() < 0.2:
            _, mutant = anything(mutant, drawn)
        try:
            mutant.verify()
        except Unsafe as unsafe:
            tally[what, "refused"] += 1
            if "\n" in str(unsafe):
                faults.append(f"{what}: {unsafe}")
        except Exception as error:
            faults.append(f"{what}: verify ends in {error!r}")
        else:
            tally[what, "accepted"] += 1
            if fault := wrong(mutant, number):
                faults.append(f"{what}: verify accepts it, and it gives {fault}")
    return faults


@pytest.mark.slow
def test_mutants_of_small_programs() -> None:
    tally: Counter[tuple[str, str]] = Counter()
    for number, modules in enumerate(SMALL):
        assert spoil(small_program(**modules), 100, number, tally) == []
    assert sum(n for (_, verdict), n in tally.items() if verdict == "accepted") > 20


@pytest.mark.campaign
def test_twenty_thousand_mutants_of_drawn_programs() -> None:
    tally: Counter[tuple[str, str]] = Counter()
    faults: list[str] = []

    @seed(11)
    @settings(relaxed, max_examples=400, phases=[Phase.generate], database=None, deadline=None)
    @given(st.one_of(ANY, PACKING), st.integers(0, 1 << 30))
    def hold(given: tuple[Network, Setup, float, float, float], number: int) -> None:
        network, wanted, tightness, link, host_rate = given
        on = dataclasses.replace(machine(link), host_rate=host_rate)
        try:
            program = least_plan(network, wanted, on, tightness)
        except DoesNotFit:
            return
        faults.extend(spoil(program, A_PROGRAM, number, tally))

    hold()
    keeps_up = dataclasses.replace(machine(), host_rate=1e12)
    packing = least_plan(build("tiny-vgg:vdnnpp", 8), presets.vdnnpp_all(), keeps_up, 0.3)
    for number, program in enumerate([*(small_program(**modules) for modules in SMALL), packing]):
        faults.extend(spoil(program, 1000, number, tally))
    for what, verdict in sorted(tally):
        print(f"{what:26} {verdict:10} {tally[what, verdict]:6}")
    verdicts = Counter({verdict: 0 for _, verdict in tally})
    for (_, verdict), count in tally.items():
        verdicts[verdict] += count
    print(f"{sum(verdicts.values())} mutants: {dict(verdicts)}")
    assert faults == []
    assert sum(verdicts.values()) >= 20_000
