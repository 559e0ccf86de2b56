"""Training data: scikit-learn's digits, synthetic images of any shape, a user's own arrays, or a text.

Whatever the source, batch k of training follows from the source, the size of a batch and a seed alone: a run that is
resumed at iteration k sees exactly what it would have seen.

    data = digits()
    for images, labels in batches(data, batch=32, epoch=0):    # one epoch
        …
    images, labels = data.batch(32, iteration=417)             # one batch, from anywhere
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from refimpl import text
from refimpl.backend.npz import Damaged, read_arrays
from refimpl.backend.run_errors import DataError as DataError
from refimpl.backend.windows import SyntheticTokens
from refimpl.backend.windows import text_windows as text_windows  # data.text_windows
from refimpl.machine.here import memory_bytes
from refimpl.network import Network
from refimpl.network.kinds import Target
from refimpl.text import counted, one_line

#: Images, float32, (batch, channels, height, width); and labels, int32, (batch,) or (batch, height, width), or targets,
#: float32, of any shape.
Batch = tuple[np.ndarray, np.ndarray]
IGNORED = -100  #: the label of a pixel that does not count, as in PyTorch

TESTED = 5  #: one image of this number is kept for testing, where there are no test images
LARGEST_LABEL = 2**20


class DataWarning(UserWarning):
    """Data that can be trained on, but are probably not what was meant."""


class BatchSource(Protocol):
    """A source of batches."""

    def per_epoch(self, batch: int) -> int:
        """Full batches in one epoch."""

    def batch(self, batch: int, iteration: int, seed: int = 0) -> tuple[Any, Any]:
        """The batch of that iteration, counted from 0 through all epochs."""


def batches(source: BatchSource, batch: int, epoch: int = 0, seed: int = 0) -> Iterator[tuple[Any, Any]]:
    """One epoch's batches, shuffled by seed and epoch.  What fills no batch is left out, in each epoch others."""
    count = source.per_epoch(batch)
    for iteration in range(epoch * count, (epoch + 1) * count):
        yield source.batch(batch, iteration, seed)


