"""What the kernels of the CPU at hand cost: measured once, in ten seconds, and kept.

**Measured**: the kernels of `MEASURED`, where training spends most of its time, by launches of two small networks, each
in a row; and what is added in an iteration, where other launches come between two of a kernel: by copies, after a large
copy has filled the caches.  The median of some turns counts.  Most of the ten seconds are Numba's, so as few kernels as
possible are compiled, and other processes help.

**Modelled**: what a unit of a kernel costs (`refimpl.machine.cpu_model`).  It is the cost on an AMD EPYC with two cores
(`cpu_costs.json`), times the ratio of this CPU's seconds to that one's: in the kernel itself if it is measured, and
else in the measured kernel most like it (`STAND_INS`).  A median of the ratios of a few sizes varies less from one
calibration to the next than costs that are fitted to so few.

The costs in that file were fitted, by least squares, to launches of every kernel: `python -m
tests.refimpl.machine.cpu_reference` writes it, and has to when a kernel changes.

A calibration is kept for this processor, this number of threads and this version of the kernels, in the folder of the
compiled kernels.  One that is measured while the machine has other work takes the least of three times as many turns:
medians would be disturbed more in one kernel than in the next.  It is kept apart: it serves as long as the machine
is busy, each command that uses it says so, and a quiet machine is measured again.  With REFIMPL_CALIBRATE=0
nothing is measured: `here` is then a rough model, the same everywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from math import inf, prod
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import numpy as np

from refimpl.files import replacing
from refimpl.machine.catalogues import options
from refimpl.machine.cpu_model import (
    COPY,
    FETCHED,
    LAUNCH,
    SHARED,
    Units,
    algorithm_arguments,
    call_arguments,
    launches,
    seconds_of,
    unevenness,
    units,
    with_costs,
)
from refimpl.machine.here import is_busy
from refimpl.machine.model import Machine
from refimpl.machine.timing import Run, Seconds, least_in_turns
from refimpl.network.call import Call
from refimpl.network.kinds import TRAITS
from refimpl.network.later_layers import Builder
from refimpl.network.network import Network

if TYPE_CHECKING:
    from kernels.targets.declare import Kernel
    from kernels.targets.launch import KernelLaunch as BoundLaunch

FORMAT = 4
SECONDS = 0.8  #: nothing more is started after this time, once the kernels are compiled and everything has run once
BUSY_SECONDS = 2.4  #: the same where other work disturbs most turns, and the least of more turns counts
LONGEST_DIRECT = 5e7  #: operations; the plain convolution takes seconds for more
MOST_SIZES = 8  #: of a kernel
SMALL, SEVERAL, LARGE = 32, 1 << 13, 1 << 19  #: elements of a copy: on one thread, on all, and for its bytes
BETWEEN, FILLING = 1 << 20, 1 << 24  #: of a copy such as comes between two launches, and of one that fills all caches
MAP = 4 << 20  #: bytes of a map that is copied to the host and back
TURNS = 15  #: of a copy
IN_A_ROW = 2e-3  #: seconds that one turn of a short launch is to take
MOST_HELPERS = 3  #: processes that compile beside this one
DONE = "done"
OF_ANY_KERNEL = {LAUNCH, SHARED, FETCHED, COPY}

BUSY = (
    "refimpl: the machine `here` was measured while it had other work: its times are too long; "
    "once it is quiet: refimpl profile --here"
)

CalibrationProgress = Callable[[str], None]
Cost = tuple[str, Units]  #: what costs, and how many units of it
Way = tuple[Call, dict[str, Any]]  #: a call, and the arguments that choose its algorithm
Runs = dict[Cost, "BoundLaunch"]
Samples = Mapping[str, Sequence[tuple[Units, float]]]  #: of each kernel some launches: their units, and their seconds

#: Measured on first use, those of them that this CPU runs; those that take longest to compile come first.
MEASURED = (
    "conv_gather_by_tap", "conv_filter_gradient", "gemm_vector_rows_nn", "gemm_register_2d", "winograd_data",
    "conv_vector_sums", "conv_vector_gradients_3_wide", "im2col_columns", "batchnorm_chunk_statistics_by_image",
    "pool_max_backward_by_map_3_2", "elementwise_copy",
)  # fmt: skip
STAGES = 6 + len(MEASURED)  #: how often `watch` is called, nearly

#: The start of any other kernel's name → the measured kernel most like it; those not named are like a copy.
STAND_INS = {
    "conv_gather": "conv_gather_by_tap",
    "conv_filter": "conv_filter_gradient",
    "conv_vector_gradients": "conv_vector_gradients_3_wide",
    "conv_vector_depthwise_sums": "conv_vector_sums",
    "conv_vector_depthwise_gradients": "conv_vector_gradients_3_wide",
    **dict.fromkeys(("conv_forward", "conv_backward_data", "conv_backward_filter"), "im2col_columns"),
    "conv_grouped": "im2col_columns",
    "conv_depthwise": "im2col_columns",
    "im2col_add": "elementwise_copy",
    "im2col": "im2col_columns",
    "winograd": "winograd_data",
    "gemm_vector_rows": "gemm_vector_rows_nn",
    "gemm_skinny_rows": "gemm_vector_rows_nn",
    "gemm_skinny_n": "gemm_register_2d",
    "gemm_skinny_t": "gemm_register_2d",
    "conv_bias": "batchnorm_chunk_statistics_by_image",
    "fc_backward": "batchnorm_chunk_statistics_by_image",
    "pool": "pool_max_backward_by_map_3_2",
    "batchnorm_chunk": "batchnorm_chunk_statistics_by_image",
    "lrn": "conv_gather_by_tap",
}


def stand_in(name: str) -> str:
    """The measured kernel that is most like this one."""
    if name in MEASURED:
        return name
    return next((measured for start, measured in STAND_INS.items() if name.startswith(start)), "elementwise_copy")


@cache
def reference() -> dict[str, Units]:
    """Seconds of every kernel's units on one AMD EPYC with two cores."""
    text = REFERENCE.read_text(encoding="utf-8")
    return {name: tuple(costs) for name, costs in json.loads(text).items()}


