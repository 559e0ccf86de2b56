"""The papers' setups: every preset with each of its choices of algorithms and of recomputation.

The search begins from them, and its result is compared with the best of them.  The dynamic policies of vDNN and vDNN++
adopt one of these setups, so they are not listed.
"""

from __future__ import annotations

from functools import cache

from refimpl.accudnn import ACCUDNN
from refimpl.memory import BothEnds
from refimpl.planner import Setup
from refimpl.planner.baseline import FastestThatFits, MemoryOptimal, NoOffload, PerformanceOptimal
from refimpl.superneurons import COST_AWARE, MEMORY_CENTRIC, SPEED_CENTRIC, DynamicWorkspace
from refimpl.superneurons import presets as superneurons
from refimpl.vdnn import Greedy
from refimpl.vdnn import presets as vdnn
from refimpl.vdnnpp import OnDemand
from refimpl.vdnnpp import presets as vdnnpp

MEMORY, PERFORMANCE = MemoryOptimal(), PerformanceOptimal()


@cache
def papers() -> dict[str, tuple[Setup, ...]]:
    """Paper → its setups, those that are planned quickly first."""
    baselines = [Setup(f"baseline, {one.name}", algorithms=one) for one in (PERFORMANCE, MEMORY)]
    of_vdnn = [
        vdnn.static(f"vdnn-{what}", offload, one).replace(name=f"vdnn-{what}, {one.name}")
        for what, offload in (("none", NoOffload()), ("all", vdnn.ALL), ("conv", vdnn.CONV))
        for one in (MEMORY, PERFORMANCE, Greedy())
    ]
    of_vdnnpp = [
        vdnnpp.static(f"vdnnpp-{what}, {one.name}" + ", compressed" * pinned.compresses, offload, one, pinned)
        for what, offload in (
            ("none", NoOffload()),
            ("all", vdnnpp.ALL),
            ("conv", vdnnpp.CONV),
            ("alternate-conv", vdnnpp.ALTERNATE_CONV),
        )
        for one in (MEMORY, PERFORMANCE, FastestThatFits())
        for pinned in (vdnnpp.COMPRESSED, OnDemand())
    ]
    of_superneurons: list[Setup] = []
    for one in (MEMORY, PERFORMANCE, DynamicWorkspace()):
        found = [superneurons.liveness(one), superneurons.offload(one)]
        for how in (COST_AWARE, SPEED_CENTRIC, MEMORY_CENTRIC):
            found += [
                setup.replace(name=f"{setup.name}, {how.name}")
                for setup in (superneurons.recompute(how, one), superneurons.everything(how, one))
            ]
        of_superneurons += [setup.replace(name=f"{setup.name}, {one.name}") for setup in found]
    return {
        "baseline": tuple(baselines),
        "vDNN": tuple(of_vdnn),
        "vDNN++": tuple(of_vdnnpp),
        "SuperNeurons": tuple(of_superneurons),
        "AccUDNN": (ACCUDNN,),
    }


@cache
def planned_quickly() -> tuple[Setup, ...]:
    """The setups that the search plans: vDNN++'s in a pool as large as the budget, and without compression.

    To look for the least pool takes up to twelve plans, and compression saves pinned memory and no time.
    """
    found = [setup for paper, setups in papers().items() for setup in setups if paper != "vDNN++"]
    raw = [setup for setup in papers()["vDNN++"] if isinstance(setup.pinned, OnDemand)]
    return (*(setup.replace(name=f"{setup.name}, both-ends", allocator=BothEnds()) for setup in raw), *found)
