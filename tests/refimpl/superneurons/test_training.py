"""Whatever the network, preset, budget and order: training under SuperNeurons comes to the bits of plain training.

Plainly means run without any planning, with the algorithms that the program chose.  Compared is all that stays between
iterations, running statistics included.  A dropout layer keeps no mask: it is drawn again from seed, layer and
iteration, in backward and in a rebuild alike; what a rebuild puts out is looked at too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl import superneurons
from refimpl.backend import CopiesEarly, CopiesLate, Drawn, Order, ProgramOrder, Trainer
from refimpl.network import Builder, Network, Tensor
from refimpl.network.zoo import build
from refimpl.planner import CopyIn, CopyOut, Launch, Program, Setup
from refimpl.registry import presets
from refimpl.registry.modules import module
from tests.refimpl.backend.running import MACHINE, Arrays, differing, plain_training, trainer
from tests.refimpl.backend.running import chosen as chosen_by
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan, machine
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.superneurons

ITERATIONS = 2
SLOW_LINK = machine(1e8)  # a copy takes as long as many steps
WAYS = ("speed-centric", "memory-centric", "cost-aware")
ALGORITHMS = ("memory", "performance", "superneurons-dynamic")


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

drawn_setups = st.builds(
    lambda name, algorithms: SETUPS[name].replace(algorithms=module("algorithms", algorithms)),
    st.sampled_from(sorted(SETUPS)),
    st.sampled_from(ALGORITHMS),
)
#: Shares above the least budget: nothing to spare, a little, so much that hardly anything moves.
tightness = st.sampled_from((0.0, 0.1, 0.4, 1.5))
orders: st.SearchStrategy[Order] = st.one_of(
    st.builds(ProgramOrder), st.builds(CopiesEarly), st.builds(CopiesLate), st.builds(Drawn, st.integers(0, 99))
)


def holds(network: Network, chosen: Setup, spare: float, order: Order, slow: bool) -> Program:
    """Everything that is promised of one program."""
    program = least_plan(network, chosen, SLOW_LINK if slow else MACHINE, spare)
    program.verify()
    counts_are_those_of_the_instructions(program)
    with trainer(program, order=order, poison=True) as made:
        pinned = made.device.pinned
        where, nbytes = pinned.ctypes.data, pinned.nbytes
        losses = [made.step(*draw_batch(network, i)) for i in range(ITERATIONS)]
        assert made.device.pinned is pinned and (pinned.ctypes.data, pinned.nbytes) == (where, nbytes)
        assert made.recounted_peak == program.peak_bytes <= program.arena_bytes <= program.budget
        state = made.state()
    expected = plainly(program)
    assert differing(state, expected) == []
    assert losses[-1] == float(np.mean(expected["losses"], dtype=np.float64))
    return program


_known: dict[Any, Arrays] = {}  #: what plain training came to, by network and algorithms: presets share it


def plainly(program: Program) -> Arrays:
    """The state after plain training with the program's algorithms."""
    algorithm = chosen_by(program)
    key = program.network, *(algorithm(call) for step in program.network.steps for call in step.calls if call.choosable)
    if key not in _known:
        if len(_known) > 4:
            _known.clear()
        _known[key] = plain_training(program, ITERATIONS)
    return _known[key]


def counts_are_those_of_the_instructions(program: Program) -> None:
    """What moved and what was made again, counted anew; the input batch is never copied out."""
    out: Counter[Tensor] = Counter()
    back: Counter[Tensor] = Counter()
    steps: Counter[str] = Counter()
    for i in program.instructions:
        if isinstance(i, CopyOut) and i.why != "result":
            out[i.tensor] += i.nbytes
        elif isinstance(i, CopyIn) and i.tensor not in program.pinned:
            back[i.tensor] += i.nbytes
        elif isinstance(i, Launch) and i.rebuild:
            steps[i.call.function] += 1
    counts = program.counts
    assert out.total() == counts.offloaded_bytes + counts.evicted_bytes
    assert back.total() == counts.prefetched_bytes + counts.on_demand_bytes
    assert not out.keys() & set(program.pinned)
    assert bool(steps) == bool(counts.recomputed_layers)
    assert "batchnorm.update_running" not in steps
    if isinstance(program.setup.cache, superneurons.LeastRecentlyUsed):
        assert counts.offloaded_bytes == 0


@given(networks(layers=10), drawn_setups, tightness, orders, st.booleans())
@settings(max_examples=25)
def test_no_bit_changes(network: Network, chosen: Setup, spare: float, order: Order, slow: bool) -> None:
    holds(network, chosen, spare, order, slow)


@pytest.mark.slow
@given(networks(layers=30, side=8), drawn_setups, tightness, orders, st.booleans())
@settings(max_examples=8)
def test_deep_networks_too(network: Network, chosen: Setup, spare: float, order: Order, slow: bool) -> None:
    holds(network, chosen, spare, order, slow)


#: For a second look at the networks whose layers all have maps of their own.
SOME = ("offload of all checkpoints", "recompute, cost-aware", "all, memory-centric")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet", "tiny-vgg", "tiny-resnet", "tiny-inception"])
@pytest.mark.parametrize(("convention", "labels"), [("", tuple(SETUPS)), (":superneurons", SOME)], ids=["vdnn", "own"])
def test_the_teaching_networks_under_every_preset(name: str, convention: str, labels: tuple[str, ...]) -> None:
    network = build(name + convention, batch=2)
    for label in labels:
        program = holds(network, SETUPS[label], 0.0, CopiesLate(), slow=False)
        assert bool(program.counts.recomputed_layers) == (SETUPS[label].recompute.name != "none"), label


def conv_dropout_conv() -> Network:
    """Dropout and batch normalisation alone in a segment, and behind one another."""
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
    """Dropout and batch normalisation run again, and put out what they had put out, to the last bit."""
    program = holds(conv_dropout_conv(), wanted(preset, recompute=way), 0.0, CopiesLate(), slow=True)
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


def test_the_cache_moves_only_what_must_move() -> None:
    """From the least budget up: evictions, fewer of them, none."""
    network = build("tiny-resnet:superneurons", batch=2)
    programs = [holds(network, SETUPS["all, cost-aware"], spare, CopiesLate(), slow=True) for spare in (0.0, 0.3, 9.0)]
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
