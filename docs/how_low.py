"""The tables and the picture of docs/how-low.md: `python docs/how_low.py` makes them of docs/trial/how-low.jsonl.

Points that this file of rows lacks are planned first, and kept as they come.  `--again` plans all of them once more: a
row is of the planner that made it.  Which words of `refimpl.network.lean` a network can have, the network says.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from matplotlib.patches import Patch  # noqa: E402
from PIL import Image, PngImagePlugin  # noqa: E402

from refimpl.files import replace_text  # noqa: E402
from refimpl.names.networks import build  # noqa: E402
from refimpl.names.presets import setup  # noqa: E402
from refimpl.network import lean  # noqa: E402
from refimpl.points.many_plans import Row, read  # noqa: E402
from refimpl.report import style  # noqa: E402
from refimpl.report.markdown import markdown_table, put_between  # noqa: E402
from refimpl.report.tables import Column, Table  # noqa: E402
from refimpl.studies.drawing import PAPER_COLOURS  # noqa: E402
from refimpl.studies.grid.many_points import planned  # noqa: E402
from refimpl.studies.grid.rows import LARGEST, GridPoint  # noqa: E402

PAGE, PICTURE = ROOT / "docs" / "how-low.md", ROOT / "docs" / "pictures" / "how-low.png"
TRIAL = "docs/trial"
ROWS, FIGURES, BUILDERS = ROOT / TRIAL / "how-low.jsonl", ROOT / TRIAL / "monet.csv", f"{TRIAL}/monet.py"
NETWORKS = {"vgg16": 256, "resnet50": 256, "unet": 11, "gpt2": 8}  #: and their batches
PAPERS = ("vDNN", "vDNN++", "SuperNeurons", "AccUDNN")
PRESETS = ("baseline", "vdnn-dyn", "vdnnpp-dyn", "superneurons", "accudnn")  #: whose largest batches are asked
GPU, SMALLER = "v100", "titan-x"  #: the second for batches: 12 GiB
WHOLE, CUT = "combined seams=no", "combined seams=yes"
NEAR = "least*1.05"
GIB = 1 << 30
ENOUGH = "1TiB"  #: memory for the baseline
CLOSE = 0.05  #: per cent over the baseline: no plan of the same calls is nearer to it
LEFT = "left with all of them"
COLOURS = (style.SKY, style.ORANGE, style.YELLOW, style.VERMILION, style.TEAL, style.INDIGO, style.BROWN)


def leaner(name: str, batch: int) -> list[str]:
    """The network's name, and with one word more each those with all that it can have."""
    words = build(f"{name}:{lean.ALL}", batch).conventions.lean
    return [name + lean.spelled(words[:number]) for number in range(len(words) + 1)]


def last(name: str) -> str:
    """The word that came last to a network's name."""
    words = lean.split(name)[1]
    return f":{words[-1]}" if words else "seams"


# -- points ------------------------------------------------------------------------------------------------------------


def floors(name: str, batch: int) -> list[GridPoint]:
    """The network's least budgets: of the papers, of combined, and with one word more each."""
    plain, *others = leaner(name, batch)
    asked = [(plain, paper) for paper in PAPERS] + [(plain, WHOLE), *((one, CUT) for one in (plain, *others))]
    return [GridPoint(one, setup, GPU, NEAR, batch) for one, setup in asked]


def batches(name: str, batch: int) -> list[GridPoint]:
    """The network's largest batches on the smaller GPU."""
    plain, *others = leaner(name, batch)
    asked = [(plain, one) for one in (*PRESETS, WHOLE, CUT)] + [(one, CUT) for one in others[-1:]]
    return [GridPoint(one, setup, SMALLER, "", LARGEST) for one, setup in asked]


class Published(NamedTuple):
    """A figure of MONeT's: an iteration's memory, and the per cent that it takes longer."""

    network: str
    batch: int
    gib: float
    overhead: float

    @property
    def name(self) -> str:
        return f"{BUILDERS}:{self.network}"

    def budget(self, name: str) -> int:
        """Bytes: their runs have no optimiser, so ours have the resident momentum's bytes beside their memory."""
        resident = build(name, self.batch).resident
        return int(self.gib * GIB) + sum(tensor.nbytes for tensor in resident if tensor.kind == "momentum")

    @property
    def baseline(self) -> GridPoint:
        return GridPoint(self.name, "baseline", GPU, ENOUGH, self.batch)

    def points(self) -> list[GridPoint]:
        """Ours, from no words to all."""
        return [GridPoint(one, CUT, GPU, str(self.budget(one)), self.batch) for one in leaner(self.name, self.batch)]


