"""The bench: how fast every kernel family is on this machine, beside NumPy, PyTorch and a plain copy, in one run.

A *case* is one computation of one size.  Everything that computes it, our kernels and their rivals, is timed in turns
within one run, and the fastest turn of each counts: what was slower was disturbed by something else.  So a ratio of two
of them means something even where the machine is busy.  Our launches are bound once and replayed.
`cases` says what is measured, `tables` how it is shown; this module measures and judges the targets.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kernels.launch import Launch
from refimpl.bench.devices import Device, Run, cores, has_avx2
from refimpl.bench.rivals import torch_or_none

RATES = {"GFLOP/s": 1e9, "GB/s": 1e9}


class Rival(NamedTuple):
    """Somebody else's version of a case; `amount` if it is not the same number of operations or bytes."""

    run: Run
    amount: float | None = None


@dataclass(frozen=True)
class Case:
    """One computation of one size.  `prepare` makes the arrays; it gives our launches, by algorithm, and the rivals."""

    family: str
    what: str
    size: str
    unit: str  #: a key of RATES
    amount: float  #: floating-point operations or bytes moved by one run
    prepare: Callable[[Device], tuple[Mapping[str, Sequence[Launch]], Mapping[str, Rival]]]
    headline: bool = False  #: shown in the README's short table
    times: int = 1  #: how often a whole network has this case (layers of one shape)


@dataclass
class Result:
    """What was measured of a case.  `ratio` is ours over theirs: above 1, we are faster."""

    family: str
    what: str
    size: str
    unit: str
    algorithm: str
    ours: float
    seconds: float
    beside: dict[str, float] = field(default_factory=dict)
    ratio: dict[str, float] = field(default_factory=dict)
    tried: dict[str, float] = field(default_factory=dict)  #: algorithm → rate, where there was a choice
    headline: bool = False
    times: int = 1

    @property
    def label(self) -> str:
        return f"{self.what} ({self.algorithm})" if len(self.tried) > 1 else self.what


def replay(launches: Sequence[Launch]) -> Run:
    def run() -> None:
        for launch in launches:
            launch.run(None)

    return run


def in_a_row(once: float) -> int:
    """How often a run of so many seconds is repeated in one turn: a short one several times, behind one to warm up."""
    return 1 if once > 0.05 else max(2, min(200, int(0.01 / max(once, 1e-9))))


def time_in_turns(device: Device, runs: Mapping[str, Run], budget: float) -> dict[str, float]:
    """Seconds of every run in its fastest turn; at least two turns, and as many as fit into `budget` seconds."""
    for run in runs.values():
        run()  # compiles, touches the memory, lets the libraries choose their algorithms
    best = {name: device.seconds(run, 1) for name, run in runs.items()}
    repeats = {name: in_a_row(once) for name, once in best.items()}
    end = time.perf_counter() + budget
    while True:
        for name, run in runs.items():
            best[name] = min(best[name], device.seconds(run, repeats[name]))
        if time.perf_counter() > end:
            return best


def measure(device: Device, case: Case, budget: float) -> Result | None:
    """Run a case; None if no algorithm serves it here."""
    ours, rivals = case.prepare(device)
    if not ours:
        return None
    runs: dict[str, Run] = {f"ours {name}": replay(launches) for name, launches in ours.items()}
    runs |= {name: rival.run for name, rival in rivals.items()}
    seconds = time_in_turns(device, runs, budget)
    best = min(ours, key=lambda name: seconds[f"ours {name}"])
    per = RATES[case.unit]
    rate = case.amount / per / seconds[f"ours {best}"]
    beside = {name: (rival.amount or case.amount) / per / seconds[name] for name, rival in rivals.items()}
    return Result(
        family=case.family,
        what=case.what,
        size=case.size,
        unit=case.unit,
        algorithm=best,
        ours=rate,
        seconds=seconds[f"ours {best}"],
        beside=beside,
        ratio={name: rate / theirs for name, theirs in beside.items()},
        tried={name: case.amount / per / seconds[f"ours {name}"] for name in ours},
        headline=case.headline,
        times=case.times,
    )


def launch_cost(device: Device) -> Result:
    """The host's microseconds for a launch with its arguments bound once, beside a call of the family's function."""
    from kernels import relu
    from kernels.launch import bind

    x = device.array(np.zeros(32, np.float32))
    runs = {"bound": replay(bind(relu.forward, x, x)), "plain call": lambda: relu.forward(x, x)}
    microseconds: dict[str, float] = {}
    for name, run in runs.items():
        taken = []
        for _ in range(20):
            run()
            device.seconds(lambda: None, 1)  # the device is idle again, its queue empty
            start = time.perf_counter()
            for _ in range(200):
                run()
            taken.append((time.perf_counter() - start) / 200)
        microseconds[name] = min(taken) * 1e6
    bound, plain = microseconds["bound"], microseconds["plain call"]
    return Result(
        family="launch",
        what="host's time for one launch, arguments bound",
        size="32",
        unit="µs",
        algorithm="bound",
        ours=bound,
        seconds=bound / 1e6,
        beside={"plain call": plain},
        ratio={"plain call": plain / bound},
        headline=True,
    )


