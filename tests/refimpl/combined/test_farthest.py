"""The cache that evicts what is needed last, and algorithms that count in what drains."""

from __future__ import annotations

import pytest

from refimpl.combined import FarthestNextUse, OnceDrained
from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.planner import Context

pytestmark = pytest.mark.combined

TITAN_X = MACHINES["titan-x"]


def test_the_tensor_needed_last_goes_first_and_of_equals_the_largest() -> None:
    network = build("tiny-resnet", 4)
    context = Context(network, TITAN_X)
    cache = FarthestNextUse().bind(context)
    maps = context.maps_across()
    for tensor in maps:
        cache.enter(tensor)
    for step in network.steps:
        locked = set(step.uses)

        def next_use(tensor, now=step.number):  # type: ignore[no-untyped-def]  # looked for in the plain way
            return min((use.number for use in context.uses[tensor] if use.number > now), default=1 << 60)

        free = [tensor for tensor in maps if tensor not in locked]
        victim = cache.victim(locked, step.number)
        assert victim is not None
        assert (next_use(victim), victim.nbytes) == max((next_use(t), t.nbytes) for t in free)
    cache.leave(maps[0])
    assert cache.victim(set(maps[1:]), 1) is None


def test_kernels_wait_for_a_copy_rather_than_run_slowly() -> None:
    """The hole is too small for the fast algorithm, and what drains would make it large enough."""
    network = build("vgg16", 8)
    context = Context(network, TITAN_X)
    chooser = OnceDrained().bind(context)
    step, call = next(
        (s, c) for s in network.steps for c in s.calls if c.choosable and context.machine.choices(c)[0].workspace_bytes
    )
    choices = TITAN_X.choices(call)
    fastest, least = choices[0], min(choices, key=lambda choice: choice.workspace_bytes)
    assert chooser.choose(step, call, 0, fastest.workspace_bytes) == fastest
    assert chooser.choose(step, call, 0, fastest.workspace_bytes - 1).workspace_bytes < fastest.workspace_bytes
    assert chooser.choose(step, call, 0, 0).workspace_bytes == least.workspace_bytes
