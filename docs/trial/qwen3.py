"""Qwen3 in a few lines of PyTorch, as transformers computes it: a decoder of today, in bfloat16.

refimpl torch docs/trial/qwen3.py:make --batch 1 --machine h100 --least
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

WORDS = 151_936


class Norm(nn.Module):
    """Root mean square, in float32."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Any) -> Any:
        y = x.float()
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def turned(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary positions: channel i and i + size / 2 are a pair."""
    one, other = x.chunk(2, -1)
    return x * cos + torch.cat((-other, one), -1) * sin


class Block(nn.Module):
    """Attention whose queries share keys and values, and a gated wide part."""

    def __init__(self, channels: int, wide: int, heads: int, kv: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.norm1, self.norm2, self.norm_q, self.norm_k = (Norm(n) for n in (channels, channels, size, size))
        ends = {
            "q": (channels, heads * size), "k": (channels, kv * size), "v": (channels, kv * size),
            "o": (heads * size, channels), "gate": (channels, wide), "up": (channels, wide), "down": (wide, channels),
        }  # fmt: skip
        for name, (read, made) in ends.items():
            setattr(self, name, nn.Linear(read, made, bias=False))

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        y = self.norm1(x)
        q, k, v = (made(y).unflatten(-1, (-1, self.size)).transpose(1, 2) for made in (self.q, self.k, self.v))
        q, k = turned(self.norm_q(q), cos, sin), turned(self.norm_k(k), cos, sin)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(seen.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Qwen3(nn.Module):
    """The decoder without its head, of which libraries compute the loss in pieces."""

    def __init__(
        self, layers: int, channels: int, wide: int, heads: int, kv: int, size: int, tokens: int,
        words: int = WORDS, shared: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.words = nn.Embedding(words, channels)
        blocks = [Block(channels, wide, heads, kv, size) for _ in range(1 if shared else layers)]
        self.blocks = nn.ModuleList(blocks * (layers // len(blocks)))
        self.norm = Norm(channels)
        self.register_buffer("cos", torch.ones(tokens, size))
        self.register_buffer("sin", torch.ones(tokens, size))

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.norm(x)


def built(*shape: int, **options: Any) -> Qwen3:
    """In bfloat16, with weights that have their place and no values: none is ever touched."""
    with torch.device("meta"):
        module = Qwen3(*shape, **options).bfloat16()
    return module.to_empty(device="cpu")


def make(batch: int, tokens: int = 2048) -> tuple[nn.Module, Any]:
    """Qwen3-0.6B's decoder."""
    return built(28, 1024, 3072, 16, 8, 128, tokens), torch.zeros(batch, tokens, dtype=torch.int64)
