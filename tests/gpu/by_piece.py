"""`make gpu-quick`, `gpu-tests`, `gpu-bench` and `gpu-papers`: what is measured on a GPU, in pieces.

Each piece writes a row as soon as it is done, a line of JSON in `docs/measurements/gpu-MACHINE-DATE.jsonl`.  What has
gone well is not run again on that machine with the same code, so the same command goes on where it was stopped.  What
has failed is tried again, after all else.

    python -m tests.gpu.by_piece PART [--only WORD] [--rows FOLDER] [--device emulated]
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
STORED = ROOT / "docs" / "measurements"
NEEDED = ("numpy", "numba", "numba-cuda", "cuda.core", "cuda.bindings", "rich", "argcomplete")  #: packages
LIBRARIES = {"NVVM": ("nvvm", "version"), "NVRTC": ("nvrtc", "nvrtcVersion"), "nvJitLink": ("nvjitlink", "version")}
CODE = ("kernels/**/*.py", "refimpl/**/*.py", "tests/gpu/*.py")  #: whose rows are of use
TESTED_BY = ("pytest", "hypothesis")
Figures = dict[str, Any]


# -- what is missing ---------------------------------------------------------------------------------------------------


def there(package: str) -> bool:
    try:
        return find_spec(package.replace("-", "_")) is not None
    except (ImportError, ValueError):
        return False


def lacking(part: str) -> Iterator[tuple[bool, str]]:
    """What is not installed, in a line each, and whether the part cannot run without it."""
    for package in (*NEEDED, *(TESTED_BY if part in ("quick", "tests") else ())):
        if not there(package):
            needed = package in NEEDED or part == "tests"
            without = "" if needed else ", so kernels and presets are not compared"
            yield needed, f"no {package}{without}: pip install {package.replace('.', '-')}"
    for name, (module, function) in LIBRARIES.items() if there("cuda.bindings") else ():
        try:
            getattr(import_module(f"cuda.bindings.{module}"), function)()
        except Exception as error:  # the binding raises its own types for a library that is absent, too old or broken
            yield True, f"no {name} ({type(error).__name__}): pip install 'refimpl[cu13]'"
    if part in ("quick", "bench") and not (there("torch") and import_module("torch").cuda.is_available()):
        yield False, "no PyTorch with CUDA, so nothing is measured beside cuBLAS and cuDNN: pip install torch"


# -- rows --------------------------------------------------------------------------------------------------------------


class Rows:
    """The rows of a part, on one machine, of this code."""

    def __init__(self, part: str, machine: str, folder: Path) -> None:
        from refimpl.report.markdown import slug

        files = sorted(path for pattern in CODE for path in ROOT.glob(pattern))
        self.code = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
        self.emulated = machine == "emulated"
        self.part, self.machine, self.date = part, machine, datetime.date.today().isoformat()
        self.path, self.lost = folder / f"gpu-{slug(machine)}-{self.date}.jsonl", False
        self.of: dict[str, dict[str, Any]] = {}
        self.cut = self.path.exists() and not self.path.read_text(encoding="utf-8").endswith("\n")
        for path in sorted(path for here in {STORED, folder} for path in here.glob(f"gpu-{slug(machine)}-*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError):  # the last line of a process that was killed
                    row = json.loads(line)
                    if (row["part"], row["code"]) == (part, self.code):
                        self.of[row["piece"]] = row

    def good(self, piece: str) -> bool:
        return piece in self.of and self.of[piece]["failed"] is None

    def add(self, piece: str, seconds: float, failed: str | None, figures: Figures) -> None:
        row = {"piece": piece, "failed": failed, "seconds": round(seconds, 3), "figures": figures}
        self.of[piece] = row | {"part": self.part, "machine": self.machine, "date": self.date, "code": self.code}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * self.cut + json.dumps(self.of[piece]) + "\n")
        self.cut = False
        print(f"{piece}: {self.said(piece) or 'as it should be'} ({seconds:.1f} s)", flush=True)
        if failed:
            from kernels.targets import gpu

            try:
                gpu.synchronize()
            except Exception:  # some errors take the GPU from the process for good
                self.lost = True

    def run(self, piece: str, act: Callable[[], Figures]) -> Figures:
        """The figures that are stored, or those that the piece comes to; none if it fails."""
        if not self.good(piece) and not self.lost:
            start, figures, failed = time.perf_counter(), {}, None
            try:
                figures = act()
            except Exception as error:  # whatever it is, the other pieces are measured
                failed = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            self.add(piece, time.perf_counter() - start, failed, figures)
        return dict(self.of[piece]["figures"]) if piece in self.of else {}

    def run_all(self, pieces: dict[str, Callable[[], Figures]]) -> None:
        for piece in sorted(pieces, key=self.of.__contains__):  # what failed before comes last
            self.run(piece, pieces[piece])

    def said(self, piece: str) -> str:
        figures = self.of[piece]["figures"].items()
        shown = [(name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in figures]
        return self.of[piece]["failed"] or ", ".join(f"{name} {x}" for name, x in shown if isinstance(x, str | int))

    def summed_up(self) -> int:
        """One table of the pieces that have figures or have failed; the exit status."""
        from refimpl.report.tables import Table

        lines = [[piece, f"{row['seconds']:.1f} s", self.said(piece)] for piece, row in self.of.items()]
        lines, good = [line for line in lines if line[2]], sum(map(self.good, self.of))
        note = f"{good} of {len(self.of)} pieces went well: {self.path}"
        note += "; the GPU is lost to this process: the same command goes on" * self.lost
        head = ["piece", "took", "found"]
        print(f"\n{Table(f'{self.part} on {self.machine}', head, lines, wraps=('piece', 'found'), note=note).text()}")
        return int(good < len(self.of))


# -- the parts ---------------------------------------------------------------------------------------------------------


class EachTest:
    """pytest's plugin: a row a test; what has passed is not run again."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        new = [item for item in items if not self.rows.good(item.nodeid)]
        items[:] = sorted(new, key=lambda item: item.nodeid in self.rows.of)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or not report.passed:
            failed = str(report.longrepr)[-300:] if report.failed else None
            self.rows.add(report.nodeid, report.duration, failed, {})
        if self.rows.lost:
            import_module("pytest").exit("the GPU is lost to this process")


