"""A solution of the guest lab (tutorials/guest): `adapters.py`, filled in.  guest.md discusses it."""

from __future__ import annotations

from simulator import Block

State = tuple[int, int, int, int, int]  # added time, MiB kept, MiB in flight, µs that a copy still takes: out, in


def peak(chain: list[Block], plan: str) -> int:
    most = inputs = kept = in_flight = 0
    for block, fate in zip(chain, plan, strict=True):
        inputs += block.input
        most = max(most, inputs + kept + in_flight + block.rest)
        if fate == "k":
            kept += block.rest
        if fate == "o":
            in_flight = block.rest
    return most


def time(chain: list[Block], plan: str) -> int:
    total = left = 0
    for block, fate in zip(chain, plan, strict=True):
        total += block.forward
        left = max(0, left - block.forward)
        if fate == "o":
            total, left = total + left, block.copy
    total += left
    away = [0, *(block.copy for block, fate in zip(chain, plan, strict=True) if fate == "o")]
    left = away.pop()
    for block, fate in zip(reversed(chain), reversed(plan), strict=True):
        if fate == "o":
            total, left = total + left, away.pop()
        ran = block.backward + block.forward * (fate == "c")
        total += ran
        left = max(0, left - ran)
    return total


def checkpointing(chain: list[Block], budget: int) -> str:
    return fastest(chain, budget, "kc")


def both(chain: list[Block], budget: int) -> str:
    return fastest(chain, budget, "kco")


def fastest(chain: list[Block], budget: int, letters: str) -> str:
    """The fastest plan of these letters: after each block, the states that no other equals or beats in all respects."""
    states: list[tuple[State, str]] = [((0, 0, 0, 0, 0), "")]
    inputs = 0
    for block in chain:
        inputs += block.input
        found: list[tuple[State, str]] = []
        for (added, kept, in_flight, out, back), plan in states:
            if inputs + kept + in_flight + block.rest > budget:
                continue
            out, back = max(0, out - block.forward), back - block.backward
            again = max(0, back - block.forward)
            back = max(0, back)
            fates: dict[str, State] = {
                "k": (added, kept + block.rest, in_flight, out, back),
                "c": (added + block.forward, kept, in_flight, out, again),
                "o": (added + out + back, kept, block.rest, block.copy, block.copy),
            }
            found.extend((fates[letter], plan + letter) for letter in letters)
        states = []
        for state, plan in sorted(found):
            if not any(all(a <= b for a, b in zip(other, state, strict=True)) for other, _ in states):
                states.append((state, plan))
    return min((added + out + back, plan) for (added, _, _, out, back), plan in states)[1]


def offloading(chain: list[Block], budget: int) -> str:
    """The fastest has no wait where that is possible; then blocks stay, from the last one on, that need not leave."""
    plan = fastest(chain, budget, "ko")
    for number in reversed(range(len(chain))):
        fewer = plan[:number] + "k" + plan[number + 1 :]
        if peak(chain, fewer) <= budget:
            plan = fewer
    return plan
