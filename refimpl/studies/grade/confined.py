"""A process of its own for a submission, with little time, memory and reach.

Three layers, none of which needs a container:

1. The operating system's limits: processor seconds, bytes of memory, no process or thread beside it (RLIMIT_NPROC),
   not one byte in any file (RLIMIT_FSIZE), few open files, no core.  Root is exempt from some of them, so a grader that
   is root gives the process a user of its own first, who owns nothing.
2. The grader: it ends the process when its wall time is over or it prints too much.
3. Python's audit hook, which cannot be taken out again: a file to be read outside of Python's libraries and this
   package, a file to be written, a process, a socket, foreign code by ctypes ends the process, and the grader says why.

The third layer is no wall against an attacker: who corrupts the interpreter's memory is past it, and reads what
the process's user may read.  The verdict does not depend on it: what comes out is values, judged elsewhere.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import refimpl
from refimpl.text import RefimplError, one_line

ROOT = Path(refimpl.__file__).resolve().parents[1]
FIRST_USER, USERS = 61184, 4336  #: numbers that no user has: systemd keeps them for passing ones
MEBI = 1 << 20
MOST_PRINTED, MOST_HANDED_OVER, SHOWN = 1 * MEBI, 16 * MEBI, 200  #: bytes; letters of what it printed
LEAVING = 5.0  #: seconds from the last word to the end
FORBIDDEN = 71  #: exit status of a process that the hook has ended


@dataclass(frozen=True)
class Limits:
    """Of one process."""

    processor: int = 20  #: seconds
    wall: float = 70.0  #: seconds
    memory: int = 2 << 30  #: bytes of addresses


@dataclass
class Ended:
    """What a process handed over, line by line, and how it ended."""

    lines: list[bytes] = field(default_factory=list)
    why: str = ""  #: empty: as it should; else one line
    printed: str = ""  #: the beginning
    seconds: float = 0.0  #: of the processor


class CannotConfine(RefimplError):
    """The grader cannot keep a submission within limits here: one line."""


# -- the grader's side -------------------------------------------------------------------------------------------------


def confined(module: str, source: bytes, name: str, request: bytes, limits: Limits, hash_seed: int = 0) -> Ended:
    """Run `python -m module` on a submission, in an empty folder that goes afterwards.

    Args:
        module: it calls `confine`, and then executes the submission.
        source: of the submission.
        name: of its file.
        request: what the process reads from its standard input.
        limits: of the process.
        hash_seed: of Python's sets of texts.
    """
    with tempfile.TemporaryDirectory(prefix="refimpl-grade-") as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / name
        path.write_bytes(source)
        os.chmod(path, 0o644)
        told, tells = os.pipe()
        try:
            numbers = map(str, (tells, limits.processor, limits.memory))
            process = subprocess.Popen(
                [sys.executable, "-B", "-m", module, str(path), *numbers],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", pass_fds=(tells,),
                env=environment(hash_seed), start_new_session=True,
            )  # fmt: skip
        except BaseException:
            os.close(told)
            raise
        finally:
            os.close(tells)
        try:
            return watched(process, told, request, limits)
        finally:
            reaped(process, 0.0)
            os.close(told)


def environment(hash_seed: int) -> dict[str, str]:
    """Nothing of the grader's own but where Python finds its modules."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    path = os.pathsep.join(dict.fromkeys([str(ROOT), *filter(None, sys.path)]))
    return {"PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed), "PATH": os.defpath, "LANG": "C.UTF-8", **one_thread}


def watched(process: subprocess.Popen[bytes], told: int, request: bytes, limits: Limits) -> Ended:
    """Read all that the process says until it ends, or until it has to."""
    assert process.stdin and process.stdout and process.stderr
    try:
        with process.stdin:
            process.stdin.write(request)
    except BrokenPipeError:
        pass
    ended, deadline = Ended(), monotonic() + limits.wall
    taken: dict[int, bytearray] = {told: bytearray()}
    printed = {stream.fileno(): bytearray() for stream in (process.stdout, process.stderr)}
    taken.update(printed)
    with selectors.DefaultSelector() as selector:
        for number in taken:
            selector.register(number, selectors.EVENT_READ)
        while selector.get_map() and not ended.why:
            ready = selector.select(max(0.0, deadline - monotonic()))
            if monotonic() >= deadline:
                ended.why = f"took more than {limits.wall:g} seconds"
            for key, _ in ready:
                part = os.read(key.fd, 1 << 16)
                taken[key.fd] += part
                if not part:
                    selector.unregister(key.fd)
            if sum(map(len, printed.values())) > MOST_PRINTED:
                ended.why = f"printed more than {MOST_PRINTED >> 20} MiB"
            if len(taken[told]) > MOST_HANDED_OVER:
                ended.why = f"handed over more than {MOST_HANDED_OVER >> 20} MiB"
    process.stdout.close()
    process.stderr.close()
    ended.seconds = reaped(process, 0.0 if ended.why else LEAVING)
    ended.lines = bytes(taken[told]).splitlines()
    ended.printed = one_line(b"".join(map(bytes, printed.values()))[:SHOWN].decode(errors="replace"))
    ended.why = ended.why or how(process.returncode, ended, limits)
    return ended


def reaped(process: subprocess.Popen[bytes], patience: float) -> float:
    """End a process that does not end by itself within `patience` seconds; the seconds it took of the processor."""
    deadline = monotonic() + patience
    while process.returncode is None:
        if monotonic() >= deadline:
            end(process)
        found, status, used = os.wait4(process.pid, os.WNOHANG if monotonic() < deadline else 0)
        if found:
            process.returncode = os.waitstatus_to_exitcode(status)
            return used.ru_utime + used.ru_stime
        sleep(0.002)
    return 0.0


def how(status: int, ended: Ended, limits: Limits) -> str:
    """One line on an end that was not the usual one; empty: it was."""
    if status == -signal.SIGXCPU or (status == -signal.SIGKILL and ended.seconds >= limits.processor + 0.9):
        return f"took more than {limits.processor} seconds of the processor"
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}: it took too much, or ended itself"
    if status == FORBIDDEN:
        return ""  # its last line says why
    return f"exited with status {status}" if status else ""


