"""The network of a PyTorch module at any batch, from descriptions at two.

A search plans a network at many batches, and a description of each takes seconds.  But the operators are the same, and
every axis of a shape, size in bytes and number of operations is fixed + batch · per image.  So two are enough: the
numbers of a third batch are on the lines through theirs.

Two descriptions that differ in anything else, or in a number that is on no such line, show that a module is not like
that: then every batch has one of its own.  So it is where the first batch that is derived has another one: a module may
ask for the batch and call other operators.  Batch 1 always has one, as PyTorch copies less where an axis has one
element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from refimpl.network.derived import described_again, of_layers
from refimpl.network.layer import Layer
from refimpl.network.network import Network
from refimpl.network.operation import Storage


class NotLinear(Exception):
    """Two networks are not the same one at two batches."""


class Batches:
    """A network at any batch: `Batches(build)(batch)`.

    Args:
        build: makes the network of a batch; of None, that of the batch that it has without being told.
    """

    def __init__(self, build: Callable[[int | None], Network]) -> None:
        self.linear = True  #: as far as is known
        self.compared = False  #: whether a derived network was compared with the one that `build` makes
        self.built: dict[int, Network] = {}  #: batch → the network that `build` made
        self._build = build

    def __call__(self, batch: int | None) -> Network:
        if batch in self.built:
            return self.built[batch]
        ends = [network for one, network in self.built.items() if one > 1]
        described: Network | None = None
        if batch not in (None, 1) and len(ends) == 2 and self.linear:
            try:
                found = derived(ends[0], ends[1], batch)
                if self.compared:
                    return found
                described = self._build(batch)
                self.compared = True
                derived(found, described, batch)  # on a line of one batch the two are alike
            except NotLinear:
                self.linear = False
        network = described or self._build(batch)
        if network.origins and batch in (None, network.batch) and (network.batch == 1 or len(ends) < 2):
            self.built[network.batch] = network
        return network


def derived(one: Network, other: Network, batch: int) -> Network:
    """The network of a batch, from the same one at two batches; raises `NotLinear`."""
    line = Line(one.batch, other.batch, batch)
    ours, theirs = (*one.data, *one.layers), (*other.data, *other.layers)
    line.same((one.name, one.conventions, one.learning), (other.name, other.conventions, other.learning))
    line.same(one.origins, other.origins)
    line.same(len(ours), len(theirs))
    again, numbers = described_again(ours), {layer: number for number, layer in enumerate(theirs)}
    places = {layer: number for number, layer in enumerate(ours)}

    def before(layer: Layer, places: Mapping[Layer, int]) -> list[int]:
        return [places[x] for x in (*layer.producers, *([layer.shares] if layer.shares else []))]

    for mine, its in zip(ours, theirs, strict=True):
        line.same((mine.name, mine.kind, mine.weight), (its.name, its.kind, its.weight))
        line.same((mine.has_relu, mine.own_bias), (its.has_relu, its.own_bias))
        line.same(before(mine, places), before(its, numbers))
        new = again[mine]
        new.shape, new.operation = line.shape(mine.shape, its.shape), line(mine.operation, its.operation)
        new.options, new.relu_options = line(mine.options, its.options), line(mine.relu_options, its.relu_options)
    return of_layers(one, again, one.learning)


class Line:
    """Values of a batch, from those of two others: numbers that grow with the batch, and all else alike.

    Args:
        one, other: the batches of the two values.
        batch: that of the value asked for.
    """

    def __init__(self, one: int, other: int, batch: int) -> None:
        self.one, self.other, self.batch = one, other, batch

    def same(self, mine: Any, its: Any) -> None:
        """Raise `NotLinear` where two values that must not depend on the batch are unlike."""
        if mine != its:
            raise NotLinear(f"{mine} with {self.one} images is {its} with {self.other}")

    def __call__(self, mine: Any, its: Any) -> Any:
        self.same(type(mine), type(its))
        if type(mine) is int:
            fixed, per_image = self.parts(mine, its)
            if per_image < 0 or (per_image and fixed < 0):
                raise NotLinear(f"{mine} with {self.one} images is {its} with {self.other}")
            return fixed + self.batch * per_image
        if isinstance(mine, (tuple, list)):
            self.same(len(mine), len(its))
            return type(mine)([self(*pair) for pair in zip(mine, its, strict=True)])
        if isinstance(mine, Mapping):
            self.same([*mine], [*its])
            return {key: self(value, its[key]) for key, value in mine.items()}
        if isinstance(mine, Storage):
            return Storage(self.shape(mine.shape, its.shape), self(mine.dtype, its.dtype))
        if is_dataclass(mine) and not isinstance(mine, type):
            pairs = {field.name: (getattr(mine, field.name), getattr(its, field.name)) for field in fields(mine)}
            return type(mine)(**{
                name: self.levels(*pair) if name.endswith("_levels") else self(*pair) for name, pair in pairs.items()
            })  # fmt: skip
        if hasattr(mine, "tolist"):  # an array
            self.same(mine.tolist(), its.tolist())
        else:
            self.same(mine, its)
        return mine

    def shape(self, mine: tuple[int, ...], its: tuple[int, ...]) -> Any:
        """A shape; where two axes grow, as in products of all images with all, the bytes are not on a line."""
        if sum(size != other for size, other in zip(mine, its, strict=False)) > 1:
            raise NotLinear(f"{mine} with {self.one} images is {its} with {self.other}")
        return self(mine, its)

    def levels(self, mine: tuple[int, ...], its: tuple[int, ...]) -> tuple[int, ...]:
        """Bytes after others were freed: more images may leave fewer of them."""
        self.same(len(mine), len(its))
        parts = [self.parts(*pair) for pair in zip(mine, its, strict=True)]
        return tuple(fixed + self.batch * per_image for fixed, per_image in parts)

    def parts(self, mine: int, its: int) -> tuple[int, int]:
        """The part of a number that is fixed, and that of an image."""
        if self.one == self.other:
            self.same(mine, its)
            return mine, 0
        per_image, rest = divmod(its - mine, self.other - self.one)
        self.same(rest, 0)
        return mine - self.one * per_image, per_image
