"""Damaged files, drawn from a seed: bytes, zip archives, JSON and CSV."""

from __future__ import annotations

import io
import json
import zipfile
from random import Random
from typing import Any

import numpy as np

#: What a damaged or hostile file may hold where a number, a text or a list belongs.
VALUES: list[Any] = [
    10**400, 10**20, 2**63, 2**31, -1, 0, 1, 0.5, 1e-300, 1e300, -0.0, float("nan"), float("inf"), -float("inf"),
    True, None, "", "x", "-1", "1e400", "9" * 5000, "\x1b[2J", "a\nb", "\udcff", [], {}, [[]], [1], {"a": 1},
]  # fmt: skip


def damaged_bytes(content: bytes, random: Random) -> bytes:
    """A few changes of any kind: bits, bytes, cuts, copies, swaps."""
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        if not changed:
            break
        at = random.randrange(len(changed))
        length = random.choice((1, 2, 4, 8, 64))
        match random.randrange(8):
            case 0 | 1:
                changed[at] ^= 1 << random.randrange(8)
            case 2:
                changed[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            case 3:
                changed[at : at + length] = random.choice((b"\0", b"\xff", b"9")) * length
            case 4:
                del changed[at : at + length]
            case 5:
                changed[at:at] = random.randbytes(length)
            case 6:
                del changed[at:]
            case 7:
                other = random.randrange(len(changed))
                changed[at : at + length] = changed[other : other + length]
    return bytes(changed)


def damaged_json(text: str, random: Random) -> str:
    """One to three values, anywhere in the document, replaced, removed or doubled."""
    document = json.loads(text)
    for _ in range(random.choice((1, 1, 2, 3))):
        places: list[tuple[Any, Any]] = []

        def walk(node: Any, places: list[tuple[Any, Any]] = places) -> None:
            for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []:
                places.append((node, key))
                walk(node[key])

        walk(document)
        if not places:
            break
        node, key = random.choice(places)
        match random.randrange(6):
            case 0:
                del node[key]
            case 1 if isinstance(node, dict):
                node[random.choice(("", "x", "\x1b[2J", "a\nb", "x" * 5000))] = node.pop(key)
            case _:
                node[key] = random.choice(VALUES)
    return json.dumps(document)


def damaged_csv(text: str, random: Random) -> str:
    """One to three fields replaced, or lines moved."""
    lines = [line.split(",") for line in text.splitlines()]
    for _ in range(random.choice((1, 1, 2, 3))):
        line = random.randrange(len(lines))
        match random.randrange(6):
            case 0:
                lines.insert(random.randrange(len(lines)), lines[line])
            case 1 if len(lines) > 1:
                del lines[line]
            case _:
                field = random.randrange(len(lines[line]))
                drawn = [*VALUES, 2**60, 2**59, 10**18, "(nil)", "0x", '"', "\0", "free", "allocate", "9" * 200_000]
                lines[line][field] = str(random.choice(drawn))
    return "\n".join(map(",".join, lines)) + "\n"


def npy(array: Any, **header: Any) -> bytes:
    """An array as a member of an archive, with some entries of its header replaced (`shape`, `descr`, …)."""
    stream = io.BytesIO()
    array = np.asarray(array)
    found = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(stream, found | header)
    return stream.getvalue() + array.tobytes()


def archive(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip archive of (name, content)."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as made:
        for name, content in members:
            made.writestr(name, content)
    return stream.getvalue()


def members(content: bytes) -> dict[str, bytes]:
    """What `archive` was made from."""
    with zipfile.ZipFile(io.BytesIO(content)) as found:
        return {name: found.read(name) for name in found.namelist()}
