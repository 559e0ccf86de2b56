"""Data: batches follow from the seed alone, sources keep their promises, and what cannot be trained on is refused."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.backend.data import IGNORED, BatchSource, Synthetic, arrays, batches, digits, load_npz, synthetic
from refimpl.backend.data import _digits as digits_once
from refimpl.backend.run_errors import DataError
from tests.messages import raises_naming


def small(count: int = 20, classes: int = 3, shape: tuple[int, int, int] = (2, 3, 4)) -> tuple[np.ndarray, np.ndarray]:
    """Images that are all different: each holds its own number everywhere."""
    images = np.broadcast_to(np.arange(count, dtype=np.float32)[:, None, None, None], (count, *shape)).copy()
    return images, (np.arange(count) % classes).astype(np.int32)


# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [arrays(*small()), Synthetic((2, 3, 4), classes=3, batches=4)])
def test_batches_are_what_a_network_takes_and_a_resumed_run_sees_the_same(source: BatchSource) -> None:
    run = [batch for epoch in range(3) for batch in batches(source, 5, epoch, seed=7)]
    assert len(run) == 3 * source.per_epoch(5)
    for iteration, (images, labels) in enumerate(run):
        assert images.shape == (5, 2, 3, 4) and images.dtype == np.float32 and images.flags.c_contiguous
        assert labels.shape == (5,) and labels.dtype == np.int32 and 0 <= labels.min() and labels.max() < 3
        again = source.batch(5, iteration, seed=7)
        assert again[0].tobytes() == images.tobytes() and again[1].tobytes() == labels.tobytes()


@given(count=st.integers(2, 60), batch=st.integers(1, 20), epoch=st.integers(0, 3), seed=st.integers(0, 5))
def test_an_epoch_shows_no_image_twice_and_each_with_its_label(count: int, batch: int, epoch: int, seed: int) -> None:
    data = arrays(*small(count))
    if batch > len(data.train_images):
        with raises_naming(DataError, batch, len(data.train_images)):
            data.batch(batch, 0)
        return
    shown = []
    for images, labels in batches(data, batch, epoch, seed):
        shown += (numbers := images[:, 0, 0, 0].astype(int)).tolist()
        assert (numbers % 3 == labels).all()
    assert len(shown) == len(set(shown)) == data.per_epoch(batch) * batch
    assert set(shown) <= {int(image[0, 0, 0]) for image in data.train_images}
    assert len(data.train_images) - len(shown) < batch


# -- sources -----------------------------------------------------------------------------------------------------------


def test_the_digits_are_what_the_loss_compares_with() -> None:
    """A class an image, a class a pixel (10 is the background), or the image itself."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed, and the digits come with it")
    data, pixels, numbers = (digits(target=target) for target in ("image", "pixel", "number"))
    assert (data.classes, pixels.classes, data.shape, pixels.label_shape) == (10, 11, (1, 8, 8), (8, 8))
    assert len(data.train_images) + len(data.test_images) == 1797 and len(data.test_images) == 1797 // 5
    assert data.train_images.min() == 0 and data.train_images.max() == 1 and set(data.test_labels) == set(range(10))
    trained = {image.tobytes() for image in data.train_images}
    assert not any(image.tobytes() in trained for image in data.test_images)
    assert [one.train_images.tobytes() for one in (pixels, numbers)] == [data.train_images.tobytes()] * 2
    np.testing.assert_array_equal(numbers.train_labels, data.train_images)
    ink = data.train_images[:, 0] >= 0.5
    every = np.broadcast_to(data.train_labels[:, None, None], ink.shape)
    np.testing.assert_array_equal(pixels.train_labels, np.where(ink, every, 10))


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refimpl.backend.data.find_spec", lambda name: None)
    digits_once.cache_clear()
    with raises_naming(DataError, "scikit-learn"):
        digits()


def test_synthetic_images_can_be_told_apart() -> None:
    """The nearest pattern names the class: a network has something to learn."""
    source = synthetic((3, 12, 16), classes=5, seed=2)
    images, labels = source.batch(64, 0)
    patterns = np.stack([source.pattern(label).repeat(3, axis=1).repeat(4, axis=2) for label in range(5)])
    distances = ((images[:, None] - patterns) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == labels).mean() > 0.95
    assert len(set(labels.tolist())) == 5
    with raises_naming(DataError, "3×32", "height"):
        synthetic((3, 32))


def test_rows_of_numbers_are_images_of_one_number_a_channel() -> None:
    found = arrays(np.ones((10, 7)), np.arange(10) % 2)
    assert found.shape == (7, 1, 1) and found.train_images.shape == (8, 7, 1, 1)


# -- files, and what is refused ----------------------------------------------------------------------------------------


def broken() -> list[Any]:
    images, labels = small()
    nan = images.copy()
    nan[7, 1, 2, 3] = np.nan
    pixels = np.broadcast_to(labels[:, None, None], (20, 3, 4))
    return [
        ({"images": (images * 255).astype(np.uint8), "labels": labels}, "images uint8 float32"),
        ({"images": images[:, 0], "labels": labels}, "images 20×3×4 channels"),
        ({"images": images[:0], "labels": labels[:0]}, "images"),
        ({"images": images, "labels": labels[:19]}, "labels 19"),
        ({"images": images, "labels": pixels[:, :, 0]}, "labels 20×3 (20,) pixel"),
        ({"images": images, "labels": labels * 0.5}, "labels float64"),
        ({"images": images, "labels": labels - 1}, "labels -1 0"),
        ({"images": images, "labels": np.where(pixels == 1, -7, pixels)}, "labels -7"),
        ({"images": images, "labels": labels, "classes": 2}, "label 2 classes 0 1"),
        ({"images": images, "labels": labels.astype(np.int64) + 2**31}, "labels 1048576"),
        ({"images": images * np.float64(1e300), "labels": labels}, "images 19"),
        ({"images": nan, "labels": labels}, "images NaN 1 7"),
        ({"images": images, "labels": labels, "test_images": images}, "test labels"),
        ({"images": images, "targets": images[:19]}, "targets 19×2×3×4 20"),
        ({"images": images, "targets": labels}, "targets int32 float32"),
        ({"images": images, "targets": np.where(labels == 1, np.nan, 0.5)}, "targets NaN"),
        ({"images": images, "targets": images, "labels": labels}, "labels targets"),
        ({"images": images, "labels": np.full((20, 3, 4), 9), "ignore_index": 9}, "pixel"),
        ({"images": images, "labels": labels, "test_images": images[:, :1], "test_labels": labels}, "test 1×3×4 2×3×4"),
        ({"images": images, "labels": labels, "test_images": nan, "test_labels": labels}, "test images NaN"),
    ]  # fmt: skip


