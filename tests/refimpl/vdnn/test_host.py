"""vDNN on the host: one pinned buffer for every offloaded map, fixed before the first iteration."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.memory.tiers import pinned_size
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import CopyIn, CopyOut, Program, plan
from refimpl.vdnn import ALL, CONV, OffloadInputs, static
from tests.refimpl.drawn_networks import networks

pytestmark = pytest.mark.vdnn

TITAN_X = MACHINES["titan-x"]


def buffers(program: Program) -> dict[str, tuple[int, int]]:
    """Map → first and last address of its pinned buffer, of which it has one."""
    found: dict[str, set[tuple[int, int]]] = {}
    for i in program.instructions:
        if isinstance(i, (CopyIn, CopyOut)):
            found.setdefault(i.tensor.name, set()).add((i.pinned_address, i.pinned_address + i.nbytes))
    assert all(len(places) == 1 for places in found.values()), "a map's buffer is the same all along"
    return {name: place for name, (place,) in found.items()}


@pytest.mark.slow
@given(networks(layers=12))
def test_every_map_has_a_buffer_that_no_other_touches(network: Network) -> None:
    program = plan(network, static("test", ALL), TITAN_X, UNLIMITED)
    found = buffers(program)
    offloaded = {x.name for x, fate in program.fates.items() if fate.name == "offload"}
    assert offloaded <= found.keys()
    for (_, end), (start, _) in pairwise(sorted(found.values())):
        assert end <= start
    assert max(end for _, end in found.values()) <= program.pinned_bytes


@pytest.mark.parametrize(("offload", "gib"), [(ALL, 14.355), (CONV, 8.518)], ids=("all", "conv"))
def test_pinned_memory_is_what_is_offloaded_the_batch_and_the_results(offload: OffloadInputs, gib: float) -> None:
    """VGG-16(256): all (m) has 14.5 GiB of pinned memory, of which the batch is 0.14."""
    network = build("vgg16", 256)
    program = plan(network, static("test", offload), TITAN_X, UNLIMITED)
    maps = [x for x, fate in program.fates.items() if fate.name == "offload" and x is not network.input]
    assert sum(x.nbytes for x in maps) == program.counts.offloaded_bytes
    assert program.counts.offloaded_bytes / 2**30 == pytest.approx(gib, abs=0.001)
    others = {network.input, network.labels, network.losses}
    assert others == set(program.pinned)
    assert program.pinned_bytes == sum(pinned_size(x.nbytes) for x in (*maps, *others))


def test_the_batch_is_uploaded_again_and_never_copied_out() -> None:
    network = build("vgg16", 64)
    program = plan(network, static("test", ALL), TITAN_X, UNLIMITED)
    copies = [i for i in program.instructions if isinstance(i, (CopyIn, CopyOut)) and i.tensor is network.input]
    assert [type(i) for i in copies] == [CopyIn, CopyIn] and [i.why for i in copies] == ["batch", "prefetch"]
