"""Attention and a block of GPT-2 beside PyTorch's, on the CPU at hand: `refimpl bench --attention`.

PyTorch has two paths for attention: *math*, which multiplies, takes the softmax, and keeps the probabilities for
backward; and *fused*, which keeps nothing and computes them again, as ours does.  Forward and backward are measured
together.  The block is GPT-2's at its real width, between a table of 256 words and a head of as many, imported from a
PyTorch module: both train from the same weights on one window, ours by the algorithms that a profile of its calls
measures as the fastest.  All is processor time, of all threads together, the
least of turns within one run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from kernels.fast import attention
from kernels.targets.cpu.threads import thread_count
from kernels.targets.launch import bind
from refimpl.backend import Trainer
from refimpl.machine.devices import Cpu
from refimpl.machine.here import load_average
from refimpl.machine.measure import measure
from refimpl.machine.measured_profile import as_machine
from refimpl.machine.timing import Run, by, least_in_turns, replay
from refimpl.memory import UNLIMITED
from refimpl.names.networks import from_torch
from refimpl.names.presets import setup
from refimpl.planner import plan
from refimpl.report.tables import Table
from refimpl.studies.bench import written
from refimpl.studies.bench.kernels import PAUSE
from refimpl.studies.bench.written import verdict, versions
from refimpl.text import counted

HEADS, WIDTH = 12, 64  #: of ViT-B, BERT and GPT-2
WORDS, TOKENS = 256, 1024  #: of the block's table; of its window
MATH, FUSED, MODULE = "math", "fused", "a module"
ASKED = {MATH: 1.5, FUSED: 3.0, MODULE: 1.3}  #: the largest ratio to its processor time


class AttentionSizes(NamedTuple):
    """Of a layer of attention."""

    name: str
    images: int
    tokens: int
    causal: bool


SIZES = (
    AttentionSizes("ViT", 4, 197, False),
    AttentionSizes("BERT", 2, 512, False),
    AttentionSizes("GPT-2", 1, 1024, True),
)
ROUNDS = len(SIZES) + 1  #: how often `run` calls its watch


@dataclass(frozen=True)
class BesideTorch:
    """One computation; processor seconds."""

    what: str
    path: str  #: a key of ASKED
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


@dataclass(kw_only=True)
class AttentionReport(written.Report):
    """Attention by both paths, and the block."""

    title: ClassVar[str] = "Attention and a block beside PyTorch"
    option: ClassVar[str] = "attention"
    page: ClassVar[str] = "docs/speed.md"

    threads: int
    turns: int
    rows: list[BesideTorch]

    @property
    def how(self) -> str:
        return f"Processor time on {counted(self.threads, 'thread')}, the least of {counted(self.turns, 'turn')}."

    def tables(self) -> list[Table]:
        """Every computation, with what was asked of the ratio."""
        head = ["what", "PyTorch by", "ours, ms", "PyTorch, ms", "ratio", "at most", ""]
        body = [
            [
                row.what, row.path, f"{1e3 * row.ours:.1f}", f"{1e3 * row.theirs:.1f}", f"{row.ratio:.2f}",
                f"{ASKED[row.path]:g}", verdict(row.ratio <= ASKED[row.path]),
            ]
            for row in self.rows
        ]  # fmt: skip
        return [Table("attention and a block", head, body)]


def least_processor_seconds(runs: Mapping[str, Run], turns: int) -> dict[str, float]:
    """Of each run, in turns, after other threads have gone to sleep."""
    for run in runs.values():
        run()

    def rested(run: Run, times: int) -> float:
        time.sleep(PAUSE)
        return by(time.process_time)(run, times)

    return least_in_turns(runs, rested, turns)


def of_attention(size: AttentionSizes, turns: int) -> list[BesideTorch]:
    """Forward and backward, beside both paths."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    draw = np.random.default_rng(0).standard_normal
    shape = size.images, 3 * HEADS * WIDTH, size.tokens, 1
    how: dict[str, Any] = {"heads": HEADS, "causal": size.causal}
    x, dx = draw(shape, np.float32), np.empty(shape, np.float32)
    made = size.images, HEADS * WIDTH, size.tokens, 1
    y, dy = np.empty(made, np.float32), draw(made, np.float32)
    spaces = [np.empty(attention.workspace_bytes(one, [shape], **how) // 4, np.float32) for one in attention.MATRICES]
    launches = [
        *bind(attention.forward, [x], y, **how, workspace=spaces[0]),
        *bind(attention.backward, [x], dy, [dx], **how, workspace=spaces[1]),
    ]
    rows = torch.tensor(draw((4, size.images, HEADS, size.tokens, WIDTH), np.float32))
    given, gradient = [one.clone().requires_grad_() for one in rows[:3]], rows[3]

    def theirs(path: Any) -> None:
        with sdpa_kernel(path):
            seen = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=size.causal)
            torch.autograd.grad(seen, given, gradient)

    runs: dict[str, Run] = {"ours": replay(launches)}
    runs |= {MATH: partial(theirs, SDPBackend.MATH), FUSED: partial(theirs, SDPBackend.FLASH_ATTENTION)}
    found = least_processor_seconds(runs, turns)
    mask = ", causal" if size.causal else ""
    what = f"attention of {size.name}, {size.images}×{HEADS}×{size.tokens}×{WIDTH}{mask}"
    return [BesideTorch(what, path, found["ours"], found[path]) for path in (MATH, FUSED)]


def gpt_of_one_block() -> Any:
    """A PyTorch module: words and places, a block of GPT-2, a normalisation and a head."""
    import torch
    from torch import nn

    width = HEADS * WIDTH

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            parts = self.qkv(self.norm1(x)).split(width, 2)
            q, k, v = (one.unflatten(2, (HEADS, -1)).transpose(1, 2) for one in parts)
            seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).flatten(2))
            return x + self.narrow(nn.functional.gelu(self.widen(self.norm2(x)), approximate="tanh"))

    class OneBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, width), nn.Parameter(0.02 * torch.randn(TOKENS, width))
            self.block, self.norm = Block(), nn.LayerNorm(width)
            self.head = nn.Linear(width, WORDS, bias=False)

        def forward(self, x: Any) -> Any:
            return self.head(self.norm(self.block(self.words(x) + self.places)))

    torch.manual_seed(0)
    return OneBlock()


