"""SuperNeurons' evaluation as `refimpl reproduce superneurons` shows it: tables and pictures, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from refimpl.report.tables import Column, Table, count, in_units, percent, plain
from refimpl.studies.reproduce.evaluation import GIB, MIB, NETWORK, Part, one_table, titled
from refimpl.studies.reproduce.published import Published
from refimpl.studies.reproduce.superneurons import (
    beside,
    by_type,
    capacity,
    figures,
    pictures,
    pool_study,
    published,
    speed,
    traffic,
    unseen,
)
from refimpl.studies.reproduce.superneurons.by_type import STRUCTURE, TYPES, TypeRow, fitted_cost, share
from refimpl.studies.reproduce.superneurons.figures import BudgetRow, CurveRow
from refimpl.studies.reproduce.superneurons.pool_study import PoolStudy
from refimpl.studies.reproduce.superneurons.speed import WorkspaceRow
from refimpl.text import duration, size

MIB_1, MIB_3, GIB_2 = in_units(MIB), in_units(MIB, 3), in_units(GIB, 2)
MB_0, GB_1, GB_2 = in_units(10**6, 0), in_units(10**9), in_units(10**9, 2)


def curve_tables(rows: Sequence[CurveRow]) -> list[Table]:
    """The 46 steps under the three setups: MiB as published and ours, and tensors."""
    steps: dict[int, dict[str, CurveRow]] = {}
    for row in rows:
        steps.setdefault(row.step, {})[row.setup] = row

    def of(setup: str) -> tuple[Column, Column, Column]:
        return (
            Column(setup, lambda found: found[setup].published_mib, "{:.3f}".format),
            Column("ours", lambda found: found[setup], lambda row: f"{row.mib:.3f}{'' if row.met else ' !'}"),
            Column("n", lambda found: found[setup],
                   lambda row: f"{row.tensors}{'' if row.tensors == row.published_tensors else '≠'}"),
        )  # fmt: skip

    columns = (
        Column("step", lambda found: found["liveness"].step, plain),
        Column("layer", lambda found: found["liveness"].layer.upper()),
        Column("", lambda found: found["liveness"].direction[0]), *of("liveness"), *of("offload"), *of("recompute"),
    )  # fmt: skip
    note = (
        "Live MiB just before each step, published and ours, and n tensors alive.  offload: liveness, offload and "
        "prefetch.  recompute: liveness and cost-aware recomputation, checkpoints on the device.  !: more than "
        f"{published.CLOSE_MIB} MiB apart; ≠: another number of tensors than published."
    )
    return [Table.of("AlexNet(200), step by step", steps.values(), columns, note)]


def workspaces_published(network: str) -> float:
    """MB of workspaces: the difference between the two published figures."""
    memory, with_workspaces = published.NETWORK_BYTES[network]
    return with_workspaces.value - memory.value


TOTAL = one_table(
    "Everything allocated at once, MB",
    (
        NETWORK, Column("tensors", "tensor_bytes", MB_0), Column("weights × 3", "weight_bytes", MB_0),
        Column("memory", "memory_bytes", MB_0),
        Column("published", lambda row: published.NETWORK_BYTES[row.network][0].value, "{:,}".format),
        Column("workspaces forward", "forward_workspace_bytes", MB_0),
        Column("backward", "backward_workspace_bytes", MB_0),
        Column("published ", lambda row: workspaces_published(row.network), "{:,}".format),
        Column("speed", "speed_up", "{:.2f} ×".format),
        Column("published  ", lambda row: published.FASTER_WITH_WORKSPACES[row.network].value, "{:.2f} ×".format),
    ),
    "tensors: every map and gradient map, where a FORK's first branch is its input and a JOIN's output is its first "
    "input.  weights × 3: with gradients and momentum.  workspaces: of the fastest algorithm of every convolution, by "
    "a model of cuDNN 4 on a K40c, added up.  speed: with these over without.  The paper does not say what its figure "
    "adds up, nor which cuDNN it is.",
)  # fmt: skip


def peak(setup: str) -> Column:
    return Column(setup, lambda row: row.peak_bytes[setup], MIB_1)


MEMORY = one_table(
    "Memory of SuperNeurons' networks, MiB",
    (
        NETWORK, Column("layers", "layers", plain), Column("total", "managed_bytes", MIB_1), *map(peak, figures.LEFT),
        Column("one step", "largest_step_bytes", MIB_1), Column("weights", "resident_bytes", MIB_1),
    ),
    "total: every map and gradient map.  Then peaks of live memory: under liveness analysis; with offload and "
    "prefetch; with cost-aware recomputation instead; with both, every checkpoint's output away until a step needs "
    "it.  one step: the most that a single step uses, which every setup needs.  weights: with gradients, momentum and "
    "all else that is resident, beside these.",
)  # fmt: skip


def type_tables(rows: Sequence[TypeRow]) -> list[Table]:
    """Shares of time and of memory by type of layer, each followed by the published ones."""
    cost = fitted_cost(rows)

    def lines(
        parts: Mapping[str, Callable[[TypeRow], Mapping[str, float]]], theirs: Mapping[str, Mapping[str, Published]]
    ) -> Iterator[tuple[str, Mapping[str, float]]]:
        for row in rows:
            for word, of in parts.items():
                found = of(row)
                yield word or titled(row), {kind: share(found, kind) for kind in found if found[kind]}
            if row.network in theirs:
                yield "  published", {kind: figure.value for kind, figure in theirs[row.network].items()}

    def columns(kinds: Iterable[str]) -> list[Column]:
        return [Column("network", lambda line: line[0]), *map(column, kinds)]

    def column(kind: str) -> Column:
        return Column(kind, lambda line: line[1].get(kind), "{:.1f}".format)

    needs = (
        "The bytes that the forward and the backward steps of a type's layers need, each step for itself, so that a "
        "shared tensor counts several times.  FORK, JOIN and CONCAT are left out.  With a gradient of its own for "
        "LRN, AlexNet's shares would be the published ones."
    )
    times = (
        f"In kernels, simulated on a K40c with the fastest convolutions; then with {duration(cost)} more for each call "
        "of a library, fitted to the published shares.  structure: FORK, JOIN and CONCAT, of which the paper has "
        "nothing but what its shares leave."
    )
    by_time = {"": lambda row: row.kernel_seconds, "  with a fixed cost": lambda row: row.seconds(cost)}
    return [
        Table.of(
            "Time by type of layer, %", lines(by_time, published.TIME_SHARES),
            columns([*TYPES.values(), STRUCTURE]), times,
        ),
        Table.of(
            "Memory by type of layer, %", lines({"": lambda row: row.needed_bytes}, published.MEMORY_SHARES),
            columns(TYPES.values()), needs,
        ),
    ]  # fmt: skip


FIXED_COST = one_table(
    "A fixed cost a call, and how far ours are from the published figures",
    (
        Column("a call", lambda row: duration(row.call_seconds) if row.call_seconds else "none"),
        Column("fitted", "fitted"),
        Column("Figure 8a", "types", percent), Column("its simple layers", "types_of_calls", percent),
        Column("Figure 11", "cache", percent), Column("in series", "in_series", percent),
        Column("Table 2, ratio", "pool_ratio", percent),
        Column("Table 2, speed", "pool_speed", percent),
    ),
    "Median deviations.  Each call of a library takes longer on a K40c.  fitted: to Figure 8a, or to the speed of "
    "ResNet-50 with the pool in Table 2, a line that the last column leaves out; else a figure is unseen.  simple "
    "layers: without DROPOUT and SOFTMAX.  in series: if no kernel ran beside a copy.  ratio: the pool over driver "
    "calls, whose time follows from the text's 36 %; speed: images a second.",
)  # fmt: skip

RECOMPUTE = one_table(
    "Three ways of recomputing, MiB",
    (
        NETWORK, Column("way", "strategy"), Column("extra runs", "extra_runs", plain),
        Column("device", "resident_peak_bytes", MIB_3), Column("at", "resident_peak_layer"),
        Column("host", "offloaded_peak_bytes", MIB_3), Column("at", "offloaded_peak_layer"),
        Column("moved out", "offloaded_bytes", MIB_1),
    ),
    "Peaks of live memory, at the backward step of that layer.  device: with the checkpoints' outputs on the device.  "
    "host: with those of CONV, FC, FORK, JOIN and CONCAT on the host, each fetched when a step needs it.  The "
    "published peaks are AlexNet's of the first kind and the ResNets' of the second.",
)  # fmt: skip

CACHE = one_table(
    "Moved without the cache and with it, GB",
    (
        Column("AlexNet", "batch", plain),
        Column("published", lambda row: published.WITHOUT_CACHE[row.batch].value, "{:.2f}".format),
        Column("without", "without_bytes", GB_2), Column("out", "without_out_bytes", GB_2),
        Column("recompute", "without_recompute_bytes", GB_2), Column("fit", "without_fitted_bytes", GB_2),
        Column("published ", lambda row: published.WITH_CACHE[row.batch].value, "{:.2f}".format),
        Column("with", "with_bytes", GB_2), Column("nothing freed", "with_nothing_freed_bytes", GB_2),
    ),
    "GB (10^9 bytes) moved in an iteration within 12 GiB, the batch not counted.  without the cache: the outputs of "
    "every CONV and FC, out and in; out: of that, out alone; recompute: with cost-aware recomputation too; fit: all "
    "weights once, CONVs' outputs three times, the batch twice, which is the published line and may be a coincidence.  "
    "with: all techniques.  nothing freed: the cache alone, no tensor freed before the iteration ends.",
)  # fmt: skip

CACHE_SPEED = one_table(
    "Speed with the tensor cache and without",
    (
        NETWORK, Column("machine", "machine"),
        Column("with the cache", "with_seconds", duration), Column("without", "without_seconds", duration),
        Column("moved with", "with_moved_bytes", MIB_1), Column("without ", "without_moved_bytes", MIB_1),
        Column("speed", "ratio", "{:.3f} ×".format), Column("in series", "ratio_in_series", "{:.3f} ×".format),
        Column("published", lambda row: published.FASTER_WITH_CACHE[row.network].value, "{:.3f} ×".format),
    ),
    "An iteration within 12 GiB, simulated, with dynamic workspaces and cost-aware recomputation.  without: the "
    "outputs of CONV and FC are offloaded at once.  moved: MiB.  in series: if no kernel ran beside a copy.",
)  # fmt: skip


def workspace_tables(rows: Sequence[WorkspaceRow]) -> list[Table]:
    """The speed and the workspaces of AlexNet, a line a pool; and those of the paper's panels."""
    runs: dict[tuple[str, int, int], list[WorkspaceRow]] = {}
    for row in rows:
        runs.setdefault((row.setup, row.batch, row.pool_bytes), []).append(row)
    columns = (
        Column("AlexNet", lambda run: run[0].batch, plain), Column("setup", lambda run: run[0].setup),
        Column("pool", lambda run: run[0].pool_bytes, size),
        Column("images/s", lambda run: run[0].images_a_second, "{:.1f}".format),
        Column("workspaces", lambda run: sum(row.workspace_bytes for row in run), MIB_1),
        Column("of the fastest", lambda run: sum(row.fastest_bytes for row in run), MIB_1),
        Column("calls without theirs", lambda run: missing(run) or "none", wraps=True),
    )  # fmt: skip

    def missing(run: Sequence[WorkspaceRow]) -> str:
        return ", ".join(row.call for row in run if row.workspace_bytes != row.fastest_bytes)

    note = (
        "Simulated on a K40c.  workspaces: MiB of all convolution calls together; of the fastest: if each call had the "
        "fastest algorithm.  calls without theirs: those whose workspace is another one.  Y: forward; dX, dW: backward."
    )
    return [Table.of("Workspaces in two pools", runs.values(), columns, note), panels_table(rows)]


