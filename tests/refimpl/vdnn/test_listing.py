"""The planner's programs beside a twin of the paper's listing: the same copies, and as much alive, step by step.

The twin counts references where the planner looks up last uses, so this is the test of vDNN's release, too.
"""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Program, plan
from refimpl.vdnn import ALL, CONV, LITERAL, WINDOW, OffloadInputs, static
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import machine
from tests.refimpl.vdnn.papers_listing import Event, Listing

pytestmark = pytest.mark.vdnn

TITAN_X, SLOW_LINK = MACHINES["titan-x"], machine(1e8)
WINDOWS = {"window": WINDOW, "literal": LITERAL}
ZOO = [
    ("tiny-resnet", 4), ("googlenet", 128), ("tiny-inception:superneurons", 4), ("tiny-resnet:vdnnpp", 4),
]  # fmt: skip


def copies(program: Program) -> list[Event]:
    """Of a program; the batch's upload and the results' copies are not vDNN's."""
    found = []
    for i in program.instructions:
        if i.op == "copy out" and i.why == "offload":
            found.append(Event(i.step, i.tensor.name, "out"))
        elif i.op == "copy in" and i.why != "batch":
            found.append(Event(i.step, i.tensor.name, i.why))
    return found


def differences(program: Program, twin: Listing) -> list[str]:
    wrong = [str(event) for event in set(copies(program)) ^ set(twin.events)]
    for row, alive in zip(program.rows, twin.alive_before, strict=True):
        theirs = sum(tensor.nbytes for tensor in alive), len(alive)
        if (row.live_bytes, row.live_tensors) != theirs:
            wrong.append(f"{row.step}: {row.live_bytes} bytes in {row.live_tensors} tensors, and not {theirs}")
    return wrong


@cache
def program(name: str, batch: int, offload: OffloadInputs, window: str) -> Program:
    setup = static("test", offload).replace(prefetch=WINDOWS[window])
    return plan(build(name, batch), setup, TITAN_X, UNLIMITED)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("offload", [ALL, CONV], ids=lambda module: module.name)
@pytest.mark.parametrize(("name", "batch"), ZOO, ids=lambda value: str(value))
def test_a_program_is_the_papers_listing(name: str, batch: int, offload: OffloadInputs, window: str) -> None:
    made = program(name, batch, offload, window)
    twin = Listing(made.network, offload.kinds, WINDOWS[window].silent)
    assert twin.events and differences(made, twin) == []
    assert len(copies(made)) == len(set(copies(made))), "each copy once"


@pytest.mark.slow
@given(
    networks(layers=14),
    st.lists(st.sampled_from(("conv", "pool", "concat", "lrn", "join")), unique=True).map(tuple),
    st.sampled_from((WINDOW, LITERAL)),
    st.booleans(),
)
@settings(max_examples=40)
def test_any_network_any_kinds_any_window(network: Network, kinds: tuple[str, ...], window: object, slow: bool) -> None:
    """However slow the link is: a late copy changes the times, and no decision."""
    setup = static("test", OffloadInputs(kinds, "drawn", "")).replace(prefetch=window)  # type: ignore[arg-type]
    made = plan(network, setup, SLOW_LINK if slow else TITAN_X, UNLIMITED)
    assert differences(made, Listing(network, kinds, window.silent)) == []  # type: ignore[attr-defined]
