"""SuperNeurons' evaluation as `refimpl reproduce superneurons` shows it: tables and pictures, part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from refimpl.report.tables import Table, share
from refimpl.reproduce.evaluation import Part
from refimpl.reproduce.superneurons import capacity, figures, pictures, published, traffic
from refimpl.reproduce.superneurons.figures import MIB, BudgetRow, CurveRow, MemoryRow, RecomputeRow
from refimpl.reproduce.superneurons.pictures import KIND_NAMES, by_kind
from refimpl.reproduce.superneurons.pool_study import PoolStudy
from refimpl.text import duration

GIB = 1 << 30

# -- the memory curve --------------------------------------------------------------------------------------------------


def curve_tables(rows: Sequence[CurveRow]) -> list[Table]:
    """The 46 steps under the three set-ups: MiB as published and ours, and tensors."""
    names = list(figures.CURVE)
    steps: dict[int, dict[str, CurveRow]] = {}
    for row in rows:
        steps.setdefault(row.step, {})[row.setup] = row
    body = []
    for number, found in steps.items():
        first = found[names[0]]
        line = [str(number), published_name(first.layer), first.direction[0]]
        for name in names:
            row = found[name]
            count = str(row.tensors) if row.tensors == row.published_tensors else f"{row.tensors}≠"
            line += [f"{row.published_mib:.3f}", f"{row.mib:.3f}{'' if row.met else ' !'}", count]
        body.append(line)
    head = ["step", "layer", "", "liveness", "ours", "n", "offload", "ours", "n", "recompute", "ours", "n"]
    note = (
        "Live MiB just before each step, published and ours, and n tensors alive.  offload: liveness, offload and "
        "prefetch.  recompute: liveness and cost-aware recomputation, checkpoints on the device.  !: more than "
        f"{published.CLOSE_MIB} MiB apart; ≠: another number of tensors than published."
    )
    return [Table("AlexNet(200), step by step", head, body, frozenset(head) - {"layer", ""}, (), note)]


def published_name(layer: str) -> str:
    """As the paper's figure writes it."""
    return layer.upper()


# -- memory of the networks --------------------------------------------------------------------------------------------


def memory_tables(rows: Sequence[MemoryRow]) -> list[Table]:
    """Totals with what each technique leaves of them, and shares by type of layer."""
    head = ["network", "layers", "total", "liveness", "offload", "recompute", "both", "one step", "weights"]
    body = []
    for row in rows:
        bytes_ = [row.managed_bytes, *row.peak_bytes.values(), row.largest_step_bytes, row.resident_bytes]
        body.append([f"{row.network}({row.batch})", str(row.layers), *(f"{value / MIB:,.1f}" for value in bytes_)])
    note = (
        "total: every map and gradient map.  Then peaks of what is alive: under liveness analysis; with offload and "
        "prefetch; with cost-aware recomputation instead; with both, every checkpoint's output away until a step needs "
        "it.  one step: the most that a single step uses, which no set-up can do without.  weights: with gradients, "
        "momentum and all else that is resident, beside these."
    )
    totals = Table("Memory of SuperNeurons' networks, MiB", head, body, frozenset(head) - {"network"}, (), note)
    kinds = [kind for kind in KIND_NAMES if any(by_kind(row, kind) for row in rows)]
    head = ["network", *(KIND_NAMES[kind] for kind in kinds)]
    body = [
        [f"{row.network}({row.batch})", *(share(by_kind(row, k), row.managed_bytes) if by_kind(row, k) else "–"
                                         for k in kinds)]
        for row in rows
    ]  # fmt: skip
    note = "What a type's layers allocate forward (maps) and backward (gradient maps), as a share of the total."
    return [totals, Table("Memory by type of layer", head, body, frozenset(head) - {"network"}, (), note)]


# -- recomputation -----------------------------------------------------------------------------------------------------