# -- arrays ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Images and labels in memory, some to train on and some to test with.

    Of a network with several inputs or losses each is a tuple: an array for each of them (`named_data`).
    """

    train_images: Any  #: float32, (images, channels, height, width)
    train_labels: Any  #: int32, (images,) or (images, height, width); or targets, float32
    test_images: Any
    test_labels: Any
    classes: int  #: 0 where there are targets

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.train_images.shape[1:])

    @property
    def target(self) -> Target:
        if self.train_labels.dtype == np.float32:
            return "number"
        return "pixel" if self.label_shape else "image"

    @property
    def label_shape(self) -> tuple[int, ...]:
        return tuple(self.train_labels.shape[1:])

    @property
    def count(self) -> int:
        """Images to train on."""
        images = self.train_images
        return len(images[0] if isinstance(images, tuple) else images)

    def per_epoch(self, batch: int) -> int:
        if not 1 <= batch <= self.count:
            raise DataError(
                f"a batch of {batch} cannot be filled; there are {counted(self.count, 'image')} to train on"
            )
        return self.count // batch

    def batch(self, batch: int, iteration: int, seed: int = 0) -> tuple[Any, Any]:
        epoch, place = divmod(iteration, self.per_epoch(batch))
        chosen = shuffled(self.count, epoch, seed)[place * batch : (place + 1) * batch]
        return rows(self.train_images, chosen), rows(self.train_labels, chosen)


def rows(arrays: Any, chosen: np.ndarray) -> Any:
    """The images of these numbers, of an array or of each of several."""
    return tuple(array[chosen] for array in arrays) if isinstance(arrays, tuple) else arrays[chosen]


@lru_cache(maxsize=4)
def shuffled(count: int, epoch: int, seed: int) -> np.ndarray:
    """The order of the images in an epoch."""
    order = np.random.default_rng((seed, epoch)).permutation(count)
    order.flags.writeable = False
    return order


def digits(target: Target = "image", share: float | None = None) -> Data:
    """1,797 handwritten digits of 1×8×8, from scikit-learn; numbers from 0 to 1.

    A `share` of all is for testing (None: one in five).
    As labels a pixel every pixel of at least half the ink has its image's digit, and the others have 10; as targets
    the images themselves are to be computed again.
    """
    images, labels = _digits()
    if target == "number":
        return arrays(images, targets=images, share=share)
    if target == "pixel":
        every = np.where(images[:, 0] >= 0.5, labels[:, None, None], 10)
        return arrays(images, every, classes=11, share=share)
    return arrays(images, labels, classes=10, share=share)


@lru_cache(maxsize=1)
def _digits() -> tuple[np.ndarray, np.ndarray]:
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError("the digits come with scikit-learn, which is not installed: pip install scikit-learn")
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"  # importing the package takes a second
    *pixels, labels = np.loadtxt(file, delimiter=",", unpack=True)  # a row is 64 numbers up to 16, and the digit
    return np.transpose(pixels).reshape(-1, 1, 8, 8) / 16, labels.astype(int)


def arrays(
    images: Any,
    labels: Any = None,
    test_images: Any = None,
    test_labels: Any = None,
    classes: int | None = None,
    targets: Any = None,
    test_targets: Any = None,
    ignore_index: int = IGNORED,
    share: float | None = None,
) -> Data:
    """Data from arrays, checked.  Without test images one in five is drawn and kept for testing.

    Args:
        images: (images, channels, height, width), or rows of numbers.
        labels: the number of a class, one an image, or one a pixel.
        test_images: images that are not trained on.
        test_labels: their labels.
        classes: labels are 0 … classes - 1 (None: up to the largest that there is).
        targets: instead of labels, numbers that the network is to compute, of any shape.
        test_targets: those of the test images.
        ignore_index: the label of a pixel that does not count; it becomes `IGNORED`.
        share: of the images that is kept for testing (None: one in five).
    """
    _check_share(share)
    if share is not None and test_images is not None:
        raise DataError(f"there are test images, so no share of {share:g} of the others is kept for testing")
    if (labels is None) == (targets is None):
        raise DataError("give labels, which are whole numbers, or targets, which are not")
    if labels is None:
        labels, test_labels, what = targets, test_targets, "targets"
    else:
        what = "labels"
    images, labels = _checked(images, labels, "", what, ignore_index)
    if (test_images is None) != (test_labels is None):
        raise DataError(f"test images and test {what} come together: give both, or neither")
    if test_images is None:
        trained, tested = held_back(len(images), share)
        images, test_images = images[trained], images[tested]
        labels, test_labels = labels[trained], labels[tested]
    else:
        test_images, test_labels = _checked(test_images, test_labels, "test ", what, ignore_index)
        for name, test, others in (("images", test_images, images), (what, test_labels, labels)):
            if test.shape[1:] != others.shape[1:]:
                raise DataError(f"test {name} are {_by(test.shape[1:])}, the others {_by(others.shape[1:])}")
    _doubt_axes(images.shape[1:])
    if what == "targets":
        return Data(images, labels, test_images, test_labels, 0)
    found = np.union1d(labels, test_labels)
    found = found[found != IGNORED]  # no label of an image is
    largest = int(found[-1]) if len(found) else 0
    if classes is None:
        classes = largest + 1
        _doubt_labels(found, classes)
    elif largest >= classes:
        raise DataError(f"there is a label {largest}; with {counted(classes, 'class')} they are 0 … {classes - 1}")
    elif classes > LARGEST_LABEL:
        raise DataError(f"there are {classes} classes; give at most {LARGEST_LABEL}")
    return Data(images, labels, test_images, test_labels, classes)


def _check_share(share: float | None) -> None:
    if share is not None and not 0 < share < 1:
        raise DataError(f"a share of {share:g} of the images cannot be kept for testing; give one between 0 and 1")


def held_back(images: int, share: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the images to train on, and of those to test with: a share of all (None: one in five)."""
    _check_share(share)
    if images < 2:
        raise DataError("one image cannot be split; give at least 2, or test images of their own")
    order = np.random.default_rng(0).permutation(images)
    count = images // TESTED if share is None else round(images * share)
    tested, trained = np.split(order, [min(max(1, count), images - 1)])
    return trained, tested


