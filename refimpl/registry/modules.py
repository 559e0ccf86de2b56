"""The modules that can fill each slot of a setup, by name: what `--set slot=module` and `refimpl list modules` know.

A module is added by one line here, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from refimpl import superneurons, vdnn, vdnnpp
from refimpl.memory import ALLOCATORS
from refimpl.planner import SLOTS, Setup, SetupError
from refimpl.planner.baseline import (
    BufferAMap,
    FastestThatFits,
    LayerWise,
    MemoryOptimal,
    NetworkWide,
    NoCache,
    NoOffload,
    NoPrefetch,
    NoRecompute,
    PerformanceOptimal,
)
from refimpl.text import offer

IN_SLOTS: dict[str, tuple[Any, ...]] = {
    "recompute": (
        NoRecompute(),
        superneurons.SPEED_CENTRIC,
        superneurons.MEMORY_CENTRIC,
        superneurons.COST_AWARE,
    ),
    "offload": (
        NoOffload(),
        vdnn.ALL,
        vdnn.CONV,
        vdnnpp.ALL,
        vdnnpp.CONV,
        vdnnpp.ALTERNATE_CONV,
        superneurons.CHECKPOINTS,
        superneurons.ALL_CHECKPOINTS,
    ),
    "liveness": (NetworkWide(), LayerWise(), superneurons.Analysis()),
    "prefetch": (NoPrefetch(), vdnn.WINDOW, vdnn.LITERAL, vdnnpp.WINDOW, vdnnpp.WINDOW_LATE, superneurons.Ahead()),
    "cache": (NoCache(), superneurons.LeastRecentlyUsed()),
    "algorithms": (
        MemoryOptimal(),
        PerformanceOptimal(),
        FastestThatFits(),
        vdnn.Greedy(),
        superneurons.DynamicWorkspace(),
    ),
    "allocator": tuple(ALLOCATORS.values()),
    "pinned": (BufferAMap(), vdnnpp.OnDemand(), vdnnpp.Compressed()),
}

#: Slot → name → module.
MODULES: dict[str, dict[str, Any]] = {slot: {module.name: module for module in IN_SLOTS[slot]} for slot in SLOTS}

#: What a setup fixes beside its slots: name → value as it is written → value.
SWITCHES: dict[str, dict[str, Any]] = {
    "copy-streams": {"shared": "shared", "separate": "separate"},
    "join": {"yes": True, "no": False},
    "barrier": {"yes": True, "no": False},
}
ABOUT_SWITCHES: dict[str, str] = {
    "copy-streams": "one stream for copies both ways, or one each",
    "join": "all streams join at the end of a layer that moved something, as vDNN's do",
    "barrier": "all streams of the device join between forward and backward, as vDNN++'s do",
}


def module(slot: str, name: str) -> Any:
    """The module of that name for a slot, or the value of a switch; raises `SetupError` with the nearest name."""
    known = MODULES.get(slot) or SWITCHES.get(slot)
    if known is None:
        raise SetupError(f"a setup has no slot {slot!r}{offer(slot, [*MODULES, *SWITCHES])}")
    if name not in known:
        raise SetupError(f"{slot} cannot be {name!r}{offer(name, known)}")
    return known[name]


def switches(made: Setup) -> dict[str, str]:
    """What a setup has beside its slots, by name: of a policy that searches, what all its candidates have."""
    setup = made.frugal
    has = {name: getattr(setup, name.replace("-", "_")) for name in SWITCHES}
    return {name: next(word for word, v in SWITCHES[name].items() if v == value) for name, value in has.items()}


def assignments(texts: Iterable[str]) -> dict[str, str]:
    """`slot=module` texts as a mapping; each slot once."""
    found: dict[str, str] = {}
    for text in texts:
        slot, equals, name = (part.strip() for part in text.partition("="))
        if not (slot and equals and name):
            raise SetupError(f"{text!r} is not slot=module, as in liveness=layer-wise")
        if slot in found:
            raise SetupError(f"{slot} is set twice, to {found[slot]} and to {name}")
        found[slot] = name
    return found


def modules(named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Setup.replace`: names become modules, and modules stay as they are."""
    return {
        slot.replace("-", "_"): module(slot.replace("_", "-"), given) if isinstance(given, str) else given
        for slot, given in named.items()
    }