def published() -> list[Published]:
    with FIGURES.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["library"] == "MONeT"]
    return [Published(row["network"], int(row["batch"]), float(row["gb"]), float(row["overhead"])) for row in rows]


def about(row: Row) -> tuple[str, str, str, int | str]:
    """Its plain network, setup, GPU and batch."""
    batch = LARGEST if row["largest"] else row["batch"]
    return lean.split(row["network"])[0], row["setup"], row["machine"], batch


class Rows:
    """The stored rows, by the plain network that they are about."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = [row for row in rows if row["fits"] is not None]

    def of(self, name: str, setup: str, machine: str, budget: str | None, batch: int | str) -> list[Row]:
        """Those of a network, plain or with words, fewer words first; None: within any budget."""
        wanted = (name, setup, machine, batch)
        found = [row for row in self.rows if about(row) == wanted and budget in (None, row["budget"])]
        return sorted(found, key=lambda row: len(lean.split(row["network"])[1]))

    def first(self, name: str, setup: str, machine: str, budget: str, batch: int | str) -> Row | None:
        return next(iter(self.of(name, setup, machine, budget, batch)), None)

    def ours(self, one: Published) -> tuple[float | None, str]:
        """Per cent over the plain network's baseline: with the fewest words that are enough, or else the least.

        A program for less memory runs in more.  None where nothing fits; and the network's name.
        """
        (baseline,) = self.of(one.name, "baseline", GPU, ENOUGH, one.batch)
        best: tuple[float | None, str] = None, ""
        for row in self.of(one.name, CUT, GPU, None, one.batch):
            if not row["fits"] or row["budget_bytes"] > one.budget(row["network"]):
                continue
            over = 100 * (row["seconds"] / baseline["seconds"] - 1)
            if best[0] is None or (over < best[0] and not (met(one, best[0]) and row["network"] != best[1])):
                best = over, row["network"]
        return best


def met(one: Published, ours: float | None) -> bool:
    return ours is not None and ours <= max(one.overhead, CLOSE)


def plan(jobs: int | None) -> None:
    """Plan the points that the file lacks; of MONeT's those with more words only where fewer were not enough."""
    options = argparse.Namespace(out=str(ROWS), jobs=jobs)
    figures, points = published(), [one for case in NETWORKS.items() for one in (*floors(*case), *batches(*case))]
    kept = planned(options, [*points, *dict.fromkeys(one.baseline for one in figures)])
    for words in range(len(lean.WORDS) + 1):
        asked = [one for one in figures if not met(one, Rows(kept).ours(one)[0])]
        kept += planned(options, [point for one in asked for point in one.points()[words : words + 1]])
    replace_text(ROWS, "".join(f"{json.dumps(row)}\n" for row in kept))  # without rows of what is asked no more


# -- tables ------------------------------------------------------------------------------------------------------------


class Floor(NamedTuple):
    """A least budget of combined, and the network's largest step there."""

    network: str
    batch: int
    what: str  #: whole steps, their parts, or the words that came
    least: int
    before: int | None  #: the least budget of the line before
    slow_down: float | None  #: within 1.05 times as much
    step: str
    tensors: str
    step_bytes: int  #: of its managed tensors
    resident: int

    @property
    def case(self) -> str:
        return f"{self.network}({self.batch})" if self.before is None else ""

    @property
    def saved(self) -> int | None:
        return None if self.before is None else self.before - self.least

    @property
    def rest(self) -> int:
        """Workspaces, rounding, holes, and other maps."""
        return self.least - self.step_bytes - self.resident


