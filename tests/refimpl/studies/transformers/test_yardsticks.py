"""Yardsticks: blocks are found by structure, and recomputed to the last bit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import refimpl
from refimpl.machine import MACHINES
from refimpl.names.presets import setup
from refimpl.network import Builder, Network
from refimpl.planner import Context
from refimpl.studies.transformers.block_bytes import block_maps, probabilities, units
from refimpl.studies.transformers.yardsticks import PER_BLOCK, YARDSTICKS, blocks, inside, passages
from tests.refimpl.backend.running import differing, plain_training, trained

MACHINE = MACHINES["titan-x"].with_catalogue("own")


def block(b: Builder, before: bool, gated: bool = False) -> None:
    """Attention and a wide part, normalised before each or after it."""
    x = b.last
    if before:
        b.layernorm()
    b.conv(24, 1)
    b.attention(2, causal=True)
    b.conv(8, 1)
    x = b.join(b.last, x)
    normed = b.layernorm()
    around = x if before else normed
    if gated:
        gate = b.silu(after=b.conv(32, 1))
        b.mul(b.conv(32, 1, after=normed), gate)
    else:
        b.conv(32, 1)
        b.gelu()
    b.conv(8, 1)
    b.join(b.last, around)
    if not before:
        b.layernorm()


def small_gpt(blocks: int = 3, before: bool = True, gated: bool = False, batch: int = 4) -> Network:
    b = Builder("small-gpt", (batch, 16), dtype="int32")
    b.embedding(11, 8)
    b.position()
    for _ in range(blocks):
        block(b, before, gated)
    b.layernorm()
    b.conv(11, 1, name="head")
    b.pixel_softmax()
    return b.build()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("gated", [True, False])
def test_a_block_begins_where_a_branch_with_attention_leaves(before: bool, gated: bool) -> None:
    network = small_gpt(3, before, gated)
    found = blocks(network)
    assert len(found) == 3 and all(sum(layer.kind == "attention" for layer in one.layers) == 1 for one in found)
    assert found[0].before.kind == "position"
    for one, following in pairwise(found):
        assert one.layers[-1] is following.before
        assert following.before.kind == ("join" if before else "layernorm")
    assert found[-1].layers[-1].kind == "join"


def test_without_attention_each_branch_is_a_block_and_without_branches_there_is_none() -> None:
    resnet = refimpl.networks.build("tiny-resnet", 4)
    assert [one.layers[-1].kind for one in blocks(resnet)] == ["relu", "relu", "relu", "join"]
    chain = refimpl.networks.build("tiny-vgg", 4)
    assert blocks(chain) == [] and passages(chain.layers) == chain.layers
    assert block_maps(chain) == [] and units(chain) == 0


def test_a_block_has_16_units_and_a_gated_one_more() -> None:
    """Layer normalisations 2, queries, keys and values 3, attention 1, sums 2, the wide part 2 × 4."""
    for before in (True, False):
        maps = block_maps(small_gpt(before=before))
        assert sum(one.units for one in maps) == 16
        assert {one.made_by: one.units for one in maps}["gelu"] == 4
        assert {(one.made_by, one.read_by): one.units for one in maps}["conv", ("attention",)] == 3
    assert units(small_gpt(gated=True)) == 16 + 4 + 4
    assert units(small_gpt(batch=8)) == 16


def test_each_blocks_input_is_kept_and_the_rest_dropped() -> None:
    network = small_gpt()
    dropped = PER_BLOCK.bind(Context(network, MACHINE)).drops()
    found = blocks(network)
    for one in found:
        assert one.before.outputs[0] not in dropped
        assert {layer.y for layer in one.layers if layer.kind in ("gelu", "attention")} <= set(dropped)
    inner = {x for one in found for x in inside(one)}
    assert set(dropped) <= inner
    assert network.layers[-2].x not in dropped, "the head is no block"


@pytest.mark.parametrize("before", [True, False])
def test_a_program_per_block_is_safe_and_smaller_and_runs_each_block_again_once(before: bool) -> None:
    network = small_gpt(6, before, batch=16)
    whole, again = (
        refimpl.plan(network, setup(YARDSTICKS[name]), MACHINE) for name in ("everything kept", "per block")
    )
    for program in (whole, again):
        program.verify()
    assert again.peak_bytes < 0.6 * whole.peak_bytes
    longest = max(len(one.layers) for one in blocks(network))
    assert 6 * (longest - 4) <= again.counts.recomputed_layers <= 6 * longest
    assert again.counts.offloaded_bytes == whole.counts.recomputed_layers == 0


def test_of_a_module_whose_norm_widens_its_input_the_input_is_kept_not_the_wide_copy() -> None:
    torch: Any = pytest.importorskip("torch")

    class Normed(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            y = x.float()
            return (y * y.pow(2).mean(-1, keepdim=True).rsqrt()).to(x.dtype)

    class Residual(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv, self.out = Normed(), torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
            return x + self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v))

    module = torch.nn.Sequential(torch.nn.Embedding(11, 8), *(Residual() for _ in range(6)), Normed()).bfloat16()
    network = refimpl.networks.from_torch(module, torch.zeros(4, 16, dtype=torch.int64), keeps="pytorch")
    assert [one.layers[-1].kind for one in blocks(network)] == ["join"] * 6, "the last norm is outside"
    program = refimpl.plan(network, setup(YARDSTICKS["per block"]), MACHINE)
    program.verify()
    one = 4 * 16 * 8 * 2  #: bytes of a block's input
    last = 2 * one + 4 * 16 * 4  #: of the last norm: its float32 input and what it multiplies that by
    assert program.decisions()["predicted"]["held"] == 6 * one + last


def test_probabilities_would_be_heads_times_tokens_over_channels_units() -> None:
    found = probabilities(small_gpt(batch=4), MACHINE)
    assert found is not None and found.units == 2 * 16 / 8 and found.nbytes == 4 * 4 * 2 * 16 * 16
    assert found.copy_seconds == sum(MACHINE.copy_seconds(found.nbytes, way) for way in ("out", "in"))
    assert found.forward_seconds > 0
    assert probabilities(refimpl.networks.build("tiny-resnet", 4), MACHINE) is None


@pytest.mark.slow
@pytest.mark.parametrize("yardstick", ["attention again", "per block"])
def test_training_by_a_yardstick_gives_the_same_bits(yardstick: str) -> None:
    network = small_gpt(2)
    program = refimpl.plan(network, setup(YARDSTICKS[yardstick]), MACHINE)
    assert program.counts.recomputed_layers
    assert differing(trained(program, 2)[1], plain_training(program, 2)) == []
