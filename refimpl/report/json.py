"""A plan as one JSON document: what `refimpl plan --json` prints.  `FIELDS` says what every field means.

All bytes and counts are whole numbers, all times are seconds.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from refimpl.machine import Machine, Timeline, wire_bytes
from refimpl.network import Network, Step
from refimpl.network.accounting import network_wide_bytes
from refimpl.planner import DoesNotFit, Program, Setup
from refimpl.planner.heading import opaque_shares
from refimpl.report.figures import average_live_bytes, choices, fragmentation, pool_size, traffic
from refimpl.report.times import step_times
from refimpl.report.uncounted import uncounted

#: Field → meaning; a dot leads into an object, `[]` into the entries of a list.
FIELDS = {
    "network": "name of the network",
    "batch": "images in a batch",
    "policy": "name of the setup: the preset, where it is one",
    "machine": "name of the machine whose model says how long things take",
    "catalogue": "whose convolution algorithms the machine offers",
    "budget_bytes": "the device memory that the program may use",
    "pool_bytes": "taken: of the pool that it was planned in; the budget, or less where in a larger pool a hole is too "
    "small, or where the allocator searches for it; given back as a budget, it fits",
    "fits": "whether there is a program with a pool of at most the budget; if not, `misfit` says why, and the fields "
    "of a program are null",
    "network_wide_bytes": "static accounting: every map allocated once and nothing released, as the paper of the "
    "network's conventions counts its baseline; with the largest workspace of this program",
    "resident_bytes": "of the tensors that live as long as training: parameters with gradients and momentum, "
    "statistics, labels, losses; unrounded",
    "average_live_bytes": "mean over the steps of `steps[].live_bytes`",
    "peak": "the highest of each figure; `step`, `layer` and `direction` are those of the most live bytes",
    "peak.live_bytes": "the most of `steps[].live_bytes`",
    "peak.transient_bytes": "the most managed bytes at any moment, within a step too; unrounded, without workspaces",
    "peak.pool_bytes": "the most that is in use: resident tensors, workspaces, rounding, draining bytes included",
    "peak.hole_bytes": "in holes when the pool is at its fullest: free memory below the highest address ever used",
    "peak.largest_hole_bytes": "of the largest of these holes",
    "peak.step": "number of the first step with the most live bytes",
    "peak.layer": "its layer",
    "peak.direction": "forward or backward",
    "peak.part": "as `steps[].part`",
    "offloaded_bytes": "copied out because the offload module said so; never the input batch, whose host copy exists",
    "prefetched_bytes": "copied in ahead of need; without the input batch",
    "on_demand_bytes": "copied in by the step that needs it, which waits; without the input batch",
    "evicted_bytes": "copied out because an allocation failed; evictions without a copy are not counted",
    "pinned_bytes": "host memory that copies go through, the batch and the results included",
    "tier_bytes": "tier → bytes taken of it for maps, of those beside the host's",
    "compressed_bytes": "of the maps that threads of the host copy to the store once they have left",
    "stored_bytes": "the ordinary memory planned for these; in a run it depends on the maps",
    "store_bytes": "of ordinary memory reserved for them, as if no number were zero; pages are taken when touched",
    "recomputed_layers": "forward steps run again",
    "seconds.iteration": "one iteration, by the timeline",
    "seconds.compute": "in which a kernel ran",
    "seconds.stall": "in which none did",
    "seconds.baseline": "one iteration of the baseline on this machine; null if it was not planned",
    "slots": "slot → name of its module",
    "chosen": "of a policy that searches: the `setup` it adopted, and all it `tried`, each with `setup`, `fits`, and "
    "`peak_bytes` and `seconds` or `failure`; null for the others",
    "simulated": "whether the times are a model's; otherwise they are measured",
    "largest_allocation_bytes": "the largest block for which the pool has room at every moment of the iteration, in "
    "memory never touched too",
    "data_parallel": "null for a network that trains alone; else `ranks`, `all_reduces`, `gradient_bytes`, "
    "`wire_bytes` that all ranks send in an iteration, `reduce_seconds` that the network is busy, `hidden_seconds` of "
    "them beside kernels",
    "traffic": "every copy, by direction and reason, the batch included: `direction`, `why`, `copies`, `bytes`",
    "counts": "`instructions`, `waits`; `skipped_prefetches` found no hole; of what steps read or change, `hits` were "
    "there, `misses` fetched or rebuilt; `evictions`: tensors pushed out, with a copy or without",
    "fates": "for every map that backward reads: `tensor`, `bytes`, `fate` (keep, offload or drop), `module`, `reason`",
    "steps[].step": "its number: 1..N forward, N+1..2N backward",
    "steps[].direction": "forward or backward",
    "steps[].part": "of a step that was cut at its seams, as in `1 of 2`; null for a whole step",
    "steps[].layer": "its layer",
    "steps[].live_bytes": "managed tensors just before its launch: unrounded, without workspaces and draining bytes",
    "steps[].live_tensors": "their number",
    "steps[].pool_bytes": "held by the allocator at that moment",
    "steps[].workspace_bytes": "the buffer that its calls share",
    "steps[].start": "start of its first launch, rebuilds included; seconds since the iteration began",
    "steps[].end": "end of its last launch",
    "steps[].calls": "its kernels in order: `kernel`, and `algorithm` where there is a choice, else null",
    "misfit": "null if it fits; else `message`, `step`, `layer`, `direction`, `part` (null before the first step), "
    "`tensor`, `asked_bytes`, `free_bytes`, `largest_hole_bytes`, `alive_bytes` by kind",
}


def _data_parallel(program: Program, timeline: Timeline) -> dict[str, Any] | None:
    ranks, reduced = program.network.ranks, program.network.reduced
    if ranks == 1:
        return None
    return {
        "ranks": ranks, "all_reduces": len(reduced), "gradient_bytes": sum(reduced),
        "wire_bytes": wire_bytes(sum(reduced), ranks), "reduce_seconds": timeline.busy("network"),
        "hidden_seconds": timeline.hidden("network"),
    }  # fmt: skip


def plan_json(program: Program, timeline: Timeline, baseline_seconds: float | None = None) -> dict[str, Any]:
    """The document for a program; `baseline_seconds` are an iteration of the baseline's on the same machine."""
    rows, counts, peak = program.rows, program.counts, program.peak
    workspace = max(row.workspace_bytes for row in rows)
    pool = fragmentation(program)
    at_peak = pool.layout(pool.peak)
    return {
        **_asked(program.network, program.setup, program.machine, program.budget),
        "pool_bytes": program.pool_bytes,
        "fits": True,
        "network_wide_bytes": network_wide_bytes(program.network, workspace),
        "resident_bytes": program.network.resident_bytes,
        **({"not_counted": [one._asdict() for one in items]} if (items := uncounted(program)) else {}),
        "average_live_bytes": average_live_bytes(program),
        "peak": {
            "live_bytes": peak.live_bytes,
            "transient_bytes": max(row.transient_bytes for row in rows),
            "pool_bytes": program.peak_bytes,
            "hole_bytes": at_peak.hole_bytes,
            "largest_hole_bytes": at_peak.largest_hole,
            **_place(peak.step),
        },
        **_fields(counts, "offloaded_bytes", "prefetched_bytes", "on_demand_bytes", "evicted_bytes"),
        **_fields(counts, "compressed_bytes", "stored_bytes", "recomputed_layers"),
        "pinned_bytes": program.pinned_bytes,
        "tier_bytes": dict(program.tier_bytes),
        "store_bytes": program.store_bytes,
        "seconds": {
            "iteration": timeline.seconds,
            "compute": timeline.busy("compute"),
            "stall": timeline.stall,
            "baseline": baseline_seconds,
        },
        "chosen": _chosen(program),
        "simulated": timeline.simulated,
        "largest_allocation_bytes": int(fragmentation(program, pool_size(program)).largest_hole.min()),
        "data_parallel": _data_parallel(program, timeline),
        "traffic": [
            {"direction": moved.direction, "why": moved.why, "copies": moved.copies, "bytes": moved.nbytes}
            for moved in traffic(program)
        ],
        "counts": {
            "instructions": len(program.instructions),
            **_fields(counts, "waits", "skipped_prefetches", "hits", "misses", "evictions"),
        },
        "fates": [
            {"tensor": tensor.name, "bytes": tensor.nbytes, "fate": fate.name, **_fields(fate, "module", "reason")}
            for tensor, fate in program.fates.items()
        ],
        "steps": _steps(program, timeline),
        "misfit": None,
    }