def _doubt_labels(found: np.ndarray, classes: int) -> None:
    """Warn of labels that leave many of the network's outputs without an image."""
    if not len(found):
        raise DataError("every pixel's label is the one that does not count")
    if found[0] > 0:
        shift = f"; labels - {found[0]} would make {classes - found[0]}" if len(found) > 1 else ""
        what = f"labels are {found[0]} to {found[-1]}, and classes are counted from 0: {classes} outputs{shift}"
        warnings.warn(what, DataWarning, stacklevel=4)
    elif len(found) * 2 < classes:
        unused = f"{classes - len(found)} of {classes} outputs without an image"
        what = f"labels have {counted(len(found), 'value')} up to {found[-1]}: {unused}"
        warnings.warn(what, DataWarning, stacklevel=4)


def _doubt_axes(shape: tuple[int, ...]) -> None:
    """Warn of images whose channels seem to be their last axis."""
    if shape[2] <= 4 < min(shape[:2]):
        read = f"{counted(shape[0], 'channel')} of {_by(shape[1:])}"
        what = (
            f"images of {_by(shape)} are read as {read}; if they are height × width × channels, save "
            "images.transpose(0, 3, 1, 2)"
        )
        warnings.warn(what, DataWarning, stacklevel=4)


def _checked(images: Any, labels: Any, which: str, what: str, ignore_index: int) -> Batch:
    """Images as float32, and labels as int32 or targets as float32, or an error that says what they are."""
    images, labels = np.asarray(images), np.asarray(labels)
    _check_shapes(images, labels, which, what)
    images = _finite(f"{which}images", images)
    images = images.reshape((*images.shape, 1, 1)[:4])  # rows of numbers are maps of 1×1
    if what == "targets":
        return images, _finite(f"{which}targets", labels)
    if labels.ndim > 1:
        labels = np.where(labels == ignore_index, IGNORED, labels)
    counting = labels[labels != IGNORED] if labels.ndim > 1 else labels
    if counting.size and counting.min() < 0:
        raise DataError(f"{which}labels go down to {counting.min()}; classes are counted from 0")
    if counting.size and counting.max() > LARGEST_LABEL:
        raise DataError(f"{which}labels go up to {counting.max()}; give at most {LARGEST_LABEL}")
    return images, np.ascontiguousarray(labels, np.int32)


def _finite(what: str, numbers: np.ndarray) -> np.ndarray:
    """Numbers as float32, none of them NaN or infinite."""
    with np.errstate(all="ignore"):  # a float64 that float32 does not reach becomes infinite, and is found below
        numbers = np.ascontiguousarray(numbers, np.float32)
    bad = ~np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1)
    if bad.any():
        where = f"in {counted(bad.sum(), 'image')}, first in number {bad.argmax()}"
        raise DataError(f"{what} have NaN or infinite numbers {where}")
    return numbers


