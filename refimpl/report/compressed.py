"""A table of the maps that threads of the host compressed in an iteration."""

from __future__ import annotations

from collections.abc import Sequence

from refimpl.backend.host_thread import CompressedMap
from refimpl.report.tables import Column, Table, percent
from refimpl.text import duration, size

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
    maps: Sequence[CompressedMap], title: str = "Compressed by threads of the host, in the last iteration"
) -> Table:
    """A line a map, and one for several together."""
    return Table.of(title, [*([one] for one in maps), *([maps] if len(maps) > 1 else [])], COMPRESSED)
