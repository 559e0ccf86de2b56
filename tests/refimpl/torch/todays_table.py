"""Plans of today's models, beside what PyTorch's own allocator says: bytes held, peak, bits, processor time.

    python -m tests.refimpl.torch.todays_table              # all models, and the table into the page
    python -m tests.refimpl.torch.todays_table scan MoCo    # these, printed only

What is held is counted by the records of the CPU's allocator (`torch.profiler`), which knows nothing of this project:
forward runs, only its graph is kept, and what was given out less what came back is held.  Copies on the host are in
memory of NumPy, which that allocator does not see.  The peak is counted by it and by `Meter`.
"""

from __future__ import annotations

import copy
import random
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves

import refimpl
from refimpl.importing import from_torch
from refimpl.planner import DoesNotFit, Program
from refimpl.report.markdown import markdown_table, paragraph, put_between
from refimpl.torch import Meter, Planned, Transfers
from tests.refimpl.torch.todays_models import CASES, Case
from tests.refimpl.torch.trained_modules import alike

PAGE = Path(__file__).resolve().parents[3] / "docs" / "in_pytorch-evidence.md"
POLICIES = ("baseline", "vdnn-all", "superneurons", "combined, effort=5")
STEPS, ROUNDS = 3, 5
GENERATOR = torch.get_rng_state().nbytes  #: its state is on the host, whatever the device


class HostMemory(Transfers):
    """Copies are in memory that PyTorch's allocator does not know."""

    def host_buffer(self, nbytes: int) -> Any:
        made = torch.from_numpy(np.empty(nbytes, np.uint8)).untyped_storage()
        self.note_host(made)
        return made


class Allocated:
    """Bytes that the CPU's allocator gave out, less those that came back: `now`, and the most at a time, `peak`."""

    now = peak = 0

    @classmethod
    @contextmanager
    def counted(cls) -> Iterator[Allocated]:
        found = cls()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
            yield found
        results = record.profiler.kineto_results  # type: ignore[union-attr]
        events = sorted((one.start_ns(), one.nbytes()) for one in results.events() if one.name() == "[memory]")
        levels = [0, *accumulate(nbytes for _, nbytes in events if abs(nbytes) != GENERATOR)]
        found.now, found.peak = levels[-1], max(levels)


class Training:
    """A case's module, its batch, and what is done with it, always from the same random numbers on."""

    def __init__(self, case: Case) -> None:
        torch.set_num_threads(1)
        seed()
        self.case, self.module, self.batch = case, case.made().train(), case.batch()
        self.state = copy.deepcopy(self.module.state_dict())

    def network(self) -> Any:
        seed()
        return from_torch(
            self.module, self.batch, keeps="pytorch-cpu", autocast=self.case.autocast, outer_loss=self.case.loss
        )

    def forward(self, model: Any) -> Any:
        dtype = getattr(torch, self.case.autocast or "bfloat16")
        with torch.autocast("cpu", dtype, enabled=self.case.autocast is not None):
            return model(*self.batch)

    def iteration(self, model: Any) -> Any:
        """Its loss."""
        loss = self.case.loss(self.forward(model))
        loss.backward()
        return loss.detach()

    def starts(self) -> None:
        """The weights and the random numbers of the beginning."""
        self.module.load_state_dict(self.state)
        self.module.zero_grad()
        seed()

    def steps(self, model: Any, steps: int = STEPS) -> list[Any]:
        """Losses and gradients, and at last the weights and buffers, of these steps of AdamW."""
        self.starts()
        optimiser = torch.optim.AdamW(self.module.parameters(), 1e-3)
        found: list[Any] = []
        for _ in range(steps):
            optimiser.zero_grad()
            found.append(self.iteration(model))
            found += [None if weight.grad is None else weight.grad.clone() for weight in self.module.parameters()]
            optimiser.step()
        return found + [value.clone() for value in self.module.state_dict().values()]

    def held(self, model: Any) -> int:
        """What the allocator has given out for the graph of a forward pass, and for nothing else."""
        self.starts()
        with Allocated.counted() as allocated:
            out = self.forward(model)
            graph = [one.grad_fn for one in tree_leaves(out) if isinstance(one, torch.Tensor)]
            del out
        del graph
        return allocated.now

    def peaks(self, model: Any, transfers: Any = None) -> tuple[int, int]:
        """Of an iteration, by `Meter` and by the allocator."""
        self.starts()
        with Meter((), transfers) as meter:
            self.iteration(model)
        self.starts()
        with Allocated.counted() as allocated:
            self.iteration(model)
        return meter.peak, allocated.peak

    def seconds(self, model: Any) -> float:
        self.starts()
        start = time.process_time()
        self.iteration(model)
        return time.process_time() - start


def seed() -> None:
    torch.manual_seed(0)
    random.seed(3)


