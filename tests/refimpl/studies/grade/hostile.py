"""Submissions that attack the grader or break the rules: name → source, and words of the line that they get.

Each ends within a second or two: what they could do without limits is proved with small numbers.
"""

from __future__ import annotations

RIGHT = """
from dataclasses import dataclass
from typing import ClassVar
from refimpl import slots


@dataclass(frozen=True)
class Mine(slots.Liveness):
    name: ClassVar[str] = "mine"
    summary: ClassVar[str] = "after the last use"
    offers: ClassVar = frozenset({"release"})

    def bind(self, context):
        releases = slots.Releases()
        for tensor, uses in context.uses.items():
            if uses:
                releases.add(context.last_use(tensor), tensor)
        ATTACK
        return releases


liveness = Mine()
"""


def when_executed(attack: str) -> str:
    """The attack, then a right module."""
    return attack + RIGHT.replace("ATTACK", "pass")


def when_planned(attack: str) -> str:
    """A right module that attacks when a plan asks it; the attack is one line."""
    return RIGHT.replace("ATTACK", attack)


HOSTILE = {
    "endless loop": (when_planned("while True: pass"), "seconds of the processor"),
    "loop in one call of C": (when_executed("sum(range(10**12))"), "seconds of the processor"),
    "sleeps": (when_executed("import time\ntime.sleep(1000)"), "took more than"),
    "100 GB": (when_executed("x = bytearray(100 * 10**9)"), "MemoryError"),
    "100 GB piece by piece": (
        when_executed("x = []\nwhile True: x.append(bytearray(2**24))"), "MemoryError"),
    "fork": (when_executed("import os\nos.fork()"), "os.fork"),
    "fork bomb": (when_executed("import os\nwhile True: os.fork()"), "os.fork"),
    "fork by a system call": (
        when_executed("import _posixsubprocess, os\nr, w = os.pipe()\n_posixsubprocess.fork_exec([b'/bin/true'], "
                      "[b'/bin/true'], True, (w,), None, None, -1, -1, -1, -1, -1, -1, r, w, False, False, 0, None, "
                      "None, None, -1, None, True)"), "BlockingIOError"),
    "threads": (when_executed("import threading\nthreading.Thread(target=print).start()"), "thread"),
    "starts a shell": (when_executed("import os\nos.system('true')"), "os.system"),
    "subprocess": (when_executed("import subprocess\nsubprocess.run(['true'])"), "subprocess"),
    "reads the solution": (
        when_executed("import refimpl, pathlib\np = pathlib.Path(refimpl.__file__).parents[1] / 'tutorials' / "
                      "'solutions' / 'a3_recompute_and_cache.py'\nexec(p.read_text())"), "tried to read the file"),
    "imports the solution": (when_executed("import tutorials.solutions.a3_recompute_and_cache"), "tried to read"),
    "reads the grader's command line": (
        when_executed("import os\nprint(open(f'/proc/{os.getppid()}/cmdline').read())"), "tried to read the file"),
    "reads by a way round": (
        when_executed("import refimpl\nopen(refimpl.__file__[:-11] + 'cli/../../README.md')"), "tried to read"),
    "reads the seed": (when_executed("open('/root/seed').read()"), "tried to read the file"),
    "reads the grade's file": (when_executed("import os\nos.open('/tmp/grades.json', os.O_RDONLY)"), "tried to read"),
    "appends to the grade's file": (when_executed("open('/tmp/refimpl-grade-was-here', 'a')"), "tried to write"),
    "writes a file": (when_executed("open('/tmp/refimpl-grade-was-here', 'w').write('x')"), "tried to write the file"),
    "fills the disk": (
        when_executed("import os\nf = os.open('x', os.O_CREAT | os.O_WRONLY)\nos.write(f, b'x' * 2**20)"),
        "tried to write"),
    "removes files": (when_executed("import os\nos.remove('/tmp/refimpl-grade-not-there')"), "os.remove"),
    "kills the grader": (when_executed("import os\nos.kill(os.getppid(), 9)"), "os.kill"),
    "calls C": (when_executed("import ctypes\nctypes.CDLL(None).getppid()"), "ctypes"),
    "opens a socket": (when_executed("import socket\nsocket.socket()"), "socket"),
    "lifts its limits": (
        when_executed("import resource\nresource.setrlimit(resource.RLIMIT_CPU, (10**6, 10**6))"), "resource"),
    "exits": (when_executed("import os\nos._exit(0)"), "ended before"),
    "raises what is no exception": (
        when_planned("raise type('Stop', (BaseException,), {})()"), "Stop"),
    "exits by an exception": (when_executed("raise SystemExit(0)"), "SystemExit"),
    "kills itself": (when_executed("import signal\nsignal.raise_signal(9)"), "SIGKILL"),
    "prints megabytes": (when_executed("while True: print('x' * 2**16)"), "printed more than 1 MiB"),
    "closes everything and waits": (
        when_executed("import os, time\nfor n in range(64):\n    try: os.close(n)\n    except OSError: pass\n"
                      "time.sleep(1000)"), "ended"),
    "writes nonsense for the grader": (
        when_executed("import os, sys\nos.write(int(sys.argv[2]), b'\\xff{[' * 1000 + b'\\n')"), "no program"),
    "writes deep JSON": (
        when_executed("import os, sys\nos.write(int(sys.argv[2]), b'[' * 50000 + b'\\n')"), "no program"),
    "never stops handing over": (
        when_executed("import os, sys\nwhile True: os.write(int(sys.argv[2]), b'x' * 2**16)"), "handed over more"),
    "recursion": (when_planned("f = lambda: f(); f()"), "RecursionError"),
    "an exception without words": (
        when_planned("raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})()"), ""),
    "an exception of megabytes": (when_planned("raise ValueError('x' * 10**7)"), "ValueError"),
    "an exception": (when_planned("1 / 0"), "ZeroDivisionError"),
    "an exception that no terminal can print": (
        when_executed(r"raise ValueError('\ud800\x1b[2J')"), "ValueError: ??[2J"),
    "an exception of a class without a module": (
        when_executed("class Lost(Exception): pass\nLost.__module__ = 5\nraise Lost()"), "Lost"),
    "reads its environment": (when_executed("open('/proc/self/environ').read()"), "tried to read the file"),
    "reads the grader's memory": (
        when_executed("import os\nos.open(f'/proc/{os.getppid()}/mem', os.O_RDONLY)"), "tried to read the file"),
    "leaves a pipe on disk": (when_executed("import os\nos.mkfifo('/tmp/refimpl-grade-was-here')"), "os.mkfifo"),
    "leaves a file on disk by another name of os": (
        when_executed("import posix\nposix.mknod('/tmp/refimpl-grade-was-here')"), "os.mknod"),
    "leaves a link on disk": (
        when_executed("import os\nos.symlink('/etc/passwd', '/tmp/refimpl-grade-was-here')"), "os.symlink"),
    "leaves a thread running": (
        when_executed("import _thread, time\n_thread.start_new_thread(time.sleep, (1000,))"), "thread"),
    "slows the grader down": (
        when_executed("import os\nos.setpriority(os.PRIO_PROCESS, os.getppid(), 19)"), "os.setpriority"),
    "rings an alarm": (when_executed("import signal, time\nsignal.alarm(1)\ntime.sleep(1000)"), "SIGALRM"),
    "stops itself": (when_executed("import signal\nsignal.raise_signal(signal.SIGSTOP)"), "took more than"),
    "crashes the interpreter": (when_executed("import faulthandler\nfaulthandler._sigsegv()"), "SIGSEGV"),
    "writes where Python starts": (
        when_executed("import sys\nopen(f'{sys.prefix}/lib/sitecustomize.py', 'w')"), "tried to write the file"),
    "hands over a pickle": (
        when_executed("import os, pickle, sys\nclass Run:\n    def __reduce__(self): return os.system, "
                      "('touch /tmp/refimpl-grade-was-here',)\n"
                      "os.write(int(sys.argv[2]), pickle.dumps(Run()) + b'\\n')"),
        "no program"),
    "hands over a number of ten thousand digits": (
        when_executed("import os, sys\nos.write(int(sys.argv[2]), b'{\"case\": ' + b'9' * 10000 + b'}\\n')"),
        "no program"),
    "hands over millions of lists": (
        when_executed("import os, sys\nline = b'{\"case\": 0, \"program\": [' + b'[],' * (15 << 20) + b'[]]}\\n'\n"
                      "while line: line = line[os.write(int(sys.argv[2]), line):]"), "handed over more"),
    "no Python": ("def (", "SyntaxError"),
    "nothing": ("", "no liveness"),
}  # fmt: skip
