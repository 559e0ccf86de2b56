"""Run a command on a folder of compiled kernels that two processes have filled, each in another order.

    python -m tests.filled_cache pytest tests/gpu -k vdnnpp --device emulated

Of the kernels that train a small network, one process compiles every other one from the first on, and the second the
rest from the last on; then the command's process loads what both have compiled.  Libraries of the C compiler are copied
from the usual folder if they are there: their names say all that they follow from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kernels.targets.cpu.build import cache_directory

FILL = """
import re
import sys
from kernels.targets import compiled, emulated, launch
from kernels.fast import concat, conv, elementwise, fc, pool, relu, sgd, softmax
emulated.start()
left_out = {left_out!r}
names = sorted(name for name in launch.REGISTRY if not re.search(left_out, name))
for name in names[::2] if sys.argv[1] == "first" else names[1::2][::-1]:
    compiled.compiled(launch.REGISTRY[name])
"""

#: Rungs, algorithms and options that no plan takes for a network so small.
LEFT_OUT = (
    "^gemm_(coalesced|double|register|tiled|vector|skinny_(rows|sum))|^gemm_split_.*_.t$|^conv_depthwise"
    "|^winograd|^im2col|_by_(image|map)|_(32|128)$|grouped|_in_groups|^pool_to|clipped"
)


def main() -> int:
    """The command's exit status."""
    usual = cache_directory()
    with tempfile.TemporaryDirectory(prefix="refimpl-filled-") as folder:
        for entry in usual.glob("emulated_*") if usual is not None else ():
            shutil.copytree(entry, Path(folder) / entry.name)
        environment = {**os.environ, "REFIMPL_CACHE": folder}
        script = FILL.format(left_out=LEFT_OUT)
        fillers = [
            subprocess.Popen([sys.executable, "-c", script, which], env=environment) for which in ("first", "last")
        ]
        if sum(each.wait() for each in fillers):  # both have ended
            return 1
        print(
            f"{len([*Path(folder).glob('gpu_*')])} kernels, compiled by two processes in different orders", flush=True
        )
        return subprocess.run([sys.executable, "-m", *sys.argv[1:]], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
