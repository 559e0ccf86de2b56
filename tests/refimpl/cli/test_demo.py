"""The demo: it says of VGG-16 what planning says, its small plan fits, it stops when it has learnt, it draws."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from refimpl.backend import data
from refimpl.cli import demonstration as demo
from refimpl.combined import COMBINED
from refimpl.names.presets import PAPERS, Preset, combinations
from refimpl.planner import Program
from refimpl.report import style
from refimpl.text import size


@pytest.mark.slow
def test_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, digits: data.Data
) -> None:
    programs: dict[str, Program] = {}
    plan_vgg16 = demo.plan_vgg16
    monkeypatch.setattr(demo, "plan_vgg16", lambda: programs.update(plan_vgg16()) or programs)
    monkeypatch.setattr(demo, "WANTED", 0.2)
    save = style.save  # the library's pictures are made, and drawn by its own tests
    monkeypatch.setattr(style, "save", lambda it, path: save(it, path) if path.stem == "digits" else path.touch())
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
    assert all(drawn[name] > 20_000 for name in ("digits.png", *pages))


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