def panels_table(rows: Sequence[WorkspaceRow]) -> Table:
    """Figure 12: what each step is assigned of the workspace of its fastest algorithm, published and ours."""
    lines: list[tuple[str, Mapping[str, tuple[float, float]]]] = []
    for panel in published.PANELS:
        pairs = zip(panel.assigned, panel.fastest, strict=True)
        lines.append((panel.title, dict(zip(published.WORKSPACE_STEPS, pairs, strict=True))))
        run = speed.chosen(rows, "all but recompute", panel.batch or speed.BATCHES[-1], panel.pool)
        ours = speed.by_step(run)
        lines.append(("  ours", {step: (given / 1e6, fastest / 1e6) for step, (given, fastest) in ours.items()}))

    def column(step: str) -> Column:
        layer, direction = step.split()
        return Column(f"{layer[4:]}{direction[0]}", lambda line: line[1][step], lambda of: f"{of[0]:.0f}/{of[1]:.0f}")

    columns = [Column("panel", lambda line: line[0]), *map(column, published.WORKSPACE_STEPS)]
    note = (
        "MB, assigned/of the fastest algorithm, by CONV: f forward, b backward; CONV1's are left out.  ours: all "
        f"techniques but recomputation; {speed.BATCHES[-1]} images where the panel's batch was not at hand.  The sizes "
        "depend on the version of cuDNN."
    )
    return Table.of("Workspaces beside Figure 12", lines, columns, note)


