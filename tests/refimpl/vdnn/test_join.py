"""vDNN's streams: one for kernels and one for all copies, joined at the end of a layer that moved something."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES, Machine, Span
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Program, plan
from refimpl.vdnn import ALL, CONV, OffloadInputs, static
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import machine

pytestmark = pytest.mark.vdnn

TITAN_X = MACHINES["titan-x"]
OFFLOADS = st.sampled_from((ALL, CONV))
LINKS = st.sampled_from((TITAN_X, machine(2e9), machine(1e8)))


@dataclass
class Moments:
    """The kernels of a step and its copies."""

    kernels: list[Span] = field(default_factory=list)
    copies: list[Span] = field(default_factory=list)

    @property
    def compute(self) -> float:
        return sum(span.end - span.start for span in self.kernels)

    @property
    def copying(self) -> float:
        return sum(span.end - span.start for span in self.copies)


def moments(program: Program) -> dict[int, Moments]:
    """Step → its kernels and its copies; the batch's upload and the results' copies left out."""
    found: defaultdict[int, Moments] = defaultdict(Moments)
    for span in program.simulate().spans:
        i = span.instruction
        if i.op == "launch":
            found[i.step].kernels.append(span)
        elif i.why not in ("batch", "result"):  # type: ignore[union-attr]
            found[i.step].copies.append(span)
    return found


def planned(network: Network, offload: OffloadInputs, on: Machine = TITAN_X, join: bool = True) -> Program:
    return plan(network, static("test", offload).replace(join=join), on, UNLIMITED)


@given(networks(layers=12), OFFLOADS, LINKS)
def test_at_most_one_layers_maps_are_in_flight(network: Network, offload: OffloadInputs, on: Machine) -> None:
    """Copies of two layers never overlap: they are on one stream, and a join is between them."""
    program = planned(network, offload, on)
    assert program.streams == ("compute", "memory")
    last = 0.0
    for _, step in sorted(moments(program).items()):
        for span in step.copies:
            assert span.start >= last - 1e-12
        last = max([last, *(span.end for span in step.copies)])


@pytest.mark.parametrize(("name", "batch"), [("alexnet", 128), ("overfeat", 128), ("vgg16", 64), ("vgg116", 32)])
def test_a_layer_that_moves_something_takes_as_long_as_the_longer_of_both(name: str, batch: int) -> None:
    """max(compute, copy), for each forward layer whose neighbour before it was joined too: an identity of the join."""
    program = planned(build(name, batch), ALL)
    found, depth = moments(program), program.network.depth
    layers = [k for k in range(2, depth) if found[k].copies and found[k - 1].copies]
    assert len(layers) > 1
    for k in layers:
        took = found[k + 1].kernels[0].start - found[k].kernels[0].start
        assert took == pytest.approx(max(found[k].compute, found[k].copying), rel=1e-9)
