"""Data files with an array for each input and each loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refimpl.backend import Trainer
from refimpl.backend.named_data import NamedSynthetic, named_npz
from refimpl.backend.run_errors import DataError
from tests.messages import raises_naming
from tests.refimpl.backend.running import small_program
from tests.refimpl.backend.test_several import several
from tests.refimpl.plainly import draw_batch

LOSSES = ["pixels", "numbers", "auxiliary", "main"]


def saved(path: Path, count: int = 20, seed: int = 0, prefix: str = "", **others: Any) -> dict[str, np.ndarray]:
    """What a file holds, by name."""
    images, labels = draw_batch(several(batch=count), seed)
    arrays = dict(zip([f"{prefix}{name}" for name in ("images", "other", *LOSSES)], (*images, *labels), strict=True))
    np.savez(path, **{**arrays, **others})  # type: ignore[arg-type]
    return {**arrays, **others}


def test_every_array_is_split_alike_and_batches_are_what_the_network_takes(tmp_path: Path) -> None:
    arrays = saved(tmp_path / "mine.npz")
    network = several()
    data = named_npz(network, tmp_path / "mine.npz")
    assert [len(one) for one in (*data.train_images, *data.train_labels)] == [16] * 6
    assert [len(one) for one in (*data.test_images, *data.test_labels)] == [4] * 6
    images, labels = data.batch(3, 7)
    place = [i for i, one in enumerate(arrays["images"]) if one.tobytes() == images[0][0].tobytes()]
    assert len(place) == 1
    for name, batch in zip(("other", *LOSSES), (images[1], *labels), strict=True):
        np.testing.assert_array_equal(arrays[name][place[0]], batch[0], err_msg=name)
    with Trainer(small_program(network)) as made:
        assert np.isfinite(made.step(images, labels))
        found = made.evaluate(data.test_images, data.test_labels)
    assert [*found.each] == LOSSES and found.loss == found.each["main"].loss
    weights = {one.layer.name: one.layer.weight for one in network.outputs}
    assert found.weighted == pytest.approx(sum(weights[name] * one.loss for name, one in found.each.items()))
    assert [one.counted for one in found.each.values()][2:] == [4, 4]
    assert found.each["numbers"].counted == 4 * 3 * 36 and np.isnan(found.each["numbers"].accuracy)


def test_test_images_are_in_the_file_or_in_another_or_a_share(tmp_path: Path) -> None:
    network, mine, other = several(), tmp_path / "mine.npz", tmp_path / "other.npz"
    saved(mine)
    tests = saved(other, 5, seed=1, prefix="test_")
    assert len(named_npz(network, mine, validation=0.5).test_images[1]) == 10
    both = tmp_path / "both.npz"
    saved(both, 20, 0, **tests)  # type: ignore[arg-type]
    assert named_npz(network, both).test_labels[3].tobytes() == tests["test_main"].tobytes()
    theirs = saved(other, 7, seed=2)
    assert named_npz(network, mine, validation=str(other)).test_images[0].tobytes() == theirs["images"].tobytes()
    with raises_naming(DataError, "both.npz", "test images", "validation"):
        named_npz(network, both, validation=0.5)


def test_what_is_missing_or_wrong_names_the_file_and_what_the_network_takes(tmp_path: Path) -> None:
    network, path = several(), tmp_path / "mine.npz"
    arrays = saved(path)
    np.savez(path, **{name: array for name, array in arrays.items() if name != "numbers"})  # type: ignore[arg-type]
    with raises_naming(DataError, "mine.npz has no numbers", "auxiliary", "input, other for the inputs"):
        named_npz(network, path)
    saved(path, main=np.full(20, 4))
    with raises_naming(DataError, "mine.npz", "label 4 of image 0", "several"):
        named_npz(network, path)
    saved(path, other=arrays["other"][:7])
    with raises_naming(DataError, "mine.npz", "20 and 7 images"):
        named_npz(network, path)
    saved(path, numbers=np.full((20, 3, 6, 6), np.nan))
    with raises_naming(DataError, "mine.npz", "targets", "nan"):
        named_npz(network, path)
    saved(path, 1)
    with raises_naming(DataError, "mine.npz", "one image"):
        named_npz(network, path)
    with raises_naming(DataError, "mine.npz", "share of 2"):
        named_npz(network, path, validation=2.0)


def test_synthetic_images_of_all_inputs_show_one_class() -> None:
    network = several()
    source = NamedSynthetic.of(network)
    images, labels = source.batch(3, 5)
    again = source.batch(3, 5)
    assert all(one.tobytes() == other.tobytes() for one, other in zip(images, again[0], strict=True))
    assert labels[2].tobytes() == labels[3].tobytes()
    with Trainer(small_program(network), rate=0.005) as made:
        losses = [made.step(*source.batch(3, iteration)) for iteration in range(60)]
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])
