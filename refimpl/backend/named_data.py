"""Training data of networks with several inputs or losses: an array for each, by its name.

    numpy.savez("mine.npz", images=…, other=…, digit=…, mask=…)

An input's array has the input's name (the first may be `images`), and a loss's labels or targets have the name of its
layer.  Losses that compare with the same ones may have a single array, `labels` or `targets`.  The names of what is
tested with, and not trained on, begin with `test_`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from refimpl.backend.batches import checked_batch
from refimpl.backend.data import Data, Synthetic, held_back, raw_arrays, rows
from refimpl.backend.run_errors import BatchError, DataError, NotFinite
from refimpl.network import Network, Output

Arrays = tuple[np.ndarray, ...]
TEST = "test_"


def names_of(network: Network) -> tuple[list[str], list[str]]:
    """The names of a network's inputs and of its losses, as data files have them."""
    return [x.name for x in network.inputs], [one.layer.name for one in network.outputs]


def as_given(arrays: Sequence[np.ndarray]) -> Any:
    """What a trainer takes: an array alone, or a tuple of several."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def named_npz(network: Network, path: str | Path, validation: str | Path | float | None = None) -> Data:
    """Data for this network from a file; see `load_npz`.

    Args:
        network: of several inputs, or of several losses.
        path: the file.
        validation: a file whose images are the test images, or the share of the images that they are.
    """
    found = raw_arrays(path)
    share = validation if isinstance(validation, float) else None
    has_tests = any(name.startswith(TEST) for name in found)
    inputs, labels = _checked(network, found, str(path))
    if validation is not None and has_tests:
        raise DataError(f"{path} has test images of its own, and validation= gives others: leave out one of them")
    if validation is not None and share is None:
        tested = _checked(network, raw_arrays(str(validation)), str(validation))
    elif has_tests:
        tests = {name.removeprefix(TEST): array for name, array in found.items() if name.startswith(TEST)}
        tested = _checked(network, tests, f"{path}, {TEST}…")
    else:
        try:
            trained_ones, tested_ones = held_back(len(inputs[0]), share)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        tested = rows(inputs, tested_ones), rows(labels, tested_ones)
        inputs, labels = rows(inputs, trained_ones), rows(labels, trained_ones)
    return Data(as_given(inputs), as_given(labels), as_given(tested[0]), as_given(tested[1]), classes=0)


def _checked(network: Network, found: Mapping[str, np.ndarray], where: str) -> tuple[Arrays, Arrays]:
    """The arrays of all inputs and of all losses, as the network takes them."""
    inputs, losses = names_of(network)
    aliases = {inputs[0]: ("images",), **{loss: ("labels", "targets") for loss in losses if _shared(network)}}
    chosen, missing = [], []
    for name in (*inputs, *losses):
        there = [one for one in (name, *aliases.get(name, ())) if one in found]
        missing += [] if there else [name]
        chosen += [found[there[0]]] if there else []
    if missing:
        held = ", ".join(found) or "nothing"
        both = f"{', '.join(inputs)} for the inputs and {', '.join(losses)} for the losses"
        raise DataError(f"{where} has no {' and no '.join(missing)}, only {held}; {network.name} takes {both}")
    wanted = [*network.inputs, *(one.labels for one in network.outputs)]
    arrays = [_as_float(array, x.dtype) for array, x in zip(chosen, wanted, strict=True)]
    count = len(inputs)
    try:
        made = checked_batch(network, as_given(arrays[:count]), as_given(arrays[count:]), whole=False)
    except (BatchError, NotFinite) as error:
        raise DataError(f"{where}: {error}") from None
    return tuple(made[:count]), tuple(made[count:])


def _shared(network: Network) -> bool:
    """Whether all losses compare with the same labels."""
    return len({(one.loss.target, one.labels.shape) for one in network.outputs}) == 1


def _as_float(array: np.ndarray, dtype: str) -> np.ndarray:
    """Fractions as float32, where these are wanted."""
    fractions = dtype == "float32" and np.issubdtype(array.dtype, np.floating)
    with np.errstate(all="ignore"):  # what float32 does not reach becomes infinite, and is found by the checks
        return array.astype(np.float32, copy=False) if fractions else array


@dataclass(frozen=True)
class NamedSynthetic:
    """Images for every input, drawn on request: noise over the pattern of an image's class, as `Synthetic` has them.

    Every loss's labels follow from that class: the class itself, on every pixel where there is a label a pixel, or the
    class's pattern as targets.
    """

    inputs: tuple[Synthetic, ...]
    outputs: tuple[Output, ...]

    @classmethod
    def of(cls, network: Network, seed: int = 0) -> NamedSynthetic:
        """For a network."""
        if any(x.dtype == "int32" for x in network.inputs):
            raise DataError(f"{network.name} reads tokens and more: give --data FILE.npz with an array for each input")
        classes = max([one.classes for one in network.outputs if one.loss.target != "number"], default=10)
        shapes = [tuple(x.shape[1:]) for x in network.inputs]
        return cls(
            tuple(Synthetic(shape, classes, seed=seed + place) for place, shape in enumerate(shapes)), network.outputs
        )

    def per_epoch(self, batch: int) -> int:
        """How many batches are called an epoch: there is no end to them."""
        return self.inputs[0].per_epoch(batch)

    def batch(self, batch: int, iteration: int, seed: int = 0) -> tuple[Any, Any]:
        """The batch of that iteration."""
        first = self.inputs[0]
        images, classes = first.batch(batch, iteration, seed)
        others = [one.of_classes(classes, iteration, seed) for one in self.inputs[1:]]
        return as_given([images, *others]), as_given([self._labels(one, classes) for one in self.outputs])

    def _labels(self, output: Output, classes: np.ndarray) -> np.ndarray:
        shape = tuple(output.labels.shape[1:])
        if output.loss.target == "number":
            source = Synthetic(
                self.inputs[0].shape, self.inputs[0].classes, 100, self.inputs[0].seed, "number", shape,
                output.loss.shares,
            )  # fmt: skip
            return source.targets(classes)
        own = (classes % output.classes).astype(np.int32)
        every: np.ndarray = np.broadcast_to(own.reshape(-1, *(1 for _ in shape)), (len(own), *shape)).copy()
        return every
