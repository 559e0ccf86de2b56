"""Checkpoints: resuming goes on bit for bit, and a bad file changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refimpl.backend import CheckpointError, Trainer
from refimpl.backend.checkpoint import algorithms
from refimpl.network import Builder, Network
from refimpl.planner.baseline import NoOffload, NoPrefetch
from tests.messages import raises_naming
from tests.refimpl.backend.running import differing, small_network, small_program, trained, trainer
from tests.refimpl.plainly import draw_batch


@pytest.fixture(scope="module")
def program() -> Any:
    return small_program()


def batches(network: Network, first: int, last: int) -> list[Any]:
    return [draw_batch(network, i) for i in range(first, last)]


def test_resuming_goes_on_bit_for_bit(program: Any, tmp_path: Path) -> None:
    losses, straight = trained(program, 5)
    with trainer(program) as first:
        for batch in batches(program.network, 0, 2):
            first.step(*batch)
        first.save(tmp_path / "here.npz")
        saved = first.state()
    with Trainer(program, seed=99, rate=0.5) as second:  # everything is taken from the file
        second.restore(tmp_path / "here.npz")
        assert differing(second.state(), saved) == []
        assert (second.iteration, second.seed, second.rate, second.momentum) == (2, 2026, 0.05, 0.9)
        assert [second.step(*batch) for batch in batches(program.network, 2, 5)] == losses[2:]
        assert differing(second.state(), straight) == []


def test_another_set_up_and_another_batch_can_resume(program: Any, tmp_path: Path) -> None:
    with trainer(program) as first:
        first.save(tmp_path / "any name")
        state = first.state()
    plain = small_program(small_network(batch=5), offload=NoOffload(), prefetch=NoPrefetch())
    with Trainer(plain) as second:
        second.restore(tmp_path / "any name")
        assert differing(second.state(), state) == []


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


def damaged(content: bytes, how: str) -> bytes:
    if how == "flipped":
        middle = content.index(b"NUMPY", len(content) // 2) + 128  # the first number of an array
        return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
    return {"empty": b"", "half": content[: len(content) // 2], "less a byte": content[:-1], "text": b"hello"}[how]


@pytest.mark.parametrize("how", ["empty", "half", "less a byte", "flipped", "text"])
def test_a_damaged_file_changes_nothing(program: Any, tmp_path: Path, how: str) -> None:
    path = tmp_path / "here.npz"
    with trainer(program) as made:
        made.step(*draw_batch(program.network))
        made.save(path)
        path.write_bytes(damaged(path.read_bytes(), how))
        made.step(*draw_batch(program.network, 1))
        before = made.state()
        with raises_naming(CheckpointError, "here.npz") as caught:
            made.restore(path)
        assert "\n" not in str(caught.value)
        assert differing(made.state(), before) == [] and made.iteration == 2


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
        about = {"format": 2, "network": "small", "settings": {"rate": 1}}
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


@pytest.mark.parametrize("read", ["restore", "algorithms"])
def test_a_checkpoint_that_cannot_be_opened_is_one_line_with_its_path(program: Any, tmp_path: Path, read: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        if read == "algorithms":
            algorithms(tmp_path, program.network)  # a folder
        else:
            with trainer(program) as one:
                one.restore(tmp_path)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)
