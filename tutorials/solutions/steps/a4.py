"""A4, an allocator: what is handed in after each step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from refimpl import DoesNotFit
from refimpl.combined.fixed_pool import lives
from refimpl.combined.placing import Life
from refimpl.memory import Allocator, BestFit, FirstFit, FitPool, FreeList, Pool
from refimpl.slots.planner_only import PoolSearch
from tutorials.labs.a4_allocator import Placed
from tutorials.labs.lab import Case
from tutorials.labs.test_a4 import LAB as LAB
from tutorials.solutions.a4_allocator import ORDERS, ROOMY, TO_THE_FRONT, Key, allocator, by_bytes, in_turn

NETWORKS = {
    "lenet": (16, 96), "tiny-vgg": (8, 48), "tiny-inception": (24, 96), "alexnet": (48, 160), "vgg16": (12, 48),
    "overfeat": (32, 96), "googlenet": (12, 32), "tiny-unet": (8, 32), "tiny-convnext": (16, 48),
}  # fmt: skip
OTHERS = {
    "vgg11": (12, 48), "vgg16:vdnnpp": (12, 32), "alexnet:vdnnpp": (48, 160), "alexnet:superneurons": (48, 160),
    "lenet:vdnnpp": (16, 96), "vdnnpp-demo": (16, 48), "tiny-vit": (8, 32), "tiny-se": (8, 32),
    "tiny-vgg:gradients": (8, 48), "alexnet:gradients": (48, 160), "tiny-inception:superneurons": (24, 96),
    "tiny-convnext:gradients": (16, 48), "vgg11:positions": (12, 48),
}  # fmt: skip
PARTS = [f"{network} {around}" for network in (*NETWORKS, "another") for around in LAB.around]
DRAWS, NEED = 8, 0.05


def draw(part: str, numbers: random.Random) -> Case:
    network, around = part.split()
    name = numbers.choice([*OTHERS]) if network == "another" else network
    return Case(part, name, numbers.randint(*{**NETWORKS, **OTHERS}[name]), around=around)


# -- steps 1 to 3: rules -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule(Allocator):
    """Some blocks are taken off the right end, where there is room; the others by best fit."""

    right: Callable[[int, int, bool], bool] = lambda size, nbytes, stays: False
    name: ClassVar[str] = "a-rule"
    summary: ClassVar[str] = "some blocks at the right end"

    def open(self, size: int) -> Pool:
        return RulePool(size, self.granularity, self.right)


class RulePool(FitPool):
    def __init__(self, size: int, granularity: int, right: Callable[[int, int, bool], bool]) -> None:
        super().__init__(size, granularity, FreeList.smallest)
        self._right = right

    def _take(self, nbytes: int, stays: bool) -> int | None:
        return self._take_right(nbytes) if self._right(self.size, nbytes, stays) else super()._take(nbytes, stays)


STAYING = Rule(right=lambda size, nbytes, stays: stays)
SMALL = Rule(right=lambda size, nbytes, stays: nbytes < size // 32)
RULES = (BestFit(), FirstFit(), STAYING, SMALL)


@dataclass(frozen=True)
class Turns(Allocator, PoolSearch):
    """Several rules in turn."""

    rules: tuple[Allocator, ...] = ()
    name: ClassVar[str] = "some-rules"
    summary: ClassVar[str] = "several rules in turn"

    def open(self, size: int) -> Pool:
        return BestFit(self.granularity).open(size)

    def search(self, attempt: Callable[..., Any], budget: int, fixed_order: bool) -> Any:
        misfits: list[DoesNotFit] = []
        for rule in self.rules:
            try:
                return attempt(budget, allocator=rule)
            except DoesNotFit as error:
                misfits.append(error)
        raise misfits[0]


# -- steps 4 and 5: layouts --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout(Turns):
    """Four rules in turn, then the lowest layout from some orders, some rounds each."""

    keys: tuple[Key, ...] = (by_bytes,)
    rounds: int = 1
    rules: tuple[Allocator, ...] = RULES
    name: ClassVar[str] = "a-layout"
    summary: ClassVar[str] = "four rules, then the largest block first"

    def search(self, attempt: Callable[..., Any], budget: int, fixed_order: bool) -> Any:
        try:
            return super().search(attempt, budget, fixed_order)
        except DoesNotFit:
            roomy = attempt(ROOMY * budget, lag=0)
        known = lives(roomy.allocation_trace())
        found = [placed for key in self.keys for placed in layouts(known, key, self.rounds)]
        best = min(found, key=lambda placed: max(placed[block] + known[block].nbytes for block in known))
        return attempt(budget, lag=0, allocator=Placed.of(roomy, best))


def layouts(known: Mapping[int, Life], key: Key, rounds: int) -> Iterator[dict[int, int]]:
    order = sorted(known, key=lambda block: key(known[block]))
    for _ in range(rounds):
        yield (placed := in_turn(known, order))
        highest = max(order, key=lambda block: placed[block] + known[block].nbytes)
        order.remove(highest)
        order.insert(0, highest)


ZERO: dict[str, Any] = {"allocator": BestFit()}
FULL: dict[str, Any] = {"allocator": allocator}
STEPS: dict[str, dict[str, Any]] = {
    "two rules in turn": {"allocator": Turns(rules=RULES[:2])},
    "blocks that stay at one end": {"allocator": Turns(rules=RULES[:3])},
    "four rules in turn": {"allocator": Turns(rules=RULES)},
    "a layout, the largest first": {"allocator": Layout()},
    "the highest block to the front": {"allocator": Layout(rounds=TO_THE_FRONT)},
    "several orders": {"allocator": Layout(keys=ORDERS, rounds=TO_THE_FRONT)},
}