class Found(NamedTuple):
    """A plan beside what was counted; bytes without weights."""

    share: float  #: of the peak of plain PyTorch, which is the budget
    plain: dict[str, int]  #: what is predicted of plain PyTorch
    predicted: dict[str, int]
    held: int
    peak: int  #: by `Meter`
    allocated: int  #: the same by the allocator
    is_alike: bool
    ratio: float  #: of processor time

    @property
    def held_off(self) -> float:
        """How far it is from the prediction, as a share of what plain PyTorch holds."""
        return (self.held - self.predicted["held"]) / self.plain["held"]

    @property
    def peak_off(self) -> float:
        return self.peak / self.predicted["peak"] - 1

    @property
    def over(self) -> float:
        """How far the peak is above the budget."""
        return self.peak / (self.share * self.plain["peak"]) - 1


def at_half(network: Any, policy: str) -> tuple[Program, float]:
    """The plan for half of the peak of plain PyTorch, or for the least tenth above that it fits in, and that share."""
    whole = refimpl.plan(network, "baseline", "titan-x", "1000GiB")
    peak = whole.decisions()["predicted"]["peak"]
    for tenths in range(5, 16):
        try:
            return refimpl.plan(network, policy, "titan-x", network.resident_bytes + tenths * peak // 10), tenths / 10
        except DoesNotFit:
            continue
    raise AssertionError(f"{policy} needs more than 1.5 times of what plain PyTorch takes")


def carried_out(case: Case, policies: tuple[str, ...] = POLICIES, rounds: int = ROUNDS) -> Iterator[tuple[str, Found]]:
    """Each policy's plan."""
    training = Training(case)
    network, module = training.network(), training.module
    right = training.steps(module)
    whole = refimpl.plan(network, "baseline", "titan-x", "1000GiB")
    for policy in policies:
        program, share = (whole, 1.0) if policy == "baseline" else at_half(network, policy)
        transfers = HostMemory()
        planned = Planned(module, program, transfers=transfers)
        is_alike = alike(right, training.steps(planned))
        held, peaks = training.held(planned), training.peaks(planned, transfers)
        times = [(training.seconds(module), training.seconds(planned)) for _ in range(rounds)]
        plain, own = (min(one) for one in zip(*times, strict=True)) if times else (1.0, 1.0)
        as_plain, predicted = (one.decisions()["predicted"] for one in (whole, program))
        yield policy, Found(share, as_plain, predicted, held, *peaks, is_alike, own / plain)


def mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.1f} MiB"


def beside(nbytes: int, off: float) -> str:
    """What was counted, and how far it is from a prediction, where that is more than 1 %."""
    return mib(nbytes) if abs(off) <= 0.01 else f"{mib(nbytes)} ({off:+.0%})"


def rows_of(name: str, all_found: list[Found]) -> Iterator[list[str]]:
    """The rows of a model; what was found is added to the list."""
    try:
        for policy, found in carried_out(CASES[name]):
            all_found.append(found)
            yield [
                name, policy, f"{found.share:.0%}", "yes" if found.over <= 0.01 else f"over by {found.over:.0%}",
                "the same" if found.is_alike else "**differ**",
                mib(found.predicted["held"]), beside(found.held, found.held_off),
                mib(found.predicted["peak"]), beside(found.peak, found.peak_off), mib(found.allocated),
                f"{found.ratio:.2f}",
            ]  # fmt: skip
    except ModuleNotFoundError as error:
        yield [name, f"left out: {error}"]
    except (refimpl.RefimplError, AssertionError) as error:
        yield [name, f"refused: {str(error).partition(chr(10))[0]}"]


def page(rows: list[list[str]], found: list[Found]) -> str:
    head = [
        "model", "policy", "budget", "fits", "bits", "held, predicted", "counted", "peak, predicted", "counted",
        "allocated", "processor time",
    ]  # fmt: skip
    counts = {
        "gave the bits of plain PyTorch": [one.is_alike for one in found],
        "held what was predicted": [abs(one.held_off) <= 0.01 for one in found],
        "had the predicted peak": [abs(one.peak_off) <= 0.01 for one in found],
        "stayed within the budget": [one.over <= 0.01 for one in found],
    }
    said = "; ".join(f"{sum(each)} {what}" for what, each in counts.items())
    off = [one.peak_off for one in found]
    text = f"Of {len(found)} plans {said}, each to 1 %. The farthest peaks are {min(off):+.1%} and {max(off):+.1%}."
    before = ["", *(row[0] for row in rows)]  # a model's name is written once
    cells = [["" if name == row[0] else row[0], *row[1:]] for name, row in zip(before, rows, strict=False)]
    return "\n\n".join([paragraph(text), markdown_table(head, [row + [""] * (len(head) - len(row)) for row in cells])])


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    rows: list[list[str]] = []
    found: list[Found] = []
    for name in names or CASES:
        for row in rows_of(name, found):
            print(" | ".join(row), flush=True)
            rows.append(row)
    if not names:
        made = put_between(PAGE.read_text(encoding="utf-8"), "carried out", page(rows, found))
        PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
