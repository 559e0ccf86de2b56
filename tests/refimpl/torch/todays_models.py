"""Small models of the kinds that people train today, each written as its users write it, with its batch and its loss.

What makes them hard to plan: parts under `no_grad`, an `autograd.Function`, a checkpoint inside, layers left out by
chance, numbers in float32 under autocast, buffers that forward changes, several inputs and outputs.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint

TEXTS, TOKENS, WORDS, WIDTH, HEADS = 8, 64, 256, 96, 4


def sinusoids(times: Any, width: int) -> Any:
    """The embedding of a number: sines and cosines of it."""
    rates = torch.exp(-math.log(10000.0) * torch.arange(width // 2) / (width // 2))
    angles = times[:, None].float() * rates
    return torch.cat([angles.sin(), angles.cos()], -1)


class TimedBlock(nn.Module):
    """A residual block that is told the time."""

    def __init__(self, channels: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, channels), nn.Conv2d(channels, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.drop = nn.Linear(time, outputs), nn.Dropout(0.1)
        self.skip = nn.Conv2d(channels, outputs, 1) if channels != outputs else nn.Identity()

    def forward(self, x: Any, time: Any) -> Any:
        h = self.conv1(functional.silu(self.norm1(x)))
        h = h + self.time(functional.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(self.drop(functional.silu(self.norm2(h))))


class UNet(nn.Module):
    """Predicts the noise of an image, down and up with skips, and attention where the image is smallest."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        sizes, most = [*pairwise((width, width, 2 * width, 4 * width))], 4 * width
        self.width, self.stem = width, nn.Conv2d(3, width, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(width, most), nn.SiLU(), nn.Linear(most, most))
        self.down = nn.ModuleList(TimedBlock(a, b, most) for a, b in sizes)
        self.up = nn.ModuleList(TimedBlock(2 * b, a, most) for a, b in reversed(sizes))
        self.norm, self.attention = nn.GroupNorm(8, most), nn.MultiheadAttention(most, 4, batch_first=True)
        self.end = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x: Any, times: Any) -> Any:
        time, skips = self.time(sinusoids(times, self.width)), []
        x = self.stem(x)
        for block in self.down:
            x = block(x, time)
            skips.append(x)
            x = functional.avg_pool2d(x, 2)
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        x = x + self.attention(tokens, tokens, tokens, need_weights=False)[0].transpose(1, 2).reshape(x.shape)
        for block in self.up:
            x = functional.interpolate(x, scale_factor=2, mode="nearest")
            x = block(torch.cat([x, skips.pop()], 1), time)
        return self.end(x)


class RMSNorm(nn.Module):
    """In float32, whatever autocast says."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        h = x.float()
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * self.weight


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class DecoderBlock(nn.Module):
    """Causal attention with rotary positions, and a gated layer of twice the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, RMSNorm(width), RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down, self.drop = nn.Linear(2 * width, width, bias=False), nn.Dropout(0.1)

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.qkv(self.norm1(x)).chunk(3, -1))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(mixed.transpose(1, 2).flatten(-2)))
        h = self.norm2(x)
        return x + self.drop(self.down(functional.silu(self.gate(h)) * self.up(h)))


class Decoder(nn.Module):
    """A language model whose head is the embedding."""

    def __init__(self, blocks: int = 4) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(WORDS, WIDTH), RMSNorm(WIDTH)
        self.blocks = nn.ModuleList(DecoderBlock(WIDTH, HEADS) for _ in range(blocks))
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, words: Any) -> Any:
        x, half = self.embedding(words), WIDTH // HEADS // 2
        rates = 10000.0 ** (-torch.arange(half) / half)
        angles = (torch.arange(words.shape[1])[:, None] * rates).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return (self.norm(x) @ self.embedding.weight.T).float()


class LoRA(nn.Module):
    """A frozen linear layer, and a low-rank update that learns."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base, self.drop = base, nn.Dropout(0.1)
        self.a, self.b = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Any) -> Any:
        return self.base(x) + 2.0 * self.b(self.a(self.drop(x)))


def lora() -> Any:
    model = Decoder().requires_grad_(False)
    for block in model.blocks:
        for name in ("qkv", "out"):
            setattr(block, name, LoRA(getattr(block, name)))
    return model


class Block(nn.Module):
    """Attention and two layers, each after a layer norm and beside a residual."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, HEADS, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Patches(nn.Module):
    """An image as tokens, with one in front."""

    def __init__(self, size: int = 32, patch: int = 4) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, WIDTH, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, WIDTH))

    def forward(self, images: Any) -> Any:
        tokens = self.cut(images).flatten(2).transpose(1, 2)
        return torch.cat([self.first.expand(len(images), -1, -1), tokens], 1) + self.places