def _check_shapes(images: Any, labels: Any, which: str, what: str = "labels") -> None:
    """Refuse arrays, or headers of arrays that are not read yet, of a wrong type or shape."""
    shape = images.shape
    if not np.issubdtype(images.dtype, np.floating):
        raise DataError(f"{which}images are {images.dtype}; give float32, as in images.astype(np.float32) / 255")
    if len(shape) not in (2, 4):
        way = "; one channel is added by images[:, None]" if len(shape) == 3 else ", or rows of numbers"
        raise DataError(f"{which}images are {_by(shape)}; give (images, channels, height, width){way}")
    if 0 in shape:
        raise DataError(f"{which}images are {_by(shape)}: there is nothing in them")
    if what == "targets":
        if labels.shape[:1] != shape[:1] or 0 in labels.shape:
            raise DataError(f"{which}targets are {_by(labels.shape)}; give some for each of {shape[0]} images")
        if not np.issubdtype(labels.dtype, np.floating):
            raise DataError(f"{which}targets are {labels.dtype}; give float32, or labels if they are classes")
        return
    if labels.shape[:1] != shape[:1] or len(labels.shape) not in (1, 3) or 0 in labels.shape:
        pixels = ", or one a pixel, (images, height, width)" * (len(labels.shape) > 1)
        raise DataError(f"{which}labels are {_by(labels.shape)}; give one number an image, ({shape[0]},){pixels}")
    if not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{which}labels are {labels.dtype}; give whole numbers, as in labels.astype(np.int32)")


