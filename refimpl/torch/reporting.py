"""What an iteration held and moved, beside what the plan predicted."""

from __future__ import annotations

from typing import Any

import torch

from refimpl.text import size
from refimpl.torch.planned_error import PlannedError

OWN = (
    "the plan is for this project's own kernels, which keep other maps, and so are its predictions: import the module "
    'with keeps="pytorch"'
)


def measured(planned: Any, meter: Any = None) -> dict[str, int | None]:
    """Bytes of the latest iteration; `peak` is None where nothing has counted it.

    Args:
        planned: after a forward and a backward pass.
        meter: that was entered for both; None: on CUDA PyTorch's own counter.
    """
    last = planned.last
    if last is None:
        raise PlannedError("there is nothing to report: train an iteration first")
    peak = None if meter is None else meter.peak + planned.orders.plan["resident"]
    weight = next(iter(planned.parameters()), None)
    if peak is None and weight is not None and weight.is_cuda:
        peak = torch.cuda.max_memory_allocated(weight.device)
    moved = last.moved()
    return {"held": last.held, "peak": peak, "out": moved[0], "in": moved[1]}


def report(planned: Any, meter: Any = None) -> str:
    """A table: held at the turn from forward to backward, peak, moved; predicted and measured."""
    found, plan = measured(planned, meter), planned.orders.plan
    predicted = plan["predicted"] | {"peak": plan["predicted"]["peak"] + plan["resident"]}
    names = {
        "held": "maps held at the turn", "peak": "peak, weights included", "out": "copied to the host",
        "in": "copied back",
    }  # fmt: skip
    lines = [f"{'':24} {'predicted':>12} {'measured':>12}"]
    for key, name in names.items():
        value = found[key]
        lines.append(f"{name:24} {size(predicted[key]):>12} {'not counted' if value is None else size(value):>12}")
    lines.append(f"{'nodes computed again':24} {'':>12} {planned.last.recomputed:>12}")
    lines += _beside_the_plan(planned)
    if plan.get("keeps", "pytorch") == "own":
        lines.append(OWN)
    if moved := predicted.get("gradients_out", 0):
        lines.append(f"the plan also moves {size(moved)} of gradients, which is not carried out: its peak is too low")
    return "\n".join(lines)


def _beside_the_plan(planned: Any) -> list[str]:
    """What the plan did not know of, in a line each."""
    last, made_by = planned.last, planned.orders.plan["script"].get("torch", torch.__version__)
    differing = {entry.labels[number] if number >= 0 else entry.write: nbytes
                 for entry in last.paths.script for number, nbytes in entry.differs.items()}  # fmt: skip
    named = ", ".join(f"{name} ({size(nbytes)})" for name, nbytes in differing.items())
    its = (
        (last.unplanned, f"{last.unplanned} operators are not in the plan: kept, {size(last.unplanned_bytes)}"),
        (last.kept_bytes, f"held beside the plan, which lets it go: {size(last.kept_bytes)}"),
        (last.compared, f"the first iteration of its kind: {size(last.compared)} were copied to the host and compared"),
        (named, f"kept, since its operators do not compute it again as it was: {named}"),
        (made_by != torch.__version__, f"the plan's script is of PyTorch {made_by}, and this is {torch.__version__}"),
    )
    return [line for is_so, line in its if is_so]