class ViT(nn.Module):
    """Each block is left out with a chance (LayerDrop); the logits are divided by a temperature of the user's."""

    def __init__(self, blocks: int = 6, rate: float = 0.2) -> None:
        super().__init__()
        self.patches, self.blocks = Patches(), nn.ModuleList(Block() for _ in range(blocks))
        self.norm, self.head, self.rate, self.temperature = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10), rate, 2.0

    def forward(self, images: Any) -> Any:
        x = self.patches(images)
        for block in self.blocks:
            if not self.training or random.random() >= self.rate:
                x = block(x)
        return self.head(self.norm(x)[:, 0]) / self.temperature


class Checkpointed(nn.Module):
    """Every block under `torch.utils.checkpoint`, as large models have it."""

    def __init__(self, blocks: int = 4) -> None:
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Any) -> Any:
        x = self.embedding(words)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


class TwoTowers(nn.Module):
    """Images and texts in one space, as CLIP: how alike each image and each text are."""

    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.patches, self.embedding = Patches(), nn.Embedding(WORDS, WIDTH)
        self.seeing, self.reading = (nn.Sequential(*(Block() for _ in range(blocks))) for _ in range(2))
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, images: Any, words: Any) -> Any:
        seen = functional.normalize(self.seeing(self.patches(images))[:, 0], dim=-1)
        read = functional.normalize(self.reading(self.embedding(words)).mean(1), dim=-1)
        return self.scale.exp() * seen @ read.T


class Experts(nn.Module):
    """A layer of four experts: each token goes to two of them, as many as an expert has room for (GShard)."""

    def __init__(self, width: int = WIDTH, experts: int = 4) -> None:
        super().__init__()
        self.experts, self.router = experts, nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 4 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, 4 * width, width) / (4 * width) ** 0.5)

    def forward(self, x: Any) -> tuple[Any, Any]:
        tokens = x.flatten(0, 1)
        room = 2 * len(tokens) // self.experts
        gates = self.router(tokens).softmax(-1)
        best, chosen = gates.topk(2, -1)
        wanted = functional.one_hot(chosen, self.experts)  # token, choice, expert
        place = (wanted.flatten(0, 1).cumsum(0) - 1).view_as(wanted)
        fits = wanted * (place < room)
        seats = functional.one_hot(place.clamp(0, room - 1), room) * fits.unsqueeze(-1)
        weights = (seats * best[:, :, None, None]).sum(1)  # token, expert, seat
        given = torch.einsum("tes,td->esd", (weights > 0).to(x.dtype), tokens)
        made = torch.bmm(functional.gelu(torch.bmm(given, self.up)), self.down)
        balance = self.experts * (gates.mean(0) * wanted[:, 0].float().mean(0)).sum()
        return torch.einsum("tes,esd->td", weights, made).view_as(x), balance


class MixtureOfExperts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.layers = nn.ModuleList(Experts() for _ in range(2))

    def forward(self, words: Any) -> tuple[Any, Any]:
        x, balance = self.embedding(words), 0.0
        for norm, layer in zip(self.norms, self.layers, strict=True):
            made, its = layer(norm(x))
            x, balance = x + made, balance + its
        return self.head(x), balance


class Scan(nn.Module):
    """A selective state-space layer (Mamba's), whose state goes from token to token in a loop."""

    def __init__(self, states: int = 8) -> None:
        super().__init__()
        self.states, self.embedding, self.norm = states, nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)
        self.given, self.conv = nn.Linear(WIDTH, 2 * WIDTH), nn.Conv1d(WIDTH, WIDTH, 4, padding=3, groups=WIDTH)
        self.selects, self.rate = nn.Linear(WIDTH, WIDTH + 2 * states), nn.Parameter(torch.randn(WIDTH, states))
        self.out, self.head, self.drop = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS), nn.Dropout(0.1)

    def forward(self, words: Any) -> Any:
        x = self.embedding(words)
        u, gate = self.given(self.norm(x)).chunk(2, -1)
        u = functional.silu(self.conv(u.transpose(1, 2))[..., : words.shape[1]].transpose(1, 2))
        step, b, c = self.selects(u).split([WIDTH, self.states, self.states], -1)
        step = functional.softplus(step)
        decays = torch.exp(-step.unsqueeze(-1) * functional.softplus(self.rate))
        given = (step * u).unsqueeze(-1) * b.unsqueeze(-2)
        state, made = torch.zeros_like(given[:, 0]), []
        for token in range(words.shape[1]):
            state = decays[:, token] * state + given[:, token]
            made.append((state * c[:, token].unsqueeze(-2)).sum(-1))
        y = torch.stack(made, 1) * functional.silu(gate)
        return self.head(x + self.drop(self.out(y)))


