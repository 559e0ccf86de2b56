"""A program's decisions about its maps, without addresses, as plain values that JSON can hold.

What carries them out (`refimpl.torch`) has other kernels and another allocator.  It needs to know what happens to
which map, and before or after which step:

    offload    start to copy the map to the host
    release    give its device memory back as soon as a copy that is under way is over
    free       give its device memory back now, after waiting for such a copy
    prefetch   start to copy it back
    recompute  run its layers again

Maps have the names of tensors; steps have the names of layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from refimpl.network import Tensor
from refimpl.planner.instructions import Copy, CopyIn, CopyOut, Free, Launch
from refimpl.slots.errors import SetupError

if TYPE_CHECKING:
    from refimpl.planner.program import Program

FORMAT = "refimpl decisions 2"

When = Literal["before", "after"]  #: of the step's first call that is no recomputation


def decisions(program: Program) -> dict[str, Any]:
    """What `Program.decisions` returns; `docs/in_pytorch.md` explains the fields."""
    network = program.network
    if network.whole:
        raise SetupError(f"{program.setup.name}: PyTorch's autograd has no seams to cut steps at; set seams=no")
    if words := network.conventions.lean:
        raise SetupError(f"{network.name}: PyTorch has no such conventions; leave out :{':'.join(words)}")
    orders: dict[int, dict[str, list[list[str]]]] = {}
    recomputed: set[Tensor] = set()
    for step, when, verb, tensor in _orders(program):
        there = orders.setdefault(step, {"before": [], "after": []})[when]
        order = [verb, tensor.name]
        if verb == "recompute":
            recomputed.add(tensor)
            if order in there and ["free", tensor.name] not in there[there.index(order) :]:
                there.remove(order)  # a layer that overwrites the map runs again, too; the last of them counts
        there.append(order)
    for one in network.steps[network.depth : -1]:
        if not one.calls and one.number in orders:  # no backward runs there: the next step has its orders
            its = orders.pop(one.number)
            following = orders.setdefault(one.number + 1, {"before": [], "after": []})
            following["before"][:0] = [*its["before"], *its["after"]]
    maps = [tensor for tensor in network.managed if tensor.kind == "map"]
    fates = {tensor: program.fates[tensor] for tensor in maps if tensor in program.fates}
    copies = [it for it in program.instructions if isinstance(it, Copy) and it.tensor.kind == "map"]
    return {
        "format": FORMAT,
        "network": network.name,
        #: Whose maps were planned: PyTorch's, or those of this project's own kernels.
        "keeps": "pytorch" if network.conventions.as_pytorch else "own",
        "setup": program.setup.name,
        "machine": program.machine.name,
        "budget": program.budget,
        "resident": program.network.resident_bytes,
        "script": network.script,
        "maps": {
            tensor.name: {
                "bytes": tensor.nbytes,
                "fate": fates[tensor].name if tensor in fates else "",
                "why": f"{fates[tensor].module}: {fates[tensor].reason}" if tensor in fates else "",
                "recomputed": tensor in recomputed,
            }
            for tensor in maps
        },
        "layers": {layer.name: [tensor.name for tensor in layer.outputs] for layer in network.layers},
        "nodes": dict(network.origins),
        "steps": [
            {"layer": step.layer.name, "pass": step.direction}
            | {when: there for when, there in orders.get(step.number, {}).items() if there}
            for step in network.steps
        ],
        "predicted": {
            "held": _held_at_the_turn(program),
            "peak": max(row.transient_bytes for row in program.rows),
            "out": sum(it.nbytes for it in copies if isinstance(it, CopyOut)),
            #: Of gradients, which PyTorch's own training cannot move: then the peak is above the prediction.
            "gradients_out": gradients_out(program),
            "in": sum(it.nbytes for it in copies if isinstance(it, CopyIn)),
            "seconds": program.planned_seconds,
        },
    }


def gradients_out(program: Program) -> int:
    """Bytes of gradients that are copied to the host: of maps and of weights."""
    copies = [it for it in program.instructions if isinstance(it, CopyOut)]
    return sum(it.nbytes for it in copies if it.tensor.kind.endswith(("gradient", "gradient map")))


def _held_at_the_turn(program: Program) -> int:
    """Bytes of the maps that are on the device between forward and backward, by the plan's books."""
    depth = program.network.depth
    live = {
        life.tensor: life.tensor.nbytes
        for life in program.lifetimes()
        if life.tensor.kind == "map"
        and life.allocate.step <= depth
        and (life.free is None or life.free.released > depth)
    }
    return sum(live.values())


def _orders(program: Program) -> Iterator[tuple[int, When, str, Tensor]]:
    """Step, place, verb and map of everything that the program does to a map, in its order."""
    launched: set[int] = set()
    copied: set[Tensor] = set()  #: to the host, since it was last computed
    for it in program.instructions:
        if isinstance(it, Launch):
            if not it.rebuild:
                launched.add(it.step)
                continue
            for tensor in (*it.call.writes, *it.call.updates):
                if tensor.kind == "map":
                    yield it.step, "before", "recompute", tensor
        elif isinstance(it, CopyIn | CopyOut | Free) and it.tensor.kind == "map":
            when: When = "after" if it.step in launched else "before"
            if isinstance(it, Free):
                if it.step != it.released and it.tensor in copied:
                    yield it.released, "after", "release", it.tensor
                yield it.step, when, "free", it.tensor
            else:
                copied.add(it.tensor)
                yield it.step, when, "offload" if isinstance(it, CopyOut) else "prefetch", it.tensor