REFERENCE = Path(__file__).with_suffix(".json")


def has_cost(launch: BoundLaunch) -> bool:
    """Most plain kernels have none: they cost as much as a few copies of what they are given."""
    return not launch.kernel.is_plain or units(launch)[0] in reference()


# -- what is measured --------------------------------------------------------------------------------------------------


SIZES = ((2, 64, 56, 96), (16, 8, 32, 16))  #: images, channels, height and width, filters


def networks(sizes: Sequence[tuple[int, int, int, int]] = SIZES) -> Iterator[Network]:
    """The cases to measure: every kernel in a few sizes, from full tiles to nearly empty ones."""
    for batch, channels, size, filters in sizes:
        b = Builder("calibration", (batch, 3, size, size))
        b.conv(channels, 3, pad=1)
        b.batchnorm()
        b.relu()
        b.conv(filters, 5, pad=2)
        b.lrn()
        trunk = b.pool(3, 2, pad=1)
        b.conv(filters, 3, pad=1)
        b.batchnorm()
        left = b.conv(filters, 3, pad=1)
        right = b.conv(filters, 1, after=trunk)
        joined = b.join(left, right, trunk)
        pooled = b.pool(3, 1, pad=1, after=joined)
        b.concat(joined, pooled)
        b.pool(2, 2)
        b.conv(4 * filters, 3, pad=1)
        b.conv(4 * filters, 3, pad=1, groups=4 * filters if filters > 64 else filters // 2)
        b.relu(at_most=6)
        for kind, traits in TRAITS.items():
            if traits.elementwise and kind != "relu":
                for form in traits.forms:
                    if traits.in_place:  # after a layer whose backward does not read what is overwritten
                        b.silu()
                        getattr(b, kind)(**form)
                    getattr(b, kind)(**form)
        b.drop_path(0.2)
        b.channel_shuffle(4)
        b.permute_channels([*range(b.last.shape[1])][::-1])
        b.pad(1)
        b.take(filters)
        b.layernorm()
        b.groupnorm(8)
        b.rmsnorm()
        x = b.scale()
        b.mul(x, b.global_pool())
        x = b.mul(b.last, x)
        b.mul(b.pool_to(2), b.global_pool())
        b.upsample_to((x.shape[2], x.shape[3]))
        b.conv(2 * filters, 1)
        b.pool(5, 1, pad=2)
        b.pool(2, 2, mode="average")
        for mode in ("nearest", "bilinear"):
            for factor in (2, 4):
                b.upsample(factor, mode)
                b.pool(factor)
        tokens = b.prepend().shape[2]
        b.take(tokens - 1, 1, axis=2)
        b.fc(1024)
        b.relu()
        b.dropout()
        b.fc(1024 if filters > 64 else 48)
        b.fc(100)
        b.softmax()
        yield b.build()


def random_array(shape: Sequence[int], dtype: str) -> np.ndarray:
    """Numbers of either sign around zero, as they are met in training."""
    if dtype != "float32":
        return np.zeros(shape, dtype)
    return np.resize(_drawn(), shape)


@cache
def _drawn() -> np.ndarray:
    return np.random.default_rng(0).standard_normal(1 << 16, dtype=np.float32)


def cases(every: Sequence[Network] = ()) -> Runs:
    """The launches to measure by what they cost, one of each.

    Args:
        every: all launches of these; by default those of the kernels of `MEASURED`, a few sizes each.
    """
    first: dict[Cost, tuple[str, Way]] = {}
    for network in every or networks():
        for way_to_run in (each for step in network.steps for call in step.calls for each in ways(call)):
            for launched in launches(way_to_run[0].function, call_arguments(way_to_run[0]) | way_to_run[1]):
                if has_cost(launched):
                    first.setdefault(units(launched), (launched.kernel.name, way_to_run))
    if not every:
        first = {cost: first[cost] for name in MEASURED for cost in _few(name, first)}
    found: Runs = {}
    for call, chosen in {id(each): each for _, each in first.values()}.values():
        for launched in launches(call.function, call_arguments(call, random_array) | chosen):
            if units(launched) in first:
                found.setdefault(units(launched), launched)
    copy = copy_of(LARGE)
    return found | {units(copy): copy}


def copy_of(elements: int) -> BoundLaunch:
    """A launch that copies; the pages of zeros that are never written would all be one page of memory."""
    (copy,) = launches("elementwise.copy", {name: np.ones(elements, np.float32) for name in ("x", "y")})
    return copy


def _few(name: str, first: Mapping[Cost, tuple[str, Way]]) -> list[Cost]:
    """Some of a kernel's costs, from the smallest to the second largest: that one may take long.

    Of a kernel with tiles of several sizes, only the one that has most of them is compiled.
    """
    usual = Counter(kernel for cost, (kernel, _) in first.items() if cost[0] == name).most_common(1)
    in_order = sorted((cost for cost in first if first[cost][0] in dict(usual)), key=lambda cost: cost[1])
    last = max(1, len(in_order) - 1)
    return [in_order[place * last // MOST_SIZES] for place in range(MOST_SIZES)] if last > MOST_SIZES else in_order


def ways(call: Call) -> Iterator[Way]:
    """A call with every algorithm, with its largest workspace."""
    if not call.choosable:
        yield call, {}
        return
    offered = [one for one in options("own", call) if one.algorithm != "direct" or call.flops < LONGEST_DIRECT]
    for name in dict.fromkeys(option.algorithm for option in offered):
        yield (
            call,
            algorithm_arguments(name, max(option.workspace_bytes for option in offered if option.algorithm == name)),
        )


# -- compiled by several processes -------------------------------------------------------------------------------------


@contextmanager
def helpers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that compile the kernels of `MEASURED` from the last on, while this one does from the first on."""
    from kernels.targets.cpu.build import cache_directory

    count = min(_threads() - 1, MOST_HELPERS) if sys.executable and cache_directory() else 0
    started = []
    with ExitStack() as running:
        for first in range(count):
            to_do = f"import {__name__} as costs; costs.help_to_compile({first}, {count})"
            command = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {to_do}"]
            helper = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            started.append(running.enter_context(helper))
        yield started


def help_to_compile(first: int, count: int) -> None:
    """As helper `first` of `count`, compile until a kernel is met that another process has compiled."""
    from kernels.targets.cpu.build import cache_directory, intact, key, load

    for kernel in kernels_of(cases())[::-1][first::count]:
        folder = cache_directory()
        if folder is None or intact(folder / f"{kernel.name}_{key(kernel, checked=False)}"):
            return
        load(kernel)
        if kernel.name == MEASURED[-1]:
            copy_of(SEVERAL).run(None)  # compiles what shares a launch out over threads


def kernels_of(runs: Runs) -> list[Kernel]:
    """The kernels that are launched, each once, in the order of `MEASURED`."""
    order = {name: place for place, name in enumerate(MEASURED)}
    found = {one.kernel.name: (order.get(name, len(order)), one.kernel) for (name, _), one in runs.items()}
    return [kernel for _, kernel in sorted(found.values(), key=lambda entry: entry[0])]


# -- the measurement ---------------------------------------------------------------------------------------------------


def calibrate(
    watch: CalibrationProgress = lambda what: None,
    every: Sequence[Network] = (),
    limit: float = SECONDS,
    model: Callable[[Samples], dict[str, Units]] | None = None,
    counts: Callable[[Sequence[float]], float] = median,
) -> dict[str, Units]:
    """Measure the launches of `cases`.

    Args:
        watch: called with what is being done.
        every: as of `cases`.
        limit: seconds.
        model: makes the costs of the kernels' units; by default `modelled`.
        counts: which of the turns' seconds counts; `min`: an undisturbed one's, on a machine that does other work.

    Returns:
        Seconds of a unit by the name of what costs them; `LAUNCH` and `SHARED`: of one launch; `FETCHED`: of
        a byte; `COPY`: of a copy's start and of its byte.
    """
    from kernels.targets.cpu.build import load

    watch("what to measure")
    with helpers():
        runs = cases(every)
        kernels = kernels_of(runs)
        for index, kernel in enumerate(kernels, 1):
            watch(f"kernel {index} of {len(kernels)}: {kernel.name}")
            load(kernel)
    watch(f"measuring, {limit:g} seconds")
    again, after_one, cold = (copy_seconds(before, counts) for before in (None, copy_of(BETWEEN), copy_of(FILLING)))
    ready = {cost: partial(launched.run, None) for cost, launched in runs.items()}
    taken = least_in_turns(ready, _seconds, inf, limit, row_seconds=IN_A_ROW, counts=counts)
    watch(DONE)
    samples: dict[str, list[tuple[Units, float]]] = defaultdict(list)
    for cost, seconds in sorted(taken.items(), key=lambda one: -one[1]):
        blocks, threads = prod(runs[cost].grid), _threads()
        overhead = again[SEVERAL if min(blocks, threads) > 1 else SMALL]
        if seconds > 2 * overhead or cost[0] not in samples:
            busy = max(seconds - overhead, 0.05 * seconds)
            samples[cost[0]].append((cost[1], busy / unevenness(blocks, threads)))
    found = (model or modelled)(samples)
    fetched = cold[LARGE] - cold[SEVERAL] - (again[LARGE] - again[SEVERAL])
    return found | {
        LAUNCH: (after_one[SMALL],),
        SHARED: (after_one[SEVERAL],),
        FETCHED: (max(0.0, fetched) / (2 * 4 * LARGE),),
        COPY: map_copy_costs(counts),
    }


def modelled(samples: Samples) -> dict[str, Units]:
    """The costs of every kernel that this CPU runs: the reference's, times how it compares with that one."""
    known = reference()
    ratio = {
        name: median(seconds / seconds_of(known[name], counted) for counted, seconds in each)
        for name, each in samples.items()
    }
    return {
        name: tuple(ratio[stand_in(name)] * cost for cost in costs)
        for name, costs in known.items()
        if name not in OF_ANY_KERNEL and stand_in(name) in ratio
    }


def copy_seconds(
    before: BoundLaunch | None = None, counts: Callable[[Sequence[float]], float] = median
) -> dict[int, float]:
    """Seconds of copies of a few sizes, each after another launch; None: after the same copy."""
    copies = {elements: partial(copy_of(elements).run, None) for elements in (SMALL, SEVERAL, LARGE)}

    def seconds(run: Run, times: int) -> float:
        return after(partial(before.run, None) if before else run)(run, times)

    return least_in_turns(copies, seconds, TURNS, counts=counts)


def map_copy_costs(counts: Callable[[Sequence[float]], float] = median) -> Units:
    """Seconds of a copy between device and host as the CPU's back end makes it: of its start, and of a byte.

    A map is copied out after it was written, and back much later.  A byte costs the mean of both.
    """
    device, host = np.ones(MAP, np.uint8), np.ones(MAP, np.uint8)
    between, filling = (partial(copy_of(elements).run, None) for elements in (BETWEEN, FILLING))

    def written() -> None:
        filling()
        device.fill(2)

    def taken(to: np.ndarray, of: np.ndarray, before: Run) -> float:
        return least_in_turns({COPY: partial(np.copyto, to, of)}, after(before), TURNS, counts=counts)[COPY]

    both = taken(host, device, written) + taken(device, host, filling)
    return taken(host[:SMALL], device[:SMALL], between), both / (2 * MAP)


def after(before: Run) -> Seconds:
    """The seconds of a run, each time after something else."""

    def seconds(run: Run, times: int) -> float:
        before()
        return _seconds(run, times)

    return seconds


def _seconds(run: Run, times: int) -> float:
    """Seconds by the clock, and no more than of all processors: other work on the machine disturbs those less.

    Processor seconds divided by the threads would be disturbed least.  But a launch may be done before its other
    threads have begun, and two threads of one core take longer than one alone.
    """
    start, began = perf_counter(), process_time()
    for _ in range(times):
        run()
    return min(perf_counter() - start, process_time() - began) / times


def _threads() -> int:
    from kernels.targets.cpu.threads import thread_count

    return thread_count()


# -- kept --------------------------------------------------------------------------------------------------------------


def is_calibration_on() -> bool:
    """Whether REFIMPL_CALIBRATE leaves the calibration on."""
    return os.environ.get("REFIMPL_CALIBRATE", "1") != "0"


def costs_path() -> Path | None:
    """The file of this machine's calibration; None where nothing can be kept."""
    import kernels
    from kernels.targets.cpu.build import cache_directory, compiler_key
    from refimpl.machine.here import processor

    folder = cache_directory()
    if folder is None:
        return None
    digest = hashlib.sha256(repr((FORMAT, processor(), _threads(), compiler_key())).encode())
    for source in [REFERENCE, *sorted(Path(kernels.__path__[0]).rglob("*.py"))]:
        digest.update(source.read_bytes())
    return folder / f"here-{digest.hexdigest()[:16]}.json"


def kept_path(busy: bool) -> Path | None:
    """The file of this machine's calibration, or of one that was measured while it was busy."""
    file = costs_path()
    return file.with_name(f"busy-{file.name}") if file and busy else file


#: Costs that the machine is described with, and the products of which a CPU has one.
NEEDED, PRODUCTS = OF_ANY_KERNEL | {"elementwise_copy"}, {"gemm_vector_rows_nn", "gemm_register_2d"}


def read_costs(busy: bool = False) -> dict[str, Units] | None:
    """The costs that were measured before; None if there are none, or if the file is damaged."""
    file = kept_path(busy)
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file else None
        costs = {str(name): tuple(float(cost) for cost in values) for name, values in found.items()} if found else {}
        known = reference()
        sound = all(0 <= cost < 1 for values in costs.values() for cost in values)
        whole = all(len(costs[name]) == len(known[name]) for name in costs.keys() & known.keys())
        complete = NEEDED <= costs.keys() and PRODUCTS & costs.keys()
        return costs if sound and whole and complete and costs[COPY][1] > 0 else None
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def measure_and_keep(watch: CalibrationProgress | None = None, busy: bool | None = None) -> dict[str, Units]:
    """Measure now, and keep the costs for later processes.

    Args:
        watch: a progress callback; without one, progress is shown on standard error.
        busy: whether the machine has other work; None: its load says so.
    """
    busy = is_busy() if busy is None else busy
    if watch is None:
        print(
            "refimpl: this CPU's kernels are measured, once, for the machine `here`; "
            "REFIMPL_CALIBRATE=0 takes a rough model instead",
            file=sys.stderr,
        )
    how: dict[str, Any] = {"limit": BUSY_SECONDS, "counts": min} if busy else {}
    costs = calibrate(watch or _shown, **how)
    file = kept_path(busy)
    if file is not None:
        with replacing(file) as out:
            out.write(json.dumps(costs, indent=1).encode())
        if not busy:
            file.with_name(f"busy-{file.name}").unlink(missing_ok=True)
    if busy and watch is None:
        print(BUSY, file=sys.stderr)
    _costs[:] = [costs]
    return costs


def _shown(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r  {what:70}", end="" if what != DONE else "\n", file=sys.stderr, flush=True)


_costs: list[dict[str, Units]] = []  #: of this process, once they are known


def machine(rough: Machine, measure: bool = True) -> Machine:
    """The CPU at hand with the costs that were measured.

    Args:
        rough: what is not measured, and the machine itself if nothing is.
        measure: measure now if nothing was measured before.
    """
    if not is_calibration_on():
        return rough
    if not _costs:
        found = read_costs()
        if found is None and is_busy():
            found = read_costs(busy=True)
            if found and measure:
                print(BUSY, file=sys.stderr)
        if found is None and not measure:
            return rough
        _costs[:] = [found or measure_and_keep()]
    return with_costs(rough, _costs[0])
