"""Small parts of the planner, by hand: opaque shares, losses, a cache of maps, the host's memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from refimpl.machine import Choice, Span, Tier
from refimpl.memory import UNLIMITED
from refimpl.memory.tiers import pinned_size
from refimpl.names.networks import lenet
from refimpl.network import Tensor
from refimpl.network.tensor import Kind
from refimpl.planner import Context
from refimpl.planner.cache_of_maps import CacheOfMaps
from refimpl.planner.heading import Opaque, heading, mark, opaque_shares
from refimpl.planner.losses import Losses
from refimpl.slots.errors import DoesNotFit
from tests.messages import raises_naming
from tests.refimpl.modules import machine


def test_what_a_program_loses_is_waits_slower_algorithms_and_rebuilds() -> None:
    """Step 1 waits a second and takes a slower algorithm; step 2 rebuilds a map; the last copies end at 12."""
    x, y = (Tensor(name, (1,), "map", managed=True) for name in "xy")
    call: Any = SimpleNamespace(writes=(x,), updates=(y,))

    def span(step: int, start: float, end: float, seconds: float | None = None, rebuild: bool = False) -> Span:
        choice = None if seconds is None else Choice("some", 0, seconds)
        launch: Any = SimpleNamespace(step=step, call=call, choice=choice, rebuild=rebuild)
        return Span(launch, 0, "compute", start, end)

    spans = [span(1, 1, 4, seconds=3.0), span(2, 4, 6, seconds=3.0, rebuild=True), span(2, 6.5, 10)]
    timeline = SimpleNamespace(seconds=12.0, on=lambda engine: spans, busy=lambda engine: 8.5)
    on = SimpleNamespace(choices=lambda call: [Choice("fast", 0, 2.5), Choice("some", 0, 3.0)])
    program: Any = SimpleNamespace(simulate=lambda: timeline, machine=on, network=SimpleNamespace(steps=[None] * 4))
    lost = Losses(program)
    assert dict(lost.waits) == {1: 1.0, 2: 0.5, 4: 2.0}
    assert dict(lost.rebuilds) == {x: 2.0, y: 2.0} and dict(lost.slower) == {1: 0.5}
    assert lost.kernels == 8.5 - 4.0 - 0.5


def test_the_hosts_memory_holds_the_batch_and_the_results_first() -> None:
    network = lenet(4)
    fixed = sum(pinned_size(nbytes) for nbytes in (4 * 4 * 28 * 28, 4 * 4, 4 * 4))  # images, labels, losses
    left = Context(network, machine().with_tiers([Tier("host", fixed + 7)]))
    assert left.tiers == {"host": 7} and left.budget == machine().memory_bytes
    with raises_naming(DoesNotFit, "the batch and the results", "host"):
        Context(network, machine().with_tiers([Tier("host", fixed - 1)]))
    unlimited_tier = Context(network, machine(), 77)
    assert unlimited_tier.tiers["host"] == UNLIMITED and unlimited_tier.budget == 77


def test_a_cache_of_maps_hears_of_maps_alone() -> None:
    heard: list[tuple[str, Tensor]] = []
    inner: Any = SimpleNamespace(
        **{name: lambda tensor, name=name: heard.append((name, tensor)) for name in ("enter", "touch", "leave")},
        victim=lambda locked, now: (locked, now),
    )
    cache = CacheOfMaps(inner)
    kinds: tuple[Kind, ...] = ("map", "gradient map", "input", "workspace")
    every = {kind: Tensor(kind, (1,), kind, managed=True) for kind in kinds}
    for tensor in every.values():
        for hear in (cache.enter, cache.touch, cache.leave):
            hear(tensor)
    assert heard == [(name, every["map"]) for name in ("enter", "touch", "leave")]
    assert cache.victim([every["map"]], 3) == ([every["map"]], 3)


@pytest.mark.parametrize(("opaque", "says"), [(True, " (20% of the time and 75% of the bytes opaque)"), (False, "")])
def test_a_heading_says_how_much_is_opaque(opaque: bool, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two layers one is opaque; a loss does not count."""
    big, small = (Tensor(name, (count,), "map", managed=True) for name, count in (("big", 3), ("small", 1)))
    gradient = Tensor("d(big)", (9,), "gradient map", managed=True)

    def layer(numbers: tuple[int, int], output: Tensor, opaque: bool, work: str = "") -> Any:
        forward, backward = (SimpleNamespace(number=number) for number in numbers)
        traits = SimpleNamespace(opaque=opaque, work=work)
        return SimpleNamespace(forward=forward, backward=backward, outputs=(output,), in_place=False, traits=traits)

    layers = [layer((1, 6), big, True), layer((2, 5), small, False), layer((3, 4), gradient, True, "loss")]
    network: Any = SimpleNamespace(
        name="net", batch=3, opaque=opaque, layers=layers, managed=(big, small, gradient), steps=()
    )
    monkeypatch.setattr("refimpl.planner.heading.fastest_seconds", lambda network, machine: (1, 2, 2, 2, 2, 1))
    monkeypatch.setattr("refimpl.planner.heading.opaque_shares", opaque_shares.__wrapped__)
    assert opaque_shares.__wrapped__(network, machine()) == Opaque(1, 0.2, 0.75)
    assert mark(network, machine()) == says and heading(network, machine()) == f"net, batch 3{says}"
