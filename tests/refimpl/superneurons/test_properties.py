"""Whatever the network, the techniques, the budget and the order: training comes to the bits of plain training.

SuperNeurons' stages, and its modules mixed with vDNN's and with every allocator: whatever can stand together in a
set-up must plan within its budget, be proved safe, keep its books, and train to the same state as the network run
plainly, and as the baseline, which keeps everything, does with the same algorithms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from refimpl import superneurons, vdnn
from refimpl.backend import CopiesEarly, CopiesLate, Drawn, Order, ProgramOrder
from refimpl.network import Builder, Network
from refimpl.planner import Allocate, CopyIn, CopyOut, Free, Launch, Program, Setup, SetupError, plan
from refimpl.registry import presets
from refimpl.registry.modules import IN_SLOTS, SWITCHES
from refimpl.reproduce.measured import SameAlgorithms
from tests.refimpl.backend.running import MACHINE, differing, plain_training, trained, trainer
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan, machine
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.superneurons

ITERATIONS = 2
MACHINES = (MACHINE, machine(2e9), machine(1e8))  # on the last a copy takes as long as many steps

# -- what is drawn -----------------------------------------------------------------------------------------------------

WAYS = ("speed-centric", "memory-centric", "cost-aware")
ALGORITHMS = ("memory", "performance", "vdnn-greedy", "superneurons-dynamic")

stages = st.one_of(
    st.builds(
        lambda preset, algorithms: presets.setup(preset, {"algorithms": algorithms}),
        st.sampled_from(("superneurons-liveness", "superneurons-offload")),
        st.sampled_from(ALGORITHMS),
    ),
    st.builds(
        lambda preset, way, algorithms: presets.setup(preset, {"recompute": way, "algorithms": algorithms}),
        st.sampled_from(("superneurons-recompute", "superneurons", "superneurons")),
        st.sampled_from(WAYS),
        st.sampled_from(ALGORITHMS),
    ),
)

#: What may stand in a slot: the plain modules, vDNN's and SuperNeurons', and some parameters that have no name.
MODULES = {
    slot: [module for module in known if not module.name.startswith("vdnnpp-")] for slot, known in IN_SLOTS.items()
}
MODULES["prefetch"] += [superneurons.Ahead(distance) for distance in (0, 1, 7)]


@st.composite
def mixtures(draw: Any) -> Setup:
    """Any module in any slot, as long as they can stand together; two in three with the cache."""
    modules = {slot: draw(st.sampled_from(known)) for slot, known in MODULES.items()}
    if draw(st.integers(0, 2)):
        modules["cache"] = superneurons.LeastRecentlyUsed()
    switches = {name.replace("-", "_"): draw(st.sampled_from([*known.values()])) for name, known in SWITCHES.items()}
    try:
        return Setup(name="mixture", **modules, **switches)
    except SetupError:
        assume(False)
        raise


#: Shares above the least budget.
tightness = st.sampled_from((0.0, 0.0, 0.02, 0.1, 0.4))
orders: st.SearchStrategy[Order] = st.one_of(
    st.builds(ProgramOrder), st.builds(CopiesEarly), st.builds(CopiesLate), st.builds(Drawn, st.integers(0, 999))
)
machines = st.sampled_from(MACHINES)

# -- what is promised --------------------------------------------------------------------------------------------------


def planned(network: Network, wanted: Setup, spare: float, on: Any) -> Program:
    """What is promised of a program before it has run."""
    program = least_plan(network, wanted, on, spare)
    program.verify()
    assert program.peak_bytes <= program.arena_bytes <= program.budget
    assert program.simulate().seconds == pytest.approx(program.planned_seconds, rel=1e-9, abs=1e-12)
    the_books_balance(program)
    return program


def the_books_balance(program: Program) -> None:
    """Counted again, from the instructions: what moves, what is made again, what is held at the peak."""
    batch = (program.network.input, program.network.labels)
    moved: Counter[str] = Counter()
    blocks: dict[Any, Allocate] = {}
    held = most = 0
    again: set[Any] = set()
    for i in program.instructions:
        if isinstance(i, Allocate):
            assert i.tensor not in blocks
            blocks[i.tensor] = i
            held += i.nbytes
            most = max(most, held)
        elif isinstance(i, Free):
            block = blocks.pop(i.tensor)
            assert (block.address, block.nbytes) == (i.address, i.nbytes) and block.step <= i.released <= i.step
            held -= i.nbytes
        elif isinstance(i, CopyOut) and i.why != "result":
            assert i.tensor not in batch
            moved[i.why] += i.nbytes
        elif isinstance(i, CopyIn) and i.tensor not in batch:
            moved[i.why] += i.nbytes
        elif isinstance(i, Launch) and i.rebuild:
            assert not i.call.once
            again.add((i.step, i.call))
    assert not blocks and held == 0
    counts = program.counts
    expected = {
        "offload": counts.offloaded_bytes, "evicted": counts.evicted_bytes,
        "prefetch": counts.prefetched_bytes, "on demand": counts.on_demand_bytes,
    }  # fmt: skip
    assert moved == {why: nbytes for why, nbytes in expected.items() if nbytes}
    assert bool(again) <= bool(counts.recomputed_layers)
    if not program.fates or all(fate.name != "drop" for fate in program.fates.values()):
        assert counts.recomputed_layers == 0
    resident = program.network.resident
    rounding = program.peak_bytes - most - sum(tensor.nbytes for tensor in resident)
    assert 0 <= rounding < 1024 * len(resident)
    assert all(row.live_bytes <= min(row.transient_bytes, row.pool_bytes) for row in program.rows)


def the_baselines_training(program: Program) -> Mapping[str, np.ndarray]:
    """The state that the preset `baseline` trains to with the algorithms of this program."""
    setup = presets.baseline().replace(algorithms=SameAlgorithms.as_in(program))
    return trained(plan(program.network, setup, program.machine, 1 << 30), ITERATIONS)[1]


def holds(network: Network, wanted: Setup, spare: float, order: Order, on: Any) -> Program:
    """Everything that is promised of one program, run too: bytes that nobody may read hold poison."""
    program = planned(network, wanted, spare, on)
    with trainer(program, order=order, poison=True) as made:
        losses = [made.step(*draw_batch(network, i)) for i in range(ITERATIONS)]
        assert made.recounted_peak == program.peak_bytes
        state = made.state()
    expected = plain_training(program, ITERATIONS)
    assert differing(state, expected) == []
    assert losses[-1] == float(np.mean(expected["losses"], dtype=np.float64))
    return program


# -- the tests ---------------------------------------------------------------------------------------------------------


@given(networks(layers=14), st.one_of(stages, mixtures()), tightness, machines)
@settings(max_examples=60)
def test_every_plan_is_safe_and_its_books_balance(network: Network, wanted: Setup, spare: float, on: Any) -> None:
    planned(network, wanted, spare, on)


@given(networks(layers=12), stages, tightness, orders, machines)
@settings(max_examples=30)
def test_no_stage_changes_a_bit(network: Network, wanted: Setup, spare: float, order: Order, on: Any) -> None:
    holds(network, wanted, spare, order, on)


@given(networks(layers=12), mixtures(), tightness, orders, machines)
@settings(max_examples=40)
def test_no_mixture_changes_a_bit(network: Network, wanted: Setup, spare: float, order: Order, on: Any) -> None:
    holds(network, wanted, spare, order, on)


@given(networks(layers=10), st.one_of(stages, mixtures()), orders)
@settings(max_examples=10)
def test_the_baseline_trains_to_the_same_bits(network: Network, wanted: Setup, order: Order) -> None:
    program = least_plan(network, wanted, MACHINE)
    _, state = trained(program, ITERATIONS, order=order, poison=True)
    assert differing(state, the_baselines_training(program)) == []


@pytest.mark.slow
@given(networks(layers=40, side=8), st.one_of(stages, mixtures()), tightness, orders, machines)
@settings(max_examples=15)
def test_deep_networks_too(network: Network, wanted: Setup, spare: float, order: Order, on: Any) -> None:
    holds(network, wanted, spare, order, on)


def chain() -> Network:
    """Pairs of convolutions, one of which reads what the other put out, and cheap layers behind them."""
    b = Builder("chain", (2, 3, 16, 16))
    for channels in (4, 8, 8):
        b.conv(channels, 3, pad=1)
        b.conv(channels, 3, pad=1)
        b.batchnorm()
        b.relu()
        b.dropout(0.3)
    b.pool(2)
    b.conv(8, 3, pad=1)
    b.relu()
    b.fc(3)
    b.softmax()
    return b.build()


@pytest.mark.parametrize(
    ("window", "join"), [(vdnn.WINDOW, True), (vdnn.LITERAL, False), (superneurons.Ahead(1), False)]
)
@pytest.mark.parametrize("way", [superneurons.SPEED_CENTRIC, superneurons.MEMORY_CENTRIC, superneurons.COST_AWARE])
def test_both_papers_modules_at_work_in_one_program(way: Any, window: Any, join: bool) -> None:
    """vDNN's offload sends maps away, SuperNeurons' cache evicts others, cheap layers run again: all at once."""
    wanted = presets.setup("superneurons").replace(recompute=way, offload=vdnn.ALL, prefetch=window, join=join)
    program = holds(chain(), wanted, 0.0, CopiesLate(), MACHINES[-1])
    counts = program.counts
    assert counts.offloaded_bytes and counts.evicted_bytes and counts.recomputed_layers
    assert counts.prefetched_bytes + counts.on_demand_bytes
    assert {fate.module for fate in program.fates.values()} >= {way.name, vdnn.ALL.name}
