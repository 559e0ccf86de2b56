"""Data: batches follow from the seed alone, sources keep their promises, and what cannot be trained on is refused."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.backend.data import BatchSource, Data, Synthetic, arrays, batches, digits, load_npz, synthetic
from refimpl.backend.run_errors import DataError
from tests.messages import raises_naming


def small(count: int = 20, classes: int = 3, shape: tuple[int, int, int] = (2, 3, 4)) -> tuple[np.ndarray, np.ndarray]:
    """Images that are all different: each holds its own number everywhere."""
    images = np.broadcast_to(np.arange(count, dtype=np.float32)[:, None, None, None], (count, *shape)).copy()
    return images, (np.arange(count) % classes).astype(np.int32)


def sources() -> list[BatchSource]:
    return [arrays(*small()), Synthetic((2, 3, 4), classes=3, batches=4)]


def same(one: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", sources(), ids=["arrays", "synthetic"])
def test_batches_are_what_a_network_takes(source: BatchSource) -> None:
    for images, labels in batches(source, batch=4):
        assert images.shape == (4, *source.shape) and images.dtype == np.float32 and images.flags.c_contiguous
        assert labels.shape == (4,) and labels.dtype == np.int32
        assert 0 <= labels.min() and labels.max() < source.classes


@pytest.mark.parametrize("source", sources(), ids=["arrays", "synthetic"])
def test_a_resumed_run_sees_the_same(source: BatchSource) -> None:
    run = [batch for epoch in range(3) for batch in batches(source, 5, epoch, seed=7)]
    assert len(run) == 3 * source.per_epoch(5)
    again = [source.batch(5, iteration, seed=7) for iteration in range(len(run))]
    assert all(map(same, run, again))
    resumed = [batch for epoch in (1, 2) for batch in batches(source, 5, epoch, seed=7)]
    assert all(map(same, run[source.per_epoch(5) :], resumed))


@given(count=st.integers(2, 60), batch=st.integers(1, 20), epoch=st.integers(0, 3), seed=st.integers(0, 5))
def test_an_epoch_shows_no_image_twice(count: int, batch: int, epoch: int, seed: int) -> None:
    data = arrays(*small(count))
    if batch > len(data.train_images):
        return
    shown = [int(image[0, 0, 0]) for images, _ in batches(data, batch, epoch, seed) for image in images]
    assert len(shown) == len(set(shown)) == data.per_epoch(batch) * batch
    assert set(shown) <= {int(image[0, 0, 0]) for image in data.train_images}
    assert len(data.train_images) - len(shown) < batch


def test_a_label_goes_with_its_image() -> None:
    data = arrays(*small())
    for images, labels in batches(data, 4, seed=3):
        assert (images[:, 0, 0, 0].astype(int) % 3 == labels).all()


@pytest.mark.parametrize("batch", [0, 17, -1])
def test_a_batch_that_cannot_be_filled_is_refused(batch: int) -> None:
    with raises_naming(DataError, batch, 16):
        arrays(*small()).batch(batch, 0)


# -- sources -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_digits() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed, and the digits come with it")
    data = digits()
    assert data.shape == (1, 8, 8) and data.classes == 10
    assert len(data.train_images) + len(data.test_images) == 1797 and len(data.test_images) == 1797 // 5
    assert data.train_images.min() == 0 and data.train_images.max() == 1
    assert set(data.test_labels) == set(range(10))
    assert np.array_equal(data.test_images, digits().test_images)
    assert not np.array_equal(data.test_images, digits(seed=1).test_images)
    trained = {image.tobytes() for image in data.train_images}
    assert len(trained) == len(data.train_images)  # so that the next line says something
    assert not any(image.tobytes() in trained for image in data.test_images)


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refimpl.backend.data.find_spec", lambda name: None)
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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (((3, 32),), "3×32"),
        (((3, 0, 32),), "height width"),
        (((3, 8, 8), 0), "0 classes 100 batches"),
    ],
)
def test_synthetic_refuses(arguments: Any, says: str) -> None:
    with raises_naming(DataError, *says.split()):
        synthetic(*arguments)


def broken() -> list[Any]:
    images, labels = small()
    eight_bits = (images * 255).astype(np.uint8)
    wide, wide_float = labels.astype(np.int64), np.float64(1e300)
    nan = images.copy()
    nan[7, 1, 2, 3] = np.nan
    return [
        pytest.param({"images": eight_bits, "labels": labels}, "images uint8 float32", id="uint8"),
        pytest.param({"images": images[:, 0], "labels": labels}, "images 20×3×4 channels", id="3d"),
        pytest.param({"images": images[:0], "labels": labels[:0]}, "images", id="empty"),
        pytest.param({"images": images, "labels": labels[:19]}, "labels 19", id="short"),
        pytest.param({"images": images, "labels": labels * 0.5}, "labels float64", id="fractions"),
        pytest.param({"images": images, "labels": labels - 1}, "labels -1 0", id="low"),
        pytest.param({"images": images, "labels": labels, "classes": 2}, "label 2 classes 0 1", id="high"),
        pytest.param({"images": images, "labels": wide + 2**31}, "labels 1048576", id="too high"),
        pytest.param({"images": images * wide_float, "labels": labels}, "images 19", id="too large"),
        pytest.param({"images": nan, "labels": labels}, "images NaN 1 7", id="nan"),
        pytest.param({"images": images, "labels": labels, "test_images": images}, "test labels", id="no labels"),
        pytest.param({"images": images, "targets": images[:19]}, "targets 19×2×3×4 20", id="short targets"),
        pytest.param({"images": images, "targets": wide}, "targets int64 float32", id="whole targets"),
        pytest.param({"images": images, "targets": images, "labels": labels}, "labels targets", id="both"),
        pytest.param(
            {"images": images, "labels": np.full((20, 3, 4), 9), "ignore_index": 9}, "pixel", id="no pixel counts"
        ),
        pytest.param(
            {"images": images, "labels": labels, "test_images": images[:, :1], "test_labels": labels},
            "test images 1×3×4 2×3×4",
            id="other shape",
        ),
        pytest.param(
            {"images": images, "labels": labels, "test_images": nan, "test_labels": labels},
            "test images NaN",
            id="test nan",
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(("given", "says"), broken())
def test_what_cannot_be_trained_on_is_refused(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    with raises_naming(DataError, *says.split()) as direct:
        arrays(**given)
    np.savez(tmp_path / "mine.npz", **given)
    with raises_naming(DataError, *says.split()) as read:
        load_npz(tmp_path / "mine.npz")
    assert str(read.value) == f"{tmp_path / 'mine.npz'}: {direct.value}"


# -- files -------------------------------------------------------------------------------------------------------------


def test_npz_and_arrays_give_the_same(tmp_path: Path) -> None:
    images, labels = small()
    np.savez_compressed(tmp_path / "mine.npz", images=images, labels=labels, classes=7)
    one, other = load_npz(tmp_path / "mine.npz"), arrays(images, labels, classes=7)
    assert isinstance(one, Data) and one.classes == 7
    assert np.array_equal(one.train_images, other.train_images) and np.array_equal(one.test_labels, other.test_labels)


def refused(path: Path) -> str:
    with pytest.raises(DataError) as error:
        load_npz(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    return str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    assert refused(path).startswith("there is no file")
    assert refused(tmp_path).endswith("cannot be read: it is a folder; give the name of a file")
    for content in (b"", b"not an archive"):
        path.write_bytes(content)
        assert "is not an .npz file; create one with numpy.savez(" in refused(path)
    stream = io.BytesIO()
    images, labels = small()
    np.savez(stream, images=images, labels=labels)
    whole = stream.getvalue()
    for length in (10, 200, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "cannot be read as .npz" in refused(path)
    damaged = bytearray(whole)
    damaged[len(whole) // 3] ^= 0xFF
    path.write_bytes(damaged)
    assert "cannot be read as .npz" in refused(path)
    np.savez(path, images=np.array([object()]), labels=labels)
    assert "cannot be read as .npz" in refused(path)
    with path.open("wb") as file:
        np.save(file, images)
    assert "a single array; save both" in refused(path)
    np.savez(path, x=images, labels=labels)
    assert "has no images, only x, labels; save with" in refused(path)
    np.savez(path)
    assert "has no images and no labels, only nothing" in refused(path)
    np.savez(path, images=images, labels=labels, classes="three")
    assert "classes is <U5 of shape (), not a whole number" in refused(path)


def test_rows_of_numbers_are_images_of_one_number_a_channel() -> None:
    found = arrays(np.ones((10, 7)), np.arange(10) % 2)
    assert found.shape == (7, 1, 1) and found.train_images.shape == (8, 7, 1, 1)


@pytest.mark.parametrize(
    ("shape", "labels", "classes", "says"),
    [
        ((32, 32, 3), range(10), None, "32×32×3 are read as 32 channels of 32×3; .* save images.transpose.0, 3, 1, 2."),
        ((28, 20, 1), range(10), None, "28×20×1 are read as 28 channels of 20×1"),
        ((3, 8, 8), range(5, 15), None, "labels are 5 to 14, and .*: 15 outputs; labels - 5 would make 10"),
        ((3, 8, 8), (0, 100, 200), None, "labels have 3 values up to 200: 198 of 201 outputs without an image"),
        ((3, 32, 32), range(10), None, ""),
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


def test_the_digits_are_what_the_loss_compares_with() -> None:
    """A class an image, a class a pixel (10 is the background), or the image itself."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed, and the digits come with it")
    images, pixels, numbers = (digits(target=target) for target in ("image", "pixel", "number"))
    assert (images.classes, pixels.classes, images.shape) == (10, 11, (1, 8, 8))
    assert len(images.train_images) + len(images.test_images) == 1797
    assert [data.train_images.tobytes() for data in (pixels, numbers)] == [images.train_images.tobytes()] * 2
    np.testing.assert_array_equal(numbers.train_labels, images.train_images)
    ink = images.train_images[:, 0] >= 0.5
    every = np.broadcast_to(images.train_labels[:, None, None], ink.shape)
    np.testing.assert_array_equal(pixels.train_labels, np.where(ink, every, 10))


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


@pytest.mark.parametrize("batch", [0, -3])
def test_a_batch_of_nothing_is_refused(batch: int) -> None:
    with raises_naming(DataError, batch, 1):
        synthetic((2, 3, 4)).batch(batch, 0)
    assert synthetic((2, 3, 4), batches=7).per_epoch(1) == 7
