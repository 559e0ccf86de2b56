"""One plan as one flat row, and what every field of a row means.

A point is written as people write it, so that it can be kept in a file: a network's name, a setup's, a machine's, and
a budget.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial
from math import inf
from time import process_time
from typing import NamedTuple

import refimpl
from refimpl.combined import Combined
from refimpl.combined.papers import best_of, papers
from refimpl.importing import own_code
from refimpl.importing.any_batch import Batches
from refimpl.machine import Machine
from refimpl.machine.possible import MachineSeconds, PossibleMachines, interval
from refimpl.names.budgets import parse
from refimpl.names.by_name import budget_bytes
from refimpl.names.largest_batch import attempt, largest, unlimited_baseline
from refimpl.names.least_budget import MIB, least_budget, needed_by_baseline
from refimpl.names.machines import named
from refimpl.names.networks import build
from refimpl.names.presets import PRESETS
from refimpl.names.presets import setup as setup_named
from refimpl.network import Network
from refimpl.network.seams import with_seams
from refimpl.planner import DoesNotFit, Program, Search, Setup, plan
from refimpl.points.many_plans import Row
from refimpl.studies.optimum.bound import lower_bound, single_step_bytes, steps_of
from refimpl.text import RefimplError, harmless, shown, size

#: Field → what it is.  Bytes are whole numbers, times are seconds by the machine's model.
FIELDS = {
    "key": "a hash of what was asked, of the files of one's own that they name, and of the version",
    "network": "as it was named", "setup": "as it was named", "machine": "as it was named",
    "budget": "as it was written; empty: all of the machine's memory",
    "batch": "images or sequences an iteration; of a largest batch that was refused, empty",
    "with_least": "whether the setup's least budget was asked for",
    "with_spread": "whether the slow-down's interval was asked for",
    "largest": "whether that is the largest batch tried that fits; of a search, its setup that needs least memory",
    "version": "of this package",
    "fits": "whether there is a program; empty where the question itself was refused",
    "why": "one line: why there is no program; of a largest batch, what limits it if that is not memory",
    "budget_bytes": "the limit", "least_bytes": "the least budget tried that fits, where it was asked for",
    "pool_bytes": "the part of it that the program's blocks may use",
    "peak_bytes": "the most that they use", "resident_bytes": "of weights, gradients and states, all the time",
    "seconds": "of an iteration", "slow_down": "seconds over those of the baseline with memory enough",
    "slow_down_low": "its 5th percentile on 64 machines that differ from the model, where it was asked for",
    "slow_down_high": "its 95th percentile there",
    "offloaded_bytes": "copied to the host, as the policy wants it", "prefetched_bytes": "copied back in time",
    "on_demand_bytes": "copied back when a step needs them", "evicted_bytes": "copied to the host by a cache",
    "again": "forward steps that run again", "waits": "of one stream for another",
    "adopted": "of a paper or a policy that searches, the setup that was taken",
    "planning_seconds": "processor seconds of the plan", "program": "a hash of the program, addresses included",
}  # fmt: skip

#: Type of a field → its values' classes, the least and the most of them (of texts, nothing), and how an error says it.
TYPES: dict[str, tuple[tuple[type, ...], float, float, str]] = {
    "text": ((str,), 0, 0, "a text"), "flag": ((bool,), 0, 1, "true or false"),
    "count": ((int,), 0, 2**62, "a whole number from 0 to 2^62"),
    "whole": ((int,), 1, 2**62, "a whole number from 1 to 2^62"),
    "number": ((int, float), 0, 1e12, "a number from 0 to 1e12"),
    "more": ((int, float), 1e-12, 1e12, "a number from 1e-12 to 1e12"),
}  # fmt: skip
#: The fields of each type.
OF_TYPE = {
    "text": ("key", "network", "setup", "machine", "budget", "version", "why", "adopted", "program"),
    "flag": ("with_least", "with_spread", "largest", "fits"), "number": ("planning_seconds",),
    "whole": ("budget_bytes", "least_bytes", "pool_bytes", "peak_bytes"),
    "more": ("seconds", "slow_down", "slow_down_low", "slow_down_high"),
    "count": ("batch", "resident_bytes", "offloaded_bytes", "prefetched_bytes", "on_demand_bytes", "evicted_bytes",
              "again", "waits"),
}  # fmt: skip
TYPE_OF = {name: TYPES[kind] for kind, names in OF_TYPE.items() for name in names}
#: Fields that a row has whatever came of it, with a program or the bound, without, and with a program.
ALWAYS = ("key", "network", "setup", "machine", "budget", "with_least", "with_spread", "largest")
ANSWERED = ("batch", "budget_bytes")
FITTING = ("seconds", "slow_down")
PROGRAM = ("pool_bytes", "peak_bytes", *OF_TYPE["count"], "adopted", "program")

LARGEST = "largest"  #: as a batch: the largest one tried that fits
#: As a setup, perhaps with the solver's seconds (`bound 60`): no plan takes less than its seconds.  It is one of whole
#: steps; `bound 60 seams=yes` is that of whole and of cut ones.
BOUND = "bound"
CUT = "seams=yes"


class GridPoint(NamedTuple):
    """What is planned."""

    network: str
    setup: str
    machine: str
    budget: str = ""  #: as `refimpl plan --budget` has it, "least+50%" or "least*1.05"; empty: the machine's memory
    batch: int | str | None = None  #: None: the network's own; `LARGEST`
    with_least: bool = False  #: whether the row says the setup's least budget, which takes about ten plans
    with_spread: bool = False  #: whether it says an interval of the slow-down, which takes about two simulations

    def __str__(self) -> str:
        batch = f" ({self.batch})" if self.batch else ""
        budget = f" within {self.budget}" if self.budget else ""
        return f"{self.network}{batch} under {self.setup} on {self.machine}{budget}"

    @property
    def key(self) -> str:
        """A hash of the fields, of the files of one's own that they name, and of the package's version."""
        own = [own_code.content(text) for text in (self.network, self.setup, self.machine)]
        measured = repr(named(self.machine)) if self.machine.lower() == "here" else ""
        return hashlib.sha256(json.dumps([*self, own, measured, refimpl.__version__]).encode()).hexdigest()[:16]

    def fault(self, row: Row) -> str:
        """What is wrong with the row that a file has for it: a field and its value; empty: nothing."""
        asked = self._asdict() | {"largest": self.batch == LARGEST}
        if not isinstance(self.batch, int):  # the row has what was found
            del asked["batch"]
        wrong = next((name for name, value in asked.items() if row.get(name) != value), None)
        return fault(row) or (f"{wrong} is {shown(row[wrong])}, and its key is that of another" if wrong else "")


def fault(row: Row) -> str:
    """What is wrong with a row of a file, whose types and ranges are here: a field and its value; empty: nothing."""
    for name in FIELDS:
        if name not in row:
            return f"it has no {name}, as rows of another command or version"
        (kinds, least, most, says), value = TYPE_OF[name], row[name]
        if value is not None and (type(value) not in kinds or (kinds != (str,) and not least <= value <= most)):
            return f"{name} is {shown(value)}; there should be {says}"
    fits = row["fits"]
    needed = [*ALWAYS, *(["why"] if not fits else FITTING), *(ANSWERED if fits is not None else ())]
    if fits and not is_bound(row["setup"] or ""):
        needed += PROGRAM
        if (row["with_least"] or (row["budget"] or "").startswith("least")) and not row["largest"]:
            needed += ["least_bytes"]
    if lacking := next((name for name in needed if row[name] is None), None):
        return f"{lacking} is empty, and fits is {json.dumps(fits)}"
    nameless = next((name for name in ("network", "setup", "machine") if not row[name].replace(",", " ").split()), None)
    return f"{nameless} is {shown(row[nameless])}; there should be a name" if nameless else ""


def row(point: GridPoint, planned: Callable[[Network, Setup, Machine, int], Program] = plan) -> Row:
    """The row of a point, with every field; a point that makes no sense, or whose own code fails, has one that
    says why.

    Args:
        point: what is planned.
        planned: the planner, or what asks it and checks its answer.
    """
    made: Row = dict.fromkeys(FIELDS) | point._asdict() | {
        "key": point.key, "version": refimpl.__version__, "largest": point.batch == LARGEST,
        "batch": point.batch if isinstance(point.batch, int) else None,
    }  # fmt: skip
    began = process_time()
    try:
        machine = named(point.machine)
        if is_bound(point.setup):
            return made | of_bound(point, machine)
        if point.setup in papers() and point.setup not in PRESETS:
            return made | of_paper(point, machine)
        setup = of_papers()[point.setup].setup if point.setup in of_papers() else setup_named(point.setup)
        if isinstance(point.batch, str):
            return made | of_largest(point, setup, machine)
        network = network_of(point.network, point.batch)
        least = point.with_least or point.budget.startswith("least")
        made |= {"least_bytes": least_of(*point[:3], point.batch) if least else None}
        budget = bytes_of(point.budget, network, machine, made["least_bytes"])
        made |= {"batch": network.batch, "budget_bytes": budget, "resident_bytes": network.resident_bytes}
        began = process_time()
        program = planned(network, setup, machine, budget)
        if isinstance(setup, Combined):  # what a search has adopted is proved
            program.verify()
    except DoesNotFit as error:
        return made | {"fits": False, "why": harmless(str(error), keep=""), "planning_seconds": process_time() - began}
    except RefimplError as error:
        return made | {"why": harmless(str(error), keep="")}
    except (Exception, SystemExit) as error:
        if not own_code.raised(error):
            raise
        return made | {"why": own_code.error_line(error)}
    made |= {"planning_seconds": process_time() - began} | of_program(program, machine)
    return made | (spread_of(program, machine) if point.with_spread else {})


def of_program(program: Program, machine: Machine) -> Row:
    """What a program itself says."""
    counts, fastest = program.counts, unlimited_baseline(program.network, machine).planned_seconds
    moved = ("offloaded_bytes", "prefetched_bytes", "on_demand_bytes", "evicted_bytes", "waits")
    return {
        "fits": True, "pool_bytes": program.pool_bytes, "peak_bytes": program.peak_bytes,
        "seconds": program.planned_seconds, "slow_down": program.planned_seconds / fastest,
        "adopted": program.setup.name, "again": counts.recomputed_layers, "program": fingerprint(program),
        **{name: getattr(counts, name) for name in moved},
    }  # fmt: skip


def moved(row: Row) -> int | None:
    """Bytes copied both ways."""
    found = [row[name] for name in ("offloaded_bytes", "prefetched_bytes", "on_demand_bytes", "evicted_bytes")]
    return None if None in found else sum(found)


def of_paper(point: GridPoint, machine: Machine) -> Row:
    """The fastest of all setups of a paper; raises `DoesNotFit` where none fits."""
    if not isinstance(point.batch, int | None):
        raise RefimplError(f"{point.setup} has many setups; give a batch, or name one of them")
    setups, network, began = papers()[point.setup], network_of(point.network, point.batch), process_time()
    asked = point.with_least or point.budget.startswith("least")
    least = least_of_several(setups, network, machine) if asked else None
    budget = bytes_of(point.budget, network, machine, least)
    made: Row = {"batch": network.batch, "budget_bytes": budget, "resident_bytes": network.resident_bytes}
    made |= {"least_bytes": least}
    best = best_of(setups, network, machine, budget, inf)
    made |= {"planning_seconds": process_time() - began}
    if best.program is None:
        return made | {"fits": False, "why": harmless(str(best.tried[0].failure), keep="")}
    return made | of_program(best.program, machine)


def least_of_several(setups: Iterable[Setup], network: Network, machine: Machine) -> int | None:
    """The least budget of several setups: each is first tried in less than what those before it need."""
    least = None
    for setup in setups:
        if least is None or attempt(network, setup.frugal, machine, least - MIB):
            least = least_budget(network, setup, machine)
    return least


def is_bound(setup: str) -> bool:
    return setup.partition(" ")[0] == BOUND


def may_cut(setup: str) -> bool:
    """Whether a setup may cut steps at their seams; `combined` may, unless it says no."""
    return CUT in setup or (setup.partition(" ")[0] == "combined" and "seams=no" not in setup)


def of_bound(point: GridPoint, machine: Machine) -> Row:
    """The lower bound as a row; where one step alone needs more than the budget, it does not fit."""
    words = point.setup.split()[1:]
    seconds = next((word for word in words if word != CUT), "60")
    if len(words) > 1 + (CUT in words) or not seconds.replace(".", "", 1).isdecimal():
        raise RefimplError(f"{point.setup!r}: give the seconds of the bound's solver, as in {BOUND} 60")
    network, began = network_of(point.network, point.batch if isinstance(point.batch, int) else None), process_time()
    budget = bytes_of(point.budget, network, machine, None)
    cut = with_seams(network) if CUT in words else network
    bound = lower_bound(cut, machine, budget, float(seconds))
    made: Row = {"batch": network.batch, "budget_bytes": budget, "planning_seconds": process_time() - began}
    if bound is None:
        needs = size(single_step_bytes(cut, machine))
        return made | {"fits": False, "why": f"one step alone needs {needs}, with {steps_of(cut)}"}
    fastest = unlimited_baseline(network, machine).planned_seconds
    return made | {"fits": True, "seconds": bound.seconds, "slow_down": bound.seconds / fastest}


def of_largest(point: GridPoint, setup: Setup, machine: Machine) -> Row:
    """What is to be said of the largest batch that fits."""
    if point.batch != LARGEST:
        raise RefimplError(f"a batch is {point.batch!r}; give a whole number, or {LARGEST!r}")
    if point.budget.startswith("least") or not isinstance(parse(point.budget or machine.memory_bytes), int):
        raise RefimplError(
            f"{point.budget!r} depends on the batch; give a {LARGEST} batch a budget as in 12GiB, or none"
        )
    budget, began = budget_bytes(point.budget or None, network_of(point.network, 1), machine), process_time()
    found = largest(Batches(partial(build, point.network)), setup, machine, budget)
    made: Row = {"batch": found.size, "budget_bytes": budget, "planning_seconds": process_time() - began}
    made |= {"why": found.no_kernel}
    if found.program is None:
        return made | {"fits": False, "why": f"not even a batch of 1 fits {size(budget)}"}
    made |= {"resident_bytes": found.program.network.resident_bytes} | of_program(found.program, machine)
    return made | (spread_of(found.program, machine) if point.with_spread else {})


def spread_of(program: Program, machine: Machine) -> Row:
    """The interval of its slow-down."""
    machines, baseline = possible_baseline(program.network, machine)
    low, high = interval(program.possible_seconds(machines) / baseline)
    return {"slow_down_low": low, "slow_down_high": high}


@lru_cache(maxsize=2)
def possible_baseline(network: Network, machine: Machine) -> tuple[PossibleMachines, MachineSeconds]:
    """The machines, and the seconds of the baseline with memory enough on each."""
    machines = PossibleMachines(machine)
    return machines, unlimited_baseline(network, machine).possible_seconds(machines)


def fingerprint(program: Program) -> str:
    """A hash of a program's instructions; two programs that differ in an address have two."""
    digest = hashlib.sha256()
    for instruction in program.instructions:
        digest.update(repr(instruction).encode(errors="backslashreplace"))
    return digest.hexdigest()[:16]