def _fields(of: object, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _place(step: Step | None) -> dict[str, Any]:
    """All null before the first step."""
    part = f"{step.part} of {step.parts}" if step and step.parts > 1 else None
    place = {"step": step and step.number, "layer": step and step.layer.name, "direction": step and step.direction}
    return place | {"part": part}


def _chosen(program: Program) -> dict[str, Any] | None:
    if not program.tried:
        return None
    return {"setup": program.setup.name, "tried": [dataclasses.asdict(trial) for trial in program.tried]}


def misfit_json(network: Network, setup: Setup, machine: Machine, budget: int, error: DoesNotFit) -> dict[str, Any]:
    """The document where there is no program: the same fields; those that only a program has are null."""
    document: dict[str, Any] = {name: None for name in FIELDS if "." not in name} | {"seconds": None, "steps": []}
    return document | {
        **_asked(network, setup, machine, budget),
        "fits": False,
        "network_wide_bytes": network_wide_bytes(network),
        "resident_bytes": network.resident_bytes,
        "misfit": {
            "message": str(error),
            **_place(error.step),
            "tensor": error.tensor,
            "asked_bytes": error.asked,
            "free_bytes": error.free,
            "largest_hole_bytes": error.largest_hole,
            "alive_bytes": dict(error.alive),
        },
    }


def _asked(network: Network, setup: Setup, machine: Machine, budget: int) -> dict[str, Any]:
    """The request."""
    return {
        "network": network.name,
        "batch": network.batch,
        "policy": setup.name,
        "machine": machine.name,
        "catalogue": machine.catalogue,
        "budget_bytes": budget,
        "slots": setup.slots,
        **({"opaque": opaque_json(network, machine)} if network.opaque else {}),
    }


def opaque_json(network: Network, machine: Machine) -> dict[str, Any]:
    """The operators without a kernel, and their shares."""
    shares = opaque_shares(network, machine)
    return {"operators": dict(network.opaque), "seconds_share": shares.seconds, "bytes_share": shares.nbytes}


def _steps(program: Program, timeline: Timeline) -> list[dict[str, Any]]:
    algorithms = {call: choice.algorithm for call, choice in choices(program).items()}
    return [
        {
            **_place(row.step),
            **_fields(row, "live_bytes", "live_tensors", "pool_bytes", "workspace_bytes"),
            "start": start,
            "end": end,
            "calls": [{"kernel": call.function, "algorithm": algorithms.get(call)} for call in row.step.calls],
        }
        for row, (start, end) in zip(program.rows, step_times(program, timeline), strict=True)
    ]
