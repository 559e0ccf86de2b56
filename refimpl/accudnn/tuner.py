"""The hyperparameter tuner: the minibatch that is most efficient within a budget, and the learning rate for it (R).

The abstracts say what is tuned and when: after the swapping strategy has been applied, the *efficiency-optimal
minibatch size* and the *matched learning rate*.  How is our reconstruction.

X(b) = b / T(b) images a second; T(b) is an iteration of b images as the policy plans it.  X rises with b while fixed
costs are shared by more images, flattens, and falls where copies no longer hide.  So the most efficient batch b* and
the largest that can be trained are different numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Literal, NamedTuple

Objective = Literal["single", "cluster"]

FACTOR = 1.12  #: from one batch tried to the next
BELOW, TIMES = 0.95, 3  #: X below this share of the best, this many times in a row: the knee is passed
PARTS = 64  #: around the best, batches are tried in steps of a 64th of it
AS_EFFICIENT = 0.99  #: of the highest X: as efficient


class Gradient(NamedTuple):
    """A weight's gradient in one iteration."""

    ready: float  #: seconds from the iteration's beginning until it is complete
    nbytes: int


@dataclass(frozen=True)
class Point:
    """One batch on the curve X(b).  Without `seconds` it does not fit."""

    batch: int
    seconds: float | None = None  #: an iteration, as planned
    stall_seconds: float = 0.0  #: of these, no kernel runs
    unlimited_seconds: float = 0.0  #: an iteration of the baseline with unlimited memory
    offloaded_bytes: int = 0
    peak_bytes: int = 0
    gradients: Sequence[Gradient] = field(default=(), repr=False)  #: when each is ready

    @property
    def images_a_second(self) -> float | None:
        return None if self.seconds is None else self.batch / self.seconds

    @property
    def slowdown(self) -> float | None:
        """Times the seconds with unlimited memory."""
        return None if self.seconds is None else self.seconds / self.unlimited_seconds


def fitting(
    curve: Sequence[Point], rate: Callable[[Point], float | None] = lambda one: one.images_a_second
) -> dict[int, float]:
    """Batch → images a second, of the batches that fit."""
    return {one.batch: found for one in curve if (found := rate(one)) is not None}


def search(measure: Callable[[int], Point], start: int) -> list[Point]:
    """The curve X(b), by batch: coarse steps up to the knee, then fine ones around the best.

    Args:
        measure: plans a batch; asked once for each.
        start: the smallest batch tried.  If it does not fit, the curve has this point alone.
    """
    curve: dict[int, Point] = {}
    batch, best, below = start, 0.0, 0
    while below < TIMES:
        curve[batch] = measure(batch)
        found = curve[batch].images_a_second
        if found is None:
            break
        best = max(best, found)
        below = below + 1 if found < BELOW * best else 0
        batch = max(batch + 1, int(batch * FACTOR))
    rates = fitting([*curve.values()])
    if rates:
        top, tried = max(rates, key=rates.__getitem__), sorted(curve)
        place = tried.index(top)
        low, high = tried[max(0, place - 1)], tried[min(len(tried) - 1, place + 1)]
        for batch in range(low, high, max(1, top // PARTS)):
            if batch not in curve:
                curve[batch] = measure(batch)
    return [curve[batch] for batch in sorted(curve)]


def optimum(rates: dict[int, float], objective: Objective = "single") -> int:
    """The efficiency-optimal batch: of those within 1 % of the highest X the smallest, on a cluster the largest.

    A smaller batch is better for accuracy; on a cluster a larger one synchronises less often.

    Args:
        rates: batch → images a second.
        objective: single or cluster.
    """
    highest = max(rates.values())
    as_efficient = [batch for batch, rate in rates.items() if rate >= AS_EFFICIENT * highest]
    return min(as_efficient) if objective == "single" else max(as_efficient)


# -- on the back of an envelope ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClosedForm:
    """The batch that a budget G allows, if F + μb bytes are needed and V of the μ bytes of an image are saved."""

    budget: float  #: G
    fixed: float  #: F: bytes whatever the batch
    per_image: float  #: μ: bytes of an image without the policy
    saved: float  #: V: bytes of an image that liveness frees or whose copies hide

    @property
    def without(self) -> float:
        """b0 = (G - F) / μ."""
        return (self.budget - self.fixed) / self.per_image

    @property
    def ratio(self) -> float:
        """b* / b0 = 1 / (1 - V/μ)."""
        return 1 / (1 - self.saved / self.per_image)

    @property
    def optimum(self) -> float:
        """b* = (G - F) / (μ - V)."""
        return self.without * self.ratio


# -- the learning rate -------------------------------------------------------------------------------------------------

WARMUP_EPOCHS = 5
LINEAR_UP_TO = 32  #: times the base batch; beyond, the rate grows with the square root


@dataclass(frozen=True)
class Learning:
    """The learning rate that matches a batch: the abstracts' "matched" does not say how, so this rule is ours.

    rate = rate0 · B / B0, which Goyal et al. 2017 found to hold for large minibatches, with their warm-up: the rate
    grows linearly from rate0 in the first 5 epochs.  Beyond B / B0 = 32 it grows with the square root.  Momentum and
    weight decay stay; the rate decays at the same *epochs*, which are other iterations.
    """

    global_batch: int  #: B: images of an iteration, of all workers together
    base_batch: int = 256  #: B0
    base_rate: float = 0.1  #: rate0
    images: int = 1_281_167  #: of an epoch: ImageNet's

    @property
    def scaling(self) -> Literal["linear", "square root"]:
        return "linear" if self.global_batch <= LINEAR_UP_TO * self.base_batch else "square root"

    @property
    def rate(self) -> float:
        """After the warm-up."""
        times = self.global_batch / self.base_batch
        return self.base_rate * (times if self.scaling == "linear" else sqrt(times))

    @property
    def warmup_epochs(self) -> int:
        """None are needed where the rate does not grow."""
        return WARMUP_EPOCHS if self.rate > self.base_rate else 0

    @property
    def iterations_an_epoch(self) -> int:
        return max(1, self.images // self.global_batch)


def warmed_up(rate: float, base_rate: float, warmup: float, done: float) -> float:
    """The rate after `done` epochs, or iterations, of which the first `warmup` raise it from `base_rate` linearly."""
    return rate if done >= warmup else base_rate + (rate - base_rate) * done / warmup
