"""Caffe's accountings: MiB of an image, which the specification of this project has, and what they count."""

from __future__ import annotations

import pytest

from refimpl.names.networks import build
from refimpl.studies.tune.caffe import CONTEXT_BYTES, bytes_per_image, fixed_bytes

pytestmark = pytest.mark.accudnn

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "lean", "bvlc"),
    [
        ("resnet50", 168.5, 330.0), ("resnet152", 372.1, 708.2), ("inceptionv4", 307.6, 537.8), ("vgg16", 116.3, 116.3),
    ],
)  # fmt: skip
def test_bytes_of_an_image(name: str, lean: float, bvlc: float) -> None:
    network = build(name, 1)
    assert [round(bytes_per_image(network, each) / MIB, 1) for each in (False, True)] == [lean, bvlc]


def test_an_image_takes_as_much_in_any_batch() -> None:
    for name in ("resnet50", "tiny-inception", "resnet50:superneurons"):
        assert bytes_per_image(build(name, 1), bvlc=True) == bytes_per_image(build(name, 7), bvlc=True)


def test_a_fork_layer_is_caffes_split() -> None:
    """SuperNeurons' convention has layers for it; the accounting finds the same Splits."""
    plain, forked = build("tiny-resnet", 1), build("tiny-resnet:superneurons", 1)
    assert bytes_per_image(plain, bvlc=False) == bytes_per_image(forked, bvlc=False)


def test_weight_gradients_that_come_and_go_are_fixed_in_caffe() -> None:
    plain, managed = build("tiny-vgg", 1), build("tiny-vgg:vdnnpp", 1)
    gradients = sum(parameter.gradient.nbytes for _, _, parameter in managed.parameters())
    assert fixed_bytes(managed) == managed.resident_bytes + gradients + CONTEXT_BYTES
    assert fixed_bytes(plain) == plain.resident_bytes + CONTEXT_BYTES
