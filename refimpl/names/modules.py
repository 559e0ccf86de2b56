"""The modules that can fill each slot of a setup, by name: what `--set slot=module` and `refimpl list modules` know.

A module is added by one line here, and by nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from refimpl.names import Lookup
from refimpl.names.parameters import with_parameters
from refimpl.network import NetworkError
from refimpl.slots import setup
from refimpl.slots.errors import SetupError
from refimpl.slots.setup import BASES, SLOTS, Setup
from refimpl.text import offer

#: Slot → name → where the module is.
WHERE: dict[str, dict[str, str]] = {
    "recompute": {
        "none": "slots.baseline:NoRecompute",
        "speed-centric": "superneurons:SPEED_CENTRIC",
        "memory-centric": "superneurons:MEMORY_CENTRIC",
        "cost-aware": "superneurons:COST_AWARE",
        "fates": "combined:Dropped",
    },
    "offload": {
        "none": "slots.baseline:NoOffload",
        "vdnn-all": "vdnn:ALL",
        "vdnn-conv": "vdnn:CONV",
        "vdnnpp-all": "vdnnpp:ALL",
        "vdnnpp-vdnn-all": "vdnnpp:VDNN_ALL",
        "vdnnpp-conv": "vdnnpp:CONV",
        "vdnnpp-alternate-conv": "vdnnpp:ALTERNATE_CONV",
        "superneurons-checkpoints": "superneurons:CHECKPOINTS",
        "superneurons-all-checkpoints": "superneurons:ALL_CHECKPOINTS",
        "accudnn-model": "accudnn:ModelGuided",
        "accudnn-everything": "accudnn:Everything",
        "fates": "combined:Offloaded",
    },
    "liveness": {
        "network-wide": "slots.baseline:NetworkWide",
        "layer-wise": "slots.baseline:LayerWise",
        "superneurons-liveness": "superneurons:Analysis",
    },
    "prefetch": {
        "none": "slots.baseline:NoPrefetch",
        "vdnn-window": "vdnn:WINDOW",
        "vdnn-window-literal": "vdnn:LITERAL",
        "vdnnpp-window": "vdnnpp:WINDOW",
        "vdnnpp-window-no-pool": "vdnnpp:WINDOW_NO_POOL",
        "vdnnpp-window-late": "vdnnpp:WINDOW_LATE",
        "superneurons-ahead": "superneurons:Ahead",
        "accudnn-late": "accudnn:Late",
        "in-time": "combined:InTime",
    },
    "cache": {
        "none": "slots.baseline:NoCache",
        "superneurons-lru": "superneurons:LeastRecentlyUsed",
        "farthest": "combined:FarthestNextUse",
    },
    "algorithms": {
        "memory": "slots.algorithms:MemoryOptimal",
        "performance": "slots.algorithms:PerformanceOptimal",
        "fastest-that-fits": "slots.algorithms:FastestThatFits",
        "vdnn-greedy": "vdnn:Greedy",
        "superneurons-dynamic": "superneurons:DynamicWorkspace",
        "accudnn-capped": "accudnn:Capped",
        "once-drained": "combined:OnceDrained",
    },
    "allocator": {
        "best-fit": "memory:BestFit",
        "first-fit": "memory:FirstFit",
        "worst-fit": "memory:WorstFit",
        "both-ends": "memory:BothEnds",
        "block-heap": "memory:BlockHeap",
        "driver-calls": "memory:DriverCalls",
        "fixed-addresses": "combined.fixed:FixedAddresses",
        "smaller-pool": "combined.smaller_pool:SmallerPool",
        "vdnnpp-pool": "vdnnpp:FoundPool",
    },
    "pinned": {
        "buffer-a-map": "slots.baseline:BufferAMap",
        "vdnnpp-on-demand": "vdnnpp:OnDemand",
        "vdnnpp-compressed": "vdnnpp:Compressed",
        "superneurons-unified-pool": "superneurons:UnifiedTensorPool",
    },
}

#: Slot → name → module, imported when it is asked for.
MODULES = {slot: Lookup(WHERE[slot]) for slot in SLOTS}

#: What a setup fixes beside its slots: name → value as it is written → value.
SWITCHES: dict[str, dict[str, Any]] = {
    "copy-streams": {"shared": "shared", "separate": "separate"},
    "join": {"yes": True, "no": False},
    "barrier": {"yes": True, "no": False},
    "seams": {"yes": True, "no": False},
}
ABOUT_SWITCHES: dict[str, str] = {
    "copy-streams": "one stream for copies both ways, or one each",
    "join": "all streams join at the end of a layer that moved something, as vDNN's do",
    "barrier": "all streams of the device join between forward and backward, as vDNN++'s do",
    "seams": "backward steps are cut where that spares memory: a convolution releases x before dx comes (ours)",
}


def module(slot: str, text: str) -> Any:
    """The module or the switch's value that `--set slot=text` means; raises `SetupError`.

    `text` is a name, with parameters after a colon: `superneurons-ahead:5`.  It may also name a class or an instance of
    your own, in a Python module or a file: `my_modules:BigMaps`, `folder/mine.py:Mine:limit=1GiB`.
    """
    known = MODULES.get(slot) or SWITCHES.get(slot)
    if known is None:
        raise SetupError(f"a setup has no slot {slot!r}{offer(slot, [*MODULES, *SWITCHES])}")
    name, colon, given = text.partition(":")
    if name in known and not colon:
        return known[name]
    if name in known and slot in MODULES:
        return with_parameters(slot, known[name], given)
    if colon and slot in MODULES and (name.endswith(".py") or all(part.isidentifier() for part in name.split("."))):
        found, _, given = given.partition(":")
        return with_parameters(slot, from_outside(slot, name, found, BASES[slot], MODULES[slot]), given)
    raise SetupError(f"{slot} cannot be {text!r}{offer(name, known)}")


def from_outside(what: str, where: str, name: str, kind: type, known: Iterable[str]) -> Any:
    """The object `name` of the Python module or file `where`; a module may be a file in the working directory.

    Args:
        what: it is for, as errors say it: a slot, or preset.
        where: the module, or the path of a file, which ends in .py.
        name: in it.
        kind: of the objects that are offered where there is no such name.
        known: names of this project, offered where there is no such module.
    """
    from refimpl.importing.own_code import error_line, executed, imported

    try:
        found = vars(executed(where, os.stat(where).st_mtime_ns) if where.endswith(".py") else imported(where))
    except FileNotFoundError:
        raise SetupError(f"{what}={where}:{name}: there is no file {where}{offer(where, known)}") from None
    except ModuleNotFoundError as error:
        if error.name != where:
            raise SetupError(f"{what}: {where} imports {error.name}, which is not installed") from None
        says = f"there is no {where.replace('.', '/')}.py here, and no module {where} is installed"
        raise SetupError(f"{what}={where}:{name}: {says}{offer(where, known)}") from None
    except NetworkError as error:  # of executing a file
        raise SetupError(f"{what}: {error}") from None
    except (Exception, SystemExit) as error:
        raise SetupError(f"{what}: {where} cannot be imported: {error_line(error)}") from None
    if name not in found:
        fit = [k for k, v in found.items() if isinstance(v, kind) or (isinstance(v, type) and issubclass(v, kind))]
        raise SetupError(f"{what}: {where} has no {name!r}{offer(name, fit)}")
    return found[name]


def switches(made: Setup) -> dict[str, str]:
    """The options of a setup beside its slots, by name."""
    return {name: made.shown(name.replace("-", "_")) for name in SWITCHES}


def assignments(texts: Iterable[str]) -> dict[str, str]:
    """`slot=module` texts as a mapping, as `Setup.replace` names the slots; each slot once."""
    found: dict[str, str] = {}
    for text in texts:
        slot, equals, name = (part.strip() for part in text.partition("="))
        if not (slot and equals and name):
            raise SetupError(f"{text!r} is not slot=module, as in liveness=layer-wise")
        slot = slot.replace("-", "_")
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


setup.by_name = modules
