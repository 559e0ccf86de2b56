"""The listing: one small program's to the letter, and of any program that it is narrow, complete and honest.

After a change that is meant to change it, `python -m tests.refimpl.planner.test_listing` rewrites `tiny.txt`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.names.networks import build
from refimpl.network import Builder
from refimpl.planner import DoesNotFit, Program, plan
from refimpl.planner.instructions import Allocate, Free, Launch, Wait
from refimpl.planner.listing import entries, listing, repetitions
from refimpl.vdnnpp import Compressed
from tests.messages import raises_naming
from tests.refimpl.modules import (
    DropSome,
    OffloadSome,
    PrefetchAhead,
    least_plan,
    machine,
    networks,
    setup,
    setups,
)

STORED = Path(__file__).with_name("tiny.txt")


def tiny() -> Program:
    b = Builder("tiny", (8, 3, 8, 8))
    b.conv(4, 3, pad=1)
    b.relu()
    b.pool(2)
    b.fc(3)
    b.softmax()
    modules = setup(
        name="demo", offload=OffloadSome(), prefetch=PrefetchAhead(1), recompute=DropSome(1.0, kinds=("pool",))
    )
    return plan(b.build(), modules, machine(), 1 << 20)


def whole(program: Program) -> str:
    """The listing of a program; of its step 3 each instruction, and each one's entry on the page."""
    found = zip(entries(program), program.instructions, strict=True)
    third = [f"{word:8}  {text}\n" for (word, text), it in found if it.step == 3]
    return "\n".join((program.listing(), program.listing(3, instructions=True), "".join(third)))


def test_a_small_program_to_the_letter() -> None:
    assert whole(tiny()) == STORED.read_text(encoding="utf-8"), "run: python -m tests.refimpl.planner.test_listing"


# -- of any program ----------------------------------------------------------------------------------------------------


def steps_of(text: str) -> dict[int, str]:
    """Step → what is said of it, in one line without its breaks; 0 is what comes before the first."""
    parts = re.split(r"\n\n(?=Before the first step|Step \d+  )", text)[1:]
    numbered = {0 if part.startswith("Before") else int(part.split()[1]): " ".join(part.split()) for part in parts}
    assert len(numbered) == len(parts), "a step twice"
    return numbered


def says_everything(program: Program) -> None:
    """Every instruction is in its step's lines, with its size, its reason, its algorithm."""
    said = steps_of(listing(program, range(1, len(program.network.steps) + 1)))
    waits = 0
    for step in program.network.steps:
        text = said[step.number]
        waits += len(re.findall(r"waits for|(?<=[^:]) and ", text))
        for i in program.instructions:
            if i.step != step.number:
                continue
            if isinstance(i, Launch):
                assert i.call.function in text and (i.choice is None or i.choice.algorithm in text)
                assert "rebuild" in text or not i.rebuild
            elif i.op in ("copy out", "copy in"):
                assert i.op in text and re.search(rf"{re.escape(i.tensor.name)} [\d.]+ \w+, {i.why}", text)
            elif i.op in ("compress", "decompress"):
                assert re.search(rf"{i.op} .*?{re.escape(i.tensor.name)} [\d.]+ \w+, [\d.]+ \w+ compressed", text)
            elif isinstance(i, Allocate | Free):
                assert i.op in text and i.tensor.name in text
                assert isinstance(i, Allocate) or i.released == i.step or f"let go in step {i.released}" in text
    assert waits == sum(isinstance(i, Wait) and i.step > 0 for i in program.instructions)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(networks(8), setups.flatmap(lambda s: st.sampled_from((s, s.replace(pinned=Compressed())))))
def test_any_listing_is_narrow_and_says_everything(network, wanted) -> None:
    try:
        program = least_plan(network, wanted, machine(1e8), 0.1)
    except DoesNotFit:
        return
    for instructions in (False, True):
        assert max(map(len, listing(program, instructions=instructions).splitlines())) <= 100
    says_everything(program)
    text = listing(program, instructions=True)
    positions = re.findall(
        r"^ *(\d+) (?:compute|out|in|memory|host)? +(?:allocate|free|launch|copy|compress|decompress|record|wait)",
        text,
        re.M,
    )
    assert list(map(int, positions)) == list(range(len(program.instructions)))


# -- which steps -------------------------------------------------------------------------------------------------------


def test_steps_are_chosen_by_number_range_or_layer() -> None:
    program = tiny()
    assert list(steps_of(listing(program, 3))) == [3]
    assert list(steps_of(listing(program, range(2, 5)))) == [2, 3, 4]
    assert list(steps_of(listing(program, "pool1"))) == [3, 8]
    assert "to be dropped (some: drawn)" in listing(program, "pool1")


@pytest.mark.parametrize("number", [0, 11, -1])
def test_a_step_that_is_not_there_is_refused(number) -> None:
    with raises_naming(ValueError, number, 1, 10):
        listing(tiny(), number)


# -- abridged ----------------------------------------------------------------------------------------------------------


def deep() -> Program:
    return plan(build("resnet:194", 1), setup(offload=OffloadSome(), prefetch=PrefetchAhead(5)), machine(), 4 << 30)


def outline(program: Program, number: int) -> list[tuple[object, ...]]:
    """What a step does, without names and addresses, and without what goes by the clock."""
    found: list[tuple[object, ...]] = []
    start = bisect_left(program.instructions, number, key=lambda i: i.step)
    for i in takewhile(lambda i: i.step == number, program.instructions[start:]):
        if isinstance(i, Launch):
            found.append((i.call.function, i.choice, i.rebuild))
        elif i.op in ("allocate", "copy out", "copy in"):
            found.append((i.op, i.nbytes, i.tensor.kind, getattr(i, "why", "")))
    return found


def test_a_deep_networks_listing_shows_what_repeats_once_and_counts_the_rest() -> None:
    program = deep()
    text = listing(program)
    shown = set(steps_of(text)) - {0}
    lines = " ".join(text.split())
    hidden = set()
    for first, last, same, times in re.findall(
        r"steps (\d+) to (\d+) are like the last (?:(\d+) steps|step), (\d+) times more", lines
    ):
        period = int(same or 1)
        repeated = range(int(first), int(last) + 1)
        assert len(repeated) == period * int(times)
        assert set(range(repeated[0] - period, repeated[0])) <= shown
        assert all(outline(program, number) == outline(program, number - period) for number in repeated)
        hidden |= set(repeated)
    assert not shown & hidden and shown | hidden == set(range(1, len(program.network.steps) + 1))
    assert len(hidden) > 0.4 * len(program.network.steps) and "Abridged: " in text
    assert max(map(len, text.splitlines())) <= 100


def test_every_instruction_has_an_entry() -> None:
    program = tiny()
    found = entries(program)
    waits = [text for (word, text), it in zip(found, program.instructions, strict=True) if isinstance(it, Wait)]
    assert waits == [f"event {it.event}" for it in program.instructions if isinstance(it, Wait)]
    assert sum(text.count("waits for") for _, text in found) <= len(waits) == 14
    assert repetitions(program) == []


if __name__ == "__main__":
    STORED.write_text(whole(tiny()), encoding="utf-8")
