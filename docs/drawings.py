"""The drawings of the architecture page and of a deck: `python docs/drawings.py` writes them into docs/pictures/.

They have a ground of their own, so that both are readable on a light and on a dark page.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH = 760
INK, FAINT, WALL, PAPER, GROUND = "#1b1f24", "#667085", "#2962ff", "#f3f6fc", "#ffffff"

#: The rooms that are drawn, from the ground up, and what each is for, in at most 26 letters.
PURPOSE = {
    "kernels": "plain kernels, to be read",
    "refimpl.text": "sizes, durations, errors",
    "refimpl.memory": "where a block goes",
    "refimpl.network": "layers, calls, steps",
    "refimpl.slots": "a setup and its questions",
    "refimpl.vdnn": "a paper, 2016",
    "refimpl.vdnnpp": "a paper, 2019",
    "refimpl.superneurons": "a paper, 2018",
    "refimpl.accudnn": "a paper, 2019",
    "refimpl.executor": "trains layer by layer",
    "refimpl.streams": "streams, events, buffers",
    "kernels.checks": "shapes, arguments",
    "kernels.targets": "compiles, launches",
    "kernels.fast": "what a GPU wants",
    "kernels.fast.cpu": "what a processor wants",
    "refimpl.machine": "models, the simulator",
    "refimpl.planner": "the loop, the program",
    "refimpl.backend": "runs it: CPU, CUDA",
    "refimpl.combined": "the papers together",
    "refimpl.zoo": "networks by builders",
    "refimpl.importing": "ONNX, PyTorch modules",
    "refimpl.torch": "a plan in PyTorch's loop",
    "refimpl.names": "names, and what fits",
    "refimpl.points": "many points at once",
    "refimpl.report": "tables, pictures, traces",
    "refimpl.parallel": "MPI and threads as ranks",
    "refimpl.cli": "the command refimpl",
    "refimpl.studies": "what evaluates",
}
A_ROW = 4  #: rooms side by side


def _text(
    x: float, y: float, text: str, size: float = 13, colour: str = INK, bold: bool = False, mid: bool = True
) -> str:
    anchor, weight = "middle" if mid else "start", ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}"{weight} '
        f'style="fill: {colour}">{escape(text)}</text>'
    )


def _box(x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" '
        f'style="fill: {PAPER}; stroke: {WALL}; stroke-width: 1.5"/>'
    )


def _line(*points: tuple[float, float], arrow: bool = True, colour: str = INK) -> str:
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    end = ' marker-end="url(#head)"' if arrow else ""
    return f'<polyline points="{path}"{end} style="fill: none; stroke: {colour}; stroke-width: 1.5"/>'


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'width="{WIDTH}" font-family="sans-serif">\n<title>{escape(title)}</title>\n'
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>\n'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" style="fill: {INK}"/></marker></defs>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


# -- the house ---------------------------------------------------------------------------------------------------------


def storeys(layout_test: Path) -> dict[str, list[str]]:
    """The storeys, lowest first, as the test that checks the imports has them."""
    for node in ast.parse(layout_test.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "STOREYS":
            found = ast.literal_eval(node.value)
            return {name: [room for room in rooms if room in PURPOSE] for name, rooms in found.items()}
    raise ValueError(f"{layout_test} has no STOREYS")


def house(root: Path) -> str:
    """The rooms, one storey above the other, in rows."""
    left, right, height, gap, top = 64, WIDTH - 14, 46, 7, 6
    plan = storeys(root / "tests" / "test_layout.py")
    rows = [rooms[i : i + A_ROW] for rooms in plan.values() for i in range(0, len(rooms), A_ROW)]
    ground = top + len(rows) * (height + gap) + len(plan) * 22
    parts, y = [], float(ground)
    for name, rooms in plan.items():
        for i in range(0, len(rooms), A_ROW):
            row, y = rooms[i : i + A_ROW], y - height - gap
            each = (right - left + gap) / len(row)
            for number, room in enumerate(row):
                parts += _room(room, left + number * each, y, each - gap, height)
        y -= 22
        parts.append(_text(left, y + 16, name, 13, FAINT, bold=True, mid=False))
    parts += [
        _line((30, top + 2 * height), (30, ground - gap), colour=FAINT),
        f'<text transform="translate(22 {ground / 2:g}) rotate(-90)" font-size="12" text-anchor="middle" '
        f'style="fill: {FAINT}">imports point down</text>',
    ]
    return _svg(ground + 4, "The house: the rooms of the project, storey by storey", parts)


def _room(room: str, x: float, y: float, width: float, height: float) -> list[str]:
    """A box with a room's name and its purpose."""
    middle = x + width / 2
    return [
        _box(x, y, width, height),
        _text(middle, y + 19, room.removeprefix("refimpl."), 14, bold=True),
        _text(middle, y + 36, PURPOSE[room], 12),
    ]


