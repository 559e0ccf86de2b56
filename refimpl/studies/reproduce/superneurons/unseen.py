"""A fixed cost a call, fitted to one figure and tried on those that the fit has not seen: Figure 11 and Table 2.

`by_type` fits it to Figure 8a, `pool_study` to one line of Table 2: ResNet-50's speed with the pool.  The results are
seventy times apart.  What fits Figure 8a makes an iteration many times as long as it is in Table 2; what fits ResNet-50
brings the other speeds of Table 2 near the published ones.  So Table 2 alone is shown with a fixed cost of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from statistics import median

from refimpl.studies.reproduce.published import Found, Reproduced, Watch
from refimpl.studies.reproduce.superneurons import by_type, pool_study, published, speed
from refimpl.studies.reproduce.superneurons.figures import K40C
from refimpl.studies.reproduce.superneurons.fixed_cost import FixedCost

#: Seconds a call: none, and round figures, beside the fitted ones.
TRIED = (0.0, 1e-4, 1e-3)

#: Types whose layers take several times as long in the paper as others with as many calls: a runtime may draw random
#: numbers for a DROPOUT, and its host may wait for a SOFTMAX's loss.
MORE = ("DROPOUT", "SOFTMAX")


@dataclass(frozen=True)
class UnseenRow:
    """A fixed cost a call, and the median deviations of ours from the published figures, without a sign."""

    call_seconds: float
    fitted: str  #: to which figure; empty: to none
    types: float  #: Figure 8a
    types_of_calls: float  #: Figure 8a without DROPOUT and SOFTMAX
    cache: float  #: Figure 11, the speed with the cache over that without
    in_series: float  #: the same, if no kernel ran beside a copy
    pool_ratio: float  #: Table 2, the speed with the pool over that with driver calls
    pool_speed: float  #: Table 2, images a second, without the line of ResNet-50 with the pool


def unseen(watch: Watch) -> Found:
    """Some fixed costs, two of them fitted, on the three figures."""
    watch("Figure 8a")
    types = by_type.rows(lambda name: None)
    watch("Table 2")
    costs = dict.fromkeys(TRIED, "")
    costs |= {pool_study.fitted_cost(): "to ResNet-50", by_type.fitted_cost(types): "to Figure 8a"}
    rows = []
    for cost, fitted in sorted(costs.items()):
        watch(f"{1e3 * cost:.1f} ms a call")
        machine = FixedCost.of(K40C, cost)
        apart = by_type.deviations(types, cost)
        simple = [found for kind, found in apart.items() if kind not in MORE]
        table = pool_study.table2(pool_study.pool_studies(pool_study.with_calls_of_the_text(machine)))
        speeds = [figure for figure in table if figure.published.unit == "images/s"]
        cached = [speed.readings(speed.cache_row(name, machine)) for name in published.FASTER_WITH_CACHE]
        rows.append(UnseenRow(
            call_seconds=cost, fitted=fitted,
            types=median(chain.from_iterable(apart.values())), types_of_calls=median(chain.from_iterable(simple)),
            cache=_median([overlapped for overlapped, _ in cached]),
            in_series=_median([in_series for _, in_series in cached]),
            pool_ratio=_median([figure for figure in table if figure.published.unit == "×"]),
            pool_speed=_median([figure for figure in speeds if figure.published != FITTED_LINE]),
        ))  # fmt: skip
    return Found([], rows)


FITTED_LINE = published.FASTER_WITH_POOL["resnet50"].pool


def _median(found: list[Reproduced]) -> float:
    return median(abs(figure.deviation) for figure in found)


ROUNDS = 2 + len(TRIED) + 2
