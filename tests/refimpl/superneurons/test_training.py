"""Training under SuperNeurons' presets, and with vDNN's modules beside: the bits of plain training.

A plan in the least memory is proved safe and trains to the state of the network run plainly, with the algorithms that
the program chose; running statistics included.  A dropout layer keeps no mask: it is drawn again from seed, layer and
iteration, in backward and in a rebuild alike; the outputs of rebuilds are compared too.
Drawn networks and setups: `tests/refimpl/test_executor.py` and `tests/refimpl/backend/test_properties.py`.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refimpl import superneurons, vdnn
from refimpl.backend import CopiesLate, Trainer
from refimpl.machine import Machine
from refimpl.names import presets
from refimpl.names.modules import module
from refimpl.names.networks import build
from refimpl.network import Builder, Network, Tensor
from refimpl.planner import Launch, Program, Setup
from tests.matrix import diagonal
from tests.refimpl.backend.running import MACHINE, Arrays, differing, plain_training, trained, trainer
from tests.refimpl.backend.running import chosen as chosen_by
from tests.refimpl.modules import least_plan, machine
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.superneurons

ITERATIONS = 2
SLOW_LINK = machine(1e8)  # a copy takes as long as many steps
WAYS = ("speed-centric", "memory-centric", "cost-aware")


def wanted(preset: str, **named: str) -> Setup:
    made = presets.setup(preset, named)
    assert isinstance(made, Setup)
    return made


SETUPS = {
    "liveness": wanted("superneurons-liveness"),
    "offload of all checkpoints": wanted("superneurons-offload", offload="superneurons-all-checkpoints"),
    "recompute, cost-aware": wanted("superneurons-recompute", recompute="cost-aware"),
    "all, memory-centric": wanted("superneurons", recompute="memory-centric"),
}

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


def holds(network: Network, wanted: Setup, on: Machine = MACHINE) -> Program:
    """A safe program in the least memory, trained late copies last: bytes that must not be read hold poison."""
    program = least_plan(network, wanted, on)
    program.verify()
    losses, state = trained(program, ITERATIONS, order=CopiesLate(), poison=True)
    expected = plainly(program)
    assert differing(state, expected) == []
    assert losses[-1] == float(np.mean(expected["losses"], dtype=np.float64))
    return program


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


@pytest.mark.parametrize(("way", "window", "join"), [
    (superneurons.SPEED_CENTRIC, vdnn.LITERAL, False), (superneurons.MEMORY_CENTRIC, superneurons.Ahead(1), False),
    (superneurons.COST_AWARE, vdnn.WINDOW, True),
])  # fmt: skip
def test_both_papers_modules_at_work_in_one_program(way: Any, window: Any, join: bool) -> None:
    """vDNN's offload sends maps away, SuperNeurons' cache evicts others, cheap layers run again: all at once."""
    wanted = presets.setup("superneurons").replace(recompute=way, offload=vdnn.ALL, prefetch=window, join=join)
    program = holds(chain(), wanted, SLOW_LINK)
    counts = program.counts
    assert counts.offloaded_bytes and counts.evicted_bytes and counts.recomputed_layers
    assert counts.prefetched_bytes + counts.on_demand_bytes
    assert {fate.module for fate in program.fates.values()} >= {way.name, vdnn.ALL.name}


# -- the presets on chosen networks ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("convention", "name"),
    diagonal(["", ":superneurons"], ["tiny-resnet", "tiny-inception", "lenet", "tiny-vgg"]),
)
def test_the_teaching_networks_under_every_preset(convention: str, name: str) -> None:
    network = build(name + convention, batch=2)
    for label, setup in SETUPS.items():
        program = holds(network, setup)
        assert bool(program.counts.recomputed_layers) == (setup.recompute.name != "none"), label


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
    program = holds(conv_dropout_conv(), wanted(preset, recompute=way), SLOW_LINK)
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
