"""`.npz` archives from anywhere, read with care.

All checksums are compared before an array is made.  (`numpy.load` alone stops at an array's end, where zipfile has not
compared its CRC-32 yet: one flipped bit in the length of a header then gives other numbers, and no error.)
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from refimpl import text
from refimpl.text import one_line, size


class Damaged(ValueError):
    """An archive that cannot be read.  The message is one line and does not name the file."""


class TooLarge(Damaged):
    """An archive with more than is wanted of it, by its own directory; nothing of it was unpacked."""

    def __init__(self, held: int, most: int) -> None:
        super().__init__(f"it unpacks to {size(held)}; at most {size(most)} are read")
        self.held = held


def read_arrays(path: str | Path, most: int) -> dict[str, np.ndarray]:
    """Every array of an archive, by name.

    OSError: the file cannot be opened; `Damaged`: something is wrong with its content.  zipfile, zlib and numpy raise
    errors of a dozen classes on damaged files.

    Args:
        path: of the archive.
        most: bytes of its members, unpacked; zipfile unpacks no more of a member than the directory says.
    """
    name = ""
    with text.opened(path, sys.maxsize) as file:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with ZipFile(file) as archive:
                    if (held := sum(member.file_size for member in archive.infolist())) > most:
                        raise TooLarge(held, most)
                    if wrong := archive.testzip():
                        raise Damaged(f"the checksum of {wrong} is not that of its content")
                file.seek(0)
                found = {}
                with np.load(file, allow_pickle=False) as arrays:
                    for name in arrays.files:
                        found[name] = arrays[name]
                        if not isinstance(found[name], np.ndarray):  # numpy gives the bytes of any other file
                            raise Damaged("it is not an array")
        except TooLarge:
            raise
        except Exception as error:
            raise Damaged(one_line(f"{name}: {error}" if name else str(error))) from None
    return found