def tests(rows: Rows, device: Any, only: str) -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    marked = [str(path) for path in files if re.search(r"mark\.(gpu|timing)\b", path.read_text(encoding="utf-8"))]
    wanted = ["-m", "gpu or timing", "--device", "emulated" if rows.emulated else "gpu", "-k", only]
    import_module("pytest").main(["-qq", "-p", "no:xdist", *wanted, *marked], plugins=[EachTest(rows)])


def bench(rows: Rows, device: Any, only: str) -> None:
    """A row a case; the pages are written once all cases are measured."""
    from refimpl.studies.bench import kernels
    from refimpl.studies.bench.cases import cases
    from refimpl.studies.bench.products import gemm_case

    def stored(piece: str, make: Callable[[], kernels.Result | None]) -> kernels.Result | None:
        figures = rows.run(piece, lambda: asdict(found) if (found := make()) else {})
        return kernels.Result(**figures) if figures else None

    small = gemm_case("small", 64, 64, 64, "coalesced", True)
    chosen = [case for case in ([small] if rows.emulated else cases(device)) if only in case.family]
    report = kernels.run(device, chosen, 0.6, False, lambda name: None, not only, stored)
    if not only and not rows.lost and all(map(rows.good, rows.of)) and not rows.emulated:
        print(*report.write(ROOT), sep="\n")


def papers(rows: Rows, device: Any, only: str) -> None:
    from refimpl.names.machines import named
    from refimpl.studies.reproduce import PAPERS
    from refimpl.studies.reproduce.measured import Request
    from tests.gpu_device import BACKEND, sized

    def measured(paper: str) -> Figures:
        name, batch, budget, root = sized((None, None, "12GiB", ROOT), ("tiny-vgg:vdnnpp", 4, "1GiB", rows.path.parent))
        ask = Request(name, batch, PAPERS[paper].policy, named("here"), budget, BACKEND, sized(5, 2))
        page, _ = PAPERS[paper].measured().measure(ask).write(root, paper, PAPERS[paper].title)
        return {"written": str(page)}

    rows.run_all({paper: partial(measured, paper) for paper in PAPERS if only in paper})


def quick(rows: Rows, device: Any, only: str) -> None:
    from tests.gpu.quick import pieces

    found = pieces(device, tested=all(map(there, TESTED_BY)))
    rows.run_all({name: act for name, act in found.items() if only in name})


PARTS = {"quick": quick, "tests": tests, "bench": bench, "papers": papers}


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.by_piece")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--only", default="", metavar="WORD", help="the pieces whose names have it")
    parser.add_argument("--rows", type=Path, default=STORED, metavar="FOLDER", help="default: docs/measurements")
    parser.add_argument("--device", choices=("gpu", "emulated"), default="gpu")
    options = parser.parse_args(given)
    warnings.filterwarnings("ignore", message="Grid size")  # of Numba, for small launches
    missing = [*lacking(options.part)]
    for _, line in missing:
        print(line)
    if any(needed for needed, _ in missing):
        return 2
    from refimpl.machine.devices import Gpu
    from refimpl.names.machines import named
    from tests import gpu_device

    class Emulated(Gpu):
        def __init__(self) -> None:
            self.name, self.machine = "emulated", named("h100")

    gpu_device.choose(options.device)
    if (reason := gpu_device.start()) is not None:
        print(reason)
        return 2
    device = Emulated() if options.device == "emulated" else Gpu()
    rows = Rows(options.part, device.name, options.rows)
    print(f"{device.name}: {options.part}; pieces that are stored already: {sum(map(rows.good, rows.of))}", flush=True)
    PARTS[options.part](rows, device, options.only)
    return rows.summed_up()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
