"""How large the house is: lines that `wc -l` counts, by room, with the size that each is meant to have.

python -m tests.house                  (make house)
python -m tests.house --json
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

BY_HAND = """
import numpy as np
from kernels.copies import NoGpu
from refimpl.executor import Executor
from refimpl.network.small import lenet
from refimpl.vdnn import VDNN_ALL
network = lenet(batch=2, shape=(1, 8, 8))
executor = Executor(network, VDNN_ALL, budget=1 << 20, gpu=NoGpu())
executor.train(np.ones((2, 1, 8, 8), np.float32), np.arange(2, dtype=np.int32))
"""
#: What is loaded for a first use: the code that does it, the packages that do not count, and the lines at most.
LOADED = {
    "the executor trains LeNet under vdnn-all, on a GPU": (BY_HAND, ("kernels.targets", "kernels.checks"), 6_428),
    "the same on a processor, with the compiler for it": (BY_HAND, (), 8_412),
    "LeNet is planned under vdnn-all, by names": ("import refimpl; refimpl.plan('lenet', 'vdnn-all')", (), 9_673),
}


@dataclass(frozen=True)
class Size:
    what: str
    lines: int
    target: int | None = None


def lines_of(paths: Iterable[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


@cache
def modules_of(code: str) -> list[str]:
    """The modules of `kernels/` and `refimpl/` that a new process imports to run `code`."""
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], cwd=ROOT, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    return [name for name in found.stdout.split() if name.startswith(("kernels", "refimpl"))]


def loaded(code: str, without: tuple[str, ...]) -> int:
    """Their lines, without those of some packages."""
    names = (name for name in modules_of(code) if not (without and name.startswith(without)))
    return lines_of(path for name in names for path in files_of(name))


def files_of(module: str) -> list[Path]:
    """The file of a module; none of one that was generated."""
    path = module.replace(".", "/")
    return [ROOT / one for one in (f"{path}.py", f"{path}/__init__.py") if (ROOT / one).is_file()]


def tracked() -> dict[str, Path]:
    """The files of the repository, by name."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return {name: ROOT / name for name in names if name and (ROOT / name).is_file()}


def help_of(*command: str) -> str:
    asked = [sys.executable, "-m", "refimpl", *command, "--help"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def sizes() -> Iterator[Size]:
    files = tracked()

    def under(*folders: str, ending: str = ".py", but: tuple[str, ...] = ()) -> int:
        wanted = (name for name in files if name.startswith(folders) and name.endswith(ending))
        return lines_of(files[name] for name in wanted if not (but and name.startswith(but)))

    for what, (code, without, most) in LOADED.items():
        yield Size(f"loaded when {what}", loaded(code, without), most)
    yield Size("refimpl/ without studies", under("refimpl/", but=("refimpl/studies/",)), 34_000)
    yield Size("refimpl/studies/", under("refimpl/studies/"), 9_000)
    yield Size("kernels/", under("kernels/"), 15_500)
    yield Size("of it plain", under("kernels/", but=("kernels/fast/", "kernels/checks/", "kernels/targets/")), 2_500)
    yield Size("of it fast", under("kernels/fast/"), 8_500)
    yield Size("the labs' tests and marks", under("tutorials/labs/", but=("tutorials/labs/a",)))
    yield Size("tests, Python", under("tests/"), 42_000)
    yield Size("tests, stored text", under("tests/", ending=".txt"), 2_500)
    yield Size("docs, all that is tracked but pictures", under("docs/", ending="", but=("docs/pictures/",)), 17_000)
    yield Size("commands", len(re.findall(r"^    ([a-z]\S*)", help_of(), re.MULTILINE)), 15)
    yield Size("options of run", len(re.findall(r"^  --[a-z]", help_of("run"), re.MULTILINE)), 25)
    for room in sorted({name.split("/")[1] for name in files if re.match("refimpl/.*/", name)}):
        yield Size(f"refimpl/{room}/", under(f"refimpl/{room}/"))
        yield Size(f"tests/refimpl/{room}/", under(f"tests/refimpl/{room}/"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    if parser.parse_args().json:
        print(json.dumps([asdict(size) for size in sizes()], indent=1))
        return
    print("| what | now | target |\n|---|---|---|")
    for size in sizes():
        print(f"| {size.what} | {size.lines:,} | {f'{size.target:,}' if size.target else ''} |", flush=True)


if __name__ == "__main__":
    main()
