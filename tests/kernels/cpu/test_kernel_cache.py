"""Compiled kernels are kept on disk: what their key knows, and what a damaged or unsafe cache does."""

from __future__ import annotations

import dataclasses
import errno
import inspect
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.registry import cpu_target

from kernels.targets import cpu
from kernels.targets.cpu import build, processor, runtime, threads
from kernels.targets.launch import device, launch
from tests.kernels.cpu.sample_kernels import block_sums, make_filler, off_by, transpose_and_scale
from tests.messages import lacks, raises_naming


def test_the_source_is_readable_and_on_disk() -> None:
    launch(block_sums, 1, np.ones(64, np.float32), np.zeros(1, np.float32), 64)
    text = cpu.source_of(block_sums)
    stem = f"block_sums_{build.key(block_sums, False)}"
    folder = build.cache_directory()
    assert folder is not None and (folder / stem / f"{stem}.py").read_text() == text
    assert "for threadIdx_x in range(64):" in text
    assert "while half > 0:" in text
    assert max(map(len, text.splitlines())) < 200


def test_the_key_knows_constants_options_and_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = make_filler(1), make_filler(2)
    assert build.key(one, False) != build.key(two, False)
    assert build.key(one, False) == build.key(make_filler(1), False)
    assert build.key(one, False) != build.key(one, True)
    before = build.key(one, False)
    monkeypatch.setenv("REFIMPL_SLP", "0")
    assert build.key(one, False) != before
    monkeypatch.delenv("REFIMPL_SLP")
    helped = build.key(transpose_and_scale, False)
    monkeypatch.setitem(transpose_and_scale.function.__globals__, "scaled", device(lambda value, factor: value))
    assert build.key(transpose_and_scale, False) != helped


def test_the_key_of_checked_mode_knows_the_lines_that_its_messages_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel that has moved in its file the message would name the old line."""
    code = off_by.function.__code__
    moved = types.FunctionType(code.replace(co_firstlineno=code.co_firstlineno + 1), off_by.function.__globals__)
    monkeypatch.setattr(inspect, "getsource", lambda _: "the same")
    for checked in (False, True):
        keys = {build.key(dataclasses.replace(off_by, function=each), checked) for each in (off_by.function, moved)}
        assert len(keys) == 1 + checked


def test_the_key_knows_the_module_that_the_generated_source_names(monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.key(off_by, False)
    monkeypatch.setattr(off_by.function, "__module__", "kernels.moved")
    assert "kernels.moved" in cpu.source_of(off_by)
    assert build.key(off_by, False) != before


def test_the_key_knows_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.compiler_key.__wrapped__()
    codegen = type(cpu_target.target_context.codegen())
    monkeypatch.setattr(codegen, "magic_tuple", lambda self: ("x86_64", "nehalem", "+sse4.2"))
    assert build.compiler_key.__wrapped__() != before
    processor.features.cache_clear()
    assert not processor.has_avx512() and not processor.has_avx2()
    processor.features.cache_clear()


def test_the_vectoriser_is_on_for_our_compilations_only(monkeypatch: pytest.MonkeyPatch) -> None:
    before = numba.config.SLP_VECTORIZE
    with build.optimised(checked=False):
        assert numba.config.SLP_VECTORIZE == 1
    with build.optimised(checked=False, plain=True):
        assert (numba.config.SLP_VECTORIZE, numba.config.LOOP_VECTORIZE) == (0, 0)
    assert before == numba.config.SLP_VECTORIZE
    monkeypatch.setenv("REFIMPL_SLP", "0")
    with build.optimised(checked=False):
        assert numba.config.SLP_VECTORIZE == 0


SECOND_PROCESS = """
import numpy as np
from numba.core import event
from kernels.fast import elementwise

class Compilations(event.Listener):
    count = 0
    def on_start(self, event): self.count += 1
    def on_end(self, event): pass

listener = Compilations()
x = np.zeros(1000, np.float32)
with event.install_listener("numba:compile", listener):
    elementwise.fill(x, 3.0)
