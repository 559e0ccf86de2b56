"""Training under whatever vDNN's dynamic policy adopts gives the bits of plain training.

Plainly means run without any planning, with the algorithms that the program chose.  Drawn networks under vDNN's static
policies: `tests/refimpl/test_executor.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from refimpl.backend import CopiesLate
from refimpl.names import presets
from refimpl.network import Builder, Network, Tensor
from refimpl.planner import CopyIn, CopyOut, Program, Setup
from tests.refimpl.backend.running import differing, plain_training, trainer
from tests.refimpl.modules import least_plan, machine
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.vdnn

ITERATIONS = 2
SLOW_LINK = machine(1e8)  # a copy takes as long as many steps


def holds(network: Network, policy: Setup, spare: float) -> Program:
    """A safe program near the least memory, trained late copies last: bytes that must not be read hold poison."""
    program = least_plan(network, policy, SLOW_LINK, spare)
    program.verify()
    what_left_came_back(program)
    with trainer(program, order=CopiesLate(), poison=True) as made:
        for i in range(ITERATIONS):
            made.step(*draw_batch(network, i))
        assert made.recounted_peak == program.peak_bytes <= program.arena_bytes <= program.budget
        assert differing(made.state(), plain_training(program, ITERATIONS)) == []
    return program


def what_left_came_back(program: Program) -> None:
    """Counted from the instructions, map by map: out once, in once.  The input batch is never copied out."""
    batch = (program.network.input, program.network.labels)
    out: Counter[Tensor] = Counter()
    back: Counter[Tensor] = Counter()
    for i in program.instructions:
        if isinstance(i, CopyOut) and i.why != "result":
            out[i.tensor] += i.nbytes
        elif isinstance(i, CopyIn) and i.tensor not in batch:
            back[i.tensor] += i.nbytes
    assert out == back == {tensor: tensor.nbytes for tensor in out}
    assert not out.keys() & set(batch)
    assert set(out) == {t for t, fate in program.fates.items() if fate.name == "offload"} - set(batch)
    counts = program.counts
    assert out.total() == counts.offloaded_bytes == counts.prefetched_bytes + counts.on_demand_bytes
    assert counts.evicted_bytes == counts.recomputed_layers == 0


@pytest.mark.slow
def test_all_that_the_dynamic_policy_can_adopt_on_one_network() -> None:
    """From the least budget up: greedy choices first, then everything as fast as it goes; always the same promises."""
    b = Builder("chain", (2, 3, 16, 16))
    for channels in (4, 16, 8):
        b.conv(channels, 3, pad=1)
        b.relu()
    b.pool(2)
    b.conv(16, 3, pad=1)
    b.relu()
    b.fc(3)
    b.softmax()
    network, policy = b.build(), presets.setup("vdnn-dyn")
    programs = [holds(network, policy, spare) for spare in (0.0, 0.02, 0.1, 0.3, 1.5)]
    adopted = {program.setup.name.partition(": ")[2] for program in programs}
    assert {"conv (greedy)", "none (p)"} <= adopted
    assert programs[-1].counts.offloaded_bytes == 0 < programs[0].counts.offloaded_bytes
