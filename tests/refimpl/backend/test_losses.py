"""Losses of images, pixels and numbers: the same bits in little memory, evaluation, bad labels and targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from refimpl.backend import BatchError, NotFinite, Trainer
from refimpl.backend.data import synthetic_for
from refimpl.network import Builder, Network
from refimpl.network.kinds import TRAITS
from tests.messages import raises_naming
from tests.refimpl.backend.running import comes_to_the_plain_bits, differing, small_program
from tests.refimpl.plainly import draw_batch

LOSSES = [kind for kind, traits in TRAITS.items() if traits.work == "loss" and not traits.opaque and kind != "softmax"]


def network(loss: str, batch: int = 3, **options: Any) -> Network:
    """A fork, a join and a ReLU in place before the loss."""
    b = Builder(f"to-{loss}", (batch, 2, 6, 6))
    trunk = b.conv(4, 3, pad=1)
    b.join(b.conv(4, 1), trunk)
    b.relu()
    b.conv(3, 1, name="last")
    getattr(b, loss)(**options)
    return b.build()


@pytest.mark.parametrize("loss", LOSSES)
def test_training_in_little_memory_comes_to_the_plain_bits(loss: str) -> None:
    comes_to_the_plain_bits(network(loss))


def test_predictions_take_no_memory_of_training() -> None:
    made = network("pixel_softmax")
    assert made.predictions not in made.resident and made.predictions in made.inference().resident


@pytest.mark.parametrize("loss", LOSSES)
def test_evaluation_is_a_mean_over_what_counts(loss: str, torch: Any) -> None:
    """Over batches of which the last is not full, and in one of which no pixel counts."""
    program = small_program(network(loss))
    both = [draw_batch(program.network, seed) for seed in range(3)]
    images, labels = (np.concatenate(parts)[:8] for parts in zip(*both, strict=True))
    if loss == "pixel_softmax":
        labels[3:6] = -100
    with Trainer(program) as made:
        found = made.evaluate(images, labels)
        again = made.evaluate(images, labels, keep=False)
    predicted, wanted = torch.tensor(found.predictions, dtype=torch.float64), torch.tensor(labels)
    functional = torch.nn.functional
    if loss == "pixel_softmax":
        counts = labels != -100
        expected = functional.nll_loss(predicted.log(), wanted.long())
        assert found.accuracy == np.mean((found.predictions.argmax(1) == labels)[counts])
        assert found.counted == counts.sum() < labels.size
    elif loss == "mean_squared_error":
        expected = functional.mse_loss(predicted, wanted.double())
        assert np.isnan(found.accuracy) and found.counted == labels.size
    else:
        expected = functional.binary_cross_entropy(predicted, wanted.double())
        assert found.accuracy == np.mean((found.predictions >= 0.5) == (labels >= 0.5))
    assert found.loss == pytest.approx(expected.item(), rel=1e-5)
    assert repr((again.loss, again.accuracy, again.counted)) == repr((found.loss, found.accuracy, found.counted))
    assert again.predictions.shape == (0, *found.predictions.shape[1:])


def test_what_is_wrong_with_labels_and_targets_is_one_line() -> None:
    pixels, numbers, shares = (Trainer(small_program(network(loss))) for loss in LOSSES)
    images, labels = draw_batch(pixels.network)
    targets = draw_batch(numbers.network)[1]
    wrong = labels.copy()
    wrong[1, 2, 3] = 3
    with raises_naming(BatchError, "label 3", "image 1", "row 2", "column 3", "0 to 2", -100):
        pixels.step(images, wrong)
    with raises_naming(BatchError, "-100", "batch"):
        pixels.step(images, np.full_like(labels, -100))
    with raises_naming(BatchError, (3,), (3, 6, 6)):
        pixels.step(images, labels[:, 0, 0])
    with raises_naming(BatchError, "float32", "0 to 2"):
        pixels.step(images, labels.astype(np.float32))
    for made in (numbers, shares):
        with raises_naming(BatchError, (3, 6, 6), (3, 3, 6, 6), made.network.layers[-1].name):
            made.step(images, targets[:, 0])
        with raises_naming(BatchError, "int32", "float32"):
            made.step(images, targets.astype(np.int32))
        bad = targets.copy()
        bad[2, 1, 0, 5] = np.nan
        before = made.state()
        with raises_naming(NotFinite, "targets", "image 2", "channel 1", "row 0", "column 5", "nan"):
            made.step(images, bad)
        assert differing(before, made.state()) == []
    with raises_naming(BatchError, "255", "0 to 1"):
        shares.step(images, np.where(targets > 0.5, 255, 0).astype(np.float32))
    for made in (pixels, numbers, shares):
        made.close()


def test_synthetic_images_have_the_labels_that_a_loss_wants() -> None:
    for loss in LOSSES:
        made = network(loss)
        source = synthetic_for(made)
        images, labels = source.batch(3, 5)
        assert images.shape == made.input.shape and labels.shape == made.labels.shape
        assert labels.dtype == np.dtype(made.labels.dtype) and len(np.unique(labels)) > 1
        assert labels.min() >= (0 if loss != "mean_squared_error" else -9)
    assert set(np.unique(synthetic_for(network("binary_cross_entropy")).batch(3, 0)[1])) == {0, 1}
