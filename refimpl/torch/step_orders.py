"""What a plan orders before and after each step, for the nodes of a module: the operators that it calls.

A plan knows layers.  A layer's forward step is the first node that has its numbers; its backward step is the node of
autograd that belongs to it.  A step without a node (the loss, say) leaves its orders to the next one that has a node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from refimpl.torch.planned_error import PlannedError

FORMAT = "refimpl decisions 2"
VERBS = ("offload", "release", "free", "prefetch", "recompute")

Order = tuple[str, str]  #: a verb and a map


class Orders(NamedTuple):
    """Of one step."""

    before: tuple[Order, ...] = ()
    after: tuple[Order, ...] = ()


class NodeOrders(NamedTuple):
    """Of one node: all that a plan says of it."""

    maps: tuple[str, ...] = ()  #: of its layer, the output first, then what else its backward reads
    is_dropped: bool = False  #: whether any of these is computed again
    forward: Orders | None = None
    backward: Orders | None = None


class StepOrders:
    """A plan, read: what happens to which map, and at which node."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.plan = found
        layers = found["layers"]
        self.recomputed = {name for name, one in found["maps"].items() if one["recomputed"]}
        self.bytes = {name: one["bytes"] for name, one in found["maps"].items()}
        its_forward: dict[str, Orders] = {}  #: node → its step's
        its_backward: dict[str, Orders] = {}
        self.end: tuple[Order, ...] = ()  #: what is left at the end of forward
        nodes: dict[str, str] = {}  #: layer → its first node
        for node, layer in found["nodes"].items():
            nodes.setdefault(layer, node)
        outputs = {maps[0] for maps in layers.values() if maps}
        ends = ("before", "after")
        read = [(step, *(_orders(step.get(end, ()), outputs) for end in ends)) for step in found["steps"]]
        #: Maps that are let go; what autograd holds of the others ends with the node that read it, as in plain PyTorch.
        self.ordered = {name for _, *its in read for verb, name in sum(its, ()) if verb not in ("release", "free")}
        waiting: list[Order] = []
        turned = False
        for step, *its in read:
            forward = step["pass"] == "forward"
            if not forward and not turned:
                turned, self.end, waiting = True, tuple(waiting), []
            before, after = (tuple(order for order in orders if order[1] in self.ordered) for orders in its)
            if step["layer"] in nodes:
                there = its_forward if forward else its_backward
                there[nodes[step["layer"]]] = Orders((*waiting, *before), after)
                waiting = []
            else:
                waiting += [*before, *after]
        self.of: dict[str, NodeOrders] = {}  #: by the nodes that are part of a layer
        for node, layer in found["nodes"].items():
            if layer in layers:
                maps = tuple(layers[layer])
                is_dropped = not self.recomputed.isdisjoint(maps)
                self.of[node] = NodeOrders(maps, is_dropped, its_forward.get(node), its_backward.get(node))


def _orders(listed: Any, outputs: set[str]) -> tuple[Order, ...]:
    """Outputs are recomputed first: statistics that a layer makes beside are there then."""
    found = [(str(verb), str(name)) for verb, name in listed]
    unknown = [verb for verb, _ in found if verb not in VERBS]
    if unknown:
        raise PlannedError(f"the plan has an order {unknown[0]!r}; this version knows {', '.join(VERBS)}")
    runs = [(verb, [*run]) for verb, run in groupby(found, lambda order: order[0])]
    return tuple(
        order for verb, run in runs
        for order in (sorted(run, key=lambda order: order[1] not in outputs) if verb == "recompute" else run)
    )  # fmt: skip


def read_plan(plan: Any) -> StepOrders:
    """A plan from a program, from `program.decisions()`, or from a JSON file with them."""
    if hasattr(plan, "decisions"):
        plan = plan.decisions()
    if isinstance(plan, str | Path):
        try:
            plan = json.loads(Path(plan).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise PlannedError(f"{plan} is no file of decisions ({type(error).__name__}): {error}") from None
    if not isinstance(plan, Mapping) or plan.get("format") != FORMAT:
        raise PlannedError(
            f"a plan is a program, its decisions() or a file of them ({FORMAT}); got {type(plan).__name__}"
        )
    if not plan["nodes"]:
        raise PlannedError(
            f"the plan is for {plan['network']}, which is no PyTorch module's: plan refimpl.networks.from_torch(...)"
        )
    return StepOrders(plan)
