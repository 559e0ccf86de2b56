"""vDNN++'s evaluation as `refimpl reproduce vdnnpp` shows it: tables and pictures, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from refimpl.report.tables import Column, Table, in_units, plain
from refimpl.studies.fragmentation import study as fragmentation
from refimpl.studies.fragmentation.study import HEURISTICS, ORDERS, PLANNED
from refimpl.studies.reproduce.evaluation import MIB, NETWORK, Part, to_json
from refimpl.studies.reproduce.vdnnpp import figures, microbenchmark, pictures, published
from refimpl.studies.reproduce.vdnnpp.figures import LayerRow, PinnedRow, SpeedRow
from refimpl.studies.reproduce.vdnnpp.microbenchmark import HidingRow
from refimpl.text import duration, size
from refimpl.vdnnpp.presets import with_join, without_join

MIB_1, MS, PER_CENT = in_units(MIB), in_units(1e-3), in_units(1e-2)

POLICY = Column("policy", lambda row: row.policy.removesuffix("-conv"))

# -- time --------------------------------------------------------------------------------------------------------------

#: Ways of choosing algorithms, as in the tables.
MODES = {"memory": "m", "performance": "p", "fastest": "p", "fitting": "f", "least": "m"}


def policy_name(row: SpeedRow) -> str:
    """`conv (m)`, or `dyn: conv (f)`"""
    if row.adopted:
        policy, _, mode = row.adopted.rstrip(")").partition(" (")
        return f"dyn: {policy} ({MODES[mode]})"
    return f"{row.policy.removesuffix('-conv')} ({MODES[row.algorithms]})" if row.algorithms else row.policy


SPEED = (
    NETWORK, Column("policy", policy_name),
    Column("vDNN", "vdnn_seconds", MS), Column("vDNN++", "vdnnpp_seconds", MS),
    Column("a", "iteration_time", PER_CENT), Column("b", "iteration_cut", PER_CENT),
    Column("c", "iteration_overhead", PER_CENT),
    Column("forward a", "forward_time", PER_CENT), Column("b", "forward_cut", PER_CENT),
    Column("c", "forward_overhead", PER_CENT),
    Column("alike", "iteration_time_searching", PER_CENT),
)  # fmt: skip


def speed_tables(rows: Sequence[SpeedRow]) -> list[Table]:
    """A table a GPU."""
    machines = dict.fromkeys(row.machine for row in rows)
    return [speed_table(name, [row for row in rows if row.machine == name]) for name in machines]


def speed_table(machine: str, rows: Sequence[SpeedRow]) -> Table:
    both = [row for row in rows if row.iteration_time is not None]
    lost = [f"{row.network}({row.batch}) {policy_name(row)}" for row in both if (row.iteration_time or 0.0) < -1e-9]
    slower = f"vDNN++ is slower in {len(lost)} of {len(both)}"
    if lost:
        slower += f": {', '.join(lost)}; (f) depends on the largest hole, and right placement leaves another"
    note = (
        f"Milliseconds an iteration, simulated within the memory of a {machine} with the modelled cuDNN 4, and "
        f"per cent.  {published.IN_WORDS}; for the iteration, then for forward alone.  –: does not fit, or vDNN has no "
        "overhead.  vDNN moves the same maps by its own rules: join, one memory stream, prefetch vdnn-window, best "
        "fit, a pinned buffer a map.  alike: (a) against a vDNN whose every layer searches for a map to prefetch, as "
        "vDNN++'s do.  (m): least workspace, (p): fastest, (f): fastest that fits; alternate: every second CONV.  "
        f"{slower}."
    )
    return Table.of(f"vDNN++ beside vDNN on a {machine}", rows, SPEED, note)


# -- the microbenchmark ------------------------------------------------------------------------------------------------

HIDING = (
    Column("layer", "layer"), Column("algorithm", lambda row: row.algorithm or None),
    Column("workspace", lambda row: row.workspace_bytes or None, size), Column("kernels", "kernel_seconds", duration),
    Column("copy", "copy_seconds", duration), Column("vDNN waits", lambda row: row.wait_seconds or None, duration),
)  # fmt: skip


def hiding_tables(rows: Sequence[HidingRow]) -> list[Table]:
    """A table a GPU."""
    return [hiding_table(name, [row for row in rows if row.device == name], HIDING_NOTE)
            for name in dict.fromkeys(row.device for row in rows)]  # fmt: skip


def hiding_table(device: str, rows: Sequence[HidingRow], note: str = "") -> Table:
    return Table.of(f"A layer's forward beside the copy of its input, on {device}", rows, HIDING, note)


HIDING_NOTE = (
    f"The microbenchmark of the authors' public code (S): {microbenchmark.IMAGES} images with "
    f"{microbenchmark.CHANNELS} maps of {microbenchmark.SIDE}²; a convolution with bias and ReLU, by the fastest "
    "algorithm whose workspace fits beside its maps.  Simulated; the code has no results to compare with.  vDNN waits: "
    "at the join, for the rest of the copy.  vDNN++ does not."
)


# -- the demonstration -------------------------------------------------------------------------------------------------


def copy_seconds(row: LayerRow) -> float:
    """Of the copies out that a step starts."""
    return sum(end - start for _, way, start, end in row.copies if way == "out")


def end_of_forward(rows: Sequence[LayerRow]) -> float:
    """When the last kernel and the last copy have ended."""
    return max(max([row.end, *(end for *_, end in row.copies)]) for row in rows)


DEMONSTRATION = (
    Column("step", lambda pair: pair[1].step, plain), Column("layer", lambda pair: pair[1].layer),
    Column("kernels", lambda pair: pair[1].end - pair[1].start, MS),
    Column("copy of X", lambda pair: copy_seconds(pair[1]) or None, MS),
    Column("vDNN starts", lambda pair: pair[0].start, MS), Column("vDNN++ starts", lambda pair: pair[1].start, MS),
    Column("X away", lambda pair: max((end for _, way, _, end in pair[1].copies if way == "out"), default=None), MS),
)  # fmt: skip


def demonstration_tables(rows: Sequence[LayerRow]) -> list[Table]:
    """Forward, layer by layer: its kernels, its copies, and when a layer starts."""
    joined, free = ([row for row in rows if (row.setup, row.direction) == (who, "forward")]
                    for who in ("vDNN", "vDNN++"))  # fmt: skip
    compute, copies = [row.end - row.start for row in free], [copy_seconds(row) for row in free]
    name, batch, machine = figures.DEMONSTRATION
    note = (
        f"Milliseconds; {name}({batch}), conv, no workspace, {machine}.  X away: the copy of the layer's input, which "
        f"starts with the layer's kernels.  Forward ends: vDNN {MS(end_of_forward(joined))}, vDNN++ "
        f"{MS(end_of_forward(free))}, simulated; by the formulas of a chain with memory enough, the batch's upload not "
        f"counted: {MS(with_join(compute, copies))} and {MS(without_join(compute, copies))}."
    )
    pairs = zip(joined, free, strict=True)
    return [Table.of("The demonstration network, forward", pairs, DEMONSTRATION, note)]


# -- pinned memory -----------------------------------------------------------------------------------------------------

CALCULATED = (
    "C: calculated by our port of the authors' public code, whose binary never ran; not the paper's own figures."
)
PINNED = (
    NETWORK, POLICY, Column("maps", "maps", plain), Column("x(0)", "input_bytes", MIB_1),
    Column("others", "raw_bytes", MIB_1), Column("packed", "kept_bytes", MIB_1),
    Column("kept", lambda row: row.kept_bytes + row.input_bytes, MIB_1), Column("less", "kept_saving", PER_CENT),
    Column("vDNN", "vdnn_pinned_bytes", MIB_1), Column("demand", "on_demand_pinned_bytes", MIB_1),
    Column("arena", "compressed_pinned_bytes", MIB_1), Column("less ", "pinned_saving", PER_CENT),
    Column("raw", "left_raw_bytes", MIB_1),
)  # fmt: skip


def pinned_tables(rows: Sequence[PinnedRow]) -> list[Table]:
    """The maps' memory on the host; and the figures of our port of the authors' code beside them."""
    note = (
        "MiB and per cent.  x(0): the batch, never compressed.  packed: the other maps, with the densities that the "
        "authors' tests assume (S); kept: with the batch, all compressed.  vDNN: its pinned memory, a buffer a map.  "
        "demand: buffers on demand, not compressed.  arena: vDNN++'s pinned arena in the simulated iteration, from "
        "which a compressed map's buffer goes to another; compressed maps are in ordinary memory (R; the authors' "
        "code pins that too, so there all that is kept is pinned).  raw: of the maps, not compressed, since no other "
        "map takes their buffers (R)."
    )
    tables = [Table.of("Pinned memory", rows, PINNED, note)]
    for row in rows:
        if (row.network, row.policy) == ("vgg16", "conv"):
            kept, raw = row.kept_bytes + row.input_bytes, row.raw_bytes
            less = PER_CENT(1 - published.KEPT_MIB / published.RAW_MIB), PER_CENT(1 - kept / raw)
            lines = [
                ["VGG-16(16), conv: kept, the batch counted", f"{published.KEPT_MIB}", MIB_1(kept), "C"],
                ["VGG-16(16), conv: uncompressed, the batch not counted", f"{published.RAW_MIB}", MIB_1(raw), "C"],
                ["one over the other, less by (%)", *less, "C"],
            ]
            head, numbers = ["figure", "port", "ours", "mark"], frozenset({"port", "ours"})
            title = "Compression: our port of the authors' code"
            tables.append(Table(title, head, lines, numbers, (), f"MiB.  {CALCULATED}"))
    return tables


# -- fragmentation -----------------------------------------------------------------------------------------------------

REPLAYED = (
    NETWORK, Column("policy", "policy"), Column("heuristic", "heuristic"),
    Column("ideal", lambda row: row.found.ideal_bytes, "{:,}".format),
    Column("port (tries)", lambda row: f"{row.replayed.pool_bytes:,} ({row.replayed.tries})", plain),
    Column("ours (tries)", lambda row: f"{row.found.pool_bytes:,} ({row.found.tries})", plain),
    Column("mark", lambda row: "C"),
    Column("", lambda row: "to the byte" if row.found == row.replayed else "missed"),
)  # fmt: skip


def pool_tables(rows: Sequence[fragmentation.PoolRow]) -> list[Table]:
    """Every heuristic; and the pools of our port of the authors' code, to the byte."""
    traces: dict[Any, dict[str, fragmentation.PoolRow]] = {}
    for row in rows:
        traces.setdefault((row.network, row.batch, row.policy, row.order), {})[row.heuristic] = row

    def any_row(trace: dict[str, fragmentation.PoolRow]) -> fragmentation.PoolRow:
        return next(iter(trace.values()))

    def beyond(heuristic: str, trace: dict[str, fragmentation.PoolRow]) -> float:
        return trace[heuristic].found.fragmentation

    orders = {"early": "X dX", "late": "dX X", None: "–"}
    study = (
        Column("network", lambda trace: NETWORK.cell(any_row(trace))),
        Column("policy", lambda trace: POLICY.cell(any_row(trace))),
        Column("order", lambda trace: orders[any_row(trace).order]),
        Column("ideal", lambda trace: any_row(trace).found.ideal_bytes, MIB_1),
        *(Column(name.removesuffix(" left").replace(" right", " →"), partial(beyond, name), PER_CENT)
          for name in (*HEURISTICS, PLANNED)),
    )  # fmt: skip
    note = (
        "ideal: the most alive at once, MiB; then the bytes of each heuristic's pool beyond it, per cent, in vDNN's "
        f"synchronous order with no workspace.  X dX: {ORDERS['early']}; dX X: {ORDERS['late']}.  →: right placement.  "
        "S: best, with right placement and without, X first; R: all else, and planned, whose addresses are fixed once."
    )
    return [
        Table.of("Fragmentation", traces.values(), study, note),
        Table.of("Pools: our port of the authors' code", [row for row in rows if row.replayed], REPLAYED,
                 f"Bytes.  {CALCULATED}"),
    ]  # fmt: skip


def pool_document(row: fragmentation.PoolRow) -> dict[str, Any]:
    """A row for JSON, with the pool of our port of the authors' code, where there is one."""
    network = row.network.partition(":")[0]
    return {"network": network, "batch": row.batch, **fragmentation.document(row), "replayed": to_json(row.replayed)}


PARTS = (
    Part("speed", "time beside vDNN's, in three readings", len(figures.NETWORKS), figures.speed,
         speed_tables, pictures.speed_picture),
    Part("microbenchmark", "a layer's kernels beside the copy of its input, by filter",
         len(microbenchmark.MACHINE_NAMES) * microbenchmark.LAYERS, microbenchmark.simulated, hiding_tables,
         pictures.hiding_picture, beside=False),
    Part("demonstration", "the authors' demonstration network, layer by layer", 2, figures.demonstration,
         demonstration_tables, pictures.demonstration_picture, beside=False),
    Part("pinned", "pinned memory with and without compression", len(figures.COMPRESSED), figures.pinned,
         pinned_tables, pictures.pinned_picture),
    Part("fragmentation", "the pool that each heuristic needs", len(figures.PLACED), figures.fragmented, pool_tables,
         document=pool_document, beside=False),
)  # fmt: skip
