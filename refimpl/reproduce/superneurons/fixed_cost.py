"""The fixed cost that Figure 8a asks for, tried on figures that it was not fitted to: Figure 11 and Table 2.

`by_type` fits one number to Figure 8a, seconds for each call of a library.  Here a K40c has this cost: every kernel
takes longer by it, as if the host issued a call and then waited for it.  No other part plans with such a machine, and
the result is the reason: the cost that fits Figure 8a makes an iteration many times as long as it is in Table 2.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import chain
from statistics import median

from refimpl.machine import Choice, Machine
from refimpl.network import Call
from refimpl.reproduce.published import Found, Reproduced, Watch
from refimpl.reproduce.superneurons import by_type, pool_study, speed
from refimpl.reproduce.superneurons.figures import K40C

#: Seconds a call: none, and round figures; the fitted one comes last.
TRIED = (0.0, 1e-4, 3e-4, 1e-3)

#: Types whose layers take several times as long in the paper as others with as many calls: a runtime may draw random
#: numbers for a DROPOUT, and its host may wait for a SOFTMAX's loss.
MORE = ("DROPOUT", "SOFTMAX")


@dataclass(frozen=True)
class FixedCost(Machine):
    """A machine whose calls of a library each take `call_seconds` more."""

    call_seconds: float = 0.0

    @classmethod
    def of(cls, machine: Machine, call_seconds: float) -> FixedCost:
        given = {field.name: getattr(machine, field.name) for field in fields(machine) if field.init}
        return cls(**given, call_seconds=call_seconds)

    def seconds(self, call: Call, choice: Choice | None = None) -> float:
        return super().seconds(call, choice) + self.call_seconds * by_type.library_calls(call)


@dataclass(frozen=True)
class CostRow:
    """A fixed cost a call, and the median deviations of ours from the published figures, without a sign."""

    call_seconds: float
    fitted: bool
    types: float  #: Figure 8a
    types_of_calls: float  #: Figure 8a without DROPOUT and SOFTMAX
    cache: float  #: Figure 11, the speed with the cache over that without
    pool_ratio: float  #: Table 2, the speed with the pool over that with driver calls
    pool_speed: float  #: Table 2, images a second, with the pool and without


def fixed_cost(watch: Watch) -> Found:
    """The fixed cost, from none to that which fits Figure 8a, on the three figures."""
    watch("Figure 8a")
    types = by_type.rows(lambda name: None)
    fitted = by_type.fitted_cost(types)
    rows = []
    for cost in (*TRIED, fitted):
        watch(f"{1e3 * cost:.1f} ms a call")
        machine = FixedCost.of(K40C, cost)
        apart = by_type.deviations(types, cost)
        simple = [found for kind, found in apart.items() if kind not in MORE]
        pool = pool_study.table2(machine)
        rows.append(CostRow(
            call_seconds=cost, fitted=cost == fitted,
            types=median(chain.from_iterable(apart.values())), types_of_calls=median(chain.from_iterable(simple)),
            cache=_median(speed.cache_figures(machine)),
            pool_ratio=_median([figure for figure in pool if figure.published.unit == "×"]),
            pool_speed=_median([figure for figure in pool if figure.published.unit == "images/s"]),
        ))  # fmt: skip
    return Found([], rows)


def _median(found: list[Reproduced]) -> float:
    return median(abs(figure.deviation) for figure in found)


ROUNDS = 1 + len(TRIED) + 1