def floors_of(rows: Rows, name: str, batch: int) -> Iterator[Floor]:
    """What the file has of them; slow-downs are over the plain network's baseline with memory enough."""
    found = [row for one in (WHOLE, CUT) for row in rows.of(name, one, GPU, NEAR, batch) if row["fits"]]
    plain, before = found[0], None
    for row in found:
        network = setup(row["setup"]).cut(build(row["network"], batch))
        step = max(network.steps, key=lambda step: sum(x.nbytes for x in step.uses if x.managed))
        used = sorted((x for x in step.uses if x.managed), key=lambda x: -x.nbytes)
        taken = sum(x.nbytes for x in used)
        what = "whole steps" if row["setup"] == WHOLE else f"+ {last(row['network'])}"
        tensors = ", ".join(f"{x} {x.nbytes / GIB:.2f}" for x in used if x.nbytes >= taken / 20)
        yield Floor(
            name, batch, what, row["least_bytes"], before, row["seconds"] * plain["slow_down"] / plain["seconds"],
            str(step).partition("(")[2].rstrip(")"), tensors, taken, network.resident_bytes,
        )  # fmt: skip
        before = row["least_bytes"]


def gib(nbytes: float) -> str:
    return f"{nbytes / GIB:.3f}"


def times(ratio: float) -> str:
    return f"{ratio:.3f} ×"


def signed(per_cent: float) -> str:
    return f"{per_cent:+.2f} %".replace("-0.00", "+0.00").replace("-", "−")


def floors_table(rows: Rows) -> Table:
    columns = (
        Column("network", "case"), Column("", "what"), Column("least", "least", gib), Column("saves", "saved", gib),
        Column("at 1.05 ×", "slow_down", times), Column("largest step", "step"), Column("its tensors", "tensors"),
        Column("resident", "resident", gib), Column("rest", "rest", gib),
    )  # fmt: skip
    return Table.of("", [one for case in NETWORKS.items() for one in floors_of(rows, *case)], columns)


def papers_table(rows: Rows) -> Table:
    def least(setup: str, case: tuple[str, int]) -> int | None:
        row = rows.first(case[0], setup, GPU, NEAR, case[1])
        return row and row["least_bytes"]

    columns = [Column("network", lambda case: f"{case[0]}({case[1]})")]
    columns += [Column(one, partial(least, one), gib) for one in PAPERS]
    return Table.of("", [*NETWORKS.items()], [*columns, Column("combined", partial(least, WHOLE), gib)])


def batches_table(rows: Rows) -> Table:
    """A column for each setup; the words of the last one are the network's."""

    def largest(setup: str, words: bool, name: str) -> int | None:
        found = rows.of(name, setup, SMALLER, "", LARGEST)
        row = next((one for one in found if (one["network"] != name) is words), None)
        return row and row["batch"]

    asked = {one: (one, False) for one in PRESETS}
    asked |= {"combined, whole steps": (WHOLE, False), "with seams": (CUT, False), "with all words": (CUT, True)}
    columns = [Column(head, partial(largest, *one), "{:,}".format) for head, one in asked.items()]
    return Table.of("", [*NETWORKS], [Column("network", str), *columns])


def verdict(one: Published, ours: float | None) -> str:
    return "missed" if not met(one, ours) else "met" if ours is not None and ours <= one.overhead else "as plain"


def monet_table(rows: Rows) -> Table:
    """Three lines a network: memories, MONeT's per cent, and ours, with the last word that it has."""

    def answer(one: Published) -> str:
        (ours, name), said = rows.ours(one), verdict(one, rows.ours(one)[0])
        if ours is None:
            return "missed: does not fit"
        return f"{said}: " * (said != "met") + f"{signed(ours)} {last(name)}"

    lines = []
    for name, batch in dict.fromkeys((one.network, one.batch) for one in published()):
        these = [one for one in published() if one.network == name]
        lines.append((f"{name}({batch})", "GB", *(f"{one.gib:.2f}" for one in these)))
        lines.append(("", "MONeT", *(signed(one.overhead) for one in these)))
        lines.append(("", "ours", *map(answer, these)))
    heads = ("network", *[""] * 7)
    return Table("", [*heads], [[*line] for line in lines])


def monet_sentence(rows: Rows) -> str:
    said = [verdict(one, rows.ours(one)[0]) for one in published()]
    plain = f"; at {count} ours takes as long as with memory enough, and MONeT less" if (
        count := said.count("as plain")
    ) else ""  # fmt: skip
    return f"Of the {len(said)} points {said.count('met')} are met and {said.count('missed')} missed{plain}."


def pages_parts(rows: Rows) -> dict[str, str]:
    """Name of a pair of markers → what is between them."""
    made = {"floors": floors_table, "papers": papers_table, "batches": batches_table, "monet": monet_table}
    parts = {name: markdown_table(table.head, table.rows) for name, make in made.items() for table in [make(rows)]}
    return parts | {"monet": f"{parts['monet']}\n\n{monet_sentence(rows)}"}


