"""The demo: its network agrees with NumPy, call by call and gradient by gradient; it learns; its pictures are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from refimpl import demo
from refimpl.demo import data, network, pictures
from refimpl.devices import Cpu


@pytest.fixture(scope="module")
def arrays() -> network.Arrays:
    """The network's arrays with one batch of pictures in them."""
    made = network.make_arrays(Cpu())
    made["images"][:], made["labels"][:] = data.batch(np.random.default_rng(0))
    return made


def test_every_call_agrees_with_numpy(arrays: network.Arrays) -> None:
    watched: list[str] = []
    found = demo.compare(Cpu(), arrays, watched.append)
    assert [d for d in found if not d.share < demo.TOLERANCE] == []
    assert watched == [f"forward {c.name}" for c in network.FORWARD] + [f"backward {c.name}" for c in network.BACKWARD]
    compared = {d.array for d in found}
    assert {f"d{name}" for name in network.PARAMETERS} <= compared
    assert {f"d{name}" for name in network.MAPS} - compared == {"dimages", "dsoftmax", "dloss"}


def test_a_wrong_kernel_is_found(arrays: network.Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(x: np.ndarray, y: np.ndarray) -> None:
        np.maximum(x, -0.1, out=y)

    calls = list(network.FORWARD)
    calls[1] = network.Call("relu1", wrong, calls[1].reference, calls[1].reads, calls[1].writes)
    monkeypatch.setattr(demo, "FORWARD", calls)
    far = [d.array for d in demo.compare(Cpu(), arrays, lambda _: None) if d.share > demo.TOLERANCE]
    assert far == ["relu1"]  # and nothing behind it: every call is compared from the same inputs


def test_the_gradients_are_those_of_the_loss(arrays: network.Arrays) -> None:
    """The whole backward pass against a finite difference: a step down the gradient lowers the loss as it should."""

    def loss() -> float:
        for call in network.FORWARD:
            call.run(arrays)
        return float(arrays["loss"].mean())

    before = loss()
    for call in network.BACKWARD:
        call.run(arrays)
    gradients = {name: arrays[f"d{name}"].copy() for name in network.PARAMETERS}
    length = sum(float((g.astype(float) ** 2).sum()) for g in gradients.values()) ** 0.5
    step = 2e-3 / length
    slopes = []
    for sign in (1, -1):
        for name, gradient in gradients.items():
            arrays[name] += np.float32(sign * step) * gradient
        slopes.append(loss())
        for name, gradient in gradients.items():
            arrays[name] -= np.float32(sign * step) * gradient
    assert slopes[1] < before < slopes[0]
    assert (slopes[0] - slopes[1]) / (2 * step) == pytest.approx(length**2, rel=0.05)


def test_every_kind_of_picture_can_be_drawn() -> None:
    random = np.random.default_rng(3)
    drawn = [data.draw(kind, random) for kind in data.CLASSES]
    assert all(picture.shape == (data.SIDE, data.SIDE) and picture.dtype == np.float32 for picture in drawn)


@pytest.mark.slow
def test_it_learns_and_draws(tmp_path: Path) -> None:
    device, random = Cpu(), np.random.default_rng(1)
    made = network.make_arrays(device)
    losses = demo.train(device, made, random, lambda _: None)
    assert len(losses) == demo.ITERATIONS and np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
    assert demo.test(device, made, random) > 0.8
    taken = demo.time_kernels(device, made)
    assert {"relu_forward", "relu_backward", "dropout_apply"} <= set(taken) and min(taken.values()) > 0
    pictures.draw_loss(tmp_path / "loss.png", losses, 0.9)
    pictures.draw_maps(tmp_path / "maps.png", device, made)
    pictures.draw_times(tmp_path / "kernels.png", device, taken)
    assert all((tmp_path / f"{name}.png").stat().st_size > 10_000 for name in ("loss", "maps", "kernels"))