def recompute_tables(rows: Sequence[RecomputeRow]) -> list[Table]:
    """Runs and peaks, the checkpoints' outputs on the device and away."""
    head = ["network", "way", "extra runs", "device", "at", "host", "at", "moved out"]
    body = [
        [
            f"{row.network}({row.batch})", row.strategy, str(row.extra_runs),
            f"{row.resident_peak_bytes / MIB:,.3f}", row.resident_peak_layer,
            f"{row.offloaded_peak_bytes / MIB:,.3f}", row.offloaded_peak_layer, f"{row.offloaded_bytes / MIB:,.1f}",
        ]
        for row in rows
    ]  # fmt: skip
    note = (
        "Peaks of what is alive, at the backward step of that layer.  device: with the checkpoints' outputs on the "
        "device.  host: with those of CONV, FC, FORK, JOIN and CONCAT on the host, each fetched when a step needs it.  "
        "The published peaks are AlexNet's of the first kind and the ResNets' of the second."
    )
    numbers = frozenset({"extra runs", "device", "host", "moved out"})
    return [Table("Three ways of recomputing, MiB", head, body, numbers, (), note)]


# -- the tensor cache --------------------------------------------------------------------------------------------------


def cache_tables(rows: Sequence[traffic.Row]) -> list[Table]:
    """Every reading of the paper's table, in GB."""
    head = ["AlexNet", "published", "without", "out", "recompute", "fit", "published ", "with", "nothing freed"]
    body = []
    for row in rows:
        theirs = published.WITHOUT_CACHE[row.batch].value, published.WITH_CACHE[row.batch].value
        without = row.without_bytes, row.without_out_bytes, row.without_recompute_bytes, row.without_fitted_bytes
        cached = row.with_bytes, row.with_nothing_freed_bytes
        readings = [[f"{value / figures.GB:.2f}" for value in values] for values in (without, cached)]
        body.append([str(row.batch), f"{theirs[0]:.2f}", *readings[0], f"{theirs[1]:.2f}", *readings[1]])
    note = (
        "GB (10^9 bytes) moved in an iteration within 12 GiB, the batch not counted.  without the cache: what every "
        "CONV and FC puts out, out and in; out: of that, out alone; recompute: with cost-aware recomputation too; fit: "
        "all weights once, CONVs' outputs three times, the batch twice, which is the published line and may be a "
        "coincidence.  with: all techniques.  nothing freed: the cache alone, no tensor freed before the iteration "
        "ends."
    )
    return [Table("Moved without the cache and with it, GB", head, body, frozenset(head), (), note)]


def budget_tables(rows: Sequence[BudgetRow]) -> list[Table]:
    """A line a share of the budget, a column a network."""
    networks = list(dict.fromkeys(f"{row.network}({row.batch})" for row in rows))
    shares = sorted({row.budget_share for row in rows})
    found = {(row.budget_share, f"{row.network}({row.batch})"): row for row in rows}
    body = [
        [f"{share:.0%}", *(f"{found[share, name].moved_bytes / MIB:,.1f}" if (share, name) in found else "–"
                           for name in networks)]
        for share in shares
    ]  # fmt: skip
    note = (
        "MiB moved in an iteration under all techniques, by the budget as a share of what is taken when nothing moves, "
        "holes included.  –: does not fit."
    )
    return [Table("What the cache moves as the pool grows, MiB", ["budget", *networks], body,
                  frozenset({"budget", *networks}), (), note)]  # fmt: skip


# -- 12 GB -------------------------------------------------------------------------------------------------------------