assert (x == 3).all()
print(listener.count)
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "REFIMPL_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", SECOND_PROCESS]
    first, second = (subprocess.run(command, env=environment, check=True, capture_output=True) for _ in range(2))
    assert int(first.stdout) > 0
    assert int(second.stdout) == 0


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of the test's own, and a temporary folder of its own to fall back to."""
    threads._sharing()  # is in no test's cache
    monkeypatch.setenv("REFIMPL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    build.say_once.cache_clear()
    return tmp_path / "cache"


def fills(value: float) -> bool:
    """What a filler's module fills with: it is loaded from the cache, or compiled."""
    x = np.zeros(32, np.float32)
    threads.run_blocks(threads.packed(build.load(make_filler(value)).run.address, (1, 1, 1), [x]))
    return x.tolist() == [value] * 32


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def becomes_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def entries(cache: Path) -> list[Path]:
    """The kernels in a cache; the file `lock` is what processes wait for."""
    return [path for path in cache.iterdir() if path.name != "lock"]


@pytest.mark.slow
def test_a_damaged_entry_is_compiled_again_and_that_is_said_once(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of its files, in another way."""
    damages: list[Callable[[Path], Any]] = [flip, Path.unlink, lambda path: path.write_bytes(b""), becomes_a_folder]
    assert fills(3) and capsys.readouterr().err == ""
    (entry,) = entries(cache)
    names = sorted(path.relative_to(entry) for path in entry.rglob("*") if path.is_file())
    for name, damage in zip(names, damages, strict=True):
        damage(entry / name)
        assert fills(3)
        assert build.intact(entry) and entries(cache) == [entry]
    (entry / "more").write_text("")
    assert fills(3) and not (entry / "more").exists()
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and lacks(said, cache) == []


def test_an_entry_that_is_a_file_is_replaced(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.mkdir(mode=0o700)
    name = f"filler_{build.key(make_filler(4), False)}"
    (cache / name).write_text("")
    assert fills(4) and build.intact(cache / name)
    assert lacks(capsys.readouterr().err, cache) == []


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "write_text"])
def test_on_a_full_disk_kernels_are_compiled_and_not_kept(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(*((os, "rename", full) if call == "rename" else (Path, "write_text", full)))
        assert fills(5) and fills(5)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and lacks(said, cache) == []
    assert entries(cache) == []


def test_a_user_without_a_home_has_a_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REFIMPL_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it is where nothing says where home is
    used = build.cache_directory()
    assert used is not None and used.parent == cache.parent / "temporary"


@pytest.mark.slow
def test_a_check_is_compiled_once_and_not_for_every_place_in_the_source(cache: Path) -> None:
    build.load(block_sums, checked=True)
    compiled = [code for code, *_ in cpu_target.target_context.cached_internal_func]
    checks = (runtime._inside, runtime._note_read, runtime._note_write)
    assert [compiled.count(check.__code__) for check in checks] == [1, 1, 1]


def test_two_processes_that_compile_the_same_are_both_right(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is done while this one compiles."""
    source = build.source_text

    def slow(*kernel: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(build, "source_text", source)
            assert fills(7)
        return source(*kernel)

    monkeypatch.setattr(build, "source_text", slow)
    assert fills(7)
    assert len(entries(cache)) == 1 and capsys.readouterr().err == ""


def test_an_unwritable_cache_falls_back(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.write_text("")  # a file where the folder should be
    used = build.cache_directory()
    assert used is not None and used.parent == cache.parent / "temporary"
    assert lacks(capsys.readouterr().err, cache) == []


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owner and no mode here")
def test_a_cache_that_others_can_write_is_not_used(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fallback = cache.parent / "temporary" / f"refimpl-{os.getuid()}"
    for mode in (0o777, 0o775, 0o702):
        folder = cache.parent / f"{mode:o}"
        folder.mkdir()
        folder.chmod(mode)
        monkeypatch.setenv("REFIMPL_CACHE", str(folder))
        assert build.cache_directory() == fallback and build.cache_directory() == fallback
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and lacks(said, folder) == []
    within = cache.parent / "777" / "private"
    within.mkdir(mode=0o700)
    monkeypatch.setenv("REFIMPL_CACHE", str(within))
    assert build.cache_directory() == fallback
    assert lacks(capsys.readouterr().err, within, within.parent) == []
    within.parent.chmod(0o1777)  # as the system's temporary folder: only the owner of a folder can rename it
    build._usable.cache_clear()
    assert build.cache_directory() == within
    monkeypatch.setenv("REFIMPL_CACHE", str(folder))
    build._usable.cache_clear()
    fallback.rmdir()
    fallback.symlink_to(cache.parent)  # as another user could have made it
    assert build.cache_directory() is None and lacks(capsys.readouterr().err, fallback) == []
    assert fills(6) and list(folder.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owner here")
def test_a_cache_of_another_user_is_not_used(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir(mode=0o700)
    found = os.stat(cache).st_uid
    monkeypatch.setattr(os, "getuid", lambda: found + 1)
    assert build.cache_directory() is None
    assert lacks(capsys.readouterr().err, cache) == []


def test_a_wrong_switch_of_the_vectoriser_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, on in (("0", False), ("1", True), ("", True)):
        monkeypatch.setenv("REFIMPL_SLP", text)
        assert build.slp_enabled() is on
    monkeypatch.setenv("REFIMPL_SLP", "off")
    with raises_naming(ValueError, "off", "REFIMPL_SLP", 0, 1):
        build.slp_enabled()
