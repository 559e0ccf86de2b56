"""The programs that the reports are tested on: each takes other paths of the planner, all plan in a moment."""

from __future__ import annotations

from functools import cache

from refimpl.machine import Timeline
from refimpl.names.networks import build
from refimpl.planner import Program, plan
from refimpl.vdnnpp import Compressed
from tests.refimpl.modules import (
    ALLOCATORS,
    DropSome,
    LastUsed,
    NetworkWide,
    OffloadSome,
    PooledPinned,
    PrefetchAhead,
    least_plan,
    machine,
    setup,
)

GIB = 1 << 30


@cache
def baseline() -> Program:
    """Nothing moves but the batch; a chain."""
    return plan(build("lenet", 32), setup(name="baseline", liveness=NetworkWide()), machine(), GIB)


@cache
def offloading() -> Program:
    """A chain on a slow link: copies out drain for many steps, and some copies in come late."""
    wanted = setup(name="offload", offload=OffloadSome(), prefetch=PrefetchAhead(2))
    return plan(build("vgg16", 64), wanted, machine(3e9), 6 * GIB)


@cache
def evicting() -> Program:
    """A residual network in hardly enough memory: offloads, rebuilds and evictions."""
    wanted = setup(
        name="everything",
        recompute=DropSome(0.5),
        offload=OffloadSome(0.5),
        prefetch=PrefetchAhead(2),
        cache=LastUsed(),
    )
    return least_plan(build("tiny-resnet", 32), wanted, machine(), 0.03)


@cache
def sharing() -> Program:
    """Branches; one stream for both directions, joined; pinned buffers that are used again; driver calls."""
    wanted = setup(
        name="shared", offload=OffloadSome(), prefetch=PrefetchAhead(3), copy_streams="shared", join=True,
        pinned=PooledPinned(), allocator=ALLOCATORS["driver-calls"],
    )  # fmt: skip
    return plan(build("tiny-inception:superneurons", 8), wanted, machine(), GIB)


@cache
def compressing() -> Program:
    """A chain whose maps are compressed by the host's threads, some of them too late."""
    wanted = setup(name="compressed", offload=OffloadSome(), prefetch=PrefetchAhead(3), pinned=Compressed(), join=True)
    return plan(build("tiny-vgg:vdnnpp", 32), wanted, machine(), GIB)


@cache
def deep() -> Program:
    """Some thousand instructions, nearly all memory resident."""
    wanted = setup(name="offload", offload=OffloadSome(), prefetch=PrefetchAhead(5))
    return plan(build("resnet:194", 1), wanted, machine(), 6 * GIB)


SMALL = (evicting, sharing, compressing)
ALL = (*SMALL, deep)


@cache
def timeline(make: object) -> Timeline:
    """The simulated timeline of one of the above."""
    assert callable(make)
    simulated: Timeline = make().simulate()
    return simulated