# -- the flow ----------------------------------------------------------------------------------------------------------


def flow() -> str:
    """Network, setup and machine go in; a program comes out; everything else is made from the program."""
    parts, row = [], 92
    inputs = (("network", "what is trained"), ("setup", "a module in each slot"), ("machine", "a GPU, and a budget"))
    for i, (name, about) in enumerate(inputs):
        x = 60 + i * 225
        parts += [_box(x, 10, 190, 50), _text(x + 95, 31, name, 15, bold=True), _text(x + 95, 49, about, 12)]
        parts.append(_line((x + 95, 60), (x + 95, row - 12), (WIDTH / 2, row - 12), (WIDTH / 2, row + 8)))
    parts += [
        _box(230, row + 10, 300, 50),
        _text(380, row + 31, "planner", 15, bold=True),
        _text(380, row + 49, "one loop asks the slots, writes instructions", 12),
        _line((380, row + 60), (380, row + 88)),
        _box(110, row + 90, 540, 50),
        _text(380, row + 111, "program", 15, bold=True),
        _text(380, row + 129, "allocate · free · launch · copy out · copy in · record · wait, with addresses", 12),
    ]
    top = row + 182
    outputs = (
        ("listing", "for people"),
        ("verify", "proves it safe"),
        ("simulate", "when, on that machine"),
        ("run", "CUDA, or the CPU"),
    )
    for i, (name, about) in enumerate(outputs):
        x = 20 + i * 182
        parts += [
            _box(x, top, 172, 50),
            _text(x + 86, top + 21, name, 15, bold=True),
            _text(x + 86, top + 39, about, 12),
        ]
        parts.append(_line((380, row + 140), (380, row + 160), (x + 86, row + 160), (x + 86, top - 2)))
        if name in ("simulate", "run"):
            parts.append(_line((x + 86, top + 50), (x + 86, top + 78)))
            parts.append(_text(x + 92, top + 68, "timeline", 11, FAINT, mid=False))
    parts += [
        _box(20, top + 80, 718, 50),
        _text(380, top + 101, "report", 15, bold=True),
        _text(380, top + 119, "tables, pictures, traces that other tools open", 12),
        _line((106, top + 50), (106, top + 78)),
    ]
    return _svg(top + 140, "The way of the data: from network, setup and machine to the report", parts)


# -- streams -----------------------------------------------------------------------------------------------------------

#: What two streams do with a map x whose bytes y takes meanwhile: the stream (0 computes, 1 copies), the work, and the
#: hazard that the wait before it prevents.
ROUND_TRIP = (
    (0, "writes x", ""),
    (1, "copies x out", "read after write"),
    (0, "writes y over x", "write after read"),
    (1, "copies x in", "write after write"),
    (0, "reads x", "read after write"),
)


def round_trip(clocks: bool = False) -> str:
    """The work of two streams in order; an arrow is a wait, with its hazard; or each piece's vector clock."""
    parts, seen, left, each = [], [0, 0], 84, 135
    for lane, name in ((44, "compute"), (168, "memory")):
        parts += [
            _text(8, lane + 5, name, 14, bold=True, mid=False),
            _line((left - 6, lane), (WIDTH - 2, lane), colour=FAINT),
        ]
    for number, (stream, work, hazard) in enumerate(ROUND_TRIP):
        x, y, seen[stream] = left + number * each, 20 + 124 * stream, seen[stream] + 1
        lines = (work, f"({seen[0]}, {seen[1]})") if clocks else (f"{number + 1}", work)
        parts += [
            _box(x, y, 124, 48),
            _text(x + 62, y + 20, lines[0], 14, bold=True),
            _text(x + 62, y + 39, lines[1], 14),
        ]
        if hazard:
            start, end = (68, 142) if stream else (144, 70)
            parts.append(_line((x - 30, start), (x + 20, end), colour=WALL))
            parts.append(_text(x + 8, 110 if stream else 114, "" if clocks else hazard, 13, WALL, mid=False))
    title = "vector clocks" if clocks else "which hazard each wait prevents"
    return _svg(212, f"A map's way to the host and back over two streams: {title}", parts)


def drawings(root: Path) -> dict[str, str]:
    """File in docs/pictures → what it has."""
    return {
        "house.svg": house(root),
        "flow.svg": flow(),
        "round-trip.svg": round_trip(),
        "clocks.svg": round_trip(clocks=True),
    }


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    for name, drawing in drawings(here.parent).items():
        (here / "pictures" / name).write_text(drawing, encoding="utf-8")
