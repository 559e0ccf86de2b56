"""Whatever the network, the techniques, the budget and the order: training gives the bits of plain training.

SuperNeurons' presets, and its modules mixed with vDNN's and with every allocator.  Every setup that is not refused must
plan within its budget, be proved safe, keep its books, and train to the state of the network run plainly, with the
algorithms that the program chose, and of the baseline, which keeps everything.  Compared is all that stays between
iterations, running statistics included.  A dropout layer keeps no mask: it is drawn again from seed, layer and
iteration, in backward and in a rebuild alike; the outputs of rebuilds are compared too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from refimpl import superneurons, vdnn
from refimpl.backend import CopiesEarly, CopiesLate, Drawn, LegalOrder, ProgramOrder, Trainer
from refimpl.names import presets
from refimpl.names.modules import MODULES, SWITCHES, module
from refimpl.names.networks import build
from refimpl.network import Builder, Network, Tensor
from refimpl.planner import Allocate, CopyIn, CopyOut, Free, Launch, Program, Setup, SetupError, plan
from refimpl.studies.reproduce.measured import SameAlgorithms
from tests.matrix import diagonal
from tests.refimpl.backend.running import MACHINE, Arrays, differing, plain_training, trained, trainer
from tests.refimpl.backend.running import chosen as chosen_by
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan, machine
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.superneurons

ITERATIONS = 2
MACHINES = (MACHINE, machine(2e9), machine(1e8))  # on the last a copy takes as long as many steps

# -- what is drawn -----------------------------------------------------------------------------------------------------

WAYS = ("speed-centric", "memory-centric", "cost-aware")
ALGORITHMS = ("memory", "performance", "vdnn-greedy", "superneurons-dynamic")


def wanted(preset: str, **named: str) -> Setup:
    made = presets.setup(preset, named)
    assert isinstance(made, Setup)
    return made


#: Every preset, with every way to recompute.
SETUPS = {
    "liveness": wanted("superneurons-liveness"),
    "offload": wanted("superneurons-offload"),
    "offload of all checkpoints": wanted("superneurons-offload", offload="superneurons-all-checkpoints"),
    **{f"recompute, {way}": wanted("superneurons-recompute", recompute=way) for way in WAYS},
    **{f"all, {way}": wanted("superneurons", recompute=way) for way in WAYS},
}

stages = st.builds(
    lambda name, algorithms: SETUPS[name].replace(algorithms=module("algorithms", algorithms)),
    st.sampled_from(sorted(SETUPS)),
    st.sampled_from(ALGORITHMS),
)

#: What may be in a slot: the plain modules, vDNN's and SuperNeurons', and some parameters that have no name.
IN_SLOTS = {
    slot: [module for module in known.values() if not module.name.startswith("vdnnpp-")]
    for slot, known in MODULES.items()
}
IN_SLOTS["prefetch"] += [superneurons.Ahead(distance) for distance in (0, 1, 7)]


@st.composite
def mixtures(draw: Any) -> Setup:
    """Any module in any slot, as long as they can work together; two in three with the cache."""
    modules = {slot: draw(st.sampled_from(known)) for slot, known in IN_SLOTS.items()}
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
orders: st.SearchStrategy[LegalOrder] = st.one_of(
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
    """Counted again, from the instructions: what moves, what is recomputed, what is held at the peak."""
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


_known: dict[Any, Arrays] = {}  #: the result of plain training, by network and algorithms: presets share it


def plainly(program: Program) -> Arrays:
    """The state after plain training with the program's algorithms."""
    algorithm = chosen_by(program)
    key = program.network, *(algorithm(call) for step in program.network.steps for call in step.calls if call.choosable)
    if key not in _known:
        if len(_known) > 4:
            _known.clear()
        _known[key] = plain_training(program, ITERATIONS)
    return _known[key]


def the_baselines_training(program: Program) -> Mapping[str, np.ndarray]:
    """The state that the preset `baseline` trains to with the algorithms of this program."""
    setup = presets.baseline().replace(algorithms=SameAlgorithms.as_in(program))
    return trained(plan(program.network, setup, program.machine, 1 << 30), ITERATIONS)[1]


def holds(network: Network, wanted: Setup, spare: float, order: LegalOrder, on: Any) -> Program:
    """Everything that is promised of one program, run too: bytes that must not be read hold poison."""
    program = planned(network, wanted, spare, on)
    with trainer(program, order=order, poison=True) as made:
        pinned = made.device.pinned
        where, nbytes = pinned.ctypes.data, pinned.nbytes
        losses = [made.step(*draw_batch(network, i)) for i in range(ITERATIONS)]
        assert made.device.pinned is pinned and (pinned.ctypes.data, pinned.nbytes) == (where, nbytes)
        assert made.recounted_peak == program.peak_bytes
        state = made.state()
    expected = plainly(program)
    assert differing(state, expected) == []
    assert losses[-1] == float(np.mean(expected["losses"], dtype=np.float64))
    return program


# -- the tests ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(networks(layers=14), st.one_of(stages, mixtures()), tightness, machines)
@settings(max_examples=30)
def test_every_plan_is_safe_and_its_books_balance(network: Network, wanted: Setup, spare: float, on: Any) -> None:
    planned(network, wanted, spare, on)


