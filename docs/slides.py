"""Figures for slides, and the decks of the course: `python docs/slides.py [FOLDER]`, or `make slides`.

A figure is SVG with a licence line.  Text in it stays text, colours are the pages' own, and `refimpl` draws it again
for any other network.  A deck is one HTML file with its pictures in it, made of a Markdown file in tutorials/decks/:
slides are separated by `---`, and what follows `Notes:` is for the speaker.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import sys
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import matplotlib.pyplot as plt
from markdown_it import MarkdownIt  # which rich needs, too
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import drawings  # noqa: E402

from refimpl import cli  # noqa: E402
from refimpl.report import notebook as helpers  # noqa: E402
from refimpl.report import style  # noqa: E402

DECKS = sorted((ROOT / "tutorials" / "decks").glob("*.md"))
FOLDER = ROOT / "docs" / "_build" / "slides"
LICENCE = "the refimpl authors, MIT licence"
HEIGHT = 16  #: of the line below a figure
LARGER = 0.75  #: of a picture's inches, in which its text is as large as before

ON_TITAN = "--batch 64 --machine titan-x --budget 16GiB"
#: File → the command that draws it.
COMMANDS = {
    "memory-baseline": f"plan vgg16 {ON_TITAN} --policy baseline --draw memory",
    "memory-vdnn": f"plan vgg16 {ON_TITAN} --policy vdnn-all --draw memory",
    "memory-superneurons": f"plan vgg16 {ON_TITAN} --policy superneurons-recompute --draw memory",
    "pool-baseline": f"plan vgg16 {ON_TITAN} --policy baseline --draw pool",
    "timeline-vdnn": "plan lenet --batch 64 --machine titan-x --budget 1GiB --policy vdnn-all --draw timeline",
    "timeline-vdnnpp": "plan lenet --batch 64 --machine titan-x --budget 1GiB --policy vdnnpp-all --draw timeline",
}
SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def licensed(svg: str) -> str:
    """The picture on white, with a line of text below it."""
    found = SIZE.search(svg)
    assert found is not None, "a picture has a viewBox"
    width, height = float(found[1]), float(found[2])
    line = (
        f'<text x="{width - 4:g}" y="{height + HEIGHT - 5:g}" text-anchor="end" font-family="sans-serif" font-size="8" '
        f'fill="#6B7280">{LICENCE}</text>'
    )
    svg = SIZE.sub(f'viewBox="0 0 {width:g} {height + HEIGHT:g}"', svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"(<svg\b[^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', svg, count=1)
    return f"{svg[: svg.rindex('</svg>')]}{line}\n</svg>\n"


# -- decks -------------------------------------------------------------------------------------------------------------


class Slide(NamedTuple):
    """Markdown of what the audience sees and of what the speaker says, and the minutes that this takes."""

    face: str
    notes: str
    minutes: int

    @property
    def kind(self) -> str:
        """The first word of its heading, in small letters: `predict` asks, `answer` answers."""
        found = re.match(r"#+ (\w+)", self.face)
        return found[1].lower() if found else ""


def slides_of(deck: Path) -> list[Slide]:
    """The slides of a deck; a speaker's notes begin with the minutes."""
    found = []
    for part in re.split(r"^---$", deck.read_text(encoding="utf-8"), flags=re.MULTILINE):
        face, _, notes = part.strip().partition("\nNotes: ")
        minutes = re.match(r"(\d+) minutes?\.", notes)
        assert minutes, f"{deck.name}: notes begin with `Notes: 3 minutes.`, and these do not: {notes or face}"
        found.append(Slide(face, notes, int(minutes[1])))
    return found


def pictures(deck: Path) -> list[tuple[Path, str]]:
    """The file and the description of each of a deck's pictures."""
    found = re.findall(r"!\[(.*?)\]\((\S+?)\)", deck.read_text(encoding="utf-8"))
    return [((deck.parent / target).resolve(), alt) for alt, target in found]


def stored(path: Path, alt: str) -> str:
    """A picture as a data URL: of a file, or that of a notebook which has this description."""
    if path.suffix != ".ipynb":
        return data_url(path.suffix[1:], path.read_bytes())
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            if output.get("metadata", {}).get("image/png", {}).get("alt") == alt:
                return data_url("png", base64.b64decode("".join(output["data"]["image/png"])))
    raise LookupError(f"{path.name} has no picture with this description: {alt}")


