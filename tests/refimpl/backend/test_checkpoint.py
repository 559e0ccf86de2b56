"""Checkpoints: resuming goes on bit for bit, and a bad file changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refimpl.backend import CheckpointError, Trainer, checkpoint
from refimpl.backend.checkpoint import algorithms, without_algorithm
from refimpl.network import Builder, Network
from refimpl.network.initial_state import state_tensors
from tests.messages import raises_naming
from tests.refimpl.backend.running import differing, small_network, small_program, trainer
from tests.refimpl.plainly import draw_batch


@pytest.fixture(scope="module")
def program() -> Any:
    return small_program()


def batches(network: Network, first: int, last: int) -> list[Any]:
    return [draw_batch(network, i) for i in range(first, last)]


def test_the_old_file_stays_until_the_new_one_is_whole(program: Any, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "here.npz"
    with trainer(program) as made:
        made.save(path)
        old = path.read_bytes()
        made.step(*draw_batch(program.network))

        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        for broken in ("savez",), ("replace",):
            with monkeypatch.context() as patched:
                patched.setattr(np if broken == ("savez",) else os, broken[0], full)
                with raises_naming(CheckpointError, "here.npz"):
                    made.save(path)
            assert path.read_bytes() == old
            assert os.listdir(tmp_path) == ["here.npz"]
        made.save(path)
        assert path.read_bytes() != old
        assert os.listdir(tmp_path) == ["here.npz"]


def test_foreign_files_are_refused(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "here.npz"
    with trainer(program) as made:
        before = made.state()
        made.save(path)

        def refused(*parts: object) -> None:
            with raises_naming(CheckpointError, path, *parts):
                made.restore(path)
            assert differing(made.state(), before) == [] and made.iteration == 0

        with trainer(small_program(small_network(classes=5))) as other:
            other.save(path)
        refused("last.w", (5, 8), "small", (4, 8))

        b = Builder("simple", (1, 1, 4, 4))
        b.fc(2)
        b.softmax()
        with Trainer(small_program(b.build())) as other:
            other.save(path)
        refused("simple", "small")

        np.savez(path, x=np.ones(3))
        refused("about")
        np.savez(path, about=np.array(json.dumps({"format": 7})))
        refused("format", 2)
        about = {"format": 2, "network": "small", "optimiser": "sgd", "settings": {"rate": 1}}
        np.savez(path, allow_pickle=False, about=np.array(json.dumps(about)), **before)
        refused("seed", "iteration", "momentum")
        path.unlink()
        refused()


def test_a_state_must_be_whole(program: Any) -> None:
    with trainer(program) as made:
        before = made.state()
        for change, match in (
            ({"first.w": np.ones((1, 2), np.float32)}, ("(1, 2)", "first.w", "float32", "small")),
            ({"first.b": np.ones(4)}, ("first.b", "float64")),
            ({"unknown.w": np.ones(4, np.float32)}, ("unknown.w",)),
        ):
            with raises_naming(CheckpointError, *match):
                made.load_state(before | change)
        with raises_naming(CheckpointError, "first.w"):
            made.load_state({name: values for name, values in before.items() if name != "first.w"})
        assert differing(made.state(), before) == []


# -- the file itself ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simple() -> Network:
    b = Builder("simple", (1, 1, 4, 4))
    b.conv(2, 3)
    b.fc(2)
    b.softmax()
    return b.build()


STATE_SETTINGS: dict[str, Any] = {
    "seed": 3, "iteration": 4, "rate": 0.5, "momentum": 0.25, "decay": 0.125, "schedule": "cosine:90", "warmup": 2,
}  # fmt: skip


def written(path: Path, network: Network, **changed: Any) -> Path:
    """A checkpoint with `about` changed after it was written; a value of None leaves it out."""
    state = {tensor.name: np.full(tensor.shape, 1.5, tensor.dtype) for tensor in state_tensors(network)}
    chosen = dict.fromkeys(without_algorithm(network, {}), "gemm")
    checkpoint.write(path, network, state, STATE_SETTINGS, chosen)
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(str(arrays["about"])) | changed
    arrays["about"] = np.array(json.dumps({name: value for name, value in about.items() if value is not None}))
    np.savez(path, **arrays)
    return path


def test_what_is_written_is_read(simple: Network, tmp_path: Path) -> None:
    path = written(tmp_path / "here.npz", simple)
    state, settings = checkpoint.read(path, simple)
    assert settings == STATE_SETTINGS
    assert {name: (array.shape, str(array.dtype)) for name, array in state.items()} == {
        tensor.name: (tensor.shape, tensor.dtype) for tensor in state_tensors(simple)
    }
    assert all((array == 1.5).all() for array in state.values())
    chosen = algorithms(path, simple)
    assert chosen is not None and len(chosen) > 1 and set(chosen.values()) == {"gemm"}
    assert without_algorithm(simple, chosen) == []
    assert without_algorithm(simple, dict([*chosen.items()][1:])) == [min(chosen, key=[*chosen].index)]


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"checksums": {}}, ("damaged", "differs")),
        ({"format": 3}, ("format", 2)),
        ({"optimiser": "adamw"}, ("adamw", "sgd")),
        ({"algorithms": {}}, ("algorithm", "conv.forward conv1")),
        ({"settings": {**STATE_SETTINGS, "seed": -1}}, ("seed", -1)),
        ({"settings": {**STATE_SETTINGS, "rate": "fast"}}, ("rate", "fast")),
        ({"settings": {**STATE_SETTINGS, "schedule": "sudden"}}, ("schedule", "sudden")),
    ],
)
def test_what_a_checkpoint_says_of_itself_is_checked(
    changed: dict[str, Any], parts: tuple[object, ...], simple: Network, tmp_path: Path
) -> None:
    path = written(tmp_path / "here.npz", simple, **changed)
    with raises_naming(CheckpointError, path, *parts):
        checkpoint.read(path, simple)


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_settings_at_their_limits_are_read(seed: int, simple: Network, tmp_path: Path) -> None:
    path = written(tmp_path / "here.npz", simple, settings={**STATE_SETTINGS, "seed": seed, "rate": 1})
    settings = checkpoint.read(path, simple)[1]
    assert settings["seed"] == seed and type(settings["rate"]) is float


@pytest.mark.parametrize("wrong", [np.nan, -np.inf])
def test_a_state_that_has_diverged_is_not_written(wrong: float, simple: Network, tmp_path: Path) -> None:
    path = written(tmp_path / "here.npz", simple)
    before = path.read_bytes()
    state, settings = checkpoint.read(path, simple)
    [*state.values()][1].flat[0] = wrong
    with raises_naming(CheckpointError, path, "diverged", [*state][1]):
        checkpoint.write(path, simple, state, settings, {})
    assert path.read_bytes() == before
