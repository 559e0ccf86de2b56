"""The listing: one small program's to the letter, and of any program that it is narrow, complete and honest."""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_left
from itertools import takewhile
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.machine import Choice, Machine
from refimpl.names.networks import build
from refimpl.network import Builder, Call
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

TINY = """\
tiny, batch 8 · demo · titan-x (own) · budget 1 MiB
    fits       peak 31 KiB, 993 KiB to spare · resident 3.754 KiB
    live       22 KiB at most (relu1 backward, step 9) · 11.05 KiB on average
    traffic    offloaded 8.094 KiB · prefetched 8 KiB · on demand 96 bytes · pinned memory 15.5 KiB
    rebuilt    1 forward step run again
    time       27 ms an iteration, by the model of titan-x · 74 instructions, 14 waits among them
    slots      recompute some:kinds=pool · offload some · liveness layer-wise · prefetch ahead:1 ·
               cache none · algorithms memory · allocator best-fit · pinned buffer-a-map · streams
               compute, out, in

Fates of the 4 maps that backward reads
    offload    some: drawn · 3 maps, 14.09 KiB: input, conv1, softmax1
    drop       some: drawn · 1 map, 2 KiB: pool1

Before the first step
    resident   15 tensors, 3.754 KiB
    allocate   input 6 KiB, to be uploaded again
    copy in    input 6 KiB, batch · labels 32 bytes, batch

Step 1  conv1 forward                      live     14 KiB   pool     23 KiB
    allocate   conv1 8 KiB, to be offloaded
    run        conv.forward (direct) · waits for copy in of input at the start
    free       input 6 KiB

Step 2  relu1 forward                      live      8 KiB   pool     17 KiB
    run        relu.forward

Step 3  pool1 forward                      live     10 KiB   pool     19 KiB
    allocate   pool1 2 KiB, to be dropped
    run        pool.forward
    copy out   conv1 8 KiB, offload · waits for relu.forward of relu1 in step 2

Step 4  fc1 forward                        live  2.094 KiB   pool   19.5 KiB
    allocate   fc1 512 bytes
    run        fc.forward
    free       pool1 2 KiB

Step 5  softmax1 forward                   live  192 bytes   pool     18 KiB
    allocate   softmax1 512 bytes, to be offloaded
    run        softmax.forward
    run        softmax.cross_entropy · waits for copy in of labels at the start
    copy out   softmax1 96 bytes, offload · waits for softmax.forward of softmax1
    free       fc1 512 bytes

Step 6  softmax1 backward                  live  8.094 KiB   pool   17.5 KiB
    free       conv1 8 KiB, let go in step 3 · softmax1 512 bytes, let go in step 5
    allocate   softmax1 512 bytes
    copy in    softmax1 96 bytes, on demand · waits for copy out of softmax1 in step 5 and
               softmax.cross_entropy of softmax1 in step 5
    allocate   conv1 8 KiB
    copy in    conv1 8 KiB, prefetch
    run        softmax.backward · waits for copy in of softmax1

Step 7  fc1 backward                       live  12.09 KiB   pool   21.5 KiB
    allocate   pool1 2 KiB
    rebuild    pool1: pool.forward · waits for copy in of conv1 in step 6
    allocate   d(pool1) 2 KiB
    run        fc.backward_filter · fc.backward_data · fc.backward_bias · sgd.update ×2
    free       softmax1 512 bytes

Step 8  pool1 backward                     live     20 KiB   pool     29 KiB
    allocate   d(conv1) 8 KiB
    run        pool.backward
    free       pool1 2 KiB · d(pool1) 2 KiB

Step 9  relu1 backward                     live     22 KiB   pool     31 KiB   ← peak
    allocate   input 6 KiB
    copy in    input 6 KiB, prefetch
    run        relu.backward
    free       conv1 8 KiB

Step 10  conv1 backward                    live     14 KiB   pool     23 KiB
    run        conv.backward_filter (direct) · conv.backward_bias · sgd.update ×2 · waits for copy
               in of input in step 9
    free       input 6 KiB · d(conv1) 8 KiB
    copy out   losses 32 bytes, result · waits for softmax.cross_entropy of softmax1 in step 5
    join       compute waits for copy out of losses · out waits for sgd.update of conv1 · in waits
               for copy out of losses · in waits for sgd.update of conv1
"""

TINY_INSTRUCTIONS = """\
tiny, batch 8 · demo · titan-x (own) · budget 1 MiB

Step 3  pool1 forward                      live     10 KiB   pool     19 KiB
    11          allocate  0x2400 pool1 2 KiB, to be dropped (some: drawn)
    12 compute  launch    pool.forward: conv1@0x3c00 → pool1@0x2400
    13 out      wait      event 2: waits for relu.forward of relu1, instruction 9
    14 out      copy out  0x3c00 → pinned 0x1c00 conv1 8 KiB, offload
"""


@dataclasses.dataclass(frozen=True)
class Steady(Machine):
    """Every call takes 1 ms, every copy 2.5 ms."""

    def choices(self, call: Call) -> tuple[Choice, ...]:
        return (Choice("direct", 0, 1e-3),)

    def seconds(self, call: Call, choice: Choice | None = None) -> float:
        return 1e-3

    def copy_seconds(self, nbytes: int, direction: Literal["out", "in"], tier: str = "host") -> float:
        return 2.5e-3


def tiny() -> Program:
    b = Builder("tiny", (8, 3, 8, 8))
    b.conv(4, 3, pad=1)
    b.relu()
    b.pool(2)
    b.fc(3)
    b.softmax()
    titan = machine()
    steady = Steady(**{field.name: getattr(titan, field.name) for field in dataclasses.fields(titan) if field.init})
    modules = setup(
        name="demo", offload=OffloadSome(), prefetch=PrefetchAhead(1), recompute=DropSome(1.0, kinds=("pool",))
    )
    return plan(b.build(), modules, steady, 1 << 20)


def test_a_small_program_to_the_letter() -> None:
    assert listing(tiny()) == TINY
    assert tiny().listing() == TINY
    assert tiny().listing(3, instructions=True) == TINY_INSTRUCTIONS


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


ENTRIES = """\
allocate  pool1 2 KiB, to be dropped (some: drawn)
run       pool.forward
wait      event 2
copy out  conv1 8 KiB, offload, waits for relu.forward of relu1 in step 2
"""


def test_every_instruction_has_an_entry() -> None:
    program = tiny()
    found = entries(program)
    assert len(found) == len(program.instructions)
    third = [entry for entry, it in zip(found, program.instructions, strict=True) if it.step == 3]
    assert "".join(f"{word:8}  {text}\n" for word, text in third) == ENTRIES
    waits = [text for (word, text), it in zip(found, program.instructions, strict=True) if isinstance(it, Wait)]
    assert waits == [f"event {it.event}" for it in program.instructions if isinstance(it, Wait)]
    assert sum(text.count("waits for") for _, text in found) <= len(waits) == 14
    assert repetitions(program) == []