def budget_tables(rows: Sequence[BudgetRow]) -> list[Table]:
    """A line a share of the budget, a column a network."""
    found: dict[float, dict[str, int]] = {share: {} for share in sorted({row.budget_share for row in rows})}
    for row in rows:
        found[row.budget_share][titled(row)] = row.moved_bytes

    def moved(network: str) -> Column:
        return Column(network, lambda line: line[1].get(network), MIB_1)

    budget = Column("budget", lambda line: f"{line[0]:.0%}", plain)
    networks = map(moved, dict.fromkeys(map(titled, rows)))
    note = (
        "MiB moved in an iteration under all techniques, by the budget as a share of the memory that is taken when "
        "nothing moves, holes included.  –: does not fit."
    )
    return [Table.of("What the cache moves as the pool grows, MiB", found.items(), [budget, *networks], note)]


LARGEST = (
    Column("network", "network"), Column("largest", "largest", plain),
    Column("resident", "resident_bytes", GIB_2), Column("pool", "peak_bytes", GIB_2),
    Column("host", "host_bytes", GIB_2), Column("rebuilt", "recomputed_layers", plain),
    Column("images/s", "images_a_second", "{:.1f}".format), Column("plans tried", "tried", plain),
)  # fmt: skip


def largest_tables(rows: Sequence[capacity.CapacityRow]) -> list[Table]:
    """The largest batch and the deepest ResNet under each setup; and the memory of all techniques together."""
    found: dict[str, dict[str, capacity.CapacityRow]] = {}
    for row in rows:
        found.setdefault(row.network, {})[row.setup] = row

    def largest(setup: str) -> Column:
        return Column(setup, lambda line: line[1][setup].largest if setup in line[1] else "", plain)

    def theirs(line: tuple[str, dict[str, capacity.CapacityRow]]) -> float | None:
        return next((row.published.value for row in line[1].values() if row.published), None)

    deep = f"layers ({capacity.DEEP_BATCH} images)"
    columns = (
        Column("images", lambda line: deep if line[0] == capacity.DEEP else line[0]),
        *map(largest, dict.fromkeys(row.setup for row in rows)),
        Column("published", theirs, "{:g}".format),
    )  # fmt: skip
    others = "; ".join(
        f"{network} {', '.join('–' if n is None else str(n) for n in them)}"
        for network, them in published.LARGEST_OF_OTHERS.items()
    )
    note = (
        "The largest that was tried within 12 GiB of a K40c, everything that trains counted.  baseline: nothing is "
        "freed before the iteration ends.  The next three are one technique each on top of liveness analysis.  Host "
        "memory has no end, but in the column that limits it.  "
        f"With 12 GB others reached, in images: {others} (Caffe, MXNet, Torch, TensorFlow); "
        f"in layers: {', '.join(f'{who} {n}' for who, n in published.DEEPEST_OF_OTHERS.items())}."
    )
    everything = [row for row in rows if row.setup == capacity.ALL]
    units = "resident, pool, host: GiB.  rebuilt: forward steps run again.  images/s: simulated."
    return [
        Table.of("The largest batches and the deepest ResNet in 12 GiB", found.items(), columns, note),
        Table.of("All techniques at their largest", everything, LARGEST, units),
    ]


