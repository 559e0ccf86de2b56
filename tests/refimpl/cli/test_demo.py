"""The demo: it says of VGG-16 what planning says, its small plan fits, it stops when it has learnt, it draws."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl.backend import Evaluation, data
from refimpl.cli import demonstration as demo
from refimpl.cli.demonstration import pictures


@pytest.fixture(scope="module")
def digits() -> data.Data:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed, and the digits come with it")
    return data.digits()


@pytest.mark.slow
def test_vgg16_needs_more_than_12_gib(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    programs = demo.plan_vgg16()
    said = capsys.readouterr().out
    peaks = [program.peak_bytes for program in programs.values()]
    assert sorted(peaks, reverse=True) == peaks and peaks[-1] > demo.BUDGET
    for name, program in programs.items():
        (line,) = [line for line in said.splitlines() if line.startswith(name)]
        with pytest.raises(refimpl.DoesNotFit) as error:
            refimpl.plan(program.network, program.setup, program.machine, demo.BUDGET)
        step = error.value.step
        assert step is not None and f"step {step.number} of 74, {step.layer} {step.direction}" in line
    assert max(map(len, said.splitlines())) <= 110
    pictures.draw_vgg16(tmp_path / "vgg16.png", programs, demo.BUDGET)
    assert (tmp_path / "vgg16.png").stat().st_size > 20_000


def test_the_small_plan_is_proved_and_tight() -> None:
    program = demo.plan_digits((1, 8, 8))
    assert program.verify().peak_bytes == program.peak_bytes <= demo.DIGITS_BUDGET
    with pytest.raises(refimpl.DoesNotFit):  # and it does need most of it
        refimpl.plan(program.network, program.setup, program.machine, int(0.9 * demo.DIGITS_BUDGET))
    with pytest.raises(refimpl.DoesNotFit):
        refimpl.plan(program.network, refimpl.presets.baseline(), program.machine, demo.DIGITS_BUDGET)


class Pupil:
    """Stands in for a trainer: it gets better by the epoch, and notes what it was given."""

    def __init__(self, right: list[float]) -> None:
        self.right, self.batches = right, list[bytes]()

    def step(self, images: np.ndarray, labels: np.ndarray) -> float:
        self.batches.append(images.tobytes())
        return 1 / len(self.batches)

    def evaluate(self, images: np.ndarray, labels: np.ndarray) -> Any:
        return Evaluation(0.0, self.right.pop(0), np.zeros((len(images), 10)))


@pytest.mark.parametrize("right", [[0.2, 0.95, 0.951, 1.0], [0.5] * demo.EPOCHS])
def test_it_stops_once_it_has_learnt(digits: data.Data, right: list[float]) -> None:
    epochs = 3 if 1.0 in right else demo.EPOCHS
    pupil = Pupil(list(right))
    done = demo.train(pupil, digits)  # type: ignore[arg-type]
    assert done.right == right[:epochs]
    assert len(done.losses) == len(pupil.batches) == epochs * digits.per_epoch(demo.BATCH)
    assert len(set(pupil.batches)) == len(pupil.batches)  # shuffled anew in every epoch


def test_what_was_learnt_is_drawn(tmp_path: Path, digits: data.Data) -> None:
    random = np.random.default_rng(0)
    predictions = random.dirichlet(np.ones(10), len(digits.test_images)).astype(np.float32)
    program = SimpleNamespace(network=SimpleNamespace(name="any", batch=64), budget=1 << 21)
    last = Evaluation(0.5, 0.3, predictions)
    pictures.draw_learning(tmp_path / "digits.png", program, digits, [2.3, 1.0, 0.5], [0.3], last)  # type: ignore[arg-type]
    assert (tmp_path / "digits.png").stat().st_size > 20_000


@pytest.mark.slow
def test_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], digits: data.Data) -> None:
    assert demo.main(tmp_path / "pictures") == 0
    said = capsys.readouterr().out
    assert "as predicted" in said and "NOT" not in said
    drawn = {path.name: path.stat().st_size for path in (tmp_path / "pictures").iterdir()}
    assert set(drawn) == {"vgg16.png", "memory.png", "addresses.png", "timeline.png", "digits.png"}
    assert min(drawn.values()) > 20_000