def largest_tables(rows: Sequence[capacity.Row]) -> list[Table]:
    """The largest batch and the deepest ResNet under each set-up; and what all of them together hold and take."""
    setups = list(dict.fromkeys(row.setup for row in rows))
    by_network: dict[str, dict[str, capacity.Row]] = {}
    for row in rows:
        by_network.setdefault(row.network, {})[row.setup] = row
    head = ["images", *setups, "published"]
    body = []
    for name, found in by_network.items():
        theirs = next((row.published for row in found.values() if row.published), None)
        sizes = [str(found[setup].largest) if setup in found else "" for setup in setups]
        is_deep = name == capacity.DEEP
        body.append([f"layers ({capacity.DEEP_BATCH} images)" if is_deep else name, *sizes,
                     f"{theirs.value:g}" if theirs else "–"])  # fmt: skip
    note = (
        "The largest that was tried within 12 GiB of a K40c, everything that trains counted.  baseline: nothing is "
        "freed before the iteration ends.  The next three are one technique each on top of liveness analysis.  Host "
        "memory has no end here.  "
        f"With 12 GB others reached, in images: {_others(published.LARGEST_OF_OTHERS)} (Caffe, MXNet, Torch, "
        f"TensorFlow); in layers: {', '.join(f'{who} {n}' for who, n in published.DEEPEST_OF_OTHERS.items())}."
    )
    largest = Table("The largest batches and the deepest ResNet in 12 GiB", head, body, frozenset(head) - {"images"},
                  (), note)  # fmt: skip
    head = ["network", "largest", "resident", "pool", "host", "rebuilt", "images/s", "plans tried"]
    body = [
        [
            row.network, str(row.largest), f"{row.resident_bytes / GIB:.2f}", f"{row.peak_bytes / GIB:.2f}",
            f"{row.host_bytes / GIB:.2f}", str(row.recomputed_layers), f"{row.images_a_second:.1f}", str(row.tried),
        ]
        for row in rows
        if row.setup == capacity.ALL
    ]  # fmt: skip
    note = "resident, pool, host: GiB.  rebuilt: forward steps run again.  images/s: simulated."
    return [largest, Table("All techniques at their largest", head, body, frozenset(head) - {"network"}, (), note)]


def _others(figures: Mapping[str, Sequence[int | None]]) -> str:
    return "; ".join(
        f"{name} {', '.join('–' if n is None else str(n) for n in them)}" for name, them in figures.items()
    )


# -- the pool ----------------------------------------------------------------------------------------------------------


def pool_tables(rows: Sequence[PoolStudy]) -> list[Table]:
    """An iteration with the heap and with driver calls; what an allocator's own work costs here."""
    head = ["network", "calls", "with the heap", "driver calls", "share", "a call", "published: a call"]
    body = [
        [
            f"{row.network}({row.batch})", str(row.calls), duration(row.seconds_heap), duration(row.seconds_driver),
            f"{row.share_of_driver_calls:.1%}", duration(row.seconds_in_calls / row.calls),
            duration(row.seconds_a_call_as_published),
        ]
        for row in rows
    ]  # fmt: skip
    hosts = ", ".join(f"{name} {1e6 * seconds:.1f} µs" for name, seconds in rows[0].host_seconds.items())
    note = (
        f"Simulated on a {rows[0].machine} under {rows[0].setup}; the whole device waits for a driver call.  share: of "
        "an iteration, in driver calls.  published: a call: what one would take, were the share the published one.  "
        f"Measured on this processor, one allocation or free in Python: {hosts}."
    )
    return [Table("Heap against driver calls", head, body, frozenset(head) - {"network"}, (), note)]


PARTS = (
    Part("curve", "the memory curve of AlexNet(200)", len(figures.CURVE), figures.curve,
         curve_tables, pictures.curve_picture),
    Part("memory", "total memory, by type of layer", len(figures.NETWORKS), figures.memory,
         memory_tables, pictures.memory_picture),
    Part("recompute", "extra runs and peaks of the three ways", len(published.RECOMPUTED), figures.recomputation,
         recompute_tables),
    Part("cache", "bytes moved with the tensor cache and without", len(traffic.BATCHES), figures.cache,
         cache_tables, pictures.cache_picture),
    Part("budget", "bytes moved as the pool grows", len(figures.SHRUNK), figures.shrinking,
         budget_tables, pictures.budget_picture),
    Part("largest", "the largest batches and the deepest ResNet in 12 GiB", capacity.ROUNDS, capacity.capacity,
         largest_tables, pictures.largest_picture),
    Part("pool", "heap against driver calls", len(figures.POOL_BATCHES), figures.pool, pool_tables),
)  # fmt: skip
