"""vDNN++'s evaluation as `refimpl reproduce vdnnpp` shows it: tables and pictures, part by part."""

from __future__ import annotations

from collections.abc import Sequence

from refimpl.report.tables import Table
from refimpl.reproduce.evaluation import Part
from refimpl.reproduce.vdnnpp import figures, pictures, published
from refimpl.reproduce.vdnnpp.figures import MIB, LayerRow, PinnedRow, PoolRow, SpeedRow
from refimpl.reproduce.vdnnpp.fragmentation import HEURISTICS, ORDERS, PLANNED
from refimpl.vdnnpp.release import with_join, without_join

# -- time --------------------------------------------------------------------------------------------------------------

#: Ways of choosing algorithms, as in the tables.
MODES = {"memory": "m", "performance": "p", "fastest": "p", "fitting": "f", "least": "m"}


def policy_name(row: SpeedRow) -> str:
    """`conv (m)`, or `dyn: conv (f)`"""
    if row.adopted:
        policy, _, mode = row.adopted.rstrip(")").partition(" (")
        return f"dyn: {policy} ({MODES[mode]})"
    return f"{row.policy.removesuffix('-conv')} ({MODES[row.algorithms]})" if row.algorithms else row.policy


def speed_tables(rows: Sequence[SpeedRow]) -> list[Table]:
    """A table a GPU."""
    return [
        speed_table([row for row in rows if row.machine == name]) for name in dict.fromkeys(r.machine for r in rows)
    ]


def speed_table(rows: Sequence[SpeedRow]) -> Table:
    head = ["network", "policy", "vDNN", "vDNN++", "a", "b", "c", "forward a", "b", "c", "alike"]
    body = []
    for row in rows:
        body.append(
            [
                f"{row.network}({row.batch})", policy_name(row),
                seconds(row.vdnn_seconds), seconds(row.vdnnpp_seconds),
                *map(per_cent, (row.iteration_time, row.iteration_cut, row.iteration_overhead)),
                *map(per_cent, (row.forward_time, row.forward_cut, row.forward_overhead)),
                per_cent(row.iteration_time_searching),
            ]
        )  # fmt: skip
    note = (
        f"Milliseconds an iteration, simulated within the memory of a {rows[0].machine} with the modelled cuDNN 4, and "
        f"per cent.  {published.IN_WORDS}; for the iteration, then for forward alone.  –: does not fit, or vDNN has no "
        "overhead.  vDNN moves the same maps by its own rules: join, one memory stream, prefetch vdnn-window, best "
        "fit, a pinned buffer a map.  alike: (a) against a vDNN whose every layer searches for what to prefetch, as "
        "vDNN++'s do.  (m): least workspace, (p): fastest, (f): fastest that fits; alternate: every second CONV.  "
        f"{slower(rows)}"
    )
    numbers = frozenset(head) - {"network", "policy"}
    return Table(f"vDNN++ beside vDNN on a {rows[0].machine}", head, body, numbers, (), note)


def slower(rows: Sequence[SpeedRow]) -> str:
    """In how many rows vDNN++ loses, and why it can."""
    both = [row for row in rows if row.iteration_time is not None]
    lost = [row for row in both if (row.iteration_time or 0.0) < -1e-9]
    said = f"vDNN++ is slower in {len(lost)} of {len(both)}"
    names = ", ".join(f"{row.network}({row.batch}) {policy_name(row)}" for row in lost)
    return (
        f"{said}: {names}; (f) depends on the largest hole, and right placement leaves another." if lost else f"{said}."
    )


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{1e3 * value:.1f}"


def per_cent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}".replace("-0.0", "0.0")


# -- the demonstration -------------------------------------------------------------------------------------------------


def demonstration_tables(rows: Sequence[LayerRow]) -> list[Table]:
    """Forward, layer by layer: what computes, what is copied, and when a layer starts."""
    forward = {who: [row for row in rows if row.setup == who and row.direction == "forward"]
               for who in dict.fromkeys(row.setup for row in rows)}  # fmt: skip
    body = []
    compute, copies = [], []
    for joined, free in zip(forward["vDNN"], forward["vDNN++"], strict=True):
        out = [(start, end) for _, way, start, end in free.copies if way == "out"]
        compute.append(free.end - free.start)
        copies.append(sum(end - start for start, end in out))
        done = [seconds(end) for _, end in out] or ["–"]
        line = [str(free.step), free.layer, seconds(compute[-1]), seconds(copies[-1]) if out else "–"]
        body.append([*line, seconds(joined.start), seconds(free.start), done[-1]])
    name, batch, machine = figures.DEMONSTRATION
    ended = {who: end_of_forward(mine) for who, mine in forward.items()}
    note = (
        f"Milliseconds; {name}({batch}), conv, no workspace, {machine}.  X away: the copy of the layer's input, which "
        f"starts with the layer's kernels.  Forward ends: vDNN {seconds(ended['vDNN'])}, vDNN++ "
        f"{seconds(ended['vDNN++'])}, simulated; by the formulas of a chain with memory enough, the batch's upload not "
        f"counted: {seconds(with_join(compute, copies))} and {seconds(without_join(compute, copies))}."
    )
    head = ["step", "layer", "kernels", "copy of X", "vDNN starts", "vDNN++ starts", "X away"]
    return [Table("The demonstration network, forward", head, body, frozenset(head) - {"layer"}, (), note)]


def end_of_forward(rows: Sequence[LayerRow]) -> float:
    """Of the kernels and the copies."""
    return max(max([row.end, *(end for *_, end in row.copies)]) for row in rows)


# -- pinned memory -----------------------------------------------------------------------------------------------------