def data_url(kind: str, content: bytes) -> str:
    return f"data:image/{'svg+xml' if kind == 'svg' else kind};base64,{base64.b64encode(content).decode()}"


def redrawn(notebook: Path, wanted: set[str]) -> dict[tuple[Path, str], str]:
    """The pictures of a notebook with these descriptions, as SVG with larger text.  Cells run until all are drawn."""
    found: dict[tuple[Path, str], str] = {}
    new_figure, done = style.new_figure, set()

    def smaller(width: float, height: float, *head: Any) -> Figure:
        done.add(figure := new_figure(LARGER * width, LARGER * height, *head))
        return figure

    def show(figure: Figure, alt: str) -> None:
        if alt in wanted:
            if figure not in done:
                figure.set_size_inches(LARGER * figure.get_size_inches())
            with style.styled():
                figure.savefig(file := io.BytesIO(), format="svg", facecolor="white")
            found[notebook, alt] = data_url("svg", file.getvalue())
        plt.close(figure)

    names = {"__name__": "__main__"}
    quiet = contextlib.redirect_stdout(io.StringIO())
    with patch.object(helpers, "show", show), patch.object(style, "new_figure", smaller), quiet:
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code" and len(found) < len(wanted):
                exec(compile("".join(cell["source"]), str(notebook), "exec", dont_inherit=True), names)
    return found


def html_of(deck: Path, better: Mapping[tuple[Path, str], str] = MappingProxyType({})) -> str:
    """A deck as one HTML file that needs no other file and no network.

    Args:
        deck: its Markdown.
        better: file and description of a picture → the data URL to take in place of the stored picture.
    """
    markdown = MarkdownIt("commonmark").enable("table")
    slides = slides_of(deck)
    ends = list(accumulate(slide.minutes for slide in slides))
    sections = []
    for number, (slide, end) in enumerate(zip(slides, ends, strict=True), 1):
        tokens = markdown.parse(slide.face)
        for token in (each for block in tokens for each in block.children or () if each.type == "image"):
            named = ((deck.parent / str(token.attrs["src"])).resolve(), token.content)
            token.attrs["src"] = better.get(named) or stored(*named)
        face = markdown.renderer.render(tokens, markdown.options, {})
        face = re.sub(r"<p>(<img [^>]*>)</p>", r"<figure>\1</figure>", face)
        then = slides[number].face.partition("\n")[0].lstrip("# ") if number < len(slides) else "the end"
        notes = re.sub(r"</?a\b[^>]*>", "", markdown.render(slide.notes))  # a deck is shown far from the pages
        time = f"By the end of slide {number} of {len(slides)}: {end} of {ends[-1]} minutes. Then: {then}"
        sections.append(
            f'<section>\n<div class="face {slide.kind}" data-number="{number}">\n{face}</div>\n'
            f"<aside>\n{notes}<p>{time}</p>\n</aside>\n</section>"
        )
    title = slides[0].face.partition("\n")[0].removeprefix("# ")
    template = (ROOT / "docs" / "deck.html").read_text(encoding="utf-8")
    return template.replace("TITLE", title, 1).replace("SLIDES", "\n".join(sections), 1)


def main(folder: Path) -> int:
    """Draw all figures and write all decks."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = drawings.drawings(ROOT)
    for name, text in drawn.items():
        (folder / name).write_text(licensed(text), encoding="utf-8")
    for name, command in COMMANDS.items():
        path = folder / f"{name}.svg"
        if status := cli.main([*command.split(), "--picture", str(path)]):
            return status
        path.write_text(licensed(path.read_text(encoding="utf-8")), encoding="utf-8")
    better: dict[tuple[Path, str], str] = {}
    asked = {named for deck in DECKS for named in pictures(deck) if named[0].suffix == ".ipynb"}
    for notebook in sorted({path for path, _ in asked}):
        print(f"{notebook.name}: its pictures are drawn for the decks", flush=True)
        better |= redrawn(notebook, {alt for path, alt in asked if path == notebook})
    for deck in DECKS:
        (folder / f"{deck.stem}.html").write_text(html_of(deck, better), encoding="utf-8")
    print(f"{len(COMMANDS) + len(drawn)} pictures in {folder}; each says: {LICENCE}")
    print(f"{len(DECKS)} decks: {', '.join(f'{deck.stem}.html' for deck in DECKS)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
