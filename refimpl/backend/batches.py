"""Checks of what a user hands in, before anything runs: shapes, types, labels, NaN and infinity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from refimpl.backend.run_errors import BatchError, NotFinite
from refimpl.network import Network, Output, Tensor
from refimpl.text import counted

AXES = ("image", "channel", "row", "column")
TOKEN_AXES = ("window", "token")


def checked_batch(network: Network, images: Any, labels: Any, whole: bool) -> list[np.ndarray]:
    """An array for each of `network.given`, as this network takes them.

    Args:
        network: of one input, or of several.
        images: of its input; of several inputs a tuple.
        labels: of all its losses, or a tuple with those of each.
        whole: whether they are a whole batch; otherwise any number of images will do.
    """
    inputs = _several("images", images, len(network.inputs), f"inputs of {network.name}")
    found = [
        (checked_tokens if x.dtype == "int32" else checked_images)(network, one, whole, x)
        for one, x in zip(inputs, network.inputs, strict=True)
    ]
    if len({len(one) for one in found}) > 1:
        counts = " and ".join(str(len(one)) for one in found)
        raise BatchError(f"there are {counts} {network.example}s; give as many to each input")
    outputs = network.outputs
    several = isinstance(labels, tuple | list) and len(outputs) > 1
    each = _several("labels", labels, len(outputs), f"losses of {network.name}") if several else [labels] * len(outputs)
    return found + [
        checked_labels(network, one, len(found[0]), output) for one, output in zip(each, outputs, strict=True)
    ]


def _several(what: str, given: Any, count: int, of: str) -> Sequence[Any]:
    """One for each: what is given, or for a single one what is given alone."""
    if count == 1:
        return [given]
    if not isinstance(given, tuple | list) or len(given) != count:
        raise BatchError(f"{what} are no tuple of {count} arrays; give one for each of the {count} {of}")
    return given


def checked_tokens(network: Network, tokens: Any, whole: bool, x: Tensor) -> np.ndarray:
    """Windows of tokens, int32, each a word that every embedding knows which reads this input."""
    given, wanted, words = np.asarray(tokens), x.shape, network.words(x)
    if given.ndim != 2 or given.shape[1:] != wanted[1:] or not len(given) or (whole and len(given) != wanted[0]):
        number = str(wanted[0]) if whole else "windows"
        raise BatchError(f"tokens have the shape {given.shape}; {network.name} takes ({number}, {wanted[1]})")
    if not np.issubdtype(given.dtype, np.integer):
        raise BatchError(f"tokens are {given.dtype}; give whole numbers: tokens.astype(numpy.int32)")
    wrong = (given < 0) | (given >= words)
    if wrong.any():
        first = [int(axis[0]) for axis in np.nonzero(wrong)]
        where = _where(first, TOKEN_AXES)
        raise BatchError(f"{given[tuple(first)]} at {where} is no token of {network.name}: there are 0 to {words - 1}")
    return given.astype(np.int32)


def checked_images(network: Network, images: Any, whole: bool, x: Tensor) -> np.ndarray:
    """Images as this input takes them: `whole` batches, or any number of images."""
    given, wanted = np.asarray(images), x.shape
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
    if suspicious:
        reader = next(layer.name for layer in network.layers if x in layer.inputs)
        _refuse_not_finite("images", given, reader)
    return given


def _refuse_not_finite(what: str, given: np.ndarray, reader: str) -> None:
    """Raise `NotFinite` if a number is NaN or infinity; `reader` names the layer that would show it."""
    finite = np.isfinite(given)
    if finite.all():
        return
    first = [int(axis[0]) for axis in np.nonzero(~finite)]
    where = _where(first)
    count = int(finite.size - finite.sum())
    raise NotFinite(
        reader,
        f"{what} hold {numbers(count)}, the first at {where} ({given[tuple(first)]}); layer {reader} would be the "
        "first to show it; nothing has run: look at the data",
    )


def _where(place: Sequence[int], axes: Sequence[str] = ()) -> str:
    """The place of a number in a batch: of an image's, of a pixel's or of one in a map."""
    axes = axes or ((AXES[0], *AXES[2:]) if len(place) == 3 else AXES)
    return ", ".join(f"{name} {i}" for name, i in zip(axes, place, strict=False))


def plain_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A batch's shape without axes of 1 at its end: that of rows of numbers is (images, numbers)."""
    end = len(shape)
    while end > 2 and shape[end - 1] == 1:
        end -= 1
    return shape[:end]


