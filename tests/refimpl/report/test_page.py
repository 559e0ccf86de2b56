"""The page: its data, and what its scripts make of them in Node, against the planner's own figures."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl.planner import Program, Record, Wait
from refimpl.report import page, style
from refimpl.report.figures import KINDS, memory_curve
from refimpl.report.page.document import document, packed
from refimpl.report.timeline_picture import LIGHT, bars
from refimpl.text import duration, size

NODE = shutil.which("node")
#: Every kind of block and of work: a shared copy stream, an eviction, a rebuild, threads of the host.
CASES = {
    "vdnn": ("vgg16", 8, "vdnn-all", "titan-x", None),
    "superneurons": ("alexnet:superneurons", 200, "superneurons", "k40c", "1.8GiB"),
    "vdnnpp": ("tiny-vgg:vdnnpp", 64, "vdnnpp-conv", "gtx-970", None),
}


def planned(case: str) -> Program:
    name, batch, policy, machine, budget = CASES[case]
    return refimpl.plan(refimpl.networks.build(name, batch), policy, machine, budget)


def in_node(script: str, given: Any) -> Any:
    """What `script` returns in Node for `given`; it sees text.js and model.js."""
    if NODE is None:
        pytest.skip("Node is not installed")
    sources = "\n".join((Path(page.__file__).parent / name).read_text() for name in ("text.js", "model.js"))
    program = f"""{sources}
        const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
        (async () => process.stdout.write(JSON.stringify(await (async () => {{ {script} }})())))();"""
    done = subprocess.run([NODE, "-e", program], input=json.dumps(given), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["vdnn", "superneurons", "vdnnpp"])
def test_the_curve_and_the_bars_are_the_planners(case: str) -> None:
    program = planned(case)
    timeline = program.simulate()
    found = in_node(
        """const model = new Model(await unpack(given));
        const { positions, rows } = model.curve;
        return { positions: [...positions], rows: rows.map((row) => [...row]), peak: model.peak,
                 bars: model.bars.map((lane) => lane.map((bar) => [WORK[bar.what], bar.label, bar.begin, bar.end])),
                 held: model.waits.filter((wait) => wait.held).length };""",
        packed(document(program, timeline)),
    )
    curve = memory_curve(program)
    # The page has no moment of its own for what the pool holds before the first instruction.
    assert found["positions"] == [int(position) + 1 for position in curve.positions][-len(found["positions"]) :]
    for kind, held in zip(KINDS, np.array(found["rows"]).T, strict=True):
        assert np.array_equal(held, curve.by_kind[kind][-len(held) :]), kind
    assert found["peak"]["bytes"] == program.peak_bytes
    expected = bars(program, timeline)
    for stream, lane in enumerate(found["bars"]):
        assert [(what, name) for what, name, _, _ in lane] == [
            (bar.what, bar.name) for bar in expected if bar.stream == stream
        ]
        for got, bar in zip(lane, (bar for bar in expected if bar.stream == stream), strict=True):
            assert got[2:] == pytest.approx([bar.start, bar.end], abs=2e-9)
    assert case != "vdnn" or found["held"] > 0


def test_figures_are_written_as_the_command_writes_them() -> None:
    sizes = [0, 1, 1023, 1024, 3 << 29, 11680462848, 3288334336, 12345678901234]
    times = [1e-9, 5e-7, 0.000999, 0.012345, 0.5, 1.0, 12.34, 87.6]
    found = in_node("return [given[0].map(size), given[1].map(duration)];", [sizes, times])
    assert found == [[size(nbytes) for nbytes in sizes], [duration(seconds) for seconds in times]]


def test_a_page_holds_everything_it_needs() -> None:
    program = planned("vdnn")
    text = page.page_of([document(program, program.simulate())])
    assert text == page.page_of([document(program, program.simulate())])  # the same file, whenever it is written
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://|fetch\(|XMLHttpRequest""", text)
    assert "/*DATA*/" not in text and "/*SCRIPT*/" not in text and "/*STYLE*/" not in text
    assert len(text) < 120_000


def test_kinds_and_colours_are_those_of_the_pictures() -> None:
    css = (Path(page.__file__).parent / "page.css").read_text()
    light = css[: css.index("}")]
    for prefix, styles in (("kind", style.KIND_STYLE), ("work", style.WORK_STYLE)):
        colours = re.findall(rf"--{prefix}-\d+: (#\w+)", light)
        assert [colour.lower() for colour in colours] == [colour.lower() for colour, _ in styles.values()]
    assert in_node("return [KINDS, WORK];", None) == [list(KINDS), list(style.WORK_STYLE)]
    panels = (Path(page.__file__).parent / "panels.js").read_text()
    (work,) = re.findall(r"LIGHT_WORK = (\[.*\]);", panels)
    assert sorted(json.loads(work)) == sorted(LIGHT)


def test_work_is_as_long_as_the_simulated_spans() -> None:
    """Without Node: the page's data alone."""
    program = planned("vdnnpp")
    timeline = program.simulate()
    work = document(program, timeline)["work"]
    found = [*zip(work["stream"], work["start"], work["ns"], strict=True)]
    expected = [span for span in timeline.spans if not isinstance(span.instruction, Record | Wait)]
    for got, span in zip(sorted(found), sorted(expected, key=lambda span: (span.stream, span.start)), strict=True):
        assert got == pytest.approx((span.stream, 1e9 * span.start, 1e9 * (span.end - span.start)), abs=2)


def test_a_run_is_beside_its_plan(tmp_path: Path) -> None:
    program = refimpl.plan(refimpl.networks.build("lenet", 4), "vdnn-all", "here")
    with refimpl.Trainer(program, backend="cpu") as trainer:
        page.write_page(tmp_path / "run.html", program, trainer.timeline())
    text = (tmp_path / "run.html").read_text()
    (started,) = re.findall(r"start\((\[.*\])\);", text)
    packed = json.loads(started)
    documents = [in_node("return unpack(given);", one) for one in packed]
    assert [doc["how"] for doc in documents] == ["simulated", "measured"]
    assert documents[0]["said"] == documents[1]["said"]
    assert documents[0]["work"]["start"] != documents[1]["work"]["start"]
