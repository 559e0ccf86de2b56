"""A second opinion on order: PyTorch's stream sanitizer, which follows streams and events without a GPU.

It knows a piece of memory by a pointer and remembers its last accesses; it knows nothing of ranges of bytes, and
forgets a pointer that is freed.  So every granule of either memory is a pointer to it, and none is ever freed: then it
sees all that rule 1 is about, reuse of bytes included.  The other rules it does not see: lifetimes, values, leaks, the
budget, and a wait for an event that was never recorded is nothing to it.
"""

from __future__ import annotations

import random
import types
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.network import Network
from refimpl.planner import CopyIn, CopyOut, Launch, Program, Setup
from refimpl.planner.instructions import Allocate, FromStore, Record, ToStore, Wait
from refimpl.planner.verify import Unsafe
from refimpl.slots.errors import PinnedDoesNotFit
from refimpl.vdnnpp.packing import packed_limit
from tests.refimpl.modules import least_plan, machine, networks, setups
from tests.refimpl.planner.mutations import COMPRESSING, MOVING, at, other_streams, small_program, without
from tests.refimpl.planner.test_verify_mutations import LINKS, TIGHTNESS, compressing, opinion, relaxed

GRANULE = 512  #: bytes
PINNED, STORE = 1 << 40, 1 << 50  #: where the pointers of pinned memory begin, and of compressed maps


@pytest.fixture
def sanitizer(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module; it takes a stack trace at every launch, which is most of its time and of no use here."""
    module = pytest.importorskip("torch.cuda._sanitizer")
    summary = types.SimpleNamespace(extract=lambda *_, **__: [])
    quick = types.SimpleNamespace(StackSummary=summary, walk_stack=lambda _: iter(()))
    monkeypatch.setattr(module, "traceback", quick)
    return module


def reports(sanitizer: Any, program: Program) -> list[Any]:
    """What it has to say of two iterations."""
    handler = sanitizer.EventHandler()
    for stream in range(1, len(program.streams) + 1):
        handler._handle_stream_creation(stream)
    live = {address: address + tensor.nbytes for tensor, address in program.resident.items()}  #: start → end
    errors: list[Any] = []

    def granules(start: int, base: int = 0, end: int | None = None) -> set[int]:
        return {base + at // GRANULE for at in range(start, live[start] if end is None else end, GRANULE)}

    def work(it: Any, reads: set[int], writes: set[int]) -> None:
        names = {pointer: [it.op] for pointer in reads | writes}
        errors.extend(handler._handle_kernel_launch(it.stream + 1, reads - writes, writes, set(), it.op, names))

    for it in program.instructions * 2:
        if isinstance(it, Allocate):
            live[it.address] = it.address + it.nbytes
        elif isinstance(it, Record):
            handler._handle_event_record(it.event, it.stream + 1)
        elif isinstance(it, Wait):
            handler._handle_event_wait(it.event, it.stream + 1)
        elif isinstance(it, Launch):
            at = dict(zip(it.call.operands, it.addresses, strict=True))
            reads = set().union(*(granules(at[tensor]) for tensor in it.call.reads))
            writes = set().union(*(granules(at[tensor]) for tensor in (*it.call.updates, *it.call.writes)))
            work(it, reads, writes | (granules(it.workspace[0]) if it.workspace else set()))
        elif isinstance(it, (CopyOut, CopyIn)):
            device, host = granules(it.address), granules(it.pinned_address, PINNED, it.pinned_address + it.nbytes)
            work(it, device if it.op == "copy out" else host, host if it.op == "copy out" else device)
        elif isinstance(it, (ToStore, FromStore)):
            raw = granules(it.pinned_address, PINNED, it.pinned_address + it.nbytes)
            stored = granules(it.store_address, STORE, it.store_address + packed_limit(it.nbytes))
            work(it, raw if it.op == "compress" else stored, stored if it.op == "compress" else raw)
    return errors


@pytest.mark.parametrize("modules", [MOVING, COMPRESSING], ids=["moving", "compressing"])
def test_it_agrees_on_every_wait_of_a_small_program(sanitizer: Any, modules: dict[str, Any]) -> None:
    """The host's threads are one more stream to it, the store one more memory."""
    program = small_program(**modules)
    assert reports(sanitizer, program) == []
    waits = [index for index, it in enumerate(program.instructions) if isinstance(it, Wait)]
    verdicts = Counter(agree(sanitizer, without(program, index)) for index in waits)
    assert verdicts[False] > len(waits) / 3
    on_host = program.streams.index("host") if "host" in program.streams else -1
    needed = [i for i in waits if at(program, i, Wait).stream == on_host and not opinion_holds(program, i)]
    assert bool(needed) == (on_host >= 0)


def opinion_holds(program: Program, index: int) -> bool:
    return opinion(without(program, index)) is None


@pytest.mark.slow
def test_it_agrees_on_drawn_programs_and_on_every_wait(sanitizer: Any) -> None:
    verdicts: Counter[bool] = Counter()

    @settings(relaxed, max_examples=15)
    @given(networks(layers=6), st.one_of(setups, compressing), TIGHTNESS, LINKS)
    def holds(network: Network, setup: Setup, tightness: float, link: float) -> None:
        try:
            program = least_plan(network, setup, machine(link), tightness)
        except PinnedDoesNotFit:
            return
        assert reports(sanitizer, program) == []
        for index, it in enumerate(program.instructions):
            if isinstance(it, Wait):
                verdicts[agree(sanitizer, without(program, index))] += 1

    holds()
    print(f"{verdicts[False]} waits needed, {verdicts[True]} not, by both")
    assert verdicts[True] and verdicts[False]


def test_it_agrees_on_copies_on_another_stream(sanitizer: Any) -> None:
    for _, mutant in other_streams(small_program(**MOVING), random.Random(3)):
        agree(sanitizer, mutant)


def agree(sanitizer: Any, mutant: Program) -> bool:
    """Whether both find a program in order; neither has anything else to find."""
    ours: Unsafe | None = opinion(mutant)
    assert ours is None or ours.rule == 1
    theirs = reports(sanitizer, mutant)
    assert bool(theirs) == (ours is not None), f"verify says {ours}, the sanitizer {theirs}"
    return ours is None
