"""What the hooks cost: processor time of a planned module beside plain PyTorch, in turns.

    python -m tests.refimpl.torch.cost_of_hooks           # measures, and writes the table on the page

A chain of convolutions, batch normalisations and ReLUs in place trains on images so small that nearly all of the time
is Python's and the dispatcher's: what a node costs.  The same chain trains on images with which plain PyTorch takes a
millisecond a layer, forward and backward: what share of the time that is.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import nn

import refimpl
from refimpl.report.markdown import markdown_table, put_between
from refimpl.torch import Planned, Transfers
from refimpl.torch.running_again import NodeRun
from tests.refimpl.torch.trained_modules import program_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "in_pytorch-evidence.md"
POLICIES = ("baseline", "vdnn-all", "superneurons", "accudnn")
BLOCKS = 20
TINY, LAYER = (2, 8, 4), (8, 32, 28)  #: images, channels, height and width; with the second a layer takes about 1 ms
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  #: of the C library's `mallopt`
MICROSECONDS, RATIO = 50.0, 1.05  #: asked


class HooksCost(NamedTuple):
    """Of one policy.  Seconds of processor time, of one iteration."""

    policy: str
    nodes: int
    plain: float
    planned: float
    work: float  #: of it copies, and what runs again

    @property
    def a_node(self) -> float:
        """Microseconds of the hooks."""
        return (self.planned - self.work - self.plain) / self.nodes * 1e6

    @property
    def ratio(self) -> float:
        """Of the time without copies and without what runs again."""
        return (self.planned - self.work) / self.plain


class CallTimer:
    """Adds up the processor time of calls, inner ones counted once."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            self._depth += 1
            start = time.process_time()
            try:
                return call(*given)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.process_time() - start

        return run


def chain(channels: int) -> Any:
    parts: list[Any] = []
    for _ in range(BLOCKS):
        parts += [nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts)


def in_turns(runs: list[Callable[[], Any]], rounds: int, clock: CallTimer) -> list[tuple[float, float]]:
    """The median of each one's processor time, and of the clock's; a round runs all, so that all meet the same load."""
    found: list[list[tuple[float, float]]] = [[] for _ in runs]
    for number in range(rounds + 2):
        for place, run in enumerate(runs):
            clock.seconds, start = 0.0, time.process_time()
            run()
            if number > 1:
                found[place].append((time.process_time() - start, clock.seconds))
    return [(median(whole for whole, _ in each), median(work for _, work in each)) for each in found]


def costs(shape: tuple[int, int, int], rounds: int, policies: tuple[str, ...] = POLICIES) -> list[HooksCost]:
    images, channels, side = shape
    torch.manual_seed(0)
    module, x = chain(channels).train(), torch.randn(images, channels, side, side)
    network = refimpl.networks.from_torch(module, x, keeps="pytorch-cpu")
    models = [module, *(Planned(module, program_of(network, policy)) for policy in policies)]
    clock = CallTimer()

    def iteration(model: Any) -> Callable[[], Any]:
        def run() -> None:
            module.zero_grad()
            model(x).sum().backward()

        return run

    with patch.object(Transfers, "out", clock.timed(Transfers.out)), \
            patch.object(Transfers, "back", clock.timed(Transfers.back)), \
            patch.object(NodeRun, "again", clock.timed(NodeRun.again)):  # fmt: skip
        (plain, _), *planned = in_turns([iteration(model) for model in models], rounds, clock)
    nodes = len(network.layers) - 1  # without the loss
    return [HooksCost(policy, nodes, plain, *its) for policy, its in zip(policies, planned, strict=True)]


def page(tiny: list[HooksCost], layers: list[HooksCost]) -> str:
    """Both measurements in Markdown."""
    head = ["policy", "hooks, a node", "asked", "ratio", "asked", "with copies and what runs again"]
    cells = []
    for one, other in zip(tiny, layers, strict=True):
        row = [one.policy, f"{one.a_node:.0f} µs", met(one.a_node, MICROSECONDS, f"{MICROSECONDS:.0f} µs")]
        row += [f"{other.ratio:.3f}", met(other.ratio, RATIO, f"{RATIO}"), f"{other.planned / other.plain:.3f}"]
        cells.append(row)
    node, layer = tiny[0].plain / tiny[0].nodes * 1e6, layers[0].plain / layers[0].nodes * 1e3
    said = f"Plain PyTorch takes {node:.0f} µs a node on the tiny images, and {layer:.1f} ms a layer on the others."
    return f"{said}\n\n{markdown_table(head, cells)}"


def met(found: float, asked: float, text: str) -> str:
    return f"{text}: {'met' if found <= asked else 'missed'}"


def keep_freed_memory() -> None:
    """Have the C library keep what is freed, as PyTorch's allocator on a GPU does: new pages cost more than hooks."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 25)


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    made = page(costs(TINY, 100), costs(LAYER, 12))
    print(made)
    PAGE.write_text(put_between(PAGE.read_text(encoding="utf-8"), "cost of hooks", made), encoding="utf-8")


if __name__ == "__main__":
    main()
