"""The command's manners: how it ends, what it says to a slip of the finger, that it answers at once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

import refimpl
from kernels.checks.arguments import KernelError
from refimpl import __version__
from refimpl.backend import DeviceFailed
from refimpl.cli import COMMANDS, main, status_of, terminal
from refimpl.cli.parser import GONE, Fail
from refimpl.cli.terminal import print_json
from refimpl.studies.bench import command as bench
from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong


def test_the_command_alone_explains_itself(refimpl: Command) -> None:
    assert refimpl().out == refimpl("--help").out != "" and refimpl().status == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "buffered"),
    [
        ([], ""),
        (["plan", "lenet", "--machine", "titan-x", "--json"], "1"),
    ],
)
def test_a_full_disk_is_one_line_and_status_2(arguments: list[str], buffered: str) -> None:
    command = [sys.executable, "-m", "refimpl", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": buffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
        assert done.returncode == 2 and done.stderr.endswith(": No space left on device\n")
        assert done.stderr.count("\n") == 1
        if arguments:  # and where the line cannot be written either
            assert subprocess.run(command, stdout=full, stderr=full, env=environment).returncode == 2


@contextmanager
def disk_that_fills() -> Iterator[Callable[[], None]]:
    """Inside, after a call of it, no file takes more than 16 bytes: its writer is refused as where the disk is full.

    It ends before the test does: pytest's own output may be a file.  What is imported meanwhile is not compiled into
    16 bytes that the next import would read.
    """
    resource = pytest.importorskip("resource", reason="no limits of files on this system")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with mock.patch.object(sys, "dont_write_bytecode", True):
            yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


PLANNED = ("lenet", "--batch", 2, "--machine", "titan-x")


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (("view", *PLANNED, "--out"), "a.html"),
        *((("view", *PLANNED, "--out"), f"a.{kind}") for kind in ("json", "csv", "pickle")),
        *((("plan", *PLANNED, "--picture"), f"a.{kind}") for kind in ("png", "svg")),
        (("plan", *PLANNED, "--save-fates"), "a.fates"),
        (("export", *PLANNED, "--out"), "a.py"),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else given,
)
def test_a_file_for_which_there_is_no_room_is_named_and_what_was_there_stays(
    refimpl: Command, tmp_path: Path, arguments: tuple[object, ...], file: str
) -> None:
    path = tmp_path / file
    path.write_text("before")
    with disk_that_fills() as fill:
        fill()
        said = refimpl(*arguments, path)
    assert said.status == 2 and lacks(said.err, f"refimpl {arguments[0]}", path) == [] and said.err.count("\n") == 1
    assert path.read_text() == "before" or file == "a.csv"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_within_100_columns(
    refimpl: Command, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    said = refimpl(name, "--help")
    assert said.status == 0 and said.err == ""
    assert "usage: refimpl" in said.out and max(map(len, said.out.splitlines())) <= 100
    if name != "demo":
        assert "examples:" in said.out


@pytest.mark.parametrize("words", ["list presets", "list machines", "summary lenet", "plan lenet --machine titan-x"])
def test_a_table_fits_its_terminal_or_says_how_wide_it_is(
    refimpl: Command, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "WIDTH", 20)
    narrow = refimpl(*words.split()).out
    needed = re.findall(r"is (\d+) columns wide, and the terminal has 20", " ".join(narrow.split()))
    assert "…" not in narrow and (needed or words == "list presets")
    if needed:
        monkeypatch.setattr(terminal, "WIDTH", max(map(int, needed)))
        wide = refimpl(*words.split()).out
        assert "columns wide" not in wide and max(map(len, wide.splitlines())) <= 100


@pytest.mark.parametrize(
    "words",
    ["plan lenet --batch {}", "plan lenet --step {}", "compare lenet --batch 2 --with vdnn-all --budget {}",
     "summary resnet:{}", "export lenet --schedule constant,warmup:{}", "list {}", "plan lenet --set effort={}",
     "study {}.jsonl", "plan {}.onnx", "plan {}.py:make"],
)  # fmt: skip
def test_a_number_of_5000_digits_and_half_a_surrogate_are_one_line(refimpl: Command, words: str) -> None:
    """Python makes an int of 4,300 digits at most; a path that is no UTF-8 has such letters."""
    for value in ("9" * 5000, "-" + "9" * 5000, "\udcff"):
        said = refimpl(*words.format(value).split())
        assert said.status in (0, 2) and said.err.count("\n") == (said.status == 2) and "Error:" not in said.err


@pytest.mark.slow
@pytest.mark.parametrize("module", ["refimpl.cli", "refimpl.cli.parser", "refimpl.cli.lists"])
def test_ctrl_c_while_the_command_is_imported_is_one_line(tmp_path: Path, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"""
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
""")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    for command in (["-m", "refimpl"], ["-c", "import sys; from refimpl.__main__ import main; sys.exit(main())"]):
        done = subprocess.run([sys.executable, *command, "list"], env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (130, "refimpl: interrupted\n")


def test_an_option_that_went_names_its_successor(wrong: Wrong) -> None:
    for name, now in GONE.items():
        assert lacks(wrong("run", "lenet", name, 1), f"{name} is now {now}") == []
    assert "is now" not in wrong("study", "fragmentation", "lenet", "--algorithms", 1), "it has no --set"


def test_a_failing_gpu_is_one_line_and_status_4(refimpl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.targets.shim import cuda

    def fails(_: object) -> int:
        raise cuda.cudadrv.driver.CudaAPIError(2, "out of\nmemory")

    monkeypatch.setattr(bench, "run", fails)
    said = refimpl("bench")
    assert said.status == 4 and lacks(said.err, "refimpl bench", "GPU") == []
    assert said.err.count("\n") == 1 and "out of memory" in said.err


def test_an_error_of_our_own_is_not_taken_for_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(bench, "run", fails)
    with pytest.raises(ZeroDivisionError):
        main(["bench"])


def test_an_interrupt_is_status_130(refimpl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "run", interrupted)
    said = refimpl("bench")
    assert said.status == 130 and said.err == "refimpl bench: interrupted\n"


@pytest.mark.slow
def test_as_a_program() -> None:
    """The exit status reaches the shell."""
    asked = subprocess.run([sys.executable, "-m", "refimpl", "--version"], capture_output=True, text=True, check=True)
    assert asked.stdout == f"refimpl {__version__}\n"
    assert subprocess.run([sys.executable, "-m", "refimpl", "nonsense"], capture_output=True).returncode == 2


def test_json_has_neither_nan_nor_infinity(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("nan"), "b": [float("inf"), (1.5, -float("inf"))], "c": "NaN"})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, [1.5, None]], "c": "NaN"}


def test_the_exit_status_follows_from_the_class_of_an_error() -> None:
    """A class of an outsider's, in whatever module: a subclass ends as its base class does."""

    class Mine(refimpl.NetworkError):
        pass

    assert status_of(Mine("no")) == status_of(OSError("no")) == status_of(KernelError("no")) == 2
    assert status_of(refimpl.RunError("no")) == 2 and status_of(DeviceFailed("no")) == 4
    assert status_of(refimpl.DoesNotFit.__new__(refimpl.DoesNotFit)) == 3
    assert status_of(Fail("no", 1)) == 1
    assert status_of(refimpl.Unsafe.__new__(refimpl.Unsafe)) is None  # a fault of ours keeps its traceback
    assert status_of(ValueError("no")) is None


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_who_has_seen_enough_ends_the_command(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A closed pipe is no failure, and nothing is said of it."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(["list", "presets", *options]) == 0
        pipe.flush()  # nothing is left that cannot be written
        monkeypatch.undo()
    assert capfd.readouterr().err == ""
