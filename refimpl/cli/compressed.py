"""What is shown of the maps that threads of the host compressed in an iteration: in a line, and map by map."""

from __future__ import annotations

from collections.abc import Sequence

from refimpl.backend.host_thread import StoredMap
from refimpl.report.tables import Column, Table, percent
from refimpl.text import counted, duration, size

COMPRESSED = (
    Column("map", lambda maps: maps[0].tensor if len(maps) == 1 else "together"),
    Column("bytes", lambda maps: sum(one.nbytes for one in maps), size),
    Column("stored", lambda maps: sum(one.stored for one in maps), size),
    Column("planned", lambda maps: sum(one.planned for one in maps), size),
    Column("not zero", lambda maps: sum(m.density * m.nbytes for m in maps) / sum(m.nbytes for m in maps), percent),
    Column("compressing", lambda maps: sum(one.compress_seconds for one in maps) or None, duration),
    Column("decompressing", lambda maps: sum(one.decompress_seconds for one in maps) or None, duration),
)  # fmt: skip


def compressed_table(
    maps: Sequence[StoredMap], title: str = "Compressed by threads of the host, in the last iteration"
) -> Table:
    """A line a map, and one for several together."""
    return Table.of(title, [*([one] for one in maps), *([maps] if len(maps) > 1 else [])], COMPRESSED)


def compressed_line(maps: Sequence[StoredMap]) -> str:
    """The figures of all maps together; of a run whose plan would have had some."""
    if not maps:
        return "no map compressed: by the plan the host's threads are too slow to be done with one in time"
    nbytes = sum(one.nbytes for one in maps)
    share = sum(one.density * one.nbytes for one in maps) / nbytes
    return (
        f"{counted(len(maps), 'map')}, {size(nbytes)} compressed to {size(sum(one.stored for one in maps))}, "
        f"{share:.0%} not zero; {duration(sum(one.compress_seconds for one in maps))} there, "
        f"{duration(sum(one.decompress_seconds for one in maps))} back"
    )
