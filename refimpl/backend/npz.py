"""`.npz` archives from anywhere, read with care.

An array's shape and type are known before it is unpacked, and a member is always read to its end, where zipfile
compares its CRC-32.  (`numpy.load` stops at the array's end.  One flipped bit in the length of a header then gives
other numbers, and no error.)
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from refimpl import text
from refimpl.machine.here import memory_bytes
from refimpl.text import one_line, size

CHUNK = 1 << 20  #: bytes unpacked at once
ENDING = ".npy"  #: of a member's name; the array's name is without it


class Damaged(ValueError):
    """An archive that cannot be read.  The message is one line and does not name the file."""


class Header(NamedTuple):
    """An array's type and shape, before it is unpacked."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@contextmanager
def opened(path: str | Path) -> Iterator[Archive]:
    """An archive to read from.  OSError: the file cannot be opened; `Damaged`: something is wrong with its content."""
    with text.opened(path, sys.maxsize) as file:
        yield Archive(file)


class Archive:
    """An open archive; `names` are those of its arrays."""

    def __init__(self, file: BinaryIO) -> None:
        with _taken_apart():
            self._zip = ZipFile(file)
        members = self._zip.infolist()
        self._members = {info.filename.removesuffix(ENDING): info for info in members}
        if len(self._members) < len(members):
            raise Damaged("two arrays have the same name")
        self.names = list(self._members)

    def header(self, name: str) -> Header:
        """An array's type and shape; nothing of it is unpacked."""
        with _taken_apart(name), self._open(name) as member:
            return _header(member, self._members[name])

    def read(self, name: str) -> np.ndarray:
        """The array, read to the last byte and checked."""
        with _taken_apart(name), self._open(name) as member:
            header = _header(member, self._members[name])
            if header.nbytes > memory_bytes():
                raise Damaged(f"it takes {size(header.nbytes)}, more than this computer's memory")
            content = np.empty(header.nbytes, np.uint8)
            place = content.data
            for start in range(0, header.nbytes, CHUNK):
                part = place[start : start + CHUNK]
                if member.readinto(part) != len(part):
                    raise Damaged("it ends too early")
            member.read(1)  # the end, where the checksum is compared
            array = content.view(header.dtype)
            return array.reshape(header.shape[::-1]).T if header.fortran else array.reshape(header.shape)

    def _open(self, name: str) -> Any:
        info = self._members[name]
        if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise Damaged(f"it is compressed by method {info.compress_type}, which numpy does not write")
        if info.compress_type == ZIP_STORED and info.compress_size != info.file_size:
            raise Damaged("the archive gives it two sizes")
        return self._zip.open(info)


def _header(member: Any, info: ZipInfo) -> Header:
    """The header of the array that a member is, which must fill it exactly."""
    version = np.lib.format.read_magic(member)
    if version != (1, 0):
        raise Damaged(f"its header has version {version[0]}.{version[1]}, not 1.0")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
    header = Header(tuple(map(int, shape)), dtype, fortran)
    if dtype.hasobject or min(header.shape, default=0) < 0:
        raise Damaged(f"it is not an array of numbers but {dtype} of shape {header.shape}")
    if member.tell() + header.nbytes != info.file_size:
        raise Damaged("its size is not what its header says")
    return header


@contextmanager
def _taken_apart(name: str = "") -> Iterator[None]:
    """Every error inside is `Damaged`: zipfile, zlib and numpy raise errors of a dozen classes on damaged files."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    except Exception as error:
        raise Damaged(f"{one_line(name)}: {one_line(str(error))}" if name else one_line(str(error))) from None
