"""Plans carried out in PyTorch, beside plain PyTorch: bits, bytes held, peak, and processor time.

    python -m tests.refimpl.torch.carried_out              # every row that ROWS lacks, and then the page
    python -m tests.refimpl.torch.carried_out resnet18     # those of one model
    python -m tests.refimpl.torch.carried_out --page       # the page alone, from ROWS

Each model trains on small images or short texts.  A policy plans for the weights, their gradients and half of what
plain PyTorch holds between forward and backward, or for the least share of tenths above that it fits in.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

import refimpl
from refimpl.planner import DoesNotFit, Program
from refimpl.torch import Meter, Planned
from tests.refimpl.importing.torchvision_survey import mib, table
from tests.refimpl.torch.small_models import MODELS, beside
from tests.refimpl.torch.trained_modules import Beside, same

ROOT = Path(__file__).resolve().parents[3]
ROWS = ROOT / "docs" / "measurements" / "in_pytorch.jsonl"
PAGE = ROOT / "docs" / "in_pytorch-evidence.md"
BEGIN, END = "<!-- begin carried out -->\n\n", "\n\n<!-- end carried out -->"
POLICIES = ("vdnn-all", "superneurons", "accudnn", "combined, effort=10")


def at_half(network: Any, policy: str) -> tuple[Program, float]:
    """The plan, and the share of the maps held by plain PyTorch that its budget leaves room for."""
    held = refimpl.plan(network, "baseline", "titan-x", "1000GiB").decisions()["predicted"]["held"]
    gradients = sum(tensor.nbytes for tensor in network.managed if tensor.kind == "weight gradient")
    stays = network.resident_bytes + gradients  # at the end of backward, whatever the plan
    for tenths in range(5, 21):
        try:
            return refimpl.plan(network, policy, "titan-x", int(stays + tenths / 10 * held)), tenths / 10
        except DoesNotFit:
            continue
    raise AssertionError(f"{policy} does not fit in twice what the baseline takes")


def measured(pair: Beside, run: Any, transfers: Any = None) -> dict[str, Any]:
    """Everything about the second of two iterations."""
    seconds = []
    for _ in range(2):
        start = time.process_time()
        bits = pair.iteration(pair.plain, run)
        seconds.append(time.process_time() - start)

    def counted(run: Any) -> Any:
        with Meter((), transfers) as meter:  # gradients of weights count, as they do on a GPU
            loss = pair.loss(run)
            meter.turn()
            loss.backward()
        counted.meter = meter  # type: ignore[attr-defined]
        return loss

    pair.iteration(counted, run)
    meter = counted.meter  # type: ignore[attr-defined]
    return {"bits": bits, "held": meter.held, "peak": meter.peak, "seconds": min(seconds)}


def rows_of(name: str) -> list[dict[str, Any]]:
    pair = beside(name)
    network = refimpl.networks.from_torch(pair.module, pair.x, keeps="pytorch-cpu", outer_loss=pair.loss_of)
    plain = measured(pair, pair.module)
    common = {"model": name, "batch": [*pair.x.shape]}
    made = [common | {"policy": "plain PyTorch", "held": plain["held"], "peak": plain["peak"]}]
    for policy in POLICIES:
        program, share = at_half(network, policy)
        predicted = program.decisions()["predicted"]
        for lean in (False, True) if policy == "superneurons" else (False,):
            run = Planned(pair.module, program, lean=lean)
            found = measured(pair, run, run.transfers)
            assert run.last is not None
            out, back = run.last.moved()
            one = common | {"policy": policy.partition(",")[0] + (", lean" if lean else ""), "share": share}
            one |= {"same_bits": same(plain["bits"], found["bits"]), "held": run.last.held, "peak": found["peak"]}
            one |= {"predicted_held": predicted["held"], "predicted_peak": predicted["peak"], "out": out, "in": back}
            one |= {"recomputed": run.last.table.recomputed}
            made.append(one | {"seconds": round(found["seconds"] / plain["seconds"], 2)})
    return made


def batch_text(shape: list[int]) -> str:
    """Images and their size, or texts and their tokens."""
    return f"{shape[0]} of {shape[-1]}²" if len(shape) == 4 else f"{shape[0]} × {shape[1]} tokens"


def page(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    head = [
        "model", "policy", "share", "bits", "held", "predicted", "peak", "predicted", "copied out", "computed again",
        "processor time",
    ]  # fmt: skip
    cells = []
    for one in rows:
        if "share" not in one:
            first = f"{one['model']}, {batch_text(one['batch'])}"
            cells.append([first, one["policy"], "", "", mib(one["held"]), "", mib(one["peak"]), "", "", "", "1"])
            continue
        row = ["", one["policy"], f"{one['share']:.0%}", "the same" if one["same_bits"] else "**other**"]
        row += [mib(one[name]) for name in ("held", "predicted_held", "peak")]
        row += [mib(one["predicted_peak"]), mib(one["out"]), f"{one['recomputed']}", f"{one['seconds']:.2f}"]
        cells.append(row)
    planned = [one for one in rows if "share" in one]
    held = max(abs(one["held"] / one["predicted_held"] - 1) for one in planned if one["predicted_held"])
    over = [one["peak"] / one["predicted_peak"] - 1 for one in planned]
    alike = sum(one["same_bits"] for one in planned)
    models = len({one["model"] for one in planned})
    return "\n".join(
        [
            f"{alike} of {len(planned)} plans of {models} models gave the bits of plain PyTorch.  The bytes held at "
            f"the turn differ from the prediction by at most {held:.1%}, and the peak by {min(over):+.1%} to "
            f"{max(over):+.1%}.  Processor time is a multiple of plain PyTorch's in the same run, on a shared machine "
            "of two cores.",
            *table(head, cells),
        ]
    )


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    there = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    if arguments != ["--page"]:
        for name in MODELS:
            if name not in {one["model"] for one in there} and (not arguments or name in arguments):
                made = rows_of(name)
                there += made
                with ROWS.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(one) + "\n" for one in made)
                print(page(made), flush=True)
    if PAGE.exists() and there:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}{page(there)}{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
