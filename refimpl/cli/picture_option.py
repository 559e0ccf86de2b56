"""The option `--picture`: a drawing beside the table.  Drawing takes a second, so it is imported on demand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from refimpl.cli.parser import Fail, writable

if TYPE_CHECKING:
    from refimpl.machine import Timeline
    from refimpl.planner import Program


def checked(path: str | None) -> Path | None:
    """The picture's path, refused before anything is planned."""
    if path is None:
        return None
    if Path(path).suffix.lower() not in (".png", ".svg"):
        raise Fail(f"--picture {path}: a picture's name ends in .png or .svg")
    return writable("--picture", path)


def draw(kind: str, program: Program, timeline: Timeline, path: Path) -> None:
    """One of `shared_options.PICTURES`."""
    from refimpl.report.memory_pictures import memory_picture, pool_picture
    from refimpl.report.timeline_picture import timeline_picture

    if kind == "timeline":
        save(timeline_picture(program, timeline), path)
    else:
        save({"memory": memory_picture, "pool": pool_picture}[kind](program), path)


def save(figure: Any, path: Path) -> None:
    from refimpl.report import style

    style.save(figure, path)