class Recurrent(nn.Module):
    """A tagger: a GRU in both directions, then an LSTM of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 12)
        self.gru = nn.GRU(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.lstm = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, dropout=0.1)

    def forward(self, words: Any) -> Any:
        return self.head(self.lstm(self.gru(self.embedding(words))[0])[0])


def convolved(channels: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


def encoder(width: int = 128) -> nn.Sequential:
    """Images of 32² as vectors."""
    return nn.Sequential(
        convolved(3, 32), convolved(32, 64, 2), convolved(64, 64), convolved(64, 128, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, width),
    )  # fmt: skip


class Detector(nn.Module):
    """Three sizes of maps, each with what was seen at the smaller ones, and heads for classes, boxes and centres."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        sizes = (32, 48, 64, 96)
        self.stem = convolved(3, 32, 2)
        self.stages = nn.ModuleList(nn.Sequential(convolved(a, b, 2), convolved(b, b)) for a, b in pairwise(sizes))
        self.sides = nn.ModuleList(nn.Conv2d(channels, width, 1) for channels in sizes[1:])
        self.tower = nn.Sequential(convolved(width, width), convolved(width, width))
        self.classes, self.boxes, self.centres = (nn.Conv2d(width, n, 3, padding=1) for n in (10, 4, 1))

    def forward(self, images: Any) -> dict[str, Any]:
        x, maps, above = self.stem(images), [], None
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        found = []
        for side, own in zip(reversed(self.sides), reversed(maps), strict=True):
            own = side(own)
            above = own if above is None else own + functional.interpolate(above, size=own.shape[-2:])
            h = self.tower(above)
            found.append([self.classes(h), self.boxes(h).exp(), self.centres(h)])
        joined = (torch.cat([one.flatten(2).transpose(1, 2) for one in its], 1) for its in zip(*found, strict=True))
        return dict(zip(("classes", "boxes", "centres"), joined, strict=True))


def discriminator() -> nn.Sequential:
    """Of a GAN: every layer under `spectral_norm`, whose vectors follow the weights in each forward pass."""
    layers: list[Any] = []
    for channels, outputs in pairwise((3, 32, 64, 128)):
        layers += [spectral_norm(nn.Conv2d(channels, outputs, 4, 2, 1)), nn.LeakyReLU(0.2), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Flatten(), spectral_norm(nn.Linear(128 * 16, 1)))


class FrozenBackbone(nn.Module):
    """What was trained before runs without gradients; a head learns."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = encoder().requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Dropout(0.1), nn.Linear(512, 10))

    def forward(self, images: Any) -> Any:
        with torch.no_grad():
            features = self.backbone(images)
        return self.head(features)


class MoCo(nn.Module):
    """A second encoder follows the first one, and its vectors of earlier batches wait in a queue."""

    def __init__(self, waiting: int = 512) -> None:
        super().__init__()
        self.leads = encoder()
        self.follows = copy.deepcopy(self.leads).requires_grad_(False)
        self.register_buffer("queue", functional.normalize(torch.randn(waiting, 128), dim=-1))

    def forward(self, one: Any, other: Any) -> Any:
        query = functional.normalize(self.leads(one), dim=-1)
        with torch.no_grad():
            for its, leading in zip(self.follows.parameters(), self.leads.parameters(), strict=True):
                its.mul_(0.99).add_(leading, alpha=0.01)
            key = functional.normalize(self.follows(other), dim=-1)
        logits = torch.cat([(query * key).sum(-1, keepdim=True), query @ self.queue.clone().T], 1) / 0.2
        with torch.no_grad():
            self.queue.copy_(torch.cat([key, self.queue])[: len(self.queue)])
        return logits


class Reversed(torch.autograd.Function):  # type: ignore[name-defined,misc]
    """The identity, whose gradient has the other sign."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return -gradients[0]


class GradientReversal(nn.Module):
    """Features that tell classes apart, and not where an image is from."""

    def __init__(self) -> None:
        super().__init__()
        self.features = encoder()
        self.classes, self.domains = (
            nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, n)) for n in (10, 2)
        )

    def forward(self, images: Any) -> tuple[Any, Any]:
        h = self.features(images)
        return self.classes(h), self.domains(Reversed.apply(h))  # type: ignore[no-untyped-call]


