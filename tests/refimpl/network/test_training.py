"""Calls that really run: every argument reaches its kernel, and an iteration is PyTorch's iteration.

The networks run plainly (`plainly`), which also holds every call to what it says of itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from kernels.checks import reference
from refimpl.names.networks import lenet, tiny_inception, tiny_resnet, tiny_vgg
from refimpl.network import SUPERNEURONS, VDNN, Builder, Conventions, Network
from refimpl.network.conventions import VDNNPP
from tests.refimpl.drawn_networks import every_option, networks
from tests.refimpl.plainly import SETTINGS, Arrays, draw_batch, new_state, run_plainly

TOLERANCE = 1e-4


def with_lrn(batch: int, conventions: Conventions, shape: tuple[int, int, int]) -> Network:
    """What the small networks lack."""
    b = Builder("with-lrn", (batch, *shape), conventions)
    b.conv(6, 3, pad=1)
    b.relu()
    b.lrn(size=3, alpha=0.1, k=2.0)
    b.pool(3, 2, mode="max", ceil=True)
    x = b.conv(6, (1, 3), pad=(0, 1))
    b.join(x, b.pool(1), b.dropout(0.3, after=x))
    b.relu()
    b.fc(5)
    b.softmax()
    return b.build()


NETWORKS: dict[str, Callable[..., Network]] = {
    "lenet": lenet, "tiny-vgg": tiny_vgg, "tiny-resnet": tiny_resnet, "tiny-inception": tiny_inception, "lrn": with_lrn,
    "every option": every_option,
}  # fmt: skip
CONVENTIONS = {"vdnn": VDNN, "superneurons": SUPERNEURONS, "vdnnpp": VDNNPP}


def small(name: str, conventions: str) -> Network:
    return NETWORKS[name](batch=4, conventions=CONVENTIONS[conventions], shape=(2, 12, 12))


def started(network: Network) -> Arrays:
    """A state in the middle of training: momentum is not zero."""
    state, random = new_state(network), np.random.default_rng(7)
    for _, _, parameter in network.parameters():
        name = parameter.momentum.name
        state[name] = (0.01 * random.standard_normal(state[name].shape)).astype(np.float32)
    return state


def worst(found: Arrays, expected: Arrays) -> tuple[float, str]:
    """The largest difference relative to the largest number of its array, and that array's name."""
    return max(
        (float(np.abs(found[name] - value).max() / max(np.abs(value).max(), 1e-6)), name)
        for name, value in expected.items()
    )


@pytest.mark.parametrize(
    ("name", "conventions"),
    [("lenet", "vdnn"), ("tiny-resnet", "superneurons"), ("lrn", "vdnnpp"), ("every option", "superneurons")],
)
def test_an_iteration_is_pytorchs(name: str, conventions: str, torch: Any) -> None:
    from tests.refimpl.by_torch import run_torch

    network = small(name, conventions)
    state = started(network)
    for iteration in (0, 1):
        images, labels = draw_batch(network, seed=iteration)
        now = {**SETTINGS, "iteration": iteration}
        expected = run_torch(network, state, images, labels, now)
        run_plainly(network, state, images, labels, now)
        difference, where = worst(state, expected)
        assert difference < TOLERANCE, f"{where} differs by {difference:.1e}"


@pytest.mark.parametrize("name", NETWORKS)
def test_all_conventions_train_alike(name: str) -> None:
    """To the last bit: fork layers, fused ReLUs, in-place choices and what is held change memory, not numbers."""
    after = []
    for conventions in CONVENTIONS:
        network = small(name, conventions)
        state = started(network)
        images, labels = draw_batch(network)
        run_plainly(network, state, images, labels, SETTINGS)
        after.append({name: state[name] for _, _, p in network.parameters() for name in (p.weight.name,)})
    if name in ("tiny-inception", "tiny-resnet", "lrn"):  # their forks' gradients are summed in another order
        assert worst(after[0], after[1])[0] < 1e-5
    else:
        assert all(np.array_equal(after[0][name], after[1][name]) for name in after[0])
    if not any(layer.kind == "dropout" for layer in network.layers):  # drawn by a layer's number; a fused ReLU has none
        assert all(np.array_equal(after[0][name], after[2][name]) for name in after[0])


@pytest.mark.parametrize(
    ("name", "conventions"), [("tiny-resnet", "vdnn"), ("tiny-resnet", "vdnnpp"), ("every option", "vdnn")]
)
def test_inference(name: str, conventions: str) -> None:
    """Against the reference, layer by layer, on running statistics that have moved."""
    network = small(name, conventions)
    state = started(network)
    images, labels = draw_batch(network)
    run_plainly(network, state, images, labels, SETTINGS)
    before = {name: array.copy() for name, array in state.items()}
    run_plainly(network.inference(), state, images, labels, {})
    changed = {name for name, array in state.items() if array.tobytes() != before[name].tobytes()}
    assert changed == {"losses", "predictions"}
    expected = by_reference(network, state, images)
    assert worst({"predictions": state["predictions"]}, {"predictions": expected})[0] < TOLERANCE
    assert np.allclose(state["losses"], -np.log(expected[np.arange(4), labels]), rtol=TOLERANCE, atol=1e-6)


def by_reference(network: Network, state: Arrays, images: np.ndarray) -> np.ndarray:
    maps: dict[Any, np.ndarray] = {}
    for layer in network.layers:
        inputs = [maps.get(producer, images) for producer in layer.producers]
        x, options = inputs[0], layer.options
        given = {name: state[parameter.weight.name] for name, parameter in layer.parameters.items()}
        if layer.kind == "conv":
            walk = options["stride"], options["pad"], options["dilation"]
            y = reference.conv_forward(x, given["w"], given.get("b"), *walk)
        elif layer.kind == "fc":
            y = reference.fc_forward(x, given["w"], given.get("b"))
        elif layer.kind == "batchnorm":
            running = [state[layer.statistics[name].name] for name in ("running_mean", "running_variance")]
            mean, variance = running
            y = reference.batchnorm_inference(x, given["gamma"], given["beta"], mean, variance, options["epsilon"])
        elif layer.kind in ("concat", "join"):
            y = getattr(reference, f"{layer.kind}_forward")(inputs)
        elif layer.kind == "prepend":
            y = reference.prepend_forward(x, given["w"])
        elif layer.kind == "dropout":
            y = x
        else:
            y = getattr(reference, f"{layer.kind}_forward{'_to' if 'out' in options else ''}")(x, **options)
        maps[layer] = reference.relu_forward(y, **layer.relu_options) if layer.has_relu else y
    return maps[network.layers[-1]].reshape(len(images), -1)


@pytest.mark.slow
@settings(max_examples=8)
@given(networks(layers=8))
def test_drawn_networks_train_as_pytorch_does(network: Network) -> None:
    """Any shape, any conventions; the calls are held to their word on the way."""
    pytest.importorskip("torch")
    from tests.refimpl.by_torch import run_torch

    state = started(network)
    images, labels = draw_batch(network)
    expected = run_torch(network, state, images, labels, SETTINGS)
    run_plainly(network, state, images, labels, SETTINGS)
    difference, where = worst(state, expected)
    assert difference < 1e-3, f"{where} differs by {difference:.1e}"
