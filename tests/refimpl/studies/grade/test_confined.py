"""Hostile submissions: each is ended or refused, each gets its line, and nothing outside is touched."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refimpl.studies.grade import confined
from refimpl.studies.grade.confined import FORBIDDEN, Ended, Limits, how, reaped, watched
from refimpl.studies.grade.criteria import Handed, foreign_imports, run
from refimpl.studies.grade.drawn_cases import DrawnCase
from refimpl.studies.grade.lab_tasks import PLAIN, TASKS
from tests.refimpl.studies.grade.hostile import HOSTILE, when_executed, when_planned

LIMITS = Limits(processor=2, wall=40.0, memory=600 << 20)
CASES = [DrawnCase("lenet", 4, 100_000_000, True)]
QUICK = ("endless loop", "100 GB", "fork by a system call", "reads the solution", "writes a file")
WAITS = {"sleeps", "stops itself"}  #: for the wall clock alone

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="limits as Linux has them")


def graded(source: str, limits: Limits = LIMITS) -> Handed:
    return run(source.encode(), "submission.py", TASKS["A1"], CASES, limits, backwards=False)


@pytest.mark.parametrize(
    "attack",
    [pytest.param(name, marks=[pytest.mark.slow if name in QUICK else pytest.mark.campaign]) for name in HOSTILE],
)
def test_hostile_submissions_get_a_line(attack: str) -> None:
    source, expected = HOSTILE[attack]
    found = graded(source, Limits(2, 6.0, LIMITS.memory) if attack in WAITS else LIMITS)
    assert expected in found.why, found
    assert "\n" not in found.why and len(found.why) <= 300
    assert not Path("/tmp/refimpl-grade-was-here").exists()
    assert not list(Path("/tmp").glob("refimpl-grade-*/x"))


@pytest.mark.slow
def test_a_right_submission_hands_its_programs_over() -> None:
    found = graded(when_planned("print('hello')"))
    assert found.why == "" and [*found.programs] == [0]
    first, again = found.programs[0]
    assert first == again and first["instructions"] and "hello" in found.printed


def test_imports_are_read_and_not_executed() -> None:
    source = when_executed(
        "import time\nfrom refimpl.vdnn import ALL\nfrom refimpl import presets\nx = refimpl.presets"
    )
    assert foreign_imports(source.encode(), PLAIN) == ["refimpl.presets", "refimpl.vdnn.ALL", "time"]
    assert foreign_imports(when_planned("pass").encode(), PLAIN) == []


# -- the grader's side, with a shell for the submission's process ------------------------------------------------------


def shell(script: str, limits: Limits = LIMITS, request: bytes = b"") -> Ended:
    """What is read of a process that says `script`, with its pipe to the grader as $PIPE."""
    told, tells = os.pipe()
    process = subprocess.Popen(
        ["/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        pass_fds=(tells,), env={"PIPE": f"/dev/fd/{tells}", "PATH": os.defpath},
    )  # fmt: skip
    os.close(tells)
    try:
        return watched(process, told, request, limits)
    finally:
        assert process.returncode is not None and reaped(process, 0.0) == 0.0
        os.close(told)


def test_what_a_process_says_is_read_to_its_end() -> None:
    ended = shell(
        'read first; echo "$first" > $PIPE; echo again > $PIPE; echo seen; echo apart >&2', request=b"asked\n"
    )
    assert (ended.lines, ended.why, ended.printed) == ([b"asked", b"again"], "", "seen?apart?")
    assert ended.seconds > 0
    assert shell("exec 0<&-; sleep 0.01", request=b"x" * (1 << 20)).why == ""  # no process reads the request


@pytest.mark.parametrize(
    ("script", "limits", "why"),
    [
        ("exit 3", LIMITS, "exited with status 3"),
        ("kill -SEGV $$", LIMITS, "SIGSEGV"),
        ("kill -XCPU $$", LIMITS, "took more than 2 seconds of the processor"),
        ("kill -KILL $$", LIMITS, "SIGKILL"),
        ("sleep 60", Limits(wall=0.05), "took more than 0.05 seconds"),
        ("while :; do echo much; done", LIMITS, "printed more than 1 MiB"),
        ("head -c 1048577 /dev/zero >&2", LIMITS, "printed more than 1 MiB"),
        ("head -c 1048576 /dev/zero", LIMITS, ""),
        ("head -c 16777217 /dev/zero > $PIPE; sleep 9", LIMITS, "handed over more than 16 MiB"),
        ("head -c 16777216 /dev/zero > $PIPE", LIMITS, ""),
        (f"exit {FORBIDDEN}", LIMITS, ""),
    ],
)
def test_each_end_has_its_line(script: str, limits: Limits, why: str) -> None:
    found = shell(script, limits)
    assert why in found.why if why else found.why == ""


def test_who_is_killed_after_the_processors_seconds_took_too_many() -> None:
    for seconds, said in ((2.95, "2 seconds of the processor"), (2.85, "SIGKILL")):
        assert said in how(-signal.SIGKILL, Ended(seconds=seconds), LIMITS)


def test_a_process_that_closes_its_pipes_and_stays_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "LEAVING", 0.05)
    closing = "import os, time; os.closerange(0, 99); time.sleep(30)"
    found = shell(f"exec {sys.executable} -S -c '{closing}'")
    assert "SIGKILL" in found.why


def test_a_submission_is_a_file_in_a_folder_that_goes() -> None:
    before = {*Path("/tmp").glob("refimpl-grade-*")}
    ended = confined.confined("tests.refimpl.studies.grade.echo", b"text", "x.py", b"asked", LIMITS, hash_seed=7)
    path, *numbers = ended.lines[0].decode().split()
    assert (
        Path(path).name == "x.py" and not Path(path).exists() and not {*Path("/tmp").glob("refimpl-grade-*")} - before
    )
    assert numbers == ["2", str(600 << 20), "7", "/"] and ended.lines[1:] == [b"text", b"asked"]


def test_the_process_has_nothing_of_the_graders_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "1")
    monkeypatch.setattr(sys, "path", ["", "/somewhere", "/somewhere", "/else"])
    found = confined.environment(7)
    assert found["PYTHONPATH"] == os.pathsep.join([str(confined.ROOT), "/somewhere", "/else"])
    assert found["PYTHONHASHSEED"] == "7" and "SECRET" not in found
    assert {found[f"{one}_NUM_THREADS"] for one in ("OMP", "OPENBLAS", "MKL", "NUMBA")} == {"1"}


# -- the submission's side: the audit hook, called as Python calls it --------------------------------------------------


class Left(Exception):
    """In place of the end of the process."""


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Callable[..., None], list[str]]:
    """The hook of a submission in `tmp_path`, and what it tells the grader."""

    def leave(status: int) -> None:
        assert status == FORBIDDEN
        raise Left

    told: list[str] = []
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if "tutorials" not in place])
    return confined.hook(str(tmp_path), told.append), told


HookAndTold = tuple[Callable[..., None], list[str]]


def test_the_hook_lets_python_and_the_package_be_read(heard: HookAndTold, tmp_path: Path) -> None:
    hook, told = heard
    for path in (
        tmp_path / "submission.py",
        os.__file__,
        confined.ROOT / "refimpl/text.py",
        confined.ROOT / "kernels/x.py",
    ):
        hook("open", (str(path), "r", os.O_RDONLY))
        hook("open", (os.fsencode(path), "r", os.O_RDONLY))
    hook("open", (3, "r", os.O_WRONLY))  # a file that is open
    for event in ("compile", "import", "exec", "object.__getattr__", "os.listdir", "time.sleep"):
        hook(event, ())
    assert told == []


@pytest.mark.parametrize(
    ("event", "given", "said"),
    [
        ("open", ("/etc/passwd", "r", 0), "read the file '/etc/passwd'"),
        ("open", (b"/etc/passwd", "r", 0), "read the file '/etc/passwd'"),
        ("open", (f"{confined.ROOT}/tutorials/solutions/a1_liveness.py", "r", 0), "read the file"),
        ("open", (f"{confined.ROOT}/refimpl/../tutorials/x", "r", 0), "read the file"),
        ("open", (f"{confined.ROOT}/refimpl/text.py", "w", os.O_WRONLY), "write the file"),
        ("open", (f"{confined.ROOT}/refimpl/text.py", "a", os.O_APPEND), "write the file"),
        ("open", (f"{confined.ROOT}/refimpl/new.py", "x", os.O_CREAT), "write the file"),
        ("open", (Path("/tmp/x"), "r", 0), "no text"),
        *((event, (), event) for event in (
            "os.fork", "os.system", "subprocess.Popen", "socket.connect", "ctypes.dlopen", "os.kill", "os.remove",
            "signal.pthread_kill", "gc.get_objects",
        )),
    ],
)  # fmt: skip
def test_the_hook_ends_what_reaches_outside(heard: HookAndTold, event: str, given: tuple[Any, ...], said: str) -> None:
    hook, told = heard
    with pytest.raises(Left):
        hook(event, given)
    assert len(told) == 1 and said in told[0]


def test_what_the_audit_does_not_hear_is_replaced(heard: HookAndTold) -> None:
    _, told = heard
    with pytest.raises(Left):
        confined.refusal("mkfifo", told.append)("/tmp/pipe", mode=0)
    assert told == ["tried what a module has no need of: os.mkfifo"]


def test_limits_are_set_for_good(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limits: dict[int, tuple[int, int]] = {}
    hooks: list[Any] = []
    become: list[tuple[str, Any]] = []
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = int(usage.ru_utime + usage.ru_stime)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    monkeypatch.setattr(sys, "addaudithook", hooks.append)
    monkeypatch.setattr(confined, "UNHEARD", ())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("setgroups", "setresgid", "setresuid"):
        monkeypatch.setattr(os, name, lambda *given, name=name: become.append((name, given)))
    confined.confine(5, 1 << 30, str(tmp_path), lambda what: None)
    user = 61184 + os.getpid() % 4336
    assert become == [("setgroups", ([],)), ("setresgid", (user,) * 3), ("setresuid", (user,) * 3)]
    seconds, hard = limits.pop(resource.RLIMIT_CPU)
    assert used + 5 <= seconds <= used + 7 and hard == seconds + 1
    assert limits == {
        resource.RLIMIT_AS: (1 << 30, 1 << 30), resource.RLIMIT_FSIZE: (0, 0), resource.RLIMIT_NPROC: (0, 0),
        resource.RLIMIT_NOFILE: (64, 64), resource.RLIMIT_CORE: (0, 0),
    }  # fmt: skip
    assert len(hooks) == 1

    def forbidden(*given: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setresuid", forbidden)
    with pytest.raises(confined.CannotConfine, match="another user"):
        confined.become_a_stranger(str(tmp_path))
    become.clear()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    confined.become_a_stranger(str(tmp_path / "nothing"))
    assert become == []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "setresuid", lambda *given: None)
    with pytest.raises(confined.CannotConfine, match="TMPDIR"):
        confined.become_a_stranger(str(tmp_path / "nothing"))
