"""Files that are replaced all or nothing: the old content stays until the new one is complete and on the disk.

A temporary file is written in the same folder and then renamed.  Only regular files are replaced: a device or a pipe
is refused, and of a symbolic link it is the target that is replaced.  A temporary file is locked while it is written,
so an unlocked one was left by a killed process; the next write to the same target deletes it.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from refimpl.text import naming

try:
    import fcntl
except ImportError:  # Windows, where temporary files of killed processes stay
    fcntl = None  # type: ignore[assignment]
LOCKS = fcntl is not None

NAME_BYTES = 200  #: of the target's name that a temporary file's name repeats; file systems allow 255 in all


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write in; `path` has its content when the block ends, and is unchanged if the block fails.

    The mode of a file that is replaced is kept; a new file has the mode that the umask gives it.  OSError: `path`,
    which it names, cannot be written.
    """
    with naming(path):
        target = _target(path)
        _delete_orphans(target)
        temporary, file = _temporary(target)
        try:
            with file:
                yield file
                with suppress(OSError):  # a new file keeps the mode that it has
                    os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
                file.flush()
                os.fsync(file.fileno())
                if not LOCKS:
                    file.close()  # Windows renames no open file
                os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def replace_text(path: str | Path, text: str) -> None:
    """Write a text file, all or nothing."""
    with replacing(path) as file:
        file.write(text.encode(errors="backslashreplace"))  # half a surrogate, of a path that is no UTF-8


def refuse_unwritable(path: str | Path) -> None:
    """Raise the OSError that `replacing` would raise, before the work whose result is to be written."""
    temporary, file = _temporary(_target(path))
    file.close()
    temporary.unlink()


def _target(path: str | Path) -> Path:
    """The file that `path` names after its symbolic links: a regular one, or none yet."""
    try:
        target = Path(os.path.realpath(path))
        mode = target.stat().st_mode
    except ValueError:
        raise OSError(0, "it is not a name that a file can have") from None
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise FileNotFoundError(0, f"there is no folder {target.parent}") from None
        return target
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(0, "it is a folder; give a file's name")
    if not stat.S_ISREG(mode):
        raise OSError(0, "it is a device, a pipe or a socket; give the name of a regular file")
    if not os.access(target, os.W_OK):
        raise PermissionError(0, "it is write-protected")
    return target


def _prefix(target: Path) -> str:
    return f".{os.fsdecode(os.fsencode(target.name)[:NAME_BYTES])}."


def _temporary(target: Path) -> tuple[Path, BinaryIO]:
    """A new, locked file beside the target."""
    while True:
        path = target.with_name(f"{_prefix(target)}{secrets.token_hex(4)}.tmp")
        try:
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "w+b")
        except OSError as error:
            raise OSError(error.errno, error.strerror) from None  # without a name that the user has not given
        if not LOCKS:
            return path, file
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():  # else another process took it for an orphan before it was locked
            return path, file
        file.close()


def _delete_orphans(target: Path) -> None:
    """Delete the target's temporary files that no process has locked."""
    if not LOCKS:
        return
    ours = re.compile(re.escape(_prefix(target)) + r"[0-9a-f]{8}\.tmp")
    with suppress(OSError):
        for orphan in filter(ours.fullmatch, os.listdir(target.parent)):
            with suppress(OSError), open(target.with_name(orphan), "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(file.name)