@pytest.mark.parametrize(("given", "says"), broken())
def test_what_cannot_be_trained_on_is_refused(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    with raises_naming(DataError, *says.split()) as direct:
        arrays(**given)
    np.savez(tmp_path / "mine.npz", **given)
    with raises_naming(DataError, *says.split()) as read:
        load_npz(tmp_path / "mine.npz")
    assert str(read.value) == f"{tmp_path / 'mine.npz'}: {direct.value}"


def test_labels_a_pixel_and_targets_beside_images(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((10, 3, 4, 5), np.float32)
    labels = np.random.default_rng(1).integers(0, 3, (10, 4, 5))
    labels[:, 0] = 255
    np.savez_compressed(tmp_path / "pixels.npz", images=images, labels=labels, ignore_index=255, classes=7)
    found = load_npz(tmp_path / "pixels.npz")
    assert (found.target, found.label_shape, found.classes) == ("pixel", (4, 5), 7)
    assert (found.train_labels[:, 0] == IGNORED).all() and (found.train_labels[:, 1:] >= 0).all()
    np.savez(tmp_path / "targets.npz", images=images, targets=images[:, :1].astype(np.float64))
    numbers = load_npz(tmp_path / "targets.npz")
    assert (numbers.target, numbers.label_shape, numbers.classes) == ("number", (1, 4, 5), 0)
    batch, targets = numbers.batch(4, 1)
    assert np.array_equal(batch[:, :1], targets) and targets.dtype == np.float32


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path, (images, labels) = tmp_path / "mine.npz", small()

    def refused(says: str, path: Path = path) -> None:
        with raises_naming(DataError, path) as error:
            load_npz(path)
        assert says in str(error.value)

    refused("there is no file")
    refused("it is a folder; give the name of a file", tmp_path)
    path.write_bytes(b"not an archive")
    refused("is not an .npz file; create one with numpy.savez(")
    for wrong in (np.array([object()]), images):
        np.savez(path, images=wrong, labels=labels)
        if wrong is images:
            path.write_bytes(path.read_bytes()[:-100])
        refused("cannot be read as .npz")
    with path.open("wb") as file:
        np.save(file, images)
    refused("a single array; save both")
    for held, says in (
        ({"x": images, "labels": labels}, "has no images, only x, labels; save with"), ({}, "only nothing"),
        ({"images": images, "labels": labels, "classes": "three"}, "classes is <U5 of shape (), not a whole number"),
    ):  # fmt: skip
        np.savez(path, **held)  # type: ignore[arg-type]
        refused(says)


@pytest.mark.parametrize(
    ("shape", "labels", "classes", "says"),
    [
        ((32, 32, 3), range(10), None, "32×32×3 are read as 32 channels of 32×3; .* save images.transpose.0, 3, 1, 2."),
        ((3, 8, 8), range(5, 15), None, "labels are 5 to 14, and .*: 15 outputs; labels - 5 would make 10"),
        ((3, 8, 8), (0, 100, 200), None, "labels have 3 values up to 200: 198 of 201 outputs without an image"),
        ((64, 4, 4), range(10), None, ""),
        ((20, 1, 1), (0, 2, 3), None, ""),
        ((3, 8, 8), range(5, 15), 15, ""),
    ],
)
def test_data_that_are_probably_not_meant_so_are_a_warning(
    shape: tuple[int, ...], labels: Any, classes: int | None, says: str
) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        arrays(np.zeros((len(labels), *shape)), np.array(labels), classes=classes)
    assert [bool(re.search(says, str(one.message))) for one in told] == [True] * bool(says)


def test_test_images_are_of_one_place(tmp_path: Path) -> None:
    images, labels = small()
    np.savez(tmp_path / "mine.npz", images=images, labels=labels)
    np.savez(tmp_path / "other.npz", images=images[:4] + 100, labels=labels[:4])
    np.savez(tmp_path / "both.npz", images=images, labels=labels, test_images=images[:2], test_labels=labels[:2])
    found = load_npz(tmp_path / "mine.npz", validation=tmp_path / "other.npz")
    assert len(found.train_images) == 20
    assert found.test_images[:, 0, 0, 0].tolist() == [100, 101, 102, 103] and found.test_labels.tolist() == [0, 1, 2, 0]
    assert [len(load_npz(tmp_path / "mine.npz", validation=share).test_images) for share in (0.1, 0.5)] == [2, 10]
    assert len(load_npz(tmp_path / "both.npz").test_images) == 2
    with raises_naming(DataError, tmp_path / "both.npz", tmp_path / "other.npz"):
        load_npz(tmp_path / "both.npz", validation=tmp_path / "other.npz")
    with raises_naming(DataError, tmp_path / "both.npz", 0.25):
        load_npz(tmp_path / "both.npz", validation=0.25)
