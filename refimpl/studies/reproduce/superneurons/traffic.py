"""The traffic that the tensor cache saves: bytes moved in an iteration, with it and without (§3.3.2).

The paper's table is of AlexNet at growing batches, on a K40c of 12 GB.  It says neither what "without" is nor which
copies count.  So a row has every reading that was tried; all are programs of the planner but the fit.

| reading | what moves |
| --- | --- |
| `without_bytes` | the stage `offload`: the outputs of every CONV and FC are offloaded at once, and prefetched |
| `without_out_bytes` | of that, the bytes offloaded |
| `without_recompute_bytes` | the same with cost-aware recomputation, as all techniques but the cache have it |
| `without_fitted_bytes` | a fit: all weights once, all CONVs' outputs three times, the batch twice |
| `with_bytes` | the preset `superneurons` |
| `with_nothing_freed_bytes` | the cache alone: no recomputation, and no tensor freed before the iteration ends |

The first is the one to compare with, and it is little more than half of the published figure.  The fit gives all six
figures to the last digit (GB of 10^9; 2^30 will not do).  But no setup that was described moves just that, and a cache
cannot save the weights and the batch: the fit may be a coincidence.  With the cache nothing has to move even at 1,024
images, as liveness leaves AlexNet far below 12 GB; with nothing freed, our cache begins to move there, as the paper's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from refimpl.machine import MACHINES
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Context, Program, Setup, plan
from refimpl.slots import questions as slots
from refimpl.slots.baseline import NoPrefetch, NoRecompute, Releases
from refimpl.studies.reproduce.evaluation import moved_bytes, out_bytes
from refimpl.studies.reproduce.published import Watch
from refimpl.superneurons import presets as stages
from refimpl.superneurons.recompute import COST_AWARE

BATCHES = (256, 384, 512, 640, 896, 1024)
K40C = MACHINES["k40c"]


@dataclass(frozen=True)
class NothingFreed(slots.Liveness):
    """Every tensor stays until the iteration ends, gradients too: only a cache can push one out."""

    name: ClassVar[str] = "nothing-freed"
    summary: ClassVar[str] = "every tensor stays until the iteration ends"

    def bind(self, context: Context) -> Releases:
        return Releases()


OFFLOAD = stages.offload()
RECOMPUTE = OFFLOAD.replace(name="superneurons without its cache", recompute=COST_AWARE)
EVERYTHING = stages.everything()
CACHE_ALONE = EVERYTHING.replace(
    name="the cache alone", recompute=NoRecompute(), liveness=NothingFreed(), prefetch=NoPrefetch()
)


def fitted_bytes(network: Network) -> int:
    """Weights once, CONVs' outputs three times, the batch twice: see above."""
    weights = sum(parameter.weight.nbytes for _, _, parameter in network.parameters())
    convolved = sum(layer.y.nbytes for layer in network.layers if layer.kind == "conv")
    return weights + 3 * convolved + 2 * network.input.nbytes


# -- the paper's table -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrafficRow:
    """AlexNet's traffic in one iteration on a K40c, bytes; the readings are told apart above."""

    batch: int
    budget_bytes: int
    without_bytes: int
    without_out_bytes: int
    without_recompute_bytes: int
    without_fitted_bytes: int
    with_bytes: int
    with_nothing_freed_bytes: int


def rows(watch: Watch = lambda name: None) -> Iterator[TrafficRow]:
    """Every batch of the paper's table; `watch` is called with each network before it is planned."""
    budget = K40C.memory_bytes
    for batch in BATCHES:
        watch(f"alexnet({batch})")
        network = build("alexnet:superneurons", batch)
        without, recomputed, cached, alone = (
            plan(network, setup, K40C, budget) for setup in (OFFLOAD, RECOMPUTE, EVERYTHING, CACHE_ALONE)
        )
        yield TrafficRow(
            batch=batch,
            budget_bytes=budget,
            without_bytes=moved_bytes(without),
            without_out_bytes=out_bytes(without),
            without_recompute_bytes=moved_bytes(recomputed),
            without_fitted_bytes=fitted_bytes(network),
            with_bytes=moved_bytes(cached),
            with_nothing_freed_bytes=moved_bytes(alone),
        )


# -- the pool grows ----------------------------------------------------------------------------------------------------


def by_budget(network: Network, budgets: Iterable[int], setup: Setup = EVERYTHING) -> Iterator[Program]:
    """The programs within growing budgets (bytes); a budget that does not fit is left out."""
    return (program for budget in budgets if (program := attempt(network, setup, K40C, budget)))
