"""What a second process brings a study of 480 plans: one and two in turns.

    python -m tests.refimpl.studies.grid.two_processes

On a machine with other work the ratio of seconds means little.  That of processor time, half of what two processes take
together over what one takes, is what it would be on two cores of its own.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[4]
TURNS = 3
STUDY = """
networks = [
    "lenet", "tiny-vgg", "tiny-resnet", "alexnet", "overfeat", "vgg11", "vgg16", "googlenet", "resnet50", "unet",
]
setups = ["vdnn-all", "vdnn-dyn", "vdnnpp-all", "vdnnpp-dyn", "superneurons", "accudnn", "dtr", "save-on-cpu"]
budgets = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
batches = [16]
"""


def taken(study: Path, jobs: int) -> tuple[float, float]:
    """Seconds, and processor seconds of all its processes, of `refimpl study` from nothing."""
    study.with_suffix(".jsonl").unlink(missing_ok=True)
    command = [sys.executable, "-m", "refimpl", "study", str(study), "--jobs", str(jobs)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert study.with_suffix(".jsonl").read_bytes().count(b"\n") == 480
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder, "grid.toml")
        study.write_text(STUDY)
        turns = [(taken(study, 1), taken(study, 2)) for _ in range(TURNS)]
    for what, place, share in (("seconds", 0, 1.0), ("processor seconds", 1, 0.5)):
        one, two = (statistics.median(turn[side][place] for turn in turns) for side in (0, 1))
        ratio = statistics.median(share * turn[1][place] / turn[0][place] for turn in turns)
        print(f"480 plans, {what}: one process {one:.1f}, two {two:.1f}; ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