# -- targets -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """What was asked for before anything was measured: `value` finds it among the results."""

    kind: str
    what: str
    limit: float
    unit: str  #: "GFLOP/s", "of NumPy", "of cuBLAS", …; "µs" is a limit from above
    value: Callable[[Sequence[Result]], float | None]

    def verdict(self, results: Sequence[Result]) -> dict[str, Any]:
        found = self.value(results)
        if found is None:
            verdict = "not measured"
        else:
            verdict = "met" if (found <= self.limit if self.unit == "µs" else found >= self.limit) else "missed"
        return {"what": self.what, "target": self.limit, "unit": self.unit, "measured": found, "verdict": verdict}


def find(results: Sequence[Result], family: str, what: str = "") -> list[Result]:
    return [r for r in results if r.family == family and r.what.startswith(what)]


def best_rate(family: str, what: str = "") -> Callable[[Sequence[Result]], float | None]:
    return lambda results: max((r.ours for r in find(results, family, what)), default=None)


def best_ratio(rival: str, family: str, what: str = "") -> Callable[[Sequence[Result]], float | None]:
    return lambda results: max((r.ratio[rival] for r in find(results, family, what) if rival in r.ratio), default=None)


def least_ratio(rival: str, *families: str) -> Callable[[Sequence[Result]], float | None]:
    return lambda results: min(
        (r.ratio[rival] for name in families for r in find(results, name) if rival in r.ratio), default=None
    )


def over_layers(rival: str, pass_: str) -> Callable[[Sequence[Result]], float | None]:
    """All layers of a network together: the rival's seconds over ours."""

    def value(results: Sequence[Result]) -> float | None:
        layers = [r for r in find(results, "conv", pass_) if rival in r.ratio and r.size.startswith("VGG")]
        ours = sum(r.times * r.seconds for r in layers)
        return sum(r.times * r.seconds * r.ratio[rival] for r in layers) / ours if layers else None

    return value


STREAMING = ("elementwise", "relu", "pool", "batchnorm", "dropout", "concat", "join", "sgd")

TARGETS = [
    Target("cpu", "gemm 512³", 35, "GFLOP/s", best_rate("gemm", "ladder")),
    Target("cpu", "gemm 512³", 0.2, "of NumPy", best_ratio("NumPy", "gemm", "ladder")),
    Target("cpu", "conv forward, implicit_gemm", 25, "GFLOP/s", best_rate("conv", "forward, implicit_gemm")),
    Target("cpu", "conv forward, implicit_gemm", 0.2, "of NumPy", best_ratio("NumPy", "conv", "forward, implicit")),
    Target("gpu", "gemm 4096³", 0.6, "of cuBLAS", best_ratio("cuBLAS", "gemm", "ladder")),
    Target("gpu", "VGG-16, batch 32: forward", 0.5, "of cuDNN", over_layers("cuDNN", "forward")),
    Target("gpu", "VGG-16, batch 32: backward-data", 0.5, "of cuDNN", over_layers("cuDNN", "backward_data")),
    Target("gpu", "VGG-16, batch 32: backward-filter", 0.4, "of cuDNN", over_layers("cuDNN", "backward_filter")),
    Target("gpu", "fc, batch 32, its slowest pass", 0.6, "of a copy", least_ratio("copy", "fc")),
    Target("gpu", "element-wise, pool, batchnorm: the slowest", 0.8, "of a copy", least_ratio("copy", *STREAMING)),
    Target("gpu", "host's time for one bound launch", 5, "µs", best_rate("launch")),
]


def targets_apply(device: Device) -> str:
    """Whether this is the device that the targets were set for, in words."""
    if device.kind == "cpu":
        right = has_avx2() and cores() >= 2
        return "set for two cores of an AVX2 machine" + ("" if right else "; this is not one")
    return "set for an H100" + ("" if "H100" in device.name else "; this is another GPU")


# -- the whole run -----------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """A run of the bench, ready to be shown or written down."""

    device: str  #: "cpu" or "gpu"
    name: str  #: of the CPU or the GPU
    date: str
    versions: dict[str, str]
    quick: bool
    load: float  #: processes that wanted a core in the minute before, this one not among them
    seconds: float
    results: list[Result]
    targets: list[dict[str, Any]]
    targets_note: str

    def json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)


def load_average() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def versions() -> dict[str, str]:
    """What took part, by name."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("numba", "numba-cuda", "numpy", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    torch = torch_or_none()
    if torch is not None and torch.cuda.is_available():
        found |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
    return found


def run(
    device: Device,
    cases: Sequence[Case],
    budget: float,
    quick: bool,
    watch: Callable[[str], None],
    with_launch_cost: bool = True,
) -> Report:
    """Measure all cases and judge the targets; `watch` is told the name of each case before it starts."""
    start, load = time.perf_counter(), load_average()
    results = []
    for case in cases:
        watch(f"{case.family} {case.what}")
        result = measure(device, case, budget)
        if result is not None:
            results.append(result)
    if with_launch_cost:
        watch("launch")
        results.append(launch_cost(device))
    report = Report(
        device.kind, device.name, datetime.date.today().isoformat(), versions(), quick, load, 0, results, [], ""
    )
    if not quick:  # the targets were set for the full sizes
        measured = {result.family for result in results}
        report.targets = [t.verdict(results) for t in TARGETS if t.kind == device.kind]
        report.targets = [t for t in report.targets if t["verdict"] != "not measured" or len(measured) > 1]
        report.targets_note = targets_apply(device)
    report.seconds = time.perf_counter() - start
    return report
