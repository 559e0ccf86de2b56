"""`verify` against its slow twin: on drawn programs, and on every way to spoil one that `mutations` knows."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refimpl.machine import Tier
from refimpl.memory.tiers import pinned_size
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Program, Setup, plan
from refimpl.planner.verify import Unsafe
from refimpl.slots.errors import PinnedDoesNotFit
from refimpl.superneurons import UnifiedTensorPool
from refimpl.vdnnpp import Compressed
from tests.refimpl.modules import least_plan, machine, networks, setup, setups
from tests.refimpl.planner.brute_force import fault
from tests.refimpl.planner.mutations import COMPRESSING, MOVING, WAYS, small_network, small_program

#: Slow links make copies overlap many steps; fast ones hide them at once.  Bytes a second.
LINKS = st.sampled_from((1e6, 1e8, 1e10))
TIGHTNESS = st.sampled_from((0.0, 0.1, 0.5))
#: The same setups with maps compressed; a barrier gives the host's threads time.
compressing = st.builds(
    lambda setup, barrier, limit: setup.replace(pinned=Compressed(limit=limit), barrier=barrier),
    setups, st.booleans(), st.sampled_from((None, 1 << 13)),
)  # fmt: skip

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_all_ways_to_spoil_a_small_program_whose_maps_are_compressed() -> None:
    program = small_program(**COMPRESSING)
    tally: Counter[tuple[str, str]] = Counter()
    compare(program, 0, tally)
    show(tally)
    ops = Counter(instruction.op for instruction in program.instructions)
    for op in ("compress", "decompress"):
        assert tally[f"{op} removed", "caught"] + tally[f"{op} removed", "harmless"] == ops[op] > 0
    assert tally["decompress removed", "caught"] == ops["decompress"]
    assert tally["compress removed", "caught"] == ops["decompress"]  # what is never decompressed is no loss
    assert tally["compressed map elsewhere", "caught"] > 0


@pytest.mark.slow
def test_all_ways_to_spoil_a_small_program_whose_maps_are_in_tiers() -> None:
    """Maps of equal size at equal addresses of two tiers, and a third for the rest."""
    wanted = setup(**MOVING | {"pinned": UnifiedTensorPool()})
    maps = [pinned_size(it.nbytes) for it in small_program(**MOVING).instructions if it.op == "copy out"]
    on = machine().with_tiers([Tier("remote", maps[0]), Tier("peer", maps[0]), Tier("host")])
    program = plan(small_network(), wanted, on, 1 << 26)
    assert fault(program) is None and len(program.tier_bytes) == 2
    tally: Counter[tuple[str, str]] = Counter()
    compare(program, 0, tally)
    show(tally)
    assert tally["copy with another tier", "caught"] == sum(
        it.op in ("copy out", "copy in") for it in program.instructions
    )


@pytest.mark.slow
def test_drawn_programs_with_compressed_maps_are_right() -> None:
    """The host's threads are drawn too, from much slower than the link to much faster."""
    compressed = 0

    @settings(relaxed, max_examples=60)
    @given(networks(layers=8), compressing, TIGHTNESS, LINKS, LINKS)
    def hold(network: Network, setup: Setup, tightness: float, link: float, host_rate: float) -> None:
        nonlocal compressed
        on = dataclasses.replace(machine(link), host_rate=host_rate)
        try:
            program = least_plan(network, setup, on, tightness)
        except PinnedDoesNotFit:
            return
        program.verify()
        assert fault(program) is None
        assert program.simulate().seconds == pytest.approx(program.planned_seconds)
        compressed += program.counts.compressed_bytes

    hold()
    assert compressed > 0


@pytest.mark.slow
def test_verify_and_brute_force_agree_on_every_mutation() -> None:
    tally: Counter[tuple[str, str]] = Counter()

    @settings(relaxed, max_examples=7)
    @given(networks(layers=6), st.one_of(setups, compressing), TIGHTNESS, LINKS, st.integers(0, 1000))
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
        assert tally[what, "harmless"] > 20  # a check that refuses everything would never agree
