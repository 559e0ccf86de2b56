"""vDNN++'s pinned memory (§4): which maps are compressed, what they take, and how little pinned memory is left.

Marks as in the docs: P published abstract, S the authors' public code, C calculated by our port of it, R ours.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refimpl.machine.gpus import MACHINES
from refimpl.memory.tiers import pinned_size
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.network import VDNN, Builder, Network, Tensor
from refimpl.planner import Context, CopyIn, CopyOut, DoesNotFit, Program, Setup, plan
from refimpl.planner.instructions import FromStore, ToStore
from refimpl.slots.errors import PinnedDoesNotFit
from refimpl.studies.reproduce.vdnnpp.published import DENSITIES_PER_CENT, KEPT_MIB, RAW_MIB
from refimpl.vdnnpp import Compressed, OnDemand
from refimpl.vdnnpp.compression import never_negative, stored_bytes
from refimpl.vdnnpp.packing import packed_limit
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import OffloadSome, least_plan, machine, setups
from tests.refimpl.modules import setup as plain_setup
from tests.refimpl.plainly import SETTINGS, draw_batch, new_state, run_plainly

pytestmark = pytest.mark.vdnnpp

MIB = 1 << 20
GTX_970, TITAN_X = MACHINES["gtx-970"], MACHINES["titan-x"]
VGG = tuple(share / 100 for share in DENSITIES_PER_CENT["vgg16"])
PLENTY = 1 << 44

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


# -- which maps --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(relaxed, max_examples=12)
@given(st.one_of(networks(layers=14), networks(layers=14).map(lambda network: network.leaner("lean"))))
def test_no_map_that_would_be_compressed_is_negative(network: Network) -> None:
    """On numbers: every map as it is after an iteration, but for what backward writes over."""
    images, labels = draw_batch(network)
    arrays = run_plainly(network, new_state(network), images, labels, SETTINGS)
    changed = {t for s in network.steps[network.depth :] for t in (*s.writes, *s.updates)}
    for tensor in never_negative(network) - changed:
        assert (arrays[tensor.name] >= 0).all(), tensor


def test_a_map_is_compressed_only_between_its_relu_and_backward() -> None:
    """The ReLU works in place: what the convolution writes may be negative, and so may a gradient in its place."""
    b = Builder("in place", (2, 3, 8, 8), VDNN)
    conv = b.conv(4, 3, pad=1)
    relu = b.relu()
    b.fc(3)
    b.softmax()
    network = b.build()
    assert relu.y is conv.y
    buffers = Compressed().bind(Context(network, GTX_970))
    compressed = [buffers.bytes_in_store(conv.y, step) is not None for step in network.steps]
    assert compressed == [relu.forward.number <= step.number <= network.depth for step in network.steps]


@pytest.mark.slow
@settings(relaxed, max_examples=15)
@given(networks(layers=10), setups, st.sampled_from((1e6, 1e8, 1e10)), st.sampled_from((None, 4096)))
def test_only_what_cannot_be_negative_is_ever_compressed(
    network: Network, drawn: Setup, link: float, limit: int | None
) -> None:
    """Nor before its ReLU has run, nor once a gradient is in its place: a cache may push it out then."""
    try:
        program = least_plan(network, drawn.replace(pinned=Compressed(limit=limit)), machine(link))
    except PinnedDoesNotFit:
        return
    last_writes = {t: s.number for s in network.steps[: network.depth] for t in (*s.writes, *s.updates)}
    left: dict[Tensor, int] = {}
    for it in program.instructions:
        if isinstance(it, CopyOut):
            left[it.tensor] = it.step
        elif isinstance(it, ToStore):
            assert it.tensor in never_negative(network)
            assert last_writes[it.tensor] <= left[it.tensor] <= network.depth


# -- what they take ----------------------------------------------------------------------------------------------------


def slots_one_by_one(numbers: list[bool]) -> int:
    """The authors' count (S), slot by slot, on the map itself: true where a number is not zero."""
    worker = -(-len(numbers) // 8)
    slot = -(-worker // 8)
    taken = 0
    for first in range(0, len(numbers), worker):
        room = 0
        for there in numbers[first : first + worker]:
            if there:
                if not room:
                    taken, room = taken + 1, slot
                room -= 1
    return taken * slot * 4 + 4 * -(-len(numbers) // 32)


@given(st.integers(1, 40).map(lambda n: 64 * n), st.integers(0, 8), st.integers(0, 2**32 - 1))
def test_bytes_stored_are_the_authors_slots(numbers: int, eighths: int, seed: int) -> None:
    """Spread evenly: every worker has the same share, in whole numbers."""
    part = np.zeros(numbers // 8, bool)
    part[: len(part) * eighths // 8] = True
    np.random.default_rng(seed).shuffle(part)
    assert stored_bytes(numbers, eighths / 8) == slots_one_by_one([*part] * 8)


def vgg(batch: int = 16) -> Program:
    """As the authors measure it."""
    chosen = setup("vdnnpp-conv").replace(pinned=Compressed(densities=VGG))
    return plan(build("vgg16:vdnnpp", batch), chosen, GTX_970, PLENTY)


def test_vgg16s_conv_set_keeps_213_of_545_mib() -> None:
    """C: with the authors' densities, of the outputs of layers 0 to 17; x(0), the input, stays as it is."""
    program = vgg()
    network = program.network
    left = [it.tensor for it in program.instructions if isinstance(it, CopyOut) and it.why == "offload"]
    assert len(left) == 12 and network.input not in left
    moved = sum(tensor.nbytes for tensor in left)
    assert moved / MIB == pytest.approx(RAW_MIB, abs=0.05)
    densities = Compressed(densities=VGG).density_of(network)
    stored = sum(stored_bytes(tensor.nbytes // 4, densities[tensor]) for tensor in left)
    assert stored / MIB == pytest.approx(204.6, abs=0.05)
    assert (stored + network.input.nbytes) / MIB == pytest.approx(KEPT_MIB, abs=0.05)
    compressed = {it.tensor: it.planned for it in program.instructions if isinstance(it, ToStore)}
    assert all(compressed[tensor] == stored_bytes(tensor.nbytes // 4, densities[tensor]) for tensor in compressed)
    assert program.counts.stored_bytes == sum(compressed.values())
    assert program.counts.compressed_bytes == sum(tensor.nbytes for tensor in compressed)


# -- pinned memory -----------------------------------------------------------------------------------------------------


def pinned_for_maps(program: Program) -> int:
    return program.pinned_bytes - sum(pinned_size(tensor.nbytes) for tensor in program.pinned)


def test_least_pinned_memory() -> None:
    """The largest map is enough where all that leaves is compressed, one buffer a map where nothing is."""
    chosen = plain_setup(offload=OffloadSome(), join=True)
    network = build("tiny-vgg:vdnnpp", 4)

    def planned(module: Any) -> Program:
        return plan(network, chosen.replace(pinned=module), machine(), 1 << 26)

    least = {}
    for module in (OnDemand, Compressed):
        low, high = 0, planned(module()).pinned_bytes
        while high - low > 512:
            middle = (low + high) // 2 // 512 * 512
            try:
                program = planned(module(limit=middle))
            except PinnedDoesNotFit:
                low = middle
            else:
                program.verify()
                assert pinned_for_maps(program) <= middle
                high = middle
        least[module] = high
    moved = [it.tensor for it in planned(OnDemand()).instructions if it.op == "copy out" and it.why == "offload"]
    assert least[OnDemand] == sum(pinned_size(tensor.nbytes) for tensor in moved)
    assert least[Compressed] == max(pinned_size(tensor.nbytes) for tensor in moved)


@pytest.mark.slow
def test_the_pinned_arena_is_never_exceeded() -> None:
    """Drawn networks, caches, rebuilds, budgets, speeds and limits: every address below the limit, everything right."""
    fits: Counter[bool] = Counter()

    @settings(relaxed, max_examples=20)
    @given(
        networks(layers=10), setups, st.sampled_from((0.0, 0.3)), st.sampled_from((1e6, 1e9)),
        st.sampled_from((1e6, 1e9)), st.sampled_from((1024, 2048, 8192)), st.booleans(),
    )  # fmt: skip
    def hold(network: Network, drawn: Setup, tight: float, link: float, rate: float, limit: int, barrier: bool) -> None:
        on = dataclasses.replace(machine(link), host_rate=rate)
        for module in (OnDemand(limit=limit), Compressed(limit=limit)):
            try:
                program = least_plan(network, drawn.replace(pinned=module, barrier=barrier), on, tight)
            except DoesNotFit as misfit:
                assert isinstance(misfit, PinnedDoesNotFit) and misfit.budget == limit
                fits[False] += 1
                continue
            fits[True] += 1
            program.verify()
            assert pinned_for_maps(program) <= limit
            for it in program.instructions:
                if isinstance(it, (CopyIn, CopyOut, ToStore, FromStore)):
                    assert it.pinned_address + it.nbytes <= program.pinned_bytes
                if isinstance(it, (ToStore, FromStore)):
                    assert it.store_address + packed_limit(it.nbytes) <= program.store_bytes

    hold()
    assert fits[True] > 10 and fits[False] > 0