def checked_labels(network: Network, labels: Any, count: int, output: Output) -> np.ndarray:
    """One class number an image or a pixel, as int32; or targets, float32."""
    given = np.asarray(labels)
    if output.loss.target == "number":
        return _checked_targets(output, given, count)
    if output.loss.target == "pixel":
        return _checked_pixels(network, output, given, count)
    classes = output.classes
    if given.shape != (count,):
        raise BatchError(
            f"labels have the shape {given.shape}; give one class number for each of {counted(count, network.example)}"
        )
    if not np.issubdtype(given.dtype, np.integer):
        raise BatchError(f"labels are {given.dtype}; give whole numbers, 0 to {classes - 1}")
    wrong = np.nonzero((given < 0) | (given >= classes))[0]
    if len(wrong):
        first = int(wrong[0])
        raise BatchError(
            f"label {given[first]} of {network.example} {first} is no class of {network.name}: there are 0 to "
            f"{classes - 1}"
        )
    return given.astype(np.int32)


def _checked_pixels(network: Network, output: Output, given: np.ndarray, count: int) -> np.ndarray:
    classes, ignored, wanted = output.classes, output.ignore_index, (count, *output.labels.shape[1:])
    if given.shape == plain_shape(wanted):  # of tokens
        given = given.reshape(wanted)
    if given.shape != wanted:
        each = wanted if network.place == "pixel" else plain_shape(wanted)
        raise BatchError(f"labels have the shape {given.shape}; give one class number a {network.place}, {each}")
    if not np.issubdtype(given.dtype, np.integer):
        raise BatchError(f"labels are {given.dtype}; give whole numbers, 0 to {classes - 1}")
    counts = given != ignored
    wrong = counts & ((given < 0) | (given >= classes))
    if wrong.any():
        first = [int(axis[0]) for axis in np.nonzero(wrong)]
        raise BatchError(
            f"label {given[tuple(first)]} at {_where(first, TOKEN_AXES if network.place == 'token' else ())} is no "
            f"class of {network.name}: there are 0 to {classes - 1}, and {ignored} for a {network.place} that does not "
            "count"
        )
    if not counts.any():
        raise BatchError(f"every label is {ignored}, which does not count: there is nothing to learn from this batch")
    return given.astype(np.int32)


def _checked_targets(output: Output, given: np.ndarray, count: int) -> np.ndarray:
    """A number for each that the network computes."""
    layer, wanted = output.layer, (count, *output.labels.shape[1:])
    without_ones = [tuple(size for size in shape[1:] if size != 1) for shape in (given.shape, wanted)]
    if given.shape[:1] != wanted[:1] or without_ones[0] != without_ones[1]:
        raise BatchError(f"targets have the shape {given.shape}; {layer} compares with {wanted}")
    if not np.issubdtype(given.dtype, np.floating):
        raise BatchError(f"targets are {given.dtype}; give float32: targets.astype(numpy.float32)")
    given = given.reshape(wanted).astype(np.float32, copy=False)
    _refuse_not_finite("targets", given, layer.name)
    if output.loss.shares and not (0 <= given.min() and given.max() <= 1):
        raise BatchError(f"targets go from {given.min():g} to {given.max():g}; {layer} takes probabilities, 0 to 1")
    return given


def counting(output: Output, labels: np.ndarray) -> np.ndarray:
    """Which of these labels count."""
    return np.ones(labels.shape, bool) if output.ignore_index is None else labels != output.ignore_index


def whole_batches(
    arrays: Sequence[np.ndarray], batch: int, fillings: Sequence[int]
) -> Iterator[tuple[list[np.ndarray], int]]:
    """Batch by batch: a part of every array, and its number of images.  The last parts are filled up by `fillings`."""
    for first in range(0, len(arrays[0]), batch):
        parts = [array[first : first + batch] for array in arrays]
        count = len(parts[0])
        if count < batch:
            more = [
                np.full((batch - count, *part.shape[1:]), filling, part.dtype)
                for part, filling in zip(parts, fillings, strict=True)
            ]
            parts = [np.concatenate(both) for both in zip(parts, more, strict=True)]
        yield parts, count


def numbers(count: int) -> str:
    return "1 number that is not finite" if count == 1 else f"{count} numbers that are not finite"
