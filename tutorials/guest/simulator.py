"""One iteration of training of a chain of blocks, on two streams: kernels compute, and one link copies.

`python simulator.py gpt2 okokokokcccccccccccccccck` prints what runs when; `1.3 kcokcok` in its place takes the chain
that the tests draw from seed 1 as their number 3.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import NamedTuple


class Block(NamedTuple):
    """A part of a network: what it holds in MiB, and what it takes in microseconds."""

    name: str
    input: int  # MiB of its input, the checkpoint; it always stays
    rest: int  # MiB of its other maps, which are kept, recomputed or offloaded
    forward: int
    backward: int
    copy: int  # of `rest`, out or in


class Run(NamedTuple):
    time: int  # microseconds of the iteration
    peak: int  # the most MiB that are held at any time
    operations: list[tuple[str, str, str, int, int]]  # stream, what, block, start, end


def simulate(chain: list[Block], plan: str) -> Run:
    """Run a plan.  An operation starts when its stream is free and what it waits for has ended."""
    if not isinstance(plan, str) or len(plan) != len(chain) or set(plan) - set("kco"):
        raise ValueError(f"a plan is a string of {len(chain)} letters k, c or o, and not {plan!r}")
    free = {"compute": 0, "link": 0}  # when each stream has ended what it had to do
    operations: list[tuple[str, str, str, int, int]] = []
    changes: list[tuple[int, int]] = []  # time, MiB more or less

    def run(stream: str, what: str, block: Block, duration: int, after: int, takes: int, frees: int) -> int:
        start = max(free[stream], after)
        free[stream] = end = start + duration
        operations.append((stream, what, block.name, start, end))
        changes.extend([(start, takes), (end, -frees)])
        return end

    sent = 0  # when the last copy out ends
    for block, fate in zip(chain, plan, strict=True):
        end = run("compute", "forward", block, block.forward, 0, block.input + block.rest, block.rest * (fate == "c"))
        if fate == "o":
            free["compute"] = max(end, sent)  # kernels wait until the copy before this one has ended
            sent = run("link", "out", block, block.copy, end, 0, block.rest)
    free["compute"] = max(free["compute"], sent)  # backward starts when all of them have

    away = [block for block, fate in zip(chain, plan, strict=True) if fate == "o"]
    arrived = 0  # when the last copy in ends

    def fetch(after: int) -> None:
        nonlocal arrived
        if away:
            block = away.pop()
            arrived = run("link", "in", block, block.copy, after, block.rest, 0)

    fetch(free["compute"])
    for block, fate in zip(reversed(chain), reversed(plan), strict=True):
        if fate == "c":
            run("compute", "again", block, block.forward, 0, block.rest, 0)
        if fate == "o":
            free["compute"] = max(free["compute"], arrived)
            fetch(free["compute"])  # the next copy in runs beside this block's backward
        run("compute", "backward", block, block.backward, 0, 0, block.input + block.rest)

    held = peak = 0
    for _, change in sorted(changes):  # at one time, what is freed comes first
        held += change
        peak = max(peak, held)
    return Run(free["compute"], peak, operations)


def chain_of(name: str) -> list[Block]:
    """`gpt2`, or a chain that is drawn: seven blocks whose copies take a quarter to one and a half of a forward."""
    if name == "gpt2":
        stored = json.loads(Path(__file__).with_name("chain.json").read_text("utf-8"))
        return [Block(*block) for block in stored["blocks"]]
    draw = random.Random(name)
    link, chain = draw.uniform(4, 24), []  # microseconds a MiB
    for number in range(1, 8):
        rest, forward = draw.randint(40, 400), draw.randint(1000, 6000)
        backward = forward * draw.randint(15, 25) // 10
        chain.append(Block(f"block {number}", draw.randint(8, 32), rest, forward, backward, int(rest * link)))
    return chain


if __name__ == "__main__":
    found = simulate(chain_of(sys.argv[1]), sys.argv[2])
    for stream, what, block, start, end in sorted(found.operations, key=lambda one: one[3]):
        print(f"{start:>8} to {end:>8} µs  {stream:<8} {what:<9} {block}")
    print(f"{found.time} µs, {found.peak} MiB")
