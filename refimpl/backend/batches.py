"""Checks of what a user hands in, before anything runs: shapes, types, labels, NaN and infinity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from refimpl.backend.run_errors import BatchError, NotFinite
from refimpl.network import Network
from refimpl.text import counted

AXES = ("image", "channel", "row", "column")


def checked_images(network: Network, images: Any, whole: bool) -> np.ndarray:
    """Images as this network takes them: `whole` batches, or any number of images."""
    given = np.asarray(images)
    wanted = network.input.shape
    short = plain_shape(wanted)
    if len(short) <= given.ndim < len(wanted):  # rows of numbers are maps of 1×1
        given = given.reshape(given.shape + (1,) * (len(wanted) - given.ndim))
    fits = given.ndim == len(wanted) and given.shape[1:] == wanted[1:] and len(given) > 0
    if not fits or (whole and len(given) != wanted[0]):
        number = str(wanted[0]) if whole else "images"
        shape = ", ".join((number, *map(str, short[1:])))
        raise BatchError(f"images have the shape {np.shape(images)}; {network.name} takes ({shape})")
    if given.dtype != np.float32:
        raise BatchError(f"images are {given.dtype}; give float32: images.astype(numpy.float32)")
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(given.sum())  # a fifth of the time that looking at each number takes
    if suspicious and not (finite := np.isfinite(given)).all():
        first = [int(axis[0]) for axis in np.nonzero(~finite)]
        where = ", ".join(f"{name} {i}" for name, i in zip(AXES, first, strict=True))
        reader = next(layer.name for layer in network.layers if network.input in layer.inputs)
        count = int(finite.size - finite.sum())
        raise NotFinite(
            reader,
            f"images hold {numbers(count)}, the first at {where} ({given[tuple(first)]}); layer {reader} would be the "
            "first to show it; nothing has run: look at the data",
        )
    return given


def plain_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A batch's shape without axes of 1 at its end: that of rows of numbers is (images, numbers)."""
    end = len(shape)
    while end > 2 and shape[end - 1] == 1:
        end -= 1
    return shape[:end]


def checked_labels(network: Network, labels: Any, count: int) -> np.ndarray:
    """One class number an image, as int32."""
    given = np.asarray(labels)
    classes = network.predictions.shape[1]
    if given.shape != (count,):
        raise BatchError(
            f"labels have the shape {given.shape}; give one class number for each of {counted(count, 'image')}"
        )
    if not np.issubdtype(given.dtype, np.integer):
        raise BatchError(f"labels are {given.dtype}; give whole numbers, 0 to {classes - 1}")
    wrong = np.nonzero((given < 0) | (given >= classes))[0]
    if len(wrong):
        first = int(wrong[0])
        raise BatchError(
            f"label {given[first]} of image {first} is no class of {network.name}: there are 0 to {classes - 1}"
        )
    return given.astype(np.int32)


def whole_batches(images: np.ndarray, labels: np.ndarray, batch: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Batch by batch: images, labels, how many of them count.  The last one is filled up with zeros."""
    for first in range(0, len(images), batch):
        some, theirs = images[first : first + batch], labels[first : first + batch]
        count = len(some)
        if count < batch:
            some = np.concatenate([some, np.zeros((batch - count, *some.shape[1:]), some.dtype)])
            theirs = np.concatenate([theirs, np.zeros(batch - count, theirs.dtype)])
        yield some, theirs, count


def numbers(count: int) -> str:
    return "1 number that is not finite" if count == 1 else f"{count} numbers that are not finite"
