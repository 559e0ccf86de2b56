"""Archives of arrays: what numpy writes is read as it was, and what it would not write is damage with its name."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refimpl.backend import npz
from refimpl.backend.npz import Damaged, opened
from tests.messages import raises_naming


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read(save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "CHUNK", 16)  # so that an array takes several
    arrays: dict[str, Any] = {
        "rows": np.arange(12, dtype=np.float32).reshape(3, 4),
        "columns": np.asfortranarray(np.arange(12, dtype=np.int64).reshape(3, 4)),
        "empty": np.zeros((0, 5), np.float32),
        "one": np.array(7, np.uint8),
        "text": np.array("a text"),
    }
    save(tmp_path / "mine.npz", **arrays)
    with opened(tmp_path / "mine.npz") as archive:
        assert archive.names == [*arrays]
        for name, array in arrays.items():
            header, found = archive.header(name), archive.read(name)
            assert (header.shape, header.dtype, header.nbytes) == (array.shape, array.dtype, array.nbytes)
            assert header.fortran == (name == "columns")
            assert found.dtype == array.dtype and found.shape == array.shape
            np.testing.assert_array_equal(found, array)


def npy(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version)
    return stream.getvalue()


def archived(path: Path, *members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members:
            file.writestr(name, content)
    return path


NUMBERS = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (npy(NUMBERS, (2, 0)), ("version", "2.0", "1.0")),
        (npy(NUMBERS)[:-1], ("size",)),
        (npy(NUMBERS) + b"x", ("size",)),
        (npy(NUMBERS).replace(b"(6,)", b"(-6,)"), ("x",)),
        (npy(NUMBERS).replace(b"'<f4'", b"'|O'  "), ("x",)),
        (b"no array", ("x",)),
    ],
)
def test_a_member_that_is_no_array_is_named(content: bytes, parts: tuple[object, ...], tmp_path: Path) -> None:
    path = archived(tmp_path / "mine.npz", ("x.npy", content), ("y.npy", npy(NUMBERS)))
    with opened(path) as archive:
        for reading in (archive.header, archive.read):
            with raises_naming(Damaged, "x", *parts):
                reading("x")
        np.testing.assert_array_equal(archive.read("y"), NUMBERS)


def test_more_than_the_memory_is_refused_by_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "memory_bytes", lambda: 3 << 10)
    np.savez(tmp_path / "mine.npz", fits=np.zeros(3 << 10, np.uint8), large=np.zeros(1 << 10))
    with opened(tmp_path / "mine.npz") as archive:
        assert archive.read("fits").nbytes == 3 << 10
        with raises_naming(Damaged, "large", "8 KiB"):
            archive.read("large")
