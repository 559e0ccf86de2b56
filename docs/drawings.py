"""The two drawings of the architecture page, as SVG: the house, from the tree as it is, and the way the data flows.

Colours are those of the page's theme, so that they are readable by day and by night.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH = 760
INK, FAINT = "var(--color-foreground-primary, #222)", "var(--color-foreground-muted, #777)"
WALL, PAPER = "var(--color-brand-primary, #2962ff)", "var(--color-background-secondary, #f8f9fb)"

#: What a room is for, in a few words.
PURPOSE = {
    "kernels": "plain Numba CUDA kernels: nothing else knows how to compute",
    "refimpl.text": "sizes, durations, names",
    "refimpl.network": "layers, calls, steps, routes; the zoo",
    "refimpl.memory": "allocators",
    "refimpl.machine": "models of GPUs, simulator",
    "refimpl.planner": "the slots, ONE loop, the program, its listing and its proof",
    "refimpl.vdnn": "2016",
    "refimpl.vdnnpp": "2019",
    "refimpl.superneurons": "2018",
    "refimpl.accudnn": "2019",
    "refimpl.backend": "CPU, CUDA",
    "refimpl.report": "tables, pictures, traces of any program",
    "refimpl.registry": "names, presets, budgets; what fits",
    "refimpl.bench": "kernels beside their rivals",
    "refimpl.reproduce": "published figures beside ours",
    "refimpl": "the names that Python users import",
    "refimpl.cli": "the command",
    "refimpl.__main__": "python -m refimpl",
}


def _text(
    x: float, y: float, text: str, size: float = 13, colour: str = INK, bold: bool = False, mid: bool = True
) -> str:
    anchor, weight = "middle" if mid else "start", ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}"{weight} '
        f'style="fill: {colour}">{escape(text)}</text>'
    )


def _box(x: float, y: float, width: float, height: float, dashed: bool = False, colour: str = WALL) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"{dash} '
        f'style="fill: {PAPER}; stroke: {colour}; stroke-width: 1.5"/>'
    )


def _line(*points: tuple[float, float], arrow: bool = True, colour: str = INK) -> str:
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    end = ' marker-end="url(#head)"' if arrow else ""
    return f'<polyline points="{path}"{end} style="fill: none; stroke: {colour}; stroke-width: 1.5"/>'


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'style="max-width: {WIDTH}px; width: 100%; font-family: inherit">\n<title>{escape(title)}</title>\n'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" style="fill: {INK}"/></marker></defs>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


# -- the house ---------------------------------------------------------------------------------------------------------


def floors(layout_test: Path) -> list[list[str]]:
    """The floors, lowest first, as the test that checks the imports has them."""
    for node in ast.parse(layout_test.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "FLOORS":
            return [list(floor) for floor in ast.literal_eval(node.value)]
    raise ValueError(f"{layout_test} has no FLOORS")


def files_of(root: Path, room: str) -> list[Path]:
    """The room's modules; the top floor's are those in no room of their own, and the demo's."""
    folder = root / room.replace(".", "/")
    if room == "refimpl":
        return [*folder.glob("*.py"), *(folder / "demo").glob("*.py")]
    return list(folder.rglob("*.py"))


def measure(files: Sequence[Path]) -> str:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    return f"{len(files)} files, {lines:,} lines"


def house(root: Path) -> str:
    """The rooms, a floor above another: imports point downwards only.  What is not built yet is dashed."""
    height, gap, left, roof = 62, 8, 30, 96
    rows = floors(root / "tests" / "test_layout.py")
    parts = []
    for number, rooms in enumerate(rows):
        top = roof + (len(rows) - 1 - number) * (height + gap)
        if number == len(rows) - 1:  # the roof
            outline = (left - 22, roof + height), (WIDTH / 2, 6), (WIDTH - left + 22, roof + height)
            points = " ".join(f"{x:g},{y:g}" for x, y in outline)
            parts.append(
                f'<polygon points="{points}" stroke-linejoin="round" '
                f'style="fill: {PAPER}; stroke: {WALL}; stroke-width: 1.5"/>'
            )
        wide = (WIDTH - 2 * left + gap) / len(rooms)
        for i, room in enumerate(rooms):
            files, x = files_of(root, room), left + i * wide
            if number < len(rows) - 1:
                parts.append(_box(x, top, wide - gap, height, dashed=not files, colour=WALL if files else FAINT))
            middle, name = x + (wide - gap) / 2, room.removeprefix("refimpl.")
            parts.append(
                _text(middle, top + 20, name, 15 if len(rooms) < 4 else 14, INK if files else FAINT, bold=True)
            )
            parts.append(_text(middle, top + 37, PURPOSE[room], 12, INK if files else FAINT))
            parts.append(_text(middle, top + 53, measure(files) if files else "to be built", 11, FAINT))
    ground = roof + len(rows) * (height + gap) - gap
    parts.append(_line((4, ground + 4), (WIDTH - 4, ground + 4), arrow=False, colour=FAINT))
    return _svg(ground + 10, "The house: the rooms of the project, floor by floor", parts)


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
