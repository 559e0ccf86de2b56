"""Python as another computer has it: put this folder on PYTHONPATH, and name the computer in REFIMPL_ELSEWHERE.

mac      no numba-cuda and no cuda.*, which have no wheel there: `numba.cuda` is Numba's own
windows  the same, and none of the modules and names that POSIX systems alone have: this project's code does not find
         them.  The standard library does, since it is Linux's.

    REFIMPL_ELSEWHERE=windows PYTHONPATH=tests/elsewhere:. python -m pytest -m "not slow"
"""

import builtins
import importlib.abc
import os
import platform
import re
import select
import signal
import sys
import sysconfig

LIBRARIES = (*(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), "<frozen", "<__array")
WHEELS = ("numba_cuda", "_numba_cuda_redirector", "cuda", "nvidia")
MODULES = ("fcntl", "resource", "pty", "termios", "tty", "pwd", "grp", "posix", "syslog")
NAMES = {
    os: r"get(e|res|p)?[ug]id|getpgid|getsid|set(e|re|res|p)?[ug]id|setsid|fork(pty)?|killpg|wait(3|4|id)|WNOHANG"
    r"|mkfifo|sched_\w+|getloadavg|sysconf\w*|nice|f?chown|fchmod|uname|statvfs|pidfd_open|posix_\w+|RTLD_\w+"
    r"|O_(NONBLOCK|CLOEXEC|DIRECTORY|NOFOLLOW|SYNC)|set_blocking|ctermid|ttyname|openpty",
    signal: r"SIG(KILL|ALRM|USR[12]|HUP|STOP|CONT|CHLD|TSTP|PIPE|QUIT)|[gs]etitimer|ITIMER_\w+|alarm|pause"
    r"|pthread_\w+|SIG_(UN)?BLOCK|SIG_SETMASK|sig(wait|pending|timedwait)\w*",
    select: r"e?poll|E?POLL\w+",
}


def ours() -> bool:
    """Whether this project's code has asked, and not a library's."""
    return not sys._getframe(2).f_code.co_filename.startswith(LIBRARIES)


class Absent(importlib.abc.MetaPathFinder):
    """What has no wheel there cannot be imported."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in WHEELS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def refuse(modules):
    """This project's code cannot import modules that the standard library can, and may have imported."""
    real = builtins.__import__

    def imported(name, *others, **named):
        if name in modules and ours():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *others, **named)

    builtins.__import__ = imported


def hide(module, pattern):
    """Names that a module has for the standard library alone."""
    hidden = {name: vars(module).pop(name) for name in list(vars(module)) if re.fullmatch(pattern, name)}

    def found(name):
        if name in hidden and not ours():
            return hidden[name]
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    module.__getattr__ = found


if there := os.environ.get("REFIMPL_ELSEWHERE"):
    sys.meta_path[:] = [Absent(), *(one for one in sys.meta_path if type(one).__name__ != "NumbaCudaFinder")]
    for absent in [name for name in sys.modules if name.partition(".")[0] in WHEELS]:
        del sys.modules[absent]
    system, named = platform.system, {"mac": "Darwin", "windows": "Windows"}[there]
    platform.system = lambda: named if ours() else system()
    if there == "windows":
        refuse(MODULES)
        for module, pattern in NAMES.items():
            hide(module, pattern)
