"""Transformers whose attention has its probabilities as maps: the same numbers, and the same under every preset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl.backend.windows import SyntheticTokens
from refimpl.machine import MACHINES
from refimpl.names.by_name import budget_bytes
from refimpl.names.presets import PRESETS
from refimpl.network import Network
from refimpl.planner import DoesNotFit
from tests.messages import raises_naming

MACHINE = MACHINES["titan-x"].with_catalogue("own")
SIZES = {"batch": 2, "tokens": 132, "width": 16, "heads": 2}  # two tiles, of which one is masked whole


def tiny(name: str, **how: Any) -> tuple[Network, SyntheticTokens]:
    network = getattr(refimpl.networks, name)(**SIZES, probabilities="maps", **how)
    return network, SyntheticTokens.of(network)


def trained(program: refimpl.Program, source: SyntheticTokens, steps: int = 2) -> dict[str, bytes]:
    with refimpl.Trainer(program, "cpu", rate=0.05) as trainer:
        for iteration in range(steps):
            trainer.step(*source.batch(program.network.batch, iteration))
        return {name: values.tobytes() for name, values in trainer.state().items()}


def with_weights_of(state: dict[str, np.ndarray], heads: int) -> dict[str, np.ndarray]:
    """The weights of a network that makes queries, keys and values at once, for one that makes the values apart."""
    found = {}
    for name, values in state.items():
        layer, _, parameter = name.rpartition(".")
        if layer.endswith(".qkv"):
            rows = values.reshape(heads, 3, -1, *values.shape[1:])
            block = layer.removesuffix(".qkv")
            found[f"{block}.qk.{parameter}"] = rows[:, :2].reshape(-1, *values.shape[1:])
            found[f"{block}.v.{parameter}"] = rows[:, 2].reshape(-1, *values.shape[1:])
        else:
            found[name] = values
    return found


@pytest.mark.parametrize("name", ["tiny_gpt", "tiny_bert"])
def test_the_losses_are_those_with_probabilities_as_workspace(name: str) -> None:
    network, source = tiny(name, words=32)
    plain = getattr(refimpl.networks, name)(**SIZES, words=32)
    losses: list[list[float]] = []
    start: dict[str, np.ndarray] = {}
    for one in (plain, network):
        with refimpl.Trainer(refimpl.plan(one, "baseline", MACHINE), "cpu", rate=0.05) as trainer:
            if not start:
                start = with_weights_of({name: values.copy() for name, values in trainer.state().items()}, 2)
            else:
                state = trainer.state()
                trainer.load_state(state | {name: start[name] for name in state if name in start})
            losses.append([float(trainer.step(*source.batch(2, iteration))) for iteration in range(3)])
    assert losses[0][0] != losses[0][2]
    np.testing.assert_allclose(losses[1], losses[0], rtol=5e-7)


FAST = ("superneurons", "vdnn-all")


@pytest.mark.parametrize(
    "preset", [pytest.param(one, marks=() if one in FAST else pytest.mark.slow) for one in PRESETS]
)
def test_a_preset_trains_them_as_the_baseline_does(preset: str) -> None:
    """In a third of what the baseline's maps need, or as soon as the preset fits."""
    network, source = tiny("tiny_gpt", words=32)
    whole = refimpl.plan(network, "baseline", MACHINE)
    expected, needed = trained(whole, source), budget_bytes(1.0, network, MACHINE)
    for share in (0.34, 0.5, 0.7, 1.0):
        budget = network.resident_bytes + int(share * (needed - network.resident_bytes))
        try:
            program = refimpl.plan(network, preset, MACHINE.with_algorithms(whole.algorithms), budget)
        except DoesNotFit:
            continue
        program.verify()
        assert trained(program, source) == expected, preset
        return
    raise AssertionError(f"{preset} does not fit")


def test_what_is_no_way_to_have_probabilities_is_refused() -> None:
    with raises_naming(refimpl.NetworkError, "probabilities", "'fused'", "workspace", "maps"):
        refimpl.networks.tiny_gpt(probabilities="fused")