def rewritten(page: str, rows: Rows) -> str:
    for name, text in pages_parts(rows).items():
        page = put_between(page, name, text)
    return page


# -- the picture -------------------------------------------------------------------------------------------------------


def described(rows: Rows) -> str:
    return f"{papers_table(rows).text()}\n{floors_table(rows).text()}"


def draw(rows: Rows) -> None:
    """A bar a network: its least budget without anything here, in parts: what each step saves, and what is left."""
    words = ["seams", *(f":{word}" for word in lean.WORDS)]
    colours = dict(zip(words, COLOURS, strict=False)) | {LEFT: style.GREY}
    subtitle = f"of combined, simulated on a {GPU}; marks: the papers' least budgets; GiB"
    with style.page(10, 4.6, "How low can it go: the least budget, and what each step saves", subtitle) as figure:
        figure.set_label(described(rows))
        panels = figure.subplots(1, len(NETWORKS))
        for axes, (name, batch) in zip(panels, NETWORKS.items(), strict=True):
            bar(axes, [*floors_of(rows, name, batch)], colours)
            marks(axes, rows, name, batch)
            axes.set_title(f"{name}({batch})", fontsize=9)
        style.legend_row(figure, [Patch(facecolor=colours[one], label=one) for one in colours])
    style.save(figure, PICTURE)
    in_palette(PICTURE)


def bar(axes: Any, found: Sequence[Floor], colours: dict[str, str]) -> None:
    """From the top: what each step saves; at the bottom what is left."""
    top = found[0].least
    text: Any = {"ha": "center", "va": "center", "fontsize": 7}
    axes.text(0, top, gib(top), **text | {"va": "bottom", "fontsize": 8})
    for one in found[1:]:
        low = min(top, one.least)
        axes.bar(0, top - low, 0.6, low, color=colours[one.what.removeprefix("+ ")], edgecolor="white", linewidth=0.5)
        if top - low > 0.04 * found[0].least:
            axes.text(0, (top + low) / 2, f"−{gib(top - low)}", **text)
        top = low
    axes.bar(0, top, 0.6, color=colours[LEFT], edgecolor="white", linewidth=0.5)
    axes.text(0, top / 2, gib(top), **text | {"fontsize": 8, "fontweight": "bold"})


def marks(axes: Any, rows: Rows, name: str, batch: int) -> None:
    """The papers' least budgets; one beyond the axis is at its end, with an arrow."""
    (whole,) = rows.of(name, WHOLE, GPU, NEAR, batch)
    highest = 1.3 * whole["least_bytes"]
    for place, paper in enumerate(PAPERS):
        row = rows.first(name, paper, GPU, NEAR, batch)
        if row is None or not row["fits"]:
            continue
        least, x, colour = row["least_bytes"], 0.42 + 0.14 * place, PAPER_COLOURS[paper]
        at, marker = (highest, "^") if least > highest else (least, "_")
        axes.plot([x], [at], marker=marker, markersize=9, color=colour, markeredgewidth=2.5, clip_on=False)
        text: Any = {"rotation": 90, "ha": "center", "va": "top", "fontsize": 6.5, "color": colour}
        axes.text(x, 0.97 * at, f"{paper} {gib(least)}", **text)
    axes.set_xlim(-0.4, 1.0)
    axes.set_xticks([])
    axes.set_ylim(0, 1.02 * highest)
    style.in_units(axes.yaxis, GIB)
    axes.set_yticks([step * GIB * style.nice_step(highest / GIB, 5) for step in range(7)])
    axes.set_ylim(0, 1.02 * highest)
    style.grid(axes, "y")


def in_palette(path: Path) -> None:
    """The same picture in 256 colours, with its description."""
    with Image.open(path) as picture:
        kept = PngImagePlugin.PngInfo()
        kept.add_itxt("Description", picture.info["Description"])
        small = picture.convert("RGB").quantize(256)
    small.save(path, optimize=True, pnginfo=kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--again", action="store_true", help="plan all points once more")
    parser.add_argument("--jobs", type=int, help="processes (default: one for each core)")
    options = parser.parse_args()
    if options.again:
        ROWS.unlink(missing_ok=True)
    plan(options.jobs)
    rows = Rows(read(ROWS)[0].values())
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    draw(rows)


if __name__ == "__main__":
    main()
