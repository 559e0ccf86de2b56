"""`python -m kernels.targets.emulated SCRIPT [ARGUMENT …]`: run a Python script on the emulated GPU, with its checks.

Without a script: print the path of the driver, for LD_PRELOAD on a computer that has another one.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback

from kernels.targets import emulated
from kernels.targets.emulated import c_compiler, lines


def main() -> str | int | None:
    """The exit status: the script's; 1 if it fails or something is found; a text that says why it cannot be run."""
    if len(sys.argv) == 1:
        print(c_compiler.driver())
        return 0
    del sys.argv[0]
    path = sys.argv[0]
    if not os.path.isfile(path):
        return f"there is no script {path}"
    try:
        emulated.start()
    except (emulated.EmulationError, emulated.NoCompiler) as error:
        return str(error)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # as if the script were started by itself
    status: str | int | None = 0
    try:
        with lines.work_named_by_line_of(path):
            runpy.run_path(path, run_name="__main__")
    except SystemExit as left:
        status = left.code
    except Exception:
        traceback.print_exc()
        status = 1
    found = emulated.findings()
    for finding in found:
        print(f"the emulated GPU found an error: {finding}", file=sys.stderr)
    return 1 if found else status


if __name__ == "__main__":
    sys.exit(main())