class VectorQuantised(nn.Module):
    """An autoencoder with a code book, and a gradient that goes straight through the choice of a code."""

    def __init__(self, width: int = 32, codes: int = 64) -> None:
        super().__init__()
        self.encode = nn.Sequential(convolved(3, 32, 2), convolved(32, 64, 2), nn.Conv2d(64, width, 1))
        self.codes = nn.Embedding(codes, width)
        self.decode = nn.Sequential(
            nn.ConvTranspose2d(width, 64, 4, 2, 1), nn.ReLU(inplace=True), nn.ConvTranspose2d(64, 3, 4, 2, 1)
        )

    def forward(self, images: Any) -> tuple[Any, Any]:
        made = self.encode(images).permute(0, 2, 3, 1)
        chosen = self.codes(torch.cdist(made.flatten(0, 2), self.codes.weight).argmin(-1)).view_as(made)
        own = functional.mse_loss(chosen, made.detach()) + 0.25 * functional.mse_loss(made, chosen.detach())
        straight = made + (chosen - made).detach()
        return self.decode(straight.permute(0, 3, 1, 2)), own


class Case(NamedTuple):
    """A model, a batch, and the loss of what it returns."""

    made: Callable[[], Any]
    batch: Callable[[], tuple[Any, ...]]
    loss: Callable[[Any], Any]
    autocast: str | None = None


def words(tokens: int = TOKENS) -> Any:
    return torch.randint(0, WORDS, (TEXTS, tokens))


def images(count: int = 16, size: int = 32) -> Any:
    return torch.randn(count, 3, size, size)


def texts() -> tuple[Any, ...]:
    return (words(),)


def pictures() -> tuple[Any, ...]:
    return (images(),)


def noisy() -> tuple[Any, ...]:
    """Images, and how much noise they have."""
    return images(4), torch.randint(0, 1000, (4,))


def of_noise(out: Any) -> Any:
    return functional.mse_loss(out, torch.ones_like(out))


def of_classes(out: Any) -> Any:
    """Cross-entropy; any labels do."""
    rows = out.flatten(0, -2)
    return functional.cross_entropy(rows, torch.arange(len(rows)) % rows.shape[-1])


def of_logits(out: Any) -> Any:
    return of_classes(out.logits)


def of_heads(out: Any) -> Any:
    centres = functional.binary_cross_entropy_with_logits(out["centres"], torch.ones_like(out["centres"]))
    return of_classes(out["classes"]) + out["boxes"].log1p().mean() + centres


def hinge(out: Any) -> Any:
    """The first half of the images is real."""
    real, drawn = out.chunk(2)
    return functional.relu(1 - real).mean() + functional.relu(1 + drawn).mean()


def from_transformers(model: str, configuration: str, **options: Any) -> Callable[[], Any]:
    """How a small model of HuggingFace's is made, with weights that are drawn."""

    def made() -> Any:
        transformers = import_module("transformers")
        config = getattr(transformers, configuration)(
            vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=3,
            num_attention_heads=HEADS, max_position_embeddings=TOKENS + 8, **options,
        )  # fmt: skip
        return getattr(transformers, model)(config)

    return made


CASES: Mapping[str, Case] = {
    "diffusion U-Net": Case(UNet, noisy, of_noise),
    "decoder": Case(Decoder, texts, of_classes),
    "decoder, bfloat16": Case(Decoder, texts, of_classes, "bfloat16"),
    "LoRA on a decoder": Case(lora, texts, of_classes),
    "two towers": Case(TwoTowers, lambda: (images(8), words()), lambda out: of_classes(out) + of_classes(out.T)),
    "detector": Case(Detector, lambda: (images(4, 96),), of_heads),
    "mixture of experts": Case(MixtureOfExperts, texts, lambda out: of_classes(out[0]) + 0.01 * out[1]),
    "scan": Case(Scan, lambda: (words(24),), of_classes),
    "discriminator": Case(discriminator, pictures, hinge),
    "frozen backbone": Case(FrozenBackbone, pictures, of_classes),
    "MoCo": Case(MoCo, lambda: (images(), images()), of_classes),
    "gradient reversal": Case(GradientReversal, pictures, lambda out: of_classes(out[0]) + 0.1 * of_classes(out[1])),
    "VQ autoencoder": Case(VectorQuantised, pictures, lambda out: out[0].pow(2).mean() + out[1]),
    "GRU and LSTM": Case(Recurrent, lambda: (words(24),), of_classes),
    "checkpoint inside": Case(Checkpointed, texts, of_classes),
    "ViT with LayerDrop": Case(ViT, pictures, of_classes),
    "RoBERTa": Case(from_transformers("RobertaForMaskedLM", "RobertaConfig"), texts, of_logits),
    "Qwen2": Case(from_transformers("Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2), texts, of_logits),
}
