"""The demo: it says of VGG-16 what planning says, its small plan fits, it stops when it has learnt, it draws."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import refimpl
from kernels.targets import emulated, gpu
from refimpl.backend import Evaluation, data
from refimpl.cli import demonstration as demo
from refimpl.combined import COMBINED
from refimpl.machine import Timeline
from refimpl.names.networks import build
from refimpl.names.presets import PAPERS, PRESETS, Preset, combinations
from refimpl.planner import Program
from refimpl.report import style
from refimpl.text import size


class Pupil:
    """A double of a trainer: it gets better by the epoch, and notes what it was given."""

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
    done = demo.train(pupil, digits, demo.EPOCHS)  # type: ignore[arg-type]
    assert done.right == right[:epochs]
    assert len(done.losses) == len(pupil.batches) == epochs * digits.per_epoch(demo.BATCH)
    assert len(set(pupil.batches)) == len(pupil.batches)  # shuffled in every epoch


@pytest.mark.slow
def test_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, digits: data.Data
) -> None:
    programs: dict[str, Program] = {}
    plan_vgg16 = demo.plan_vgg16
    monkeypatch.setattr(demo, "plan_vgg16", lambda: programs.update(plan_vgg16()) or programs)
    monkeypatch.setattr(demo, "WANTED", 0.5)
    monkeypatch.setattr(demo, "combinations", lambda paper: [*combinations(paper)][:2])  # `refimpl compare` tries all
    short = dataclasses.replace(COMBINED, effort=10)
    own = Preset.setup
    monkeypatch.setattr(Preset, "setup", property(lambda it: short if it.name == "combined" else own.__get__(it)))
    emulated: list[tuple[Program, list[float]]] = []

    def noted(_: object, program: Program, losses: list[float]) -> bool:
        emulated.append((program, losses))
        return True

    monkeypatch.setattr(demo, "run_emulated", noted)
    assert demo.main(tmp_path / "pictures") == 0
    said = capsys.readouterr().out
    assert "as planned" in said and "the same, to the last bit" in said and "NOT" not in said and "next:" in said
    ((program, losses),) = emulated
    assert program.budget == 1012736 and len(losses) % digits.per_epoch(demo.BATCH) == 0
    vgg16_under_each_paper(programs, said[: said.index("trained")])
    drawn = {path.name: path.stat().st_size for path in (tmp_path / "pictures").iterdir()}
    pages = {"vgg16.html", "digits-vdnnpp-all.html", "digits-superneurons.html"}
    assert set(drawn) == {
        "vgg16.png",
        "vgg16-copies.png",
        "memory.png",
        "addresses.png",
        "timeline.png",
        "digits.png",
        *pages,
    }
    assert min(drawn.values()) > 20_000


@pytest.mark.parametrize("apart", [0.9e-4, -1.1e-4, float("nan")])
def test_losses_agree_if_none_is_far_from_the_cpus(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, digits: data.Data, apart: float
) -> None:
    losses = [2.0, 1.5, 1.0]
    again = iter([losses[0], losses[1] + apart, losses[2]])
    trainer = contextlib.nullcontext(SimpleNamespace(step=lambda images, labels: next(again)))
    monkeypatch.setattr(demo, "EMULATED", 3)
    monkeypatch.setattr(demo, "Trainer", lambda program, backend, rate: trainer)
    for module, question in ((emulated, "why_not"), (gpu, "why_not_compile")):
        monkeypatch.setattr(module, question, lambda: None)
    program: Any = None
    assert demo.run_emulated(digits, program, losses) is (abs(apart) < 1e-4)
    assert f": {abs(apart):.0e} from" in capsys.readouterr().out or apart != apart


def vgg16_under_each_paper(programs: dict[str, Program], said: str) -> None:
    """The table of the papers: who fits, what that needs, and by which means."""
    assert programs["baseline"].peak_bytes > demo.BUDGET
    assert {"vDNN", "SuperNeurons", "AccUDNN", "combined"} < set(programs)
    for paper in PAPERS:
        fits = paper in programs and programs[paper].peak_bytes <= demo.BUDGET
        (line,) = [line for line in said.splitlines() if line.startswith(f"{paper} ")]
        assert ("does not fit" in line) is not fits
        if fits:
            program = programs[paper]
            assert all(
                text in line for text in (demo.means(program), size(program.pool_bytes), size(program.peak_bytes))
            )
            assert program.peak_bytes <= program.pool_bytes <= program.budget == demo.BUDGET
    assert max(map(len, said.splitlines())) <= 110


class Quick:
    """A double of a trainer that learns at once, and needs the memory that was planned."""

    def __init__(self, program: Program, backend: str, rate: float) -> None:
        self.program, self.said, self.recounted_peak = program, f"{backend}, {rate:g}", program.peak_bytes
        self.losses = iter([2.25, 1.5, 0.75] * 100)

    def __enter__(self) -> Quick:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def step(self, images: np.ndarray, labels: np.ndarray) -> float:
        return next(self.losses)

    def evaluate(self, images: np.ndarray, labels: np.ndarray) -> Evaluation:
        sure = np.linspace(0.5, 0.9, len(images), dtype=np.float32)
        predictions = np.full((len(images), 10), 0.01, np.float32)
        predictions[np.arange(len(images)), (labels + (np.arange(len(images)) % 30 == 0)) % 10] = sure
        return Evaluation(0.25, 29 / 30, predictions)

    def timeline(self) -> Timeline:
        return self.program.simulate()


def test_the_demo_says_and_draws_what_it_planned_and_trained(
    tmp_path: Path, digits: data.Data, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small network in place of VGG-16, and a trainer that learns at once."""
    networks = SimpleNamespace(
        vgg16=lambda batch: build("tiny-vgg", batch), tiny_resnet=lambda batch, shape: build("lenet", batch)
    )
    machines = SimpleNamespace(titan_x=refimpl.machines.titan_x, here=refimpl.machines.titan_x)
    clock, drawn, pages, emulated = iter([100.0, 107.4]), dict[str, Figure](), dict[str, Program](), list[Any]()
    some = {"baseline": "baseline", "vDNN": "vdnn-all", "combined": "accudnn"}  # the search takes longer

    def noted(_: object, program: Program, losses: list[float]) -> bool:
        emulated.append(losses)
        return True

    monkeypatch.setattr(demo, "refimpl", SimpleNamespace(networks=networks, machines=machines, plan=refimpl.plan))
    monkeypatch.setattr(demo, "BUDGET", 30 << 20)
    monkeypatch.setattr(demo, "SHARE", 0.95)
    monkeypatch.setattr(demo, "PAPERS", (*some,))
    monkeypatch.setattr(demo, "combinations", lambda paper: [PRESETS[some[paper]].setup])
    monkeypatch.setattr(demo, "Trainer", Quick)
    monkeypatch.setattr(demo, "run_emulated", noted)
    monkeypatch.setattr(demo, "write_page", lambda path, program, *_, **__: pages.update({path.name: program}))
    monkeypatch.setattr(demo, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(data, "digits", lambda: digits)
    monkeypatch.setattr(style, "save", lambda figure, path: drawn.update({path.name: figure}))
    assert demo.main(tmp_path, "cpu") == 0

    said = " ".join(capsys.readouterr().out.split())
    assert "on a GPU of 30 MiB" in said and "does not fit: the least budget is 54 MiB" in said
    assert re.search(r"combined 30 MiB \S+ MiB 1\.\d\d × copies \d+ MiB out and in", said)
    assert "a third of the" in said and said.count("as planned after 1 epoch: loss 2.250000, accuracy 96.7%") == 2
    assert "losses of all 22 iterations are the same, to the last bit" in said and "7 seconds. next:" in said
    assert [losses[:4] for losses in emulated] == [[2.25, 1.5, 0.75, 2.25]]
    assert {*pages} == {"vgg16.html", "digits-vdnnpp-all.html", "digits-superneurons.html"}
    assert {*drawn} == {"vgg16.png", "vgg16-copies.png", "memory.png", "addresses.png", "timeline.png", "digits.png"}
    legend = [text.get_text().partition(":")[0] for text in drawn["vgg16.png"].legends[0].get_texts()]
    assert legend == [*some] and all(figure.texts for figure in drawn.values())