def pinned_tables(rows: Sequence[PinnedRow]) -> list[Table]:
    """What the maps take on the host; and what replaying the authors' code gives, beside ours."""
    head = ["network", "policy", "maps", "x(0)", "others", "packed", "kept", "less", "vDNN", "demand", "arena", "less ",
            "raw"]  # fmt: skip
    body = []
    for row in rows:
        bytes_ = [
            row.vdnn_pinned_bytes, row.on_demand_pinned_bytes, row.compressed_pinned_bytes,
        ]  # fmt: skip
        host = [row.input_bytes, row.raw_bytes, row.kept_bytes, row.kept_bytes + row.input_bytes]
        body.append(
            [
                f"{row.network}({row.batch})", row.policy.removesuffix("-conv"), str(row.maps),
                *map(mib, host), per_cent(row.kept_saving), *map(mib, bytes_), per_cent(row.pinned_saving),
                mib(row.left_raw_bytes),
            ]
        )  # fmt: skip
    note = (
        "MiB and per cent.  x(0): the batch, never compressed.  packed: the other maps, with the densities that the "
        "authors' tests assume (S); kept: with the batch, all compressed.  vDNN: its pinned memory, a buffer a map.  "
        "demand: buffers on demand, not compressed.  arena: vDNN++'s pinned arena in the simulated iteration, from "
        "which a compressed map's buffer goes to the next; what is compressed lies in ordinary memory.  raw: of the "
        "maps, not yet compressed when forward ends, and left so."
    )
    maps = Table("Pinned memory", head, body, frozenset(head) - {"network", "policy"}, (), note)
    vgg = next((row for row in rows if (row.network, row.policy) == ("vgg16", "conv")), None)
    if vgg is None:
        return [maps]
    kept = vgg.kept_bytes + vgg.input_bytes
    body = [
        ["VGG-16(16), conv: kept, the batch counted", f"{published.KEPT_MIB}", mib(kept), "C"],
        ["VGG-16(16), conv: uncompressed, the batch not counted", f"{published.RAW_MIB}", mib(vgg.raw_bytes), "C"],
        ["one over the other, less by (%)", per_cent(1 - published.KEPT_MIB / published.RAW_MIB),
         per_cent(1 - kept / vgg.raw_bytes), "C"],
    ]  # fmt: skip
    note = "MiB.  C: calculated by replaying the authors' public code; not the paper's own figures."
    head = ["figure", "replayed", "ours", "mark"]
    return [
        maps,
        Table("Compression: the authors' code, replayed", head, body, frozenset({"replayed", "ours"}), (), note),
    ]


def mib(nbytes: int) -> str:
    return f"{nbytes / MIB:,.1f}"


# -- fragmentation -----------------------------------------------------------------------------------------------------


def pool_tables(rows: Sequence[PoolRow]) -> list[Table]:
    """Every heuristic; and the pools that replaying the authors' code gives, to the byte."""
    names = [*HEURISTICS, PLANNED]
    found: dict[tuple[str, str, str | None], dict[str, PoolRow]] = {}
    for row in rows:
        found.setdefault((f"{row.network}({row.batch})", row.policy, row.order), {})[row.heuristic] = row
    body = []
    for (network, policy, order), mine in found.items():
        ideal = next(iter(mine.values())).ideal_bytes
        named = [network, policy.removesuffix("-conv"), {"early": "X dX", "late": "dX X"}.get(order or "", "–")]
        body.append([*named, mib(ideal), *(per_cent(mine[name].fragmentation) for name in names)])
    short = [name.removesuffix(" left").replace(" right", " →") for name in names]
    head = ["network", "policy", "order", "ideal", *short]
    note = (
        "ideal: the most alive at once, MiB; then what each heuristic's pool has beyond it, per cent, in vDNN's "
        f"synchronous order with no workspace.  X dX: {ORDERS['early']}; dX X: {ORDERS['late']}.  →: right placement.  "
        "S: best, with right placement and without, X first; R: all else, and planned, whose addresses are fixed once."
    )
    study = Table("Fragmentation", head, body, frozenset(head) - {"network", "policy", "order"}, (), note)
    body = []
    for row in rows:
        if row.replayed_pool_bytes is None:
            continue
        ours = (row.ideal_bytes, row.pool_bytes, row.tries)
        replayed = (row.replayed_ideal_bytes, row.replayed_pool_bytes, row.replayed_tries)
        cells = [f"{pool:,} ({tries})" for _, pool, tries in (replayed, ours)]
        line = [f"{row.network}({row.batch})", row.policy, row.heuristic, f"{row.ideal_bytes:,}", *cells]
        body.append([*line, "C", "to the byte" if ours == replayed else "missed"])
    head = ["network", "policy", "heuristic", "ideal", "replayed (tries)", "ours (tries)", "mark", ""]
    numbers = frozenset({"ideal", "replayed (tries)", "ours (tries)"})
    note = "Bytes.  C: calculated by replaying the authors' public code; not the paper's own figures."
    return [study, Table("Pools: the authors' code, replayed", head, body, numbers, (), note)]


PARTS = (
    Part("speed", "time beside vDNN's, in three readings", len(figures.NETWORKS), figures.speed,
         speed_tables, pictures.speed_picture),
    Part("demonstration", "the authors' demonstration network, layer by layer", 2, figures.demonstration,
         demonstration_tables, pictures.demonstration_picture),
    Part("pinned", "pinned memory with and without compression", len(figures.COMPRESSED), figures.pinned,
         pinned_tables, pictures.pinned_picture),
    Part("fragmentation", "the pool that each heuristic needs", len(figures.PLACED), figures.fragmented, pool_tables),
)  # fmt: skip
