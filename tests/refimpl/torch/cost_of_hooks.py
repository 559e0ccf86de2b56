"""What a plan's hooks cost: processor time of forward and backward beside plain PyTorch's, in turns.

    python -m tests.refimpl.torch.cost_of_hooks           # measures, and writes the table on the page

Each way trains by turns, and has its least time of all rounds.  *Hooks* are without copies (what is offloaded stays
where it is) and without the time of what runs again; *all* is with both.  The tiny chain is nearly all Python.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import nn
from torch.nn import functional

import refimpl
from refimpl.report.markdown import markdown_table, put_between
from refimpl.torch import Planned, Transfers
from refimpl.torch.running_again import NodeCalls
from refimpl.torch.transfers import storage_bytes
from tests.refimpl.torch.trained_modules import program_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "in_pytorch-evidence.md"
POLICIES = ("baseline", "vdnn-all", "superneurons")


class Block(nn.Module):
    """Of a language model as Llama's: norms of root mean squares, rotated positions, shared keys, a gated unit."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.q, self.kv = nn.Linear(width, width, False), nn.Linear(width, width, False)
        self.out, self.down = nn.Linear(width, width, False), nn.Linear(3 * width, width, False)
        self.gate, self.up = nn.Linear(width, 3 * width, False), nn.Linear(width, 3 * width, False)

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        y = self.norms[0](x)
        parts = self.q(y), *self.kv(y).chunk(2, -1)
        q, k, v = (one.unflatten(-1, (-1, x.shape[-1] // 4)).transpose(1, 2) for one in parts)
        q, k = (one * cos + torch.cat([-one.chunk(2, -1)[1], one.chunk(2, -1)[0]], -1) * sin for one in (q, k))
        k, v = (one.repeat_interleave(2, 1) for one in (k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class LanguageModel(nn.Module):
    def __init__(self, width: int, tokens: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(512, width), nn.Linear(width, 512, False)
        self.blocks = nn.ModuleList(Block(width) for _ in range(6))
        self.register_buffer("angle", torch.rand(tokens, width // 4))

    def forward(self, words: Any) -> Any:
        x, cos, sin = self.embedding(words), self.angle.cos(), self.angle.sin()
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(x)


def chain(channels: int) -> Any:
    parts: list[Any] = []
    for _ in range(20):
        parts += [nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts)


class Measured(NamedTuple):
    """A case: what is made of its module and inputs, the rounds, and the ratio that is asked of its hooks."""

    name: str
    made: Callable[[], tuple[Any, Any]]
    rounds: int
    asked: float | None = None


CASES = (
    Measured("language model, 96 channels, 8 × 64", lambda: (LanguageModel(96, 64), words(64)), 40, 1.15),
    Measured("chain of 60, about 1 ms a layer", lambda: (chain(32), torch.randn(8, 32, 28, 28)), 20, 1.05),
    Measured("chain of 60, tiny", lambda: (chain(8), torch.randn(2, 8, 4, 4)), 150),
)


def words(tokens: int) -> Any:
    return torch.randint(0, 512, (8, tokens))


class Staying(Transfers):
    """Copies nothing."""

    def out(self, storage: Any, device: Any) -> tuple[Any, Any]:
        return storage, None

    def back(self, host: Any, device: Any) -> tuple[Any, Any]:
        return storage_bytes(host, device), None


class Clock:
    """Adds up the processor time of what runs again, inner calls counted once."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0

    def again(self, calls: Any, asked: Any, run: Any = NodeCalls.again) -> Any:
        self._depth += 1
        start = time.process_time()
        try:
            return run(calls, asked)
        finally:
            self._depth -= 1
            self.seconds += 0 if self._depth else time.process_time() - start


def rows_of(case: Measured) -> list[list[str]]:
    torch.manual_seed(0)
    module, x = case.made()
    network = refimpl.networks.from_torch(module.train(), x, keeps="pytorch-cpu")
    programs = [program_of(network, policy) for policy in POLICIES]
    models = [module, *(Planned(module, one, transfers=made()) for one in programs for made in (Staying, Transfers))]
    clock, least, working = Clock(), [float("inf")] * len(models), [float("inf")] * len(models)
    for number in range(case.rounds + 3):  # the first ones are new to a plan
        for place, model in enumerate(models):
            clock.seconds, start = 0.0, time.process_time()
            with patch.object(NodeCalls, "again", lambda calls, asked: clock.again(calls, asked)):
                module.zero_grad()
                model(x).sum().backward()
            taken = time.process_time() - start
            if number > 2:
                least[place], working[place] = min(least[place], taken), min(working[place], taken - clock.seconds)
    rows = []
    for place, policy in enumerate(POLICIES):
        hooks, whole = working[2 * place + 1] / least[0], least[2 * place + 2] / least[0]
        asked = "" if case.asked is None else f"{case.asked}: {'met' if hooks <= case.asked else 'missed'}"
        name = "" if place else f"{case.name}: {least[0] * 1e3:.1f} ms"
        rows.append([name, policy, f"{hooks:.3f}", asked, f"{whole:.2f}"])
        print(*rows[-1], sep=" | ", flush=True)
    return rows


def main() -> None:
    torch.set_num_threads(1)
    libc = ctypes.CDLL(None)  # it shall keep what is freed, as PyTorch's allocator on a GPU does
    libc.mallopt(-1, 1 << 30)
    libc.mallopt(-3, 1 << 25)
    head = ["case: plain PyTorch", "policy", "hooks", "asked", "all"]
    table = markdown_table(head, [row for case in CASES for row in rows_of(case)])
    PAGE.write_text(put_between(PAGE.read_text(encoding="utf-8"), "cost of hooks", table), encoding="utf-8")


if __name__ == "__main__":
    main()
