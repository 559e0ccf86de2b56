"""The two drawings of the architecture page, as SVG: the house, measured from the tree, and the flow of the data.

The colours are those of the page's theme, so that both are readable in its light and in its dark mode.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH = 760
INK, FAINT = "var(--color-foreground-primary, #222)", "var(--color-foreground-muted, #777)"
WALL, PAPER = "var(--color-brand-primary, #2962ff)", "var(--color-background-secondary, #f8f9fb)"

#: The rooms that are drawn, from the ground up, and what each is for.
PURPOSE = {
    "kernels": "plain Numba CUDA kernels: nothing else knows how to compute",
    "refimpl.text": "sizes, durations, names",
    "refimpl.torch": "a plan carried out in PyTorch's own training; it needs PyTorch alone",
    "refimpl.network": "what is trained: layers, calls, steps, routes; the zoo of networks",
    "refimpl.memory": "allocators: where a block of bytes goes",
    "refimpl.machine": "models of GPUs, profiles, the simulator",
    "refimpl.planner": "the slots, ONE loop, the program, its listing and its proof",
    "refimpl.vdnn": "a paper, 2016",
    "refimpl.vdnnpp": "a paper, 2019",
    "refimpl.superneurons": "a paper, 2018",
    "refimpl.accudnn": "a paper, 2019",
    "refimpl.backend": "runs it: CPU, CUDA",
    "refimpl.combined": "the papers together: fates, a search",
    "refimpl.report": "tables, pictures and traces of any program",
    "refimpl.names": "names → networks, machines, modules, presets, budgets",
    "refimpl.cli": "the command refimpl",
    "refimpl.studies": "what evaluates: optimum, pareto, transformers, fragmentation, bench, reproduce",
}
WEIGHT = {"kernels": 2.6, "refimpl.superneurons": 1.2, "refimpl.backend": 1.6}  #: widths on a floor; the others are 1


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
    """The floors, lowest first, as the test that checks the imports has them; the studies are one room."""
    for node in ast.parse(layout_test.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "FLOORS":
            found = [[room for room in floor if room in PURPOSE] for floor in ast.literal_eval(node.value)]
            return [floor for floor in found if floor]
    raise ValueError(f"{layout_test} has no FLOORS")


def measure(root: Path, room: str) -> str:
    """The size of a room; nothing for one that is not built yet."""
    place = root / room.replace(".", "/")
    files = [*place.rglob("*.py")] if place.is_dir() else [*place.parent.glob(f"{place.name}.py")]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    return f"{len(files)} {'file' if len(files) == 1 else 'files'}, {lines:,} lines" if files else ""


def house(root: Path) -> str:
    """The rooms, one floor above the other, with the studies as the roof.  A room that is not built yet is dashed."""
    left, right, height, gap, top = 64, WIDTH - 30, 60, 7, 6
    rows = floors(root / "tests" / "test_layout.py")
    ground = top + len(rows) * (height + gap) + 16
    parts = []
    for number, rooms in enumerate(rows):
        y, x = ground - (number + 1) * (height + gap), float(left)
        if number == len(rows) - 1:
            outline = (left - 26, y + height), (left + 90, y - 8), (right - 90, y - 8), (right + 26, y + height)
            points = " ".join(f"{x:g},{y:g}" for x, y in outline)
            parts.append(
                f'<polygon points="{points}" stroke-linejoin="round" '
                f'style="fill: {PAPER}; stroke: {WALL}; stroke-width: 1.5"/>'
            )
        each = (right - left + gap) / sum(WEIGHT.get(room, 1) for room in rooms)
        for room in rooms:
            width = each * WEIGHT.get(room, 1) - gap
            parts += _room(root, room, x, y, width, height, walls=number < len(rows) - 1)
            x += width + gap
    foot = ground - gap
    parts += [
        _line((4, foot + 4), (WIDTH - 4, foot + 4), arrow=False, colour=FAINT),
        _line((30, top + 2 * height), (30, foot - 6), colour=FAINT),
        f'<text transform="translate(22 {foot / 2 + height:g}) rotate(-90)" font-size="12" text-anchor="middle" '
        f'style="fill: {FAINT}">imports point down</text>',
    ]
    return _svg(foot + 10, "The house: the rooms of the project, floor by floor", parts)


def _room(root: Path, room: str, x: float, y: float, width: float, height: float, walls: bool) -> list[str]:
    """A box with a room's name, its purpose and its size."""
    size = measure(root, room)
    ink, middle = INK if size else FAINT, x + width / 2
    box = [_box(x, y, width, height, dashed=not size, colour=WALL if size else FAINT)] if walls else []
    return [
        *box,
        _text(middle, y + 20, room.removeprefix("refimpl."), 14, ink, bold=True),
        _text(middle, y + 37, PURPOSE[room], 12, ink),
        _text(middle, y + 53, size or "to be built", 11, FAINT),
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