@pytest.mark.slow
@given(networks(layers=12), stages, tightness, orders, machines)
@settings(max_examples=20)
def test_no_stage_changes_a_bit(network: Network, wanted: Setup, spare: float, order: LegalOrder, on: Any) -> None:
    program = holds(network, wanted, spare, order, on)
    if isinstance(wanted.cache, superneurons.LeastRecentlyUsed):
        assert program.counts.offloaded_bytes == 0, "with the cache, copies are made only when an allocation fails"


@pytest.mark.slow
@given(networks(layers=12), mixtures(), tightness, orders, machines)
@settings(max_examples=20)
def test_no_mixture_changes_a_bit(network: Network, wanted: Setup, spare: float, order: LegalOrder, on: Any) -> None:
    holds(network, wanted, spare, order, on)


@pytest.mark.slow
@given(networks(layers=10), st.one_of(stages, mixtures()), orders)
@settings(max_examples=10)
def test_the_baseline_trains_to_the_same_bits(network: Network, wanted: Setup, order: LegalOrder) -> None:
    program = least_plan(network, wanted, MACHINE)
    _, state = trained(program, ITERATIONS, order=order, poison=True)
    assert differing(state, the_baselines_training(program)) == []


@pytest.mark.matrix  # `make test` draws deep networks for all papers' modules together: tests/refimpl/backend/
@given(networks(layers=40, side=8), st.one_of(stages, mixtures()), tightness, orders, machines)
@settings(max_examples=8)
def test_deep_networks_too(network: Network, wanted: Setup, spare: float, order: LegalOrder, on: Any) -> None:
    holds(network, wanted, spare, order, on)


def chain() -> Network:
    """Pairs of convolutions, one of which reads the other's output, and cheap layers after them."""
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


# -- the presets on chosen networks ------------------------------------------------------------------------------------

#: For a second look at the networks whose layers all have maps of their own.
SOME = ("offload of all checkpoints", "recompute, cost-aware", "all, memory-centric")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("convention", "name"),
    diagonal(["", ":superneurons"], ["tiny-resnet", "tiny-inception", "lenet", "tiny-vgg"]),
)
def test_the_teaching_networks_under_every_preset(convention: str, name: str) -> None:
    network = build(name + convention, batch=2)
    for label in SOME if convention else SETUPS:
        program = holds(network, SETUPS[label], 0.0, CopiesLate(), MACHINE)
        assert bool(program.counts.recomputed_layers) == (SETUPS[label].recompute.name != "none"), label


def conv_dropout_conv() -> Network:
    """Dropout and batch normalisation alone in a segment, and one after the other."""
    b = Builder("masked", (3, 2, 8, 8))
    b.conv(4, 3, pad=1)
    b.batchnorm()
    b.relu()
    b.dropout(0.4)
    b.conv(4, 3, pad=1)
    b.dropout(0.2)
    b.pool(2)
    b.conv(3, 3, pad=1)
    b.batchnorm()
    b.dropout(0.5)
    b.fc(4)
    b.softmax()
    return b.build()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("preset", ["superneurons-recompute", "superneurons"])
def test_rebuilt_masks_and_statistics_are_what_they_were(preset: str, way: str) -> None:
    """Dropout and batch normalisation run again, and write the same output, to the last bit."""
    program = holds(conv_dropout_conv(), wanted(preset, recompute=way), 0.0, CopiesLate(), MACHINES[-1])
    put_out: defaultdict[str, list[bytes]] = defaultdict(list)
    with trainer(program) as made:

        def look(launch: Launch, tensor: Tensor) -> None:
            address = launch.addresses[launch.call.operands.index(tensor)]
            put_out[tensor.name].append(made.device.read(address, tensor.shape, tensor.dtype).tobytes())

        pauses = {
            position: partial(look, i, i.call.writes[0])
            for position, i in enumerate(program.instructions)
            if isinstance(i, Launch) and i.call.function in ("dropout.forward", "batchnorm.forward")
        }
        made.step(*draw_batch(program.network))
        put_out.clear()
        made.replay.issue(pauses)
    assert len(put_out) == 5
    for name, outputs in put_out.items():
        assert len(outputs) > 1 and len(set(outputs)) == 1, name


@pytest.mark.slow
def test_the_cache_moves_only_what_must_move() -> None:
    """From the least budget up: evictions, fewer of them, none."""
    network = build("tiny-resnet:superneurons", batch=2)
    programs = [
        holds(network, SETUPS["all, cost-aware"], spare, CopiesLate(), MACHINES[-1]) for spare in (0.0, 0.3, 9.0)
    ]
    moved = [program.counts.evicted_bytes for program in programs]
    assert moved[0] > moved[1] >= moved[2] == 0


def test_a_checkpoint_goes_on_under_another_preset(tmp_path: Path) -> None:
    """Half the way with everything kept, the rest in the least memory: the state is that of one run."""
    network = build("tiny-inception", batch=2)
    memory = module("algorithms", "memory")  # the same bits want the same algorithms
    programs = [
        least_plan(network, SETUPS[name].replace(algorithms=memory), MACHINE)
        for name in ("liveness", "all, memory-centric")
    ]
    with trainer(programs[0]) as first:
        first.step(*draw_batch(network, 0))
        first.save(tmp_path / "half.npz")
        losses = [first.step(*draw_batch(network, i)) for i in (1, 2)]
        whole = first.state()
    with Trainer(programs[1]) as second:
        second.restore(tmp_path / "half.npz")
        assert [second.step(*draw_batch(network, i)) for i in (1, 2)] == losses
        assert differing(second.state(), whole) == []