def of_block(turns: int) -> BesideTorch:
    """An iteration of training with one window, by gradient descent with momentum."""
    import torch

    module = gpt_of_one_block()
    words, wanted = (
        torch.randint(WORDS, (1, TOKENS), generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)
    )
    network = from_torch(module, words)
    program = plan(network, setup("baseline"), as_machine(measure(network, Cpu(), 2, 2.0)), UNLIMITED)
    optimiser = torch.optim.SGD(module.parameters(), lr=1e-4, momentum=0.9)
    losses: dict[str, float] = {}

    def theirs() -> None:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(words).flatten(0, 1), wanted.flatten())
        loss.backward()
        optimiser.step()
        losses["theirs"] = float(loss.detach())

    with Trainer(program, "cpu", rate=1e-4) as trainer:
        given = [one.numpy().astype(np.int32) for one in (words, wanted)]

        def ours() -> None:
            losses["ours"] = trainer.step(*given)

        found = least_processor_seconds({"ours": ours, "theirs": theirs}, turns)
    assert abs(losses["ours"] - losses["theirs"]) <= 1e-4 * losses["theirs"], losses
    what = f"a block of GPT-2, 1×{TOKENS}×{HEADS * WIDTH}, an iteration"
    return BesideTorch(what, MODULE, found["ours"], found["theirs"])


def run(quick: bool, watch: Callable[[str], None]) -> AttentionReport:
    """Measure everything; `watch` is called with each one's name before it starts."""
    import torch

    turns = 5 if quick else 20
    load, before = load_average(), torch.get_num_threads()
    torch.set_num_threads(thread_count())
    rows: list[BesideTorch] = []
    try:
        for size in SIZES:
            watch(size.name)
            rows += of_attention(size, turns)
        watch("a block")
        rows.append(of_block(turns))
    finally:
        torch.set_num_threads(before)
    used = versions("numba", "numpy", "torch")
    return AttentionReport(versions=used, load=load, threads=thread_count(), turns=turns, rows=rows)
