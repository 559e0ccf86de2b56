"""Training under vDNN++'s set-ups, compression included: the same bits as run plainly, within the arenas planned.

The planner's machine is one on which the host's threads keep up with the kernels: only then are maps compressed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.backend import CopiesEarly, CopiesLate, Drawn, LegalOrder, ProgramOrder, Trainer
from refimpl.names import presets
from refimpl.network import Network
from refimpl.network.conventions import VDNNPP
from refimpl.planner import Program, Setup, ToStore
from refimpl.vdnnpp import Compressed
from refimpl.vdnnpp.compression import never_negative
from tests.refimpl.backend.running import MACHINE, differing, plain_training, trainer
from tests.refimpl.drawn_networks import CONVENTIONS, networks
from tests.refimpl.modules import OffloadSome, PrefetchAhead, least_plan, setup
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.vdnnpp

KEEPS_UP = dataclasses.replace(MACHINE, host_rate=1e13, link=1e11, flops=1e9)
SLOW_HOST = dataclasses.replace(MACHINE, host_rate=1e9)  # the threads take as long as many layers
ITERATIONS = 2
GUARD = 4096  #: bytes after each of the host's arenas that must not change
BYTE = 0x5A

#: Only maps after a ReLU are compressed, so there are more of those than elsewhere.
KINDS = ("conv", "conv", "pool", "relu", "relu", "relu", "dropout", "lrn", "batchnorm", "join", "concat")
drawn_networks = st.one_of(
    networks(layers=14, side=8, kinds=KINDS, conventions=VDNNPP),
    st.sampled_from(CONVENTIONS).flatmap(lambda c: networks(layers=12, kinds=KINDS, conventions=c)),
)
orders: st.SearchStrategy[LegalOrder] = st.one_of(
    st.builds(ProgramOrder), st.builds(CopiesEarly), st.builds(CopiesLate), st.builds(Drawn, st.integers(0, 99))
)

PRESETS = ("vdnnpp-all", "vdnnpp-conv", "vdnnpp-alternate-conv")
OTHERS = ("vdnn-all", "vdnn-conv", "superneurons-offload", "superneurons", "superneurons-recompute")


def ours() -> st.SearchStrategy[Setup]:
    static = st.builds(
        lambda name, algorithms: presets.setup(name, {"algorithms": algorithms}),
        st.sampled_from(PRESETS), st.sampled_from(("memory", "performance")),
    )  # fmt: skip
    return st.one_of(static, static, static, st.just(presets.setup("vdnnpp-dyn")))


def mixtures() -> st.SearchStrategy[Setup]:
    """Compressing under other papers' offloads, and under the tests' own, with maps dropped, evicted and fetched."""
    compressed = st.builds(Compressed, density=st.sampled_from((0.1, 0.5, 1.0)))
    theirs = st.sampled_from(OTHERS).map(presets.setup)
    plain = st.builds(
        setup, offload=st.builds(OffloadSome, st.sampled_from((0.6, 1.0)), st.integers(0, 9), st.booleans()),
        prefetch=st.builds(PrefetchAhead, st.integers(0, 5)), join=st.booleans(),
        copy_streams=st.sampled_from(("shared", "separate")),
    )  # fmt: skip
    return st.builds(lambda made, pinned: made.replace(pinned=pinned), st.one_of(theirs, plain), compressed)


def guarded(made: Trainer) -> Iterator[np.ndarray]:
    """Rows of bytes after the pinned arena and the store, put there before the program is made ready again."""
    device: Any = made.device
    for name in ("pinned", "store"):
        old = getattr(device, name)
        larger = np.full(old.size + GUARD, BYTE, np.uint8)
        larger[: old.size] = old
        setattr(device, name, larger[: old.size])
        yield larger[old.size :]
    made.replay = device.replay(made.program, made._settings())


def holds(network: Network, program: Program, order: LegalOrder, poison: bool) -> int:
    """Train, with an eye on everything; the bytes that were compressed in an iteration."""
    with trainer(program, order=order, poison=poison) as made:
        guards = list(guarded(made))
        assert made.device.pinned.size >= program.pinned_bytes
        losses = [made.step(*draw_batch(network, i)) for i in range(ITERATIONS)]
        state, found = made.state(), made.compressed
        assert all((row == BYTE).all() for row in guards)
        assert made.recounted_peak == program.peak_bytes <= program.budget
    expected = plain_training(program, ITERATIONS)
    assert differing(state, expected) == []
    assert losses[-1] == float(np.mean(expected["losses"], dtype=np.float64))
    compressed = [i for i in program.instructions if isinstance(i, ToStore)]
    assert {one.tensor for one in found} == {i.tensor.name for i in compressed}
    assert {i.tensor for i in compressed} <= never_negative(network)
    for one in found:
        assert 0 <= one.density <= 1 and 0 <= one.stored <= one.nbytes + one.nbytes // 32
        assert one.stored >= one.density * one.nbytes
    return program.counts.compressed_bytes


@pytest.mark.slow
def test_compression_changes_no_bit() -> None:
    """In a good share of the programs there is something to compress."""
    compressing = total = 0

    @given(drawn_networks, st.one_of(ours(), mixtures()), st.sampled_from((0.0, 0.3, 1.0)), orders, st.booleans())
    @settings(max_examples=12)
    def train(network: Network, wanted: Setup, tightness: float, order: LegalOrder, slow: bool) -> None:
        nonlocal compressing, total
        program = least_plan(network, wanted, SLOW_HOST if slow else KEEPS_UP, tightness)
        compressing += holds(network, program, order, poison=not slow) > 0
        total += 1

    train()
    assert compressing > total / 12