@lru_cache(maxsize=2)
def network_of(name: str, batch: int | None) -> Network:
    """Points of one network come one after another."""
    return build(name, batch)


@lru_cache(maxsize=1024)
def least_of(network: str, setup: str, machine: str, batch: int | None) -> int:
    """The least budget of a setup; all are names, and one that is asked for at several budgets is found once."""
    chosen = setup_named(setup)
    least = least_budget(network_of(network, batch), chosen, named(machine))
    if least is None:
        raise RefimplError(f"{chosen.name} fits in no budget: pinned memory is too small")
    return least


def bytes_of(budget: str, network: Network, machine: Machine, least: int | None) -> int:
    """Bytes of a budget.

    "least+50%" is half of the way from the setup's least budget to what the baseline needs; "least*1.05" is 5 % more.
    """
    found = re.fullmatch(r"least(?:\+(\d+(?:\.\d*)?)%|\*(\d+(?:\.\d*)?))?", budget.replace(" ", ""))
    if not found or least is None:
        return budget_bytes(budget or None, network, machine)
    if found[2]:
        return int(least * float(found[2]))
    return least + int(max(0, needed_by_baseline(network, machine) - least) * float(found[1] or 0) / 100)


class Named(NamedTuple):
    """A setup of a paper."""

    paper: str
    name: str  #: which no other setup has
    setup: Setup


@cache
def of_papers() -> dict[str, Named]:
    """Name → setup, paper by paper."""
    found = (Named(paper, name_of(setup), setup) for paper, setups in papers().items() for setup in setups)
    return {named.name: named for named in found}


def name_of(setup: Setup) -> str:
    """A setup's name, with the modules of the slots in which setups of one preset differ."""
    if isinstance(setup, Search):
        return setup.name
    named = [f"{slot}={setup.shown(slot)}" for slot in ("recompute", "algorithms") if f"{slot}=" not in setup.name]
    return ", ".join([setup.name, *(text for text in named if not text.endswith("=none"))])
