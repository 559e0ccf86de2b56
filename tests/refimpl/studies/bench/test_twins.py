"""PyTorch's twins of every small network, in a step: the loss, and each weight's gradient, as they were.

The numbers of `twins.txt` are PyTorch's own.  That they are those of this project's kernels, bit by bit and number by
number, is what slower tests say.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from refimpl.names.networks import build
from refimpl.network import Builder, Network
from tests.refimpl.studies.bench.near import is_near

STORED = Path(__file__).with_name("twins.txt")
NETWORKS = (
    "lenet", "tiny-vgg", "tiny-resnet", "tiny-inception", "tiny-se", "tiny-convnext", "tiny-unet", "tiny-vit",
    "tiny-gpt", "tiny-bert", "tiny-llama",
)  # fmt: skip


def lines(network: Network) -> Iterator[str]:
    """The loss in each way, and how many segments; then the weighted sums of the plain way's gradients."""
    import torch

    from refimpl.studies.bench import pytorch

    for way in pytorch.WAYS:
        torch.manual_seed(0)
        twin = pytorch.TorchTraining(network, way)
        loss = twin.step()
        yield f"{network.name}, {way}: loss {loss:.3g}, {len(pytorch.segments(network))} segments\n"
        if way == pytorch.PLAIN:
            for weight, value in twin._state.items():
                if value.grad is not None:
                    sizes = value.grad.abs().flatten()
                    yield f"  {weight}: {float(sizes.sum() + sizes[::2].sum() + sizes[::3].sum()):.3g}\n"


def various() -> Network:
    """Kinds that those networks do not have."""
    b = Builder("various", (2, 4, 9, 8))
    b.conv(8, 3, pad=(1, 0, 2, 1))
    b.lrn(3)
    b.channel_shuffle(2)
    b.permute_channels([3, 1, 0, 2, 7, 6, 5, 4])
    b.pad((1, 0, 2, 1), 0.5)
    b.leaky_relu(0.2)
    b.conv_transpose(6, 3, stride=2, pad=1)
    b.take(4, 1)
    b.relu(at_most=0.5)
    b.pool(3, 2, pad=(0, 1, 1, 0), mode="average", ceil=True)
    b.tanh()
    b.scale(1.5)
    b.upsample(2, mode="bilinear")
    b.pool(3, 2, pad=(1, 0, 1, 1))
    b.groupnorm(2)
    b.pool_to(3, mode="max")
    b.fc(5)
    b.softmax()
    return b.build()


def all_lines() -> str:
    return "".join(line for network in (*(build(name, 2) for name in NETWORKS), various()) for line in lines(network))


def test_a_step_of_pytorchs_twins_is_the_same() -> None:
    pytest.importorskip("torch")
    assert is_near(all_lines(), STORED.read_text(encoding="utf-8"))


if __name__ == "__main__":
    STORED.write_text(all_lines(), encoding="utf-8")
    sys.stdout.write("1 file written\n")
