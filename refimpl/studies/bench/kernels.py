"""The bench: how fast every kernel family is on this machine, beside NumPy, PyTorch and a plain copy, in one run.

A *case* is one computation of one size.  Everything that computes it, our kernels and their rivals, is timed in turns
within one run, and the fastest turn of each counts: what was slower was disturbed by something else.  So a ratio of two
of them means something even where the machine is busy.  Our launches are bound once and replayed.
`cases` says what is measured; this module measures, judges the targets and shows both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, ClassVar, NamedTuple

import numpy as np

from kernels.fast import relu
from kernels.targets.cpu.processor import has_avx2
from kernels.targets.cpu.threads import cores
from kernels.targets.launch import KernelLaunch, bind
from refimpl.machine.devices import Device
from refimpl.machine.timing import Run, by, least_in_turns, replay
from refimpl.report.markdown import paragraph
from refimpl.report.tables import Table
from refimpl.studies.bench import written
from refimpl.studies.bench.rivals import torch_or_none
from refimpl.studies.bench.written import verdict, versions

RATES = {"GFLOP/s": 1e9, "GB/s": 1e9}
IN_A_ROW = 0.02  #: seconds that one turn of a short run is to take

#: Seconds before a run on the CPU is timed: BLAS and OpenMP threads go on spinning for a while after their work is
#: done, and would take the cores from the next run.
PAUSE = 0.03


class Rival(NamedTuple):
    """Another library's version of a case; `amount` if it is not the same number of operations or bytes."""

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
    prepare: Callable[[Device], tuple[Mapping[str, Sequence[KernelLaunch]], Mapping[str, Rival]]]
    headline: bool = False  #: shown in the README's short table
    times: int = 1  #: how often a whole network has this case (layers of one shape)


@dataclass
class Result:
    """Measured times of a case.  `ratio` is ours over theirs: above 1, we are faster."""

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


def settled(device: Device, run: Run, times: int) -> float:
    """`device.seconds` after a rival's threads are asleep and our own are awake."""
    if device.kind == "cpu":
        time.sleep(PAUSE)
    run()
    return device.seconds(run, times)


def measure(device: Device, case: Case, budget: float) -> Result | None:
    """Run a case; None if no algorithm serves it here."""
    ours, rivals = case.prepare(device)
    if not ours:
        return None
    runs: dict[str, Run] = {f"ours {name}": replay(launches) for name, launches in ours.items()}
    runs |= {name: rival.run for name, rival in rivals.items()}
    for run in runs.values():
        run()  # compiles, touches the memory, lets the libraries choose their algorithms
    seconds = least_in_turns(runs, partial(settled, device), inf, budget, at_least=2, row_seconds=IN_A_ROW)
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
    x = device.array(np.zeros(32, np.float32))
    runs = {"bound": replay(bind(relu.forward, x, x)), "plain call": lambda: relu.forward(x, x)}

    def host_microseconds(run: Run, _times: int) -> float:
        run()
        device.seconds(lambda: None, 1)  # the device is idle again, its queue empty
        return 1e6 * by()(run, 200)

    microseconds = least_in_turns(runs, host_microseconds, turns=20)
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
    """A target set before anything was measured: `value` finds it among the results."""

    kind: str
    what: str
    limit: float
    unit: str  #: "GFLOP/s", "of NumPy", "of cuBLAS", …; "µs" is a limit from above
    value: Callable[[Sequence[Result]], float | None]

    def verdict(self, results: Sequence[Result]) -> dict[str, Any]:
        found = self.value(results)
        said = "not measured"
        if found is not None:
            said = verdict(found <= self.limit if self.unit == "µs" else found >= self.limit)
        return {"what": self.what, "target": self.limit, "unit": self.unit, "measured": found, "verdict": said}


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


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def results_table(title: str, results: Sequence[Result]) -> Table:
    """A row a result: our rate, and each rival's with ours over theirs in brackets."""
    names = list(dict.fromkeys(name for r in results for name in r.beside))
    rows = []
    for r in results:
        cells = [f"{number(r.beside[n])} ({number(r.ratio[n])})" if n in r.beside else "" for n in names]
        rows.append([r.family, r.label, r.size, f"{number(r.ours)} {r.unit}", *cells])
    return Table(title, ["family", "what", "size", "here", *names], rows, wraps=("what",))


@dataclass(kw_only=True)
class KernelReport(written.Report):
    """A run of the bench, ready to be shown or written down."""

    title: ClassVar[str] = "The kernels"
    how: ClassVar[str] = "In brackets: our rate over theirs, so 1 is as fast, 0.5 half as fast."

    device: str  #: "cpu" or "gpu"
    quick: bool
    seconds: float = 0.0
    results: list[Result] = field(default_factory=list)
    targets: list[dict[str, Any]] = field(default_factory=list)
    targets_note: str = ""

    @property
    def pages(self) -> Mapping[str, str]:
        """README says what ran on a GPU."""
        pages = ("README.md", "docs/on-a-gpu.md") if self.device == "gpu" else ("docs/speed.md",)
        return dict.fromkeys(pages, f"bench {self.device}")

    def tables(self) -> list[Table]:
        """One a family, then the targets, if they were judged."""
        names = dict.fromkeys(result.family for result in self.results)
        families = [results_table(name, [r for r in self.results if r.family == name]) for name in names]
        return [*families, *([self._targets()] if self.targets else [])]

    def _targets(self) -> Table:
        rows = []
        for t in self.targets:
            measured = "" if t["measured"] is None else number(t["measured"])
            rows.append([t["what"], f"{t['target']:g} {t['unit']}", measured, t["verdict"]])
        return Table(f"targets ({self.targets_note})", ["target", "asked", "measured", ""], rows)

    def short(self) -> str:
        headlines = results_table("", [r for r in self.results if r.headline])
        parts = [paragraph(self.described), headlines.markdown(), self.how]
        if self.targets:
            parts += [f"Targets, {self.targets_note}:", self._targets().markdown()]
        return "\n\n".join(parts)


def software() -> dict[str, str]:
    """Versions of what takes part, by name."""
    found = versions("numba", "numba-cuda", "numpy", "torch")
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
    stored: Callable[[str, Callable[[], Result | None]], Result | None] = lambda name, make: make(),
) -> KernelReport:
    """Measure all cases and judge the targets.

    Args:
        device: where.
        cases: what.
        budget: seconds for each case.
        quick: the sizes are smaller than those that the targets were set for.
        watch: called with the name of each case before it starts.
        with_launch_cost: measure the host's time for a launch too.
        stored: gives the result of a case by its name, measured now or before.
    """
    start, report = (
        time.perf_counter(),
        KernelReport(name=device.name, versions=software(), device=device.kind, quick=quick),
    )
    for case in cases:
        watch(f"{case.family} {case.what}")
        name = f"{case.family} {case.what} {case.size}"
        result = stored(name, partial(measure, device, case, budget))
        if result is not None:
            report.results.append(result)
    if with_launch_cost:
        watch("launch")
        if (cost := stored("launch", partial(launch_cost, device))) is not None:
            report.results.append(cost)
    if not quick:
        several = len({result.family for result in report.results}) > 1
        targets = [target.verdict(report.results) for target in TARGETS if target.kind == device.kind]
        report.targets = [t for t in targets if several or t["verdict"] != "not measured"]
        report.targets_note = targets_apply(device)
    report.seconds = time.perf_counter() - start
    return report
