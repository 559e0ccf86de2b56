"""Small parts of the planner, by hand: opaque shares, losses, a cache of maps, the host's memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from refimpl.machine import Choice, Span, Tier
from refimpl.memory import UNLIMITED
from refimpl.memory.tiers import pinned_size
from refimpl.names.networks import lenet
from refimpl.network import Tensor
from refimpl.planner import Context
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