def fixed(row: PoolStudy) -> float | None:
    return row.fixed_seconds or None


POOL = (
    NETWORK, Column("machine", "machine"), Column("calls", "calls", count),
    Column("a call", "allocate_seconds", duration), Column("fixed cost", fixed, duration),
    Column("with the heap", "seconds_heap", duration), Column("driver calls", "seconds_driver", duration),
    Column("share", "share_of_driver_calls", percent), Column("speed", "speed", "{:.2f} ×".format),
    Column("published", lambda row: published.FASTER_WITH_POOL[network_of(row)].ratio.value, "{:.2f} ×".format),
)  # fmt: skip


def network_of(row: PoolStudy) -> str:
    """Its name in the paper's tables."""
    return row.network.partition(":")[0]


def pool_tables(rows: Sequence[PoolStudy]) -> list[Table]:
    """An iteration with the heap and with driver calls."""
    note = (
        f"Simulated under {rows[0].setup} with the fastest convolutions; the whole device waits for a driver call.  a "
        f"call: {duration(rows[0].allocate_seconds)} is an assumption; the others are those with which ResNet-50's "
        "share is the published one.  fixed cost: of each call of a library, fitted to ResNet-50's published speed "
        "with the pool.  share: of an iteration, in driver calls.  speed: with the heap over with driver calls.  The "
        "heap's own work is not counted."
    )
    return [Table.of("Heap against driver calls", rows, POOL, note)]


