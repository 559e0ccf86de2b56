"""Where the numbers of a layer are in a tensor that a module or a file makes of them with views.

A view (`reshape`, `permute`, `chunk`, `flatten`, …) computes nothing: it arranges numbers that are there.  A translator
that looks for known sequences of views fails on the next module.  So views are *executed* instead, and afterwards the
result is asked: are these the maps in order?  Is the last axis all channels?  Which channel is number d of head h?

An array of indices would answer that, with 8 bytes for every number of every map.  But views keep regular steps, so an
axis is a few factors: `Factor(CHANNEL, 3, 64)` runs through channels 0, 64 and 128.  An axis of several factors counts
as a clock does, the last factor fastest.  A layer's numbers have three coordinates: image, channel, and position, which
counts through height and width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

IMAGE, CHANNEL, POSITION = range(3)


class Mixed(Exception):
    """A view whose result has no regular steps."""


class Factor(NamedTuple):
    """`size` places, each `step` further along one coordinate; a step of 0 repeats a number."""

    of: int  #: IMAGE, CHANNEL or POSITION
    size: int
    step: int


Axis = tuple[Factor, ...]


def merged(factors: Sequence[Factor]) -> Axis:
    """The same places in as few factors as possible."""
    made: list[Factor] = []
    for factor in factors:
        if factor.size == 1:
            continue
        if made and made[-1].of == factor.of and made[-1].step == factor.step * factor.size:
            made[-1] = Factor(factor.of, made[-1].size * factor.size, factor.step)
        else:
            made.append(factor)
    return tuple(made)


@dataclass(frozen=True)
class Arrangement:
    """The axes of a tensor, each as the places in a layer through which it runs."""

    axes: tuple[Axis, ...]
    start: tuple[int, int, int] = (0, 0, 0)  #: image, channel and position of the first number

    @classmethod
    def of(cls, shape: Sequence[int]) -> Arrangement:
        """A layer's numbers as they are: images, channels, and the axes of positions."""
        images, channels, *area = (*shape, 1, 1)[: max(2, len(shape))]
        steps = [prod(area[place + 1 :]) for place in range(len(area))]
        positions = [Factor(POSITION, size, step) for size, step in zip(area, steps, strict=True)]
        factors = Factor(IMAGE, images, 1), Factor(CHANNEL, channels, 1), *positions
        return cls(tuple(merged([factor]) for factor in factors))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(prod(factor.size for factor in axis) for axis in self.axes)

    def flat(self) -> tuple[Axis, tuple[int, int, int]]:
        """All axes as one: the numbers one after another."""
        return merged([factor for axis in self.axes for factor in axis]), self.start

    # -- views ---------------------------------------------------------------------------------------------------------

    def reshaped(self, shape: Sequence[int]) -> Arrangement:
        """The same numbers in the same order, with other axes."""
        left = [*self.flat()[0]]
        if prod(shape) != prod(self.shape):
            raise Mixed(f"{[*self.shape]} cannot be viewed as {[*shape]}")
        axes: list[Axis] = []
        for size in reversed(shape):
            axis: list[Factor] = []
            while size > 1:
                of, there, step = left.pop()
                here = min(size, there)
                if there % here or size % here:
                    raise Mixed(f"a view of {[*self.shape]} as {[*shape]} mixes its axes")
                axis.insert(0, Factor(of, here, step))
                if here < there:
                    left.append(Factor(of, there // here, step * here))
                size //= here
            axes.insert(0, merged(axis))
        return replace(self, axes=tuple(axes))

    def permuted(self, order: Sequence[int]) -> Arrangement:
        """The axes in another order."""
        return replace(self, axes=tuple(self.axes[axis] for axis in order))

    def part(self, axis: int, start: int, count: int) -> Arrangement:
        """`count` places of one axis, from `start` on."""
        factors, first, made = [*self.axes[axis]], [*self.start], list[Factor]()
        if count == self.shape[axis]:
            return self
        while factors:
            of, _, step = factors.pop(0)
            inner = prod(factor.size for factor in factors)
            if start % inner + count > inner and (start % inner or count % inner):
                raise Mixed(f"places {start} to {start + count} of axis {axis} of {[*self.shape]} mix its channels")
            first[of] += start // inner * step
            if count >= inner:
                made = [Factor(of, count // inner, step), *factors]
                break
            start %= inner
        axes = (*self.axes[:axis], merged(made), *self.axes[axis + 1 :])
        return Arrangement(axes, (first[0], first[1], first[2]))

    def expanded(self, shape: Sequence[int]) -> Arrangement:
        """Axes of one number repeated, and new ones before the others."""
        new = len(shape) - len(self.axes)
        axes = ((),) * new + self.axes
        made = []
        for axis, size in zip(axes, shape, strict=True):
            made.append((Factor(IMAGE, size, 0),) if not axis and size > 1 else axis)
        return replace(self, axes=tuple(made))

    # -- questions -----------------------------------------------------------------------------------------------------

    def factors(self, of: int, axes: Sequence[int] | None = None) -> Axis:
        """How these axes (None: all) run through images, channels or positions, the slowest first."""
        chosen = self.axes if axes is None else [self.axes[axis] for axis in axes]
        return tuple(factor for axis in chosen for factor in axis if factor.of == of)

    def numbers(self, axes: Sequence[int], image: int = 0, channel: int = 0, position: int = 0) -> np.ndarray:
        """The number of each place along these axes, counted through as one, if each coordinate counts so much."""
        counts = image, channel, position
        found = np.array([sum(first * count for first, count in zip(self.start, counts, strict=True))])
        for axis in axes:
            for of, size, step in self.axes[axis]:
                found = (found[:, None] + np.arange(size) * (step * counts[of])).reshape(-1)
        return found

    def runs_through(self, axis: int) -> set[int]:
        """What changes along an axis."""
        return {factor.of for factor in self.axes[axis]}

    def in_order(self, of: int, size: int, axes: Sequence[int] | None = None) -> bool:
        """Whether these axes (None: all) run through all images, channels or positions, of which there are `size`."""
        return self.start[of] == 0 and merged(self.factors(of, axes)) == merged([Factor(of, size, 1)])

    def range(self, of: int) -> tuple[int, int] | None:
        """First and number of the images, channels or positions that occur, each once; None: some are left out."""
        size = 1
        for _, times, step in sorted(self.factors(of), key=lambda factor: factor.step):
            if step != size:
                return None
            size *= times
        return self.start[of], size

    def with_axis(self, axis: int, *factors: Factor) -> Arrangement:
        """With another axis in that one's place."""
        return replace(self, axes=(*self.axes[:axis], merged(factors), *self.axes[axis + 1 :]))

    def begun(self, of: int) -> Arrangement:
        """With its first number at the first image, channel or position."""
        first = [*self.start]
        first[of] = 0
        return replace(self, start=(first[0], first[1], first[2]))