def end(process: subprocess.Popen[bytes]) -> None:
    """The process, which can have no other beside it, unless it has been waited for."""
    if process.returncode is None:
        os.kill(process.pid, signal.SIGKILL)


# -- the submission's side ---------------------------------------------------------------------------------------------


def confine(processor: int, memory: int, folder: str, tell: Callable[[str], None]) -> None:
    """Limit this process for good.

    Args:
        processor: seconds.
        memory: bytes.
        folder: of the submission, which it may read.
        tell: is given what the process tried and must not, before it ends.
    """
    become_a_stranger(folder)
    used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    seconds = used + processor
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # SIGXCPU says why; who ignores it has a second
    for what, most in (
        (resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0), (resource.RLIMIT_NOFILE, 64), (resource.RLIMIT_CORE, 0),
    ):  # fmt: skip
        resource.setrlimit(what, (most, most))
    sys.addaudithook(hook(folder, tell))
    for name in UNHEARD:
        for module in (os, sys.modules[os.name]):
            if hasattr(module, name):
                setattr(module, name, refusal(name, tell))


def become_a_stranger(folder: str) -> None:
    """Root becomes a user who owns nothing: the limit of processes does not hold root.  Others stay who they are."""
    if os.geteuid() != 0:
        return
    user = FIRST_USER + os.getpid() % USERS
    try:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError:
        raise CannotConfine("the grader is root here and cannot give up its rights; run it as another user") from None
    if not os.access(folder, os.R_OK):
        raise CannotConfine(f"users other than root cannot read {folder}; set TMPDIR to a folder that they can read")


#: Events of Python's audit that end the process, by their beginnings.
ENDS = (
    "os.fork", "os.exec", "os.spawn", "os.posix_spawn", "os.system", "os.kill", "subprocess.", "pty.", "socket.",
    "ctypes.", "signal.", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod",
    "os.chown", "os.truncate", "os.utime", "os.chdir", "os.setxattr", "shutil.", "resource.", "sqlite3.", "mmap.",
    "tempfile.", "urllib.", "ftplib.", "smtplib.", "webbrowser.", "gc.get",
)  # fmt: skip
#: Functions of `os` that leave a file on disk, or slow the grader down, and that Python's audit does not hear.
UNHEARD = ("mkfifo", "mknod", "setpriority", "sched_setaffinity", "sched_setparam", "sched_setscheduler")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def refusal(name: str, tell: Callable[[str], None]) -> Callable[..., None]:
    """What takes the place of a function that the audit does not hear."""
    leave = os._exit

    def refused(*_: object, **__: object) -> None:
        tell(f"tried what a module has no need of: os.{name}")
        leave(FORBIDDEN)

    return refused


def hook(folder: str, tell: Callable[[str], None]) -> Callable[[str, tuple[Any, ...]], None]:
    """The audit hook.  It uses nothing that a submission could replace: its names are bound here."""
    libraries = {os.path.realpath(place) for place in (sys.prefix, sys.base_prefix, *sys.path) if place}
    inside = {f"{place}/" for place in libraries if not ROOT.is_relative_to(place)}
    inside |= {f"{ROOT / package}/" for package in ("refimpl", "kernels")} | {f"{folder}/"}
    may_read = tuple(inside - {f"{ROOT}/"})
    begins, has, leave, writes, ends = str.startswith, str.__contains__, os._exit, WRITES, ENDS

    def stop(what: str) -> None:
        tell(what)
        leave(FORBIDDEN)

    def heard(event: str, given: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = given
            if type(path) is int:
                return
            if type(path) is bytes:
                path = path.decode("utf-8", "replace")
            if type(path) is not str:
                stop("tried to open a file by something that is no text")
            if type(flags) is int and flags & writes:
                stop(f"tried to write the file {path[:120]!r}")
            if not begins(path, may_read) or has(path, "/../"):
                stop(f"tried to read the file {path[:120]!r}")
        elif begins(event, ends):
            stop(f"tried what a module has no need of: {event}")

    return heard