CURVES = one_table(
    "Speed by batch on a TITAN Xp, images a second",
    (
        Column("network", "network"), Column("images", "batch", plain),
        Column("published", "published_rate", plain), Column("ours", "rate", "{:.0f}".format),
        Column("of its highest", "published_share", percent), Column("ours ", "share", percent),
    ),
    "Simulated within 12 GiB under all techniques.  The speeds depend on the version of cuDNN, ours is a model of "
    "cuDNN 4; what can be compared is where a curve is highest, and how it falls.  –: does not fit.",
)  # fmt: skip


def costs_tables(rows: Sequence[beside.CostRow]) -> list[Table]:
    """Figure 13 with what the paper has of the other frameworks."""

    def of_another(who: str, place: int) -> Column:
        return Column(who, lambda row: published.LARGEST_MEMORY_OF_OTHERS[row.network][place], "{:.1f}".format)

    columns = (
        NETWORK, Column("published", lambda row: published.LARGEST_MEMORY[row.network].value, "{:.1f}".format),
        Column("tensors", "memory_bytes", GB_1), Column("workspaces", "workspace_bytes", GB_1),
        *(of_another(who, place) for place, who in enumerate(("Caffe", "TensorFlow", "MXNet", "Torch"))),
    )  # fmt: skip
    note = (
        "GB (10^9 bytes) at Table 5's batches, everything allocated once.  tensors and workspaces: ours, as in Figure "
        "2, the latter of every forward convolution's fastest algorithm.  The other frameworks' figures are published, "
        "each at its own largest batch, and are not measured here."
    )
    return [Table.of("Memory at the largest batches", rows, columns, note)]


PARTS = (
    Part("curve", "the memory curve of AlexNet(200)", len(figures.CURVE), figures.curve,
         curve_tables, pictures.curve_picture),
    Part("total", "memory of the networks, without and with workspaces", len(figures.NETWORKS), figures.total,
         TOTAL, pictures.total_picture, units="MB: 10^6 bytes."),
    Part("memory", "memory that each technique leaves", len(figures.NETWORKS), figures.memory,
         MEMORY, pictures.memory_picture, beside=False),
    Part("types", "time and memory by type of layer", len(figures.NETWORKS), by_type.by_type,
         type_tables, pictures.types_picture),
    Part("fixed-cost", "a fixed cost a call, tried where it was not fitted", unseen.ROUNDS, unseen.unseen, FIXED_COST,
         beside=False),
    Part("recompute", "extra runs and peaks of the three ways", len(published.RECOMPUTED), figures.recomputation,
         RECOMPUTE),
    Part("cache", "bytes moved with the tensor cache and without", len(traffic.BATCHES), figures.cache,
         CACHE, units="GB: 10^9 bytes."),
    Part("cache-speed", "speed with the tensor cache and without", len(published.FASTER_WITH_CACHE), speed.cache_speed,
         CACHE_SPEED, pictures.cache_speed_picture),
    Part("workspaces", "workspaces and speed in two pools", len(speed.SETUPS) * len(speed.BATCHES), speed.workspaces,
         workspace_tables, pictures.workspaces_picture),
    Part("budget", "bytes moved as the pool grows", len(figures.SHRUNK), figures.shrinking, budget_tables,
         beside=False),
    Part("largest", "the largest batches and the deepest ResNet in 12 GiB", capacity.ROUNDS, capacity.capacity,
         largest_tables),
    Part("pool", "heap against driver calls", 3, pool_study.pool, pool_tables),
    Part("largest-memory", "memory at the largest batches", len(published.LARGEST_MEMORY), beside.costs, costs_tables,
         units="GB: 10^9 bytes."),
    Part("speed-by-batch", "images a second by batch, on a TITAN Xp", len(published.SPEED_CURVES), beside.speeds,
         CURVES),
)  # fmt: skip
