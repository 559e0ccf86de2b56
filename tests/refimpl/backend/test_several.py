"""Several inputs, and several losses, each with its weight in their sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from refimpl.backend import BatchError, Trainer
from refimpl.network import SUPERNEURONS, VDNN, VDNNPP, Builder, Conventions, Network
from tests.messages import raises_naming
from tests.refimpl.backend.running import differing, plain_training, small_program, trained, trainer
from tests.refimpl.plainly import draw_batch


def several(conventions: Conventions = VDNN, batch: int = 3) -> Network:
    """Two inputs meet; labels an image, labels a pixel and numbers are compared with; a map has two losses."""
    b = Builder("several", (batch, 2, 6, 6), conventions)
    other = b.add_input("other", (batch, 3, 6, 6))
    left = b.conv(4, 3, pad=1, name="left", after=b.input)
    right = b.conv(4, 3, pad=1, name="right", after=other)
    b.join(left, right)
    trunk = b.relu()
    drawn = b.conv(3, 1, name="drawn")
    b.pixel_softmax(name="pixels", weight=0.5)
    b.mean_squared_error(name="numbers", after=drawn, weight=0.25)
    b.conv(4, 3, pad=1, name="deeper", after=trunk)
    b.fc(4, name="early")
    b.softmax(name="auxiliary", weight=0.3)
    b.fc(4, name="late", after=trunk)
    b.softmax(name="main")
    return b.build()


@pytest.mark.parametrize("conventions", [VDNN, SUPERNEURONS, VDNNPP], ids=["vdnn", "superneurons", "vdnnpp"])
def test_the_sum_of_all_losses_is_learnt_from_as_in_pytorch(conventions: Conventions, torch: Any) -> None:
    from tests.refimpl.by_torch import trains_as_in_torch

    network = several(conventions)
    assert [str(one.layer) for one in network.outputs] == ["pixels", "numbers", "auxiliary", "main"]
    assert [str(x) for x in network.inputs] == ["input", "other"]
    assert network.output.losses.name == "losses" and network.outputs[0].losses.name == "losses of pixels"
    trains_as_in_torch(network)


def test_little_memory_comes_to_the_plain_bits() -> None:
    for network in (several(), several(SUPERNEURONS).trained_by("adamw", clip=0.5, frozen=["other", "left"][1:])):
        program = small_program(network)
        program.verify()
        losses, state = trained(program, 2)
        assert differing(state, plain_training(program, 2)) == []
    with trainer(program) as made:
        images, labels = draw_batch(network)
        before = made.evaluate(images, labels)
        assert before.predictions.shape == (3, 4) and before.counted == 3
        assert losses[0] == made.step(images, labels)
    first = plain_training(program, 1)
    weighted = [one.layer.weight * first[one.losses.name].mean(dtype=np.float64) for one in network.outputs]
    assert losses[0] == pytest.approx(sum(weighted), rel=1e-12) and len({*weighted}) == 4


def test_labels_that_all_losses_compare_with_are_given_once() -> None:
    b = Builder("two heads", (3, 2, 4, 4))
    trunk = b.relu(after=b.conv(4, 3, pad=1))
    b.fc(3, after=trunk)
    b.softmax(weight=0.3)
    b.fc(3, after=trunk)
    b.softmax()
    program = small_program(b.build())
    images, (_, labels) = draw_batch(program.network)
    with Trainer(program) as one, Trainer(program) as other:
        assert one.step(images, labels) == other.step(images, (labels, labels))
        assert differing(one.state(), other.state()) == []


def test_what_is_wrong_is_one_line() -> None:
    program = small_program(several())
    images, labels = draw_batch(program.network)
    with Trainer(program) as made:
        with raises_naming(BatchError, "images", 2, "several"):
            made.step(images[0], labels)
        with raises_naming(BatchError, "labels", 4, "losses"):
            made.step(images, labels[:3])
        with raises_naming(BatchError, "images", (3, 3, 6, 6)):
            made.step((images[0], images[0]), labels)
        with raises_naming(BatchError, 3, 2, "images"):
            made.evaluate((images[0], images[1][:2]), labels)
