"""The CPU at hand as a machine: a call's seconds follow from what its kernels cost.

A kernel's cost is the seconds of its *units* (`UNITS`): of a product the multiply-adds, the steps in which a tile is
copied, and the results; of most other kernels the blocks.  Kernels that differ in their tile alone share their costs.
`refimpl.machine.cpu_costs` measures them.

Modelled here is how many units a call has, and how evenly its blocks share the cores.  Units are counted from the
launches that the call would make, on arrays that are never touched, so that no rule of the kernels is written down
twice.  A kernel's cost is that of launches in a row, which find their arrays in the caches.  In an iteration a launch
finds few of them there: what it reads was written long ago, or by another core, and what it writes replaces something
else.  So every byte of its arrays costs extra, the same in every kernel (`FETCHED`): once, where a kernel is launched
for some images at a time; and a small workspace is still there from one launch of an algorithm to the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from refimpl.machine.catalogues import options
from refimpl.machine.model import Choice, Efficiency, Machine, Source, in_order
from refimpl.machine.simulator import union
from refimpl.network.call import Call, CallKey, Setting
from refimpl.network.tensor import Tensor
from refimpl.text import MachineError

if TYPE_CHECKING:
    from kernels.targets.launch import KernelLaunch as BoundLaunch

CACHE_BYTES = 8 << 20  #: of a workspace that an algorithm's next launch still finds in the caches; assumed
LAUNCH, SHARED = "launch", "shared launch"  #: the names of the costs of a launch on one thread and on several
FETCHED = "fetched byte"  #: of an array that is in no cache
COPIED, COPIED_BYTES = "elementwise_copy", 8 * 1024  #: a kernel, and the bytes that one of its blocks moves
PLAIN = 4  #: the seconds a byte of a plain kernel that has no cost, in those of a copy; assumed
COPY = "copy"  #: between the device's memory and the host's: how long it takes to start, and each byte
SETTINGS = {
    "seed": 1, "iteration": 1, "rate": 1e-3, "momentum": 0.9, "decay": 1e-4, "beta1": 0.9, "beta2": 0.999,
    "epsilon": 1e-8,
}  # fmt: skip

Units = tuple[float, ...]
Arguments = Mapping[str, Any]


# -- what a launch consists of -----------------------------------------------------------------------------------------


def round_up(n: int, step: int) -> int:
    return -(-n // step) * step


def _register_2d(a: Arguments, grid: Sequence[int]) -> Units:
    m, n, k = round_up(a["m"], 8), round_up(a["n"], 8), a["k"]
    return grid[1] * m * n * k, prod(grid) * k, grid[1] * m * n


def _vector_rows(a: Arguments, grid: Sequence[int], tile: int) -> Units:
    m, n, k, down = round_up(a["m"], 8), round_up(a["n"], 16), a["k"], grid[0] // a["across"]
    copied = k * (a["across"] * a["m"] + down * a["n"])
    return grid[1] * m * n * k, grid[1] * copied, grid[1] * a["m"] * a["n"], prod(grid) * tile * tile


def _tiled(a: Arguments, grid: Sequence[int]) -> Units:
    return prod(grid) * round_up(a["k"], 16), prod(grid)


def _skinny(a: Arguments, grid: Sequence[int]) -> Units:
    m, n, k = a["m"], a["n"], a["k"]
    return grid[1] * round_up(m, 8) * n * k, grid[1] * n * k, prod(grid[:2]) * m * k, prod(grid[1:]) * m * n


def _resting(results: int, rows: int) -> float:
    """The share of a tile's threads that have a row of the result; a thread has rows in both halves of the tile."""
    full, rest = divmod(results, rows)
    return (full + min(1.0, round_up(rest, 4) / (rows // 2))) / -(-results // rows)


def _gathered(a: Arguments, grid: Sequence[int], rows: int, steps: float) -> Units:
    steps *= prod(grid)
    return steps * rows * _resting(a["filters"], rows), steps * (rows + 128), prod(grid) * rows


def _by_tap(a: Arguments, grid: Sequence[int], rows: int) -> Units:
    return _gathered(a, grid, rows, round_up(a["channels"], 8) * a["taps_h"] * a["taps_w"])


def _by_table(a: Arguments, grid: Sequence[int], rows: int) -> Units:
    return _gathered(a, grid, rows, round_up(a["channels"] * a["taps_h"] * a["taps_w"], 8))


def _filter_gradient(a: Arguments, grid: Sequence[int], rows: int) -> Units:
    weights = a["channels"] * a["filter_height"] * a["filter_width"]
    positions = a["images"] * a["out_height"] * a["out_width"]
    steps = grid[0] * grid[1] * a["groups"] * positions
    working = _resting(a["filters"], rows) * _resting(weights, 128)
    there = grid[0] * a["filters"] + grid[1] * weights  # rows and columns of tiles that are read
    return steps * rows * working, a["groups"] * positions * there, steps * (rows + 128)


def _vector_sums(a: Arguments, grid: Sequence[int], lanes: int) -> Units:
    return a["total"] * a["channels"] * a["taps_h"] * a["taps_w"], a["total"]


def _vector_gradients(a: Arguments, grid: Sequence[int], lanes: int) -> Units:
    return a["groups"] * a["bundles"] * a["rows"] * a["channels"] * a["images"] * a["dy_area"], a["total"]


def _grouped(a: Arguments, grid: Sequence[int]) -> Units:
    terms = a["filter_height"] * a["filter_width"] * a["group_filters" if "dx" in a else "group_channels"]
    return a["total"], a["total"] * terms


def _max_backward(a: Arguments, grid: Sequence[int]) -> Units:
    elements = a["cells"] * a["stride_height"] * a["stride_width"]
    return elements, a["cells"] * a["reach_height"] * a["reach_width"]


def _pool_forward(a: Arguments, grid: Sequence[int]) -> Units:
    return a["total"], a["total"] * a["window_height"] * a["window_width"]


def _of_sets(a: Arguments, grid: Sequence[int]) -> Units:
    """Values, and blocks."""
    return grid[0] // a["blocks"] * a["count"] * a["wide"], grid[0]


def _of_channels(a: Arguments, grid: Sequence[int]) -> Units:
    """Values, and channels of sets."""
    return grid[0] * a["channels"] * a["area"], grid[0] * a["channels"]


def _by_map(a: Arguments, grid: Sequence[int]) -> Units:
    return (grid[0] * a["out_height"] * a["out_width"],)


def _channels(a: Arguments, grid: Sequence[int], each: int) -> Units:
    return a["channels"] * a["count"], grid[0] * each


def _of_rows(a: Arguments, grid: Sequence[int], threads: int) -> Units:
    """Probabilities, of causal rows about half, and blocks."""
    seen = a["keys"] if not a["tile"] else (a["queries"] + min(a["tile"], a["keys"])) / 2
    return prod(grid) * seen, prod(grid)


def _taps(a: Arguments, grid: Sequence[int]) -> Units:
    return prod(grid), prod(grid) * a["filter_height"] * a["filter_width"]


#: The start of a kernel's name → its units, counted from its arguments and its grid.  Any other's are its blocks.
UNITS: dict[str, Callable[..., Units]] = {
    "gemm_register_2d": _register_2d,
    **{f"gemm_vector_rows_{how}": _vector_rows for how in ("nn", "nt", "tn", "tt")},
    "gemm_tiled": _tiled,
    **dict.fromkeys(("gemm_skinny_t", "gemm_skinny_n", "gemm_skinny_rows"), _skinny),
    "gemm_skinny_sum": lambda a, grid: (a["size"] * a["slices"],),
    "conv_gather_by_tap": _by_tap,
    **dict.fromkeys(("conv_gather_by_table", "conv_gather_in_groups"), _by_table),
    **dict.fromkeys(("conv_filter_gradient", "conv_filter_gradient_in_groups"), _filter_gradient),
    "conv_sum_partials": lambda a, grid: (a["count"] * a["slices"],),
    "conv_bias_gradient": lambda a, grid: (grid[0] * a["images"] * a["area"],),
    "conv_forward": lambda a, grid: (a["y"].size * a["w"][0].size,),
    "conv_backward_data": lambda a, grid: (a["dx"].size * a["w"][:, 0].size,),
    "conv_backward_filter": lambda a, grid: (a["dw"].size * a["dy"][:, 0].size,),
    **dict.fromkeys(("conv_vector_sums", "conv_vector_depthwise_sums"), _vector_sums),
    **{
        f"conv_vector{which}_gradients_{taps}_wide": _vector_gradients
        for which in ("", "_depthwise")
        for taps in (1, 2, 3, 4, 5, 7)
    },
    "conv_vector_lay_out_filters": lambda a, grid: (
        a["total"] // a["stretches"] * a["depth"] * a["rows"] * a["columns"],
    ),
    "conv_vector_lay_out": lambda a, grid: (
        a["total"] // a["stretches"] * a["area"],
        a["total"] // a["stretches"] * a["padded_height"],
    ),
    "conv_vector_put_phase": lambda a, grid: (a["total"] * a["columns"], a["total"]),
    "conv_depthwise_backward_filter": lambda a, grid: (grid[0] * round_up(a["pieces"], 16),),
    "conv_grouped_backward_filter": lambda a, grid: (grid[0] * a["terms"],),
    "conv_grouped": _grouped,
    **dict.fromkeys(("im2col_columns", "im2col_gather"), _taps),
    "im2col_add_partials": lambda a, grid: (a["size"] * a["count"],),
    "fc_backward_bias": lambda a, grid: (a["outputs"] * a["batch"],),
    "lrn": lambda a, grid: (grid[0] * a["channels"],),
    **{f"pool_{of}_{way}_by_map": _by_map for of in ("position", "max") for way in ("forward", "backward")},
    "pool_max_backward": _max_backward,
    **dict.fromkeys(("pool_max_forward", "pool_average_forward"), _pool_forward),
    "pool_average_backward": lambda a, grid: (
        a["total"] * (1 + a["window_height"] * a["window_width"] / (a["stride_height"] * a["stride_width"])),
    ),
    "layernorm_forward_by_channel": _of_channels,
    **dict.fromkeys(("layernorm_forward_", "layernorm_backward_"), _of_sets),
    "layernorm_chunk_gradients_": lambda a, grid: (a["images"] * a["channels"] * a["area"], grid[0]),
    "batchnorm_chunk_statistics_by_image": lambda a, grid: (a["channels"] * a["count"], grid[0]),
    "batchnorm_chunk_gradients_by_image": lambda a, grid: (a["channels"] * a["count"], grid[0]),
    "batchnorm_inference_by_map": lambda a, grid: (grid[0] * a["area"], grid[0]),
    "batchnorm_apply_by_map": lambda a, grid: (grid[0] * a["area"], grid[0]),
    "batchnorm_apply_gradients_by_map": lambda a, grid: (grid[0] * a["area"], grid[0]),
    **dict.fromkeys(("batchnorm_chunk_statistics", "batchnorm_chunk_gradients"), _channels),
    "pixel_softmax_forward_": lambda a, grid: (grid[0] // a["blocks"] * a["channels"] * a["area"], grid[0]),
    "pixel_softmax_backward": lambda a, grid: (grid[0] // a["blocks"] * a["channels"] * a["area"], prod(grid)),
    "pixel_softmax_parts": lambda a, grid: (grid[0] // a["parts"] * a["area"], grid[0]),
    "pixel_softmax_losses": lambda a, grid: (a["blocks"] + a["images"],),
    "mul_gate_backward": lambda a, grid: (grid[0] * a["area"], grid[0]),
    **dict.fromkeys(("attention_softmax", "attention_softmax_backward"), _of_rows),
    "softmax_forward": lambda a, grid: (grid[0] * (500 + a["classes"]),),
}


def units(launch: BoundLaunch) -> tuple[str, Units]:
    """The name of what a launch costs, and how many units of it there are."""
    name, arguments = launch.kernel.name, dict(zip(launch.kernel.parameters, launch.values, strict=True))
    stem, _, number = name.rpartition("_")
    if number.isdecimal() and stem in UNITS:  # of a tile's rows, or of a thread's values
        return stem, UNITS[stem](arguments, launch.grid, int(number))
    count = next((count for start, count in UNITS.items() if name.startswith(start)), None)
    return name, count(arguments, launch.grid) if count else (prod(launch.grid),)


def fetched_bytes(launched: Iterable[BoundLaunch], workspace: np.ndarray | None = None) -> int:
    """Bytes of a call's arrays that are fetched from main memory.

    A kernel that is launched several times, for some images each time, gets the arrays from those images on: each of
    their bytes is fetched once.  Every launch uses the whole workspace; a small one is still in the caches.
    """
    taken: dict[str, list[tuple[int, int]]] = defaultdict(list)  # addresses by kernel
    again = 0
    for launch in launched:
        for array in (value for value in launch.values if isinstance(value, np.ndarray)):
            if workspace is None or not np.may_share_memory(array, workspace):
                taken[launch.kernel.name].append((array.ctypes.data, array.ctypes.data + array.nbytes))
            elif workspace.nbytes > CACHE_BYTES:
                again += array.nbytes
    return again + sum(int(end - start) for each in taken.values() for start, end in union(each))


def seconds_of(costs: Units, counted: Units) -> float:
    """Seconds of these units, blocks evenly shared."""
    return sum(cost * count for cost, count in zip(costs, counted, strict=True))


def unevenness(blocks: int, threads: int) -> float:
    """How much longer than evenly shared: fewer blocks than cores leave cores idle."""
    return round_up(blocks, threads) / blocks if blocks < 8 * threads else 1.0


# -- the machine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CalibratedCpu(Machine):
    """The CPU at hand; `costs` are seconds of one unit, by name, on all cores together."""

    costs: Mapping[str, Units] = field(kw_only=True, repr=False, compare=False)
    _seconds: dict[CallKey, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def launches_cost(self, launched: Sequence[BoundLaunch], workspace: np.ndarray | None = None) -> float:
        """Seconds of a call's launches."""
        return sum(map(self.launch_cost, launched)) + self.costs[FETCHED][0] * fetched_bytes(launched, workspace)

    def launch_cost(self, launch: BoundLaunch) -> float:
        """Seconds of one launch whose arrays are in the caches."""
        name, counted = units(launch)
        if launch.kernel.is_plain and name not in self.costs:
            moved = sum(value.nbytes for value in launch.values if isinstance(value, np.ndarray))
            name, counted = COPIED, (PLAIN * moved / COPIED_BYTES,)
        if name not in self.costs:
            raise MachineError(
                f"no cost of the kernel {launch.kernel.name} is known on this CPU; profile the network with refimpl "
                "profile, or set REFIMPL_CALIBRATE=0 for a rough model (refimpl/machine/cpu_costs.json lacks it)"
            )
        blocks, threads = prod(launch.grid), self.multiprocessors
        start = self.costs[SHARED][0] if min(blocks, threads) > 1 else self.launch_seconds
        return start + seconds_of(self.costs[name], counted) * unevenness(blocks, threads)

    def seconds(self, call: Call, choice: Choice | None = None) -> float:
        """How long a call runs by this algorithm (None: the fastest)."""
        if call.choosable or call.collective or call.is_pytorchs:
            return super().seconds(call, choice)
        if call.key not in self._seconds:
            self._seconds[call.key] = self.launches_cost(launches(call.function, call_arguments(call)))
        return self._seconds[call.key]

    def _make_choices(self, call: Call) -> tuple[Choice, ...]:
        if self.catalogue != "own":
            return super()._make_choices(call)
        given = call_arguments(call)
        made = []
        for option in options("own", call):
            chosen = algorithm_arguments(option.algorithm, option.workspace_bytes)
            seconds = self.launches_cost(launches(call.function, given | chosen), chosen["workspace"])
            made.append(Choice(option.algorithm, option.workspace_bytes, seconds))
        return in_order(made)


def empty(shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    """An array that is only there to be counted: large ones take no memory until they are touched."""
    return np.empty(shape, dtype)


def algorithm_arguments(algorithm: str, workspace_bytes: int) -> dict[str, Any]:
    return {"algorithm": algorithm, "workspace": empty((workspace_bytes // 4,)) if workspace_bytes else None}


def call_arguments(call: Call, make: Callable[[Sequence[int], str], Any] = empty) -> dict[str, Any]:
    """The arguments of a call's function; `make` makes its arrays, of a tensor that is given twice one."""
    arrays: dict[Tensor, Any] = {}

    def value(given: Any) -> Any:
        if isinstance(given, tuple) and given and isinstance(given[0], Tensor):
            return [value(part) for part in given]
        if isinstance(given, Tensor):
            if given not in arrays:
                arrays[given] = make(given.shape, given.dtype)
            return arrays[given]
        return SETTINGS[given.name] if isinstance(given, Setting) else given

    return {name: value(given) for name, given in call.arguments.items()}


def launches(function: str, arguments: Mapping[str, Any]) -> list[BoundLaunch]:
    """The launches that `kernels.<function>` would make."""
    from kernels.rungs import function_of
    from kernels.targets.launch import bind

    return bind(function_of(function, "fast"), **arguments)


def with_costs(rough: Machine, costs: Mapping[str, Units]) -> CalibratedCpu:
    """A CPU of which these costs were measured."""
    product, rung = {"m": 512, "n": 512, "k": 512, "across": 4}, "gemm_vector_rows_nn"
    if rung in costs:
        seconds = seconds_of(costs[rung], _vector_rows(product, (16, 1), 128))
    else:
        seconds = seconds_of(costs["gemm_register_2d"], _register_2d(product, (16, 1)))
    flops = 2 * 512**3 / seconds
    bandwidth = 1 / (costs[COPIED][0] / COPIED_BYTES + costs[FETCHED][0])
    how = "from its kernels' and copies' costs; again with refimpl profile --here"
    return CalibratedCpu(
        name=rough.name,
        memory_bytes=rough.memory_bytes,
        flops=flops,
        bandwidth=bandwidth,
        link=1 / costs[COPY][1],
        copy_start_seconds=costs[COPY][0],
        multiprocessors=rough.multiprocessors,
        efficiency=Efficiency(forward=1.0, backward=1.0, products=1.0, transforms=1.0, streaming=1.0),
        launch_seconds=costs[LAUNCH][0],
        sources=(rough.sources[0], Source("measured", how, ("flops", "bandwidth", "link", "efficiency"))),
        costs=costs,
    )
