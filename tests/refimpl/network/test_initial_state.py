"""Parameters from a seed."""

from __future__ import annotations

import numpy as np
import pytest

from refimpl.network import Builder, Network
from refimpl.network.initial_state import STATE_KINDS, drawn, initial_state
from tests.refimpl.backend.running import small_network


def named(network: Network, seed: int) -> dict[str, np.ndarray]:
    return {tensor.name: values for tensor, values in initial_state(network, seed)}


def test_they_follow_from_seed_and_name_alone() -> None:
    here, there = named(small_network(batch=2), 5), named(small_network(batch=7), 5)
    assert here.keys() == there.keys()
    assert all(np.array_equal(here[name], there[name]) for name in here)
    other = named(small_network(), 6)
    assert not np.array_equal(here["first.w"], other["first.w"])


def test_another_layer_leaves_them_as_they_are() -> None:
    def chain(extra: bool) -> Network:
        b = Builder("chain", (1, 1, 4, 4))
        b.conv(3, 3, pad=1, name="a")
        if extra:
            b.conv(3, 3, pad=1, name="between")
        b.conv(3, 3, pad=1, name="c")
        b.fc(2, name="end")
        b.softmax()
        return b.build()

    short, long = named(chain(False), 1), named(chain(True), 1)
    assert all(np.array_equal(short[name], long[name]) for name in short)


def test_two_tensors_never_have_the_same_numbers() -> None:
    assert not np.array_equal(drawn("a.w", (10,), 1, 0), drawn("b.w", (10,), 1, 0))
    assert not np.array_equal(drawn("a.w", (10,), 1, 0), drawn("a.w", (10,), 1, 1))


def test_every_kind_starts_as_it_should() -> None:
    network = small_network()
    state = named(network, 0)
    assert list(state) == [tensor.name for tensor in network.resident if tensor.kind in STATE_KINDS]
    assert all(state[tensor.name].shape == tensor.shape for tensor in network.resident if tensor.name in state)
    assert not state["first.b"].any() and not state["normal.beta"].any()
    assert (state["normal.gamma"] == 1).all() and (state["normal.running_variance"] == 1).all()
    assert not state["normal.running_mean"].any() and not state["momentum of first.w"].any()


@pytest.mark.parametrize(("last", "variance"), [(False, 2 / 400), (True, 1 / 400)])
def test_the_spread_is_hes(last: bool, variance: float) -> None:
    """2 / inputs before a ReLU; 1 / inputs before the softmax."""
    b = Builder("wide", (1, 1, 20, 20))
    b.fc(400, name="here")
    if not last:
        b.relu()
        b.fc(3)
    b.softmax()
    w = named(b.build(), 0)["here.w"]
    assert abs(w.mean()) < 0.001
    assert w.var() == pytest.approx(variance, rel=0.02)
