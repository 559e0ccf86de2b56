"""Figures for slides, as SVG with a licence line in each: `python docs/slides.py [FOLDER]`, or `make slides`.

Text in them stays text, colours are the pages' own, and `refimpl` draws them again for any other network.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import drawings  # noqa: E402

from refimpl import cli  # noqa: E402

FOLDER = ROOT / "docs" / "_build" / "slides"
LICENCE = "the refimpl authors, MIT licence"
HEIGHT = 16  #: of the line below a figure

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


def main(folder: Path) -> int:
    """Draw all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("house", drawings.house(ROOT)), ("flow", drawings.flow())):
        (folder / f"{name}.svg").write_text(licensed(text), encoding="utf-8")
    for name, command in COMMANDS.items():
        path = folder / f"{name}.svg"
        if status := cli.main([*command.split(), "--picture", str(path)]):
            return status
        path.write_text(licensed(path.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{len(COMMANDS) + 2} pictures in {folder}; each says: {LICENCE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
