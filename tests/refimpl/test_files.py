"""Files are replaced all or nothing, and only regular ones."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from refimpl import files
from refimpl.files import refuse_unwritable, replacing


def write(path: Path, content: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(content)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_mode_is_the_umasks_or_that_of_the_file_that_is_replaced(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "new")
        assert mode(tmp_path / "new") == 0o640
        (tmp_path / "new").chmod(0o604)
        write(tmp_path / "new", b"again")
        assert mode(tmp_path / "new") == 0o604 and (tmp_path / "new").read_bytes() == b"again"
    finally:
        os.umask(before)


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "target").write_text("old")
    (tmp_path / "below" / "link").symlink_to("../target")
    (tmp_path / "dangling").symlink_to("below/nothing yet")
    for link, target in (("below/link", "target"), ("dangling", "below/nothing yet")):
        write(tmp_path / link)
        assert (tmp_path / link).is_symlink() and (tmp_path / target).read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path / "below")) == ["link", "nothing yet"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes that are files")
def test_what_is_not_a_regular_file_is_refused_and_stays(tmp_path: Path) -> None:
    pipe, loop = tmp_path / "pipe", tmp_path / "loop"
    os.mkfifo(pipe)
    loop.symlink_to("loop")
    (tmp_path / "file").write_text("")
    (tmp_path / "link to a device").symlink_to("/dev/null")
    for path, says in (
        (pipe, "it is a device, a pipe or a socket"),
        (Path("/dev/null"), "it is a device"),
        (tmp_path / "link to a device", "it is a device"),
        (tmp_path, "it is a folder; give a file's name"),
        (tmp_path / "no" / "file", "there is no folder"),
        (tmp_path / "file" / "below", "Not a directory"),
        (tmp_path / ("x" * 256), "File name too long"),
        (tmp_path / "a\0b", "it is not a name that a file can have"),
        (loop, "Too many levels of symbolic links"),
    ):
        for attempt in (refuse_unwritable, write):
            with pytest.raises(OSError) as error:
                attempt(path)
            assert says in str(error.value.strerror)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode) and stat.S_ISFIFO(os.stat(pipe).st_mode)
    assert sorted(os.listdir(tmp_path)) == ["file", "link to a device", "loop", "pipe"]


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError):
        refuse_unwritable("/proc/new")  # not even root can write there
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError):
        refuse_unwritable(__file__)


def test_a_block_that_fails_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):
        with pytest.raises(type(error)), replacing(tmp_path / "file") as file:
            file.write(b"half")
            raise error
        assert (tmp_path / "file").read_text() == "old" and os.listdir(tmp_path) == ["file"]


KILLED = """
import os, signal, sys
from refimpl.files import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not files.LOCKS, reason="no locks, so temporary files stay")
def test_what_a_killed_process_left_is_deleted_and_what_a_running_one_writes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    (orphan,) = os.listdir(tmp_path)
    assert orphan.startswith(".file.") and orphan.endswith(".tmp")
    for mine in (".file.of mine.tmp", ".file.npz.0123abcd.tmp"):
        (tmp_path / mine).write_text("")
    with replacing(tmp_path / "other"):
        assert (tmp_path / orphan).exists()  # it is not the other file's
    with replacing(path) as one:
        assert not (tmp_path / orphan).exists()
        one.write(b"one")
        write(path, b"two")
        assert path.read_bytes() == b"two"
    assert path.read_bytes() == b"one" and sorted(os.listdir(tmp_path)) == [
        ".file.npz.0123abcd.tmp", ".file.of mine.tmp", "file", "other",
    ]  # fmt: skip
