"""Training under SuperNeurons' presets that recompute: the bits of plain training, and of each rebuilt map.

A plan in the least memory is proved safe and trains to the state of the network run plainly, with the algorithms that
the program chose; running statistics included.  A dropout layer keeps no mask: it is drawn again from seed, layer and
iteration, in backward and in a rebuild alike; the outputs of rebuilds are compared too.
Drawn networks and setups: `tests/refimpl/test_executor.py` and `tests/refimpl/backend/test_properties.py`.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import numpy as np
import pytest

from refimpl.backend import CopiesLate
from refimpl.machine import Machine
from refimpl.names import presets
from refimpl.network import Builder, Network, Tensor
from refimpl.planner import Launch, Program, Setup
from tests.refimpl.backend.running import MACHINE, differing, plain_training, trained, trainer
from tests.refimpl.modules import least_plan, machine
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.superneurons

ITERATIONS = 2
SLOW_LINK = machine(1e8)  # a copy takes as long as many steps
WAYS = ("speed-centric", "cost-aware")


def wanted(preset: str, **named: str) -> Setup:
    made = presets.setup(preset, named)
    assert isinstance(made, Setup)
    return made


def holds(network: Network, wanted: Setup, on: Machine = MACHINE) -> Program:
    """A safe program in the least memory, trained late copies last: bytes that must not be read hold poison."""
    program = least_plan(network, wanted, on)
    program.verify()
    losses, state = trained(program, ITERATIONS, order=CopiesLate(), poison=True)
    expected = plain_training(program, ITERATIONS)
    assert differing(state, expected) == []
    assert losses[-1] == float(np.mean(expected["losses"], dtype=np.float64))
    return program


# -- the presets on chosen networks ------------------------------------------------------------------------------------


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
@pytest.mark.parametrize("preset", ["superneurons"])
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