def _by(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a single number"


# -- files -------------------------------------------------------------------------------------------------------------

#: What an .npz may hold; it must have images, and labels or targets.
KEYS = (
    "images", "labels", "targets", "test_images", "test_labels", "test_targets", "classes", "ignore_index",
)  # fmt: skip
NUMBERS = ("classes", "ignore_index")  #: those that are one whole number each
SAVE = "numpy.savez(path, images=…, labels=…)"


def load_npz(path: str | Path, validation: str | Path | float | None = None) -> Data:
    """Data from a file that `numpy.savez(path, images=…, labels=…)` wrote; see `KEYS` and `arrays`.

    Args:
        path: the file.
        validation: a file whose images are the test images, or the share of the images that they are (None: those of
            the file, or else one in five).
    """
    found = _arrays_of(path)
    share = validation if isinstance(validation, float) else None
    if validation is not None and share is None:
        other = _arrays_of(str(validation))
        if "test_images" in found:
            raise DataError(f"{path} has test images, and {validation} others: leave out one of them")
        names = {f"test_{name}": name for name in ("images", "labels", "targets") if name in other}
        found |= {test: other[name] for test, name in names.items()}
    try:
        return arrays(**found, share=share)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _arrays_of(path: str | Path) -> dict[str, Any]:
    """What a file holds of `KEYS`."""
    held = raw_arrays(path)
    missing = [key for key in KEYS[: 1 if "targets" in held else 2] if key not in held]
    if missing:
        there = ", ".join(held) or "nothing"
        raise DataError(f"{path} has no {' and no '.join(missing)}, only {there}; save with {SAVE}")
    for name in NUMBERS:
        number = held.get(name)
        if number is not None and (number.shape != () or not np.issubdtype(number.dtype, np.integer)):
            raise DataError(f"{path}: {name} is {number.dtype} of shape {number.shape}, not a whole number")
    return {key: int(held[key]) if key in NUMBERS else held[key] for key in KEYS if key in held}


def raw_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Everything that an .npz file holds, by name."""
    try:
        with text.opened(path, sys.maxsize) as file:
            magic = file.read(6)
        if magic == b"\x93NUMPY":
            raise DataError(f"{path} holds a single array; save both: {SAVE}")
        if magic[:2] != b"PK":
            raise DataError(f"{path} is not an .npz file; create one with {SAVE}")
        return {one_line(name): array for name, array in read_arrays(path, memory_bytes()).items()}
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except Damaged as error:
        raise DataError(f"{path} cannot be read as .npz: {error}") from None


# -- synthetic ---------------------------------------------------------------------------------------------------------

PATCHES = 4  #: a class's pattern is this many patches high and wide


@dataclass(frozen=True)
class Synthetic:
    """Images drawn on request: noise over a coarse pattern, one a class, so that they can be learnt.

    There is no end to them and nothing is stored: `batches` only says how many make an epoch.  With a label a pixel
    every patch has a class of its own.  Targets are the pattern of an image's class, of as many channels, rows and
    columns as `label_shape` says; of probabilities, where it is above 0.
    """

    shape: tuple[int, ...]
    classes: int = 10
    batches: int = 100
    seed: int = 0
    target: Target = "image"
    label_shape: tuple[int, ...] = ()
    shares: bool = False  #: whether targets are probabilities

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise DataError(f"a synthetic image is {_by(self.shape)}; give (channels, height, width)")
        if self.classes < 1 or self.batches < 1:
            raise DataError(f"{self.classes} classes, {self.batches} batches: give at least one of each")

    def per_epoch(self, batch: int) -> int:
        return self.batches

    def batch(self, batch: int, iteration: int, seed: int = 0) -> Batch:
        random = np.random.default_rng((self.seed, seed, iteration))
        labels = random.integers(0, self.classes, batch, np.int32)
        images = random.standard_normal((batch, *self.shape), np.float32)
        if self.target == "pixel":
            patches = random.integers(0, self.classes, (batch, PATCHES, PATCHES), np.int32)
            colours = np.stack([self.pattern(label)[:, 0, 0] for label in range(self.classes)], axis=1)
            for image, classes in zip(images, patches, strict=True):
                image += stretched(colours[:, classes], self.shape[1:])
            return images, stretched(patches, self.label_shape)
        self._add_patterns(images, labels)
        return images, labels if self.target == "image" else self.targets(labels)

    def of_classes(self, labels: np.ndarray, iteration: int, seed: int = 0) -> np.ndarray:
        """Images of given classes, of a batch."""
        random = np.random.default_rng((self.seed, seed, iteration))
        images = random.standard_normal((len(labels), *self.shape), np.float32)
        self._add_patterns(images, labels)
        return images

    def _add_patterns(self, images: np.ndarray, labels: np.ndarray) -> None:
        for image, label in zip(images, labels, strict=True):
            image += stretched(self.pattern(int(label)), self.shape[1:])

    def targets(self, labels: np.ndarray) -> np.ndarray:
        """The patterns of these classes, or where they are above 0."""
        shape = (*self.label_shape, 1, 1)[: max(3, len(self.label_shape))]
        wanted = np.stack([stretched(self.pattern(int(label), shape[0]), shape[1:]) for label in labels])
        return (np.float32(wanted > 0) if self.shares else wanted).reshape(len(labels), *self.label_shape)

    def pattern(self, label: int, channels: int | None = None) -> np.ndarray:
        """A class's pattern, before it is stretched: (channels, `PATCHES`, `PATCHES`)."""
        random = np.random.default_rng((self.seed, 1 << 20, label))
        return random.standard_normal((channels or self.shape[0], PATCHES, PATCHES), np.float32)


def stretched(patches: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Patches as large as needed to fill maps of this height and width."""
    rows, columns = (np.arange(size) * PATCHES // size for size in shape)
    return patches[..., rows[:, None], columns]


def synthetic(shape: tuple[int, ...], classes: int = 10, batches: int = 100, seed: int = 0) -> Synthetic:
    """A source of synthetic images of (channels, height, width); only the requested batch is ever made."""
    return Synthetic(tuple(shape), classes, batches, seed)


def synthetic_for(network: Network, seed: int = 0) -> Synthetic | SyntheticTokens:
    """Synthetic images or windows of tokens, and the labels that this network's loss compares with."""
    if network.input.dtype == "int32":
        return SyntheticTokens.of(network, seed)
    output, shape = network.output, network.input.shape[1:]
    if output.loss.target == "image":
        return synthetic(shape, output.classes, seed=seed)
    labels = tuple(output.labels.shape[1:])
    classes = output.classes if output.loss.target == "pixel" else 10
    return Synthetic(tuple(shape), classes, 100, seed, output.loss.target, labels, output.loss.shares)
