"""The search: never above a paper, the same everywhere, and its parts."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys
from contextlib import redirect_stdout
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.combined import COMBINED, Combined, Fates, search
from refimpl.combined.judge import Judge
from refimpl.combined.maps import Maps
from refimpl.combined.papers import best_of, with_searched_pools
from refimpl.combined.search import changed, point, starts, with_word
from refimpl.combined.seeds import ADDRESSES, FASTEST, family, prices, seed
from refimpl.combined.seeds import fates_of as member
from refimpl.combined.smaller_pool import POOLS, smaller_pools
from refimpl.machine import MACHINES, Machine
from refimpl.memory.base import GRANULARITY
from refimpl.names import presets
from refimpl.names.largest_batch import least_conceivable
from refimpl.names.least_budget import least_budget
from refimpl.names.networks import build
from refimpl.network import Conventions, Network
from refimpl.network.conventions import PYTORCH
from refimpl.planner import Context, DoesNotFit, Setup, plan
from refimpl.slots.errors import AddressesDoNotFit
from tests.matrix import some
from tests.messages import raises_naming
from tests.refimpl.drawn_networks import CONVENTIONS, SMALLEST, smallest
from tests.refimpl.modules import least_plan, machine, networks

pytestmark = pytest.mark.combined

TITAN_X = MACHINES["titan-x"]
ROOT = Path(__file__).resolve().parents[3]


def small(network: str = "tiny-resnet", share: float = 0.55) -> tuple[Network, Machine, int]:
    """A small network on a machine with a slow link, within a share of the baseline's peak."""
    net, on = build(network, 16), machine(2e9)
    peak = plan(net, presets.setup("baseline liveness=layer-wise"), on, 1 << 50).peak_bytes
    return net, on, int(share * peak)


def judge_of(network: Network, on: Machine, budget: int, most: int = 50) -> tuple[Judge, Context, Maps]:
    context = Context(network, on, budget)
    maps = Maps(context)
    return (
        Judge(
            lambda setup, give_up=1e9: plan(network, setup, on, budget, give_up),
            maps.floor,
            most,
            lambda *told: None,
        ),
        context,
        maps,
    )


# -- what it adopts ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=4)  # an example is a search
@given(
    networks(), st.sampled_from(("vdnn-all", "superneurons", "accudnn")), st.sampled_from((1e6, 1e8)), st.floats(0, 1)
)
def test_on_drawn_networks_it_fits_where_a_paper_does_and_is_no_slower(
    network: Network, paper: str, link: float, room: float
) -> None:
    """Of most of them every map is smaller than a page."""
    on = machine(link)
    other = least_plan(network, presets.setup(paper), on, room)
    program = plan(network, dataclasses.replace(COMBINED, effort=20), on, other.budget)
    program.verify()
    assert program.simulate().seconds == pytest.approx(program.planned_seconds, abs=1e-12)
    assert program.planned_seconds <= other.planned_seconds * (1 + 1e-9) and program.peak_bytes <= other.budget


@pytest.mark.slow
@pytest.mark.parametrize("conventions", some(CONVENTIONS[:3], CONVENTIONS[0]))
def test_without_maps_to_search_the_other_modules_are_searched(conventions: Conventions) -> None:
    """Where the link is slow nothing is at the floor, so every plan of the effort is made."""
    for kinds in SMALLEST:
        network, on = smallest(kinds, conventions), machine(1e5)
        other = least_plan(network, presets.setup("vdnn-all"), on)
        program = plan(network, dataclasses.replace(COMBINED, effort=30), on, other.budget)
        program.verify()
        assert program.planned_seconds <= other.planned_seconds * (1 + 1e-9), kinds


SAYS = """
import dataclasses, refimpl
net, on = refimpl.networks.build("tiny-inception", 16), dataclasses.replace(refimpl.machines.titan_x, link=1e8)
roomy = refimpl.plan(net, "baseline liveness=layer-wise", on, 1 << 50)
search = dataclasses.replace(refimpl.combined.COMBINED, effort=3)
program = refimpl.plan(net, search, on, roomy.peak_bytes * 55 // 100)
print(len(program.tried), "tried", program.planned_seconds.hex(), program.listing(instructions=True))
"""


@pytest.mark.slow
def test_two_processes_and_any_hash_seed_give_the_same_program() -> None:
    environment = os.environ | {"PYTHONHASHSEED": "2026"}
    there = subprocess.run(
        [sys.executable, "-c", SAYS], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    with redirect_stdout(io.StringIO()) as here:
        exec(SAYS, {})
    assert here.getvalue() == there.stdout != ""


def test_steps_are_cut_where_that_is_needed_and_whole_without_seams() -> None:
    network, on = build("tiny-vgg", 64), machine(2e9)
    budget = least_conceivable(network) - 1
    program = plan(network, dataclasses.replace(COMBINED, effort=5), on, budget)
    program.verify()
    assert program.setup.seams and program.network.whole is network and program.peak_bytes <= budget
    with raises_naming(DoesNotFit, "tiny-vgg", "combined, seams=no"):
        plan(network, presets.setup("combined effort=5 seams=no"), on, budget)


def test_a_network_as_autograd_runs_it_is_never_cut() -> None:
    """Its seeds and draws are many, and one that cut a step would raise."""
    network, on = copy(build("lenet", 16)), machine(2e9)
    network.conventions = PYTORCH
    budget = least_plan(network, presets.setup("vdnn-all"), on).budget
    program = plan(network, dataclasses.replace(COMBINED, effort=100), on, budget)
    assert program.network is network and len(program.tried) > 1


def test_near_the_least_budget_more_memory_is_no_slower() -> None:
    """In a larger pool best fit has other holes: seeds that fit 10,179 MiB, and take 3.05 s, fail in 10,651 MiB."""
    search = dataclasses.replace(COMBINED, effort=120)
    assert plan(build("vgg16", 256), search, MACHINES["v100"], 10651 << 20).planned_seconds < 3.1


def test_a_program_in_a_smaller_pool_is_one_for_the_budget() -> None:
    network, on, _ = small("tiny-vgg")
    budget = least_plan(network, presets.setup("vdnn-all"), on).budget + GRANULARITY
    setup = presets.setup("vdnn-all", {"allocator": f"smaller-pool:most={budget}"})
    program = plan(network, setup, on, 2 * budget)
    program.verify()
    assert (program.pool_bytes, program.budget) == (budget, 2 * budget)
    assert plan(network, setup, on, budget - GRANULARITY).pool_bytes == budget - GRANULARITY
    least, most = least_conceivable(network), 2 * least_conceivable(network)
    pools = [{one.most for one in smaller_pools(network, most - less)} for less in (0, most // 100)]
    assert len(pools[0]) == POOLS and len(pools[0] & pools[1]) >= POOLS - 1
    assert smaller_pools(network, least) == [] and max(pools[0]) < most


# -- the search as a setup ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_progress_is_told_and_ctrl_c_returns_the_best_so_far() -> None:
    net, on, budget = small()
    told: list[tuple[int, int, float]] = []

    def interrupt(plans: int, most: int, seconds: float) -> None:
        told.append((plans, most, seconds))
        if len(told) > 20:
            raise KeyboardInterrupt

    program = plan(net, Combined(**vars(dataclasses.replace(COMBINED, watch=interrupt))), on, budget)
    assert program.planned_seconds == told[-1][2] and len(told) == 21
    best = [seconds for _, _, seconds in told]
    assert best == sorted(best, reverse=True)

    def at_once(plans: int, most: int, seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan(net, dataclasses.replace(COMBINED, watch=at_once), on, 1 << 19)


def test_nothing_is_searched_where_a_paper_is_at_the_floor() -> None:
    net = build("lenet", 16)
    program = plan(net, COMBINED, TITAN_X, 1 << 30)
    assert program.setup.name.startswith("combined: ") and len(program.tried) <= 3


def test_it_is_no_slower_than_the_best_of_a_paper_whose_pool_is_searched_for() -> None:
    net, budget = build("alexnet", 256), 1285923219
    best = best_of(with_searched_pools(), net, TITAN_X, budget, float("inf")).program
    program = plan(net, dataclasses.replace(COMBINED, effort=1), TITAN_X, budget)
    assert best and program.planned_seconds <= best.planned_seconds


def test_where_nothing_fits_the_error_says_whose_and_the_least_budget_fits() -> None:
    net, on, _ = small("lenet")
    quick = dataclasses.replace(COMBINED, effort=20)
    with raises_naming(DoesNotFit, "lenet"):
        plan(net, quick, on, 1 << 19)
    least = least_budget(net, quick, on)
    assert least is not None
    others = [found for name in ("vdnn-all", "superneurons") if (found := least_budget(net, presets.setup(name), on))]
    assert least <= min(others)


# -- its parts ---------------------------------------------------------------------------------------------------------


def test_the_judge_gives_up_early_and_keeps_the_best() -> None:
    net, on, budget = small()
    judge, _, maps = judge_of(net, on, budget)
    setups = [setup for setup, _ in zip(family(maps), range(20), strict=False)]
    programs = [judge.planned(setup) for setup in setups]
    fitting = [program for program in programs if program]
    assert judge.best in fitting and judge.seconds == min(program.planned_seconds for program in fitting)
    assert judge.count == 20 and all(map(judge.knows, setups))
    assert judge.planned(setups[programs.index(fitting[0])], judge.floor / 2) is None


def test_where_bytes_fit_and_no_addresses_the_counted_program_is_met() -> None:
    """It may be on the way to one that fits, and is compared as if it took longer; it is never adopted."""
    net, budget = build("alexnet", 256), 1402 << 20
    judge = judge_of(net, TITAN_X, budget)[0]
    without_addresses = seed(Fates.of({"conv1": "drop"}), FASTEST, allocator=ADDRESSES)
    with pytest.raises(AddressesDoNotFit) as refused:
        plan(net, without_addresses, TITAN_X, budget)
    met = judge.judged(without_addresses)
    assert met and not met.fits and judge.best is None
    counted_seconds = refused.value.counted_seconds
    assert met.seconds == counted_seconds * refused.value.asked / budget > counted_seconds
    others = ("conv4", "conv5", "input", "pool1", "pool5")
    fates = Fates.of({**dict.fromkeys(others, "offload"), "conv1": "drop"})
    fitting = judge.judged(seed(fates, FASTEST, allocator=ADDRESSES))
    assert fitting and fitting.fits and judge.best
    assert fitting.seconds == judge.best.planned_seconds == counted_seconds


def test_a_paper_s_program_is_a_point_of_the_search() -> None:
    net, on, _ = small("tiny-vgg")
    budget = plan(net, presets.setup("baseline"), on, 1 << 50).peak_bytes
    for name in ("vdnn-all", "superneurons-offload"):
        program = plan(net, presets.setup(name), on, budget)
        assert plan(net, point(program), on, budget).planned_seconds == program.planned_seconds


def test_the_family_s_corners_and_prices() -> None:
    net, on, budget = small("tiny-vgg")
    maps = judge_of(net, on, budget)[2]
    assert member(maps, 0.0, 0) == Fates() and set(member(maps, 0.0, 8).named("offload")) == set(maps.named)
    taus = prices(maps)
    dropped = [sum(maps.named[name].nbytes for name in member(maps, tau, 0).named("drop")) for tau in taus]
    assert dropped[0] == 0 and dropped == sorted(dropped) and taus == sorted(taus)
    assert maps.price[net.input] == float("inf")
    for x, price in maps.price.items():  # what one rebuild costs, by the planner's own clock
        if x is not net.input:
            one = plan(net, presets.setup("baseline liveness=layer-wise"), on, 1 << 50)
            again = with_word(point(one), maps, [x], "drop")
            assert plan(net, again, on, 1 << 50).planned_seconds - one.planned_seconds == pytest.approx(
                price * x.nbytes
            )


@pytest.mark.parametrize(("most", "cut"), [(40, False), (400, True)])
def test_seeds_of_cut_steps_leave_half_of_the_plans(most: int, cut: bool) -> None:
    """Where those of whole steps take more, a sweep with few plans gains more than seeds of cut ones."""
    net, on, budget = small(share=0.4)
    judge, _, maps = judge_of(net, on, budget, most)
    starts(judge, maps, [], [], cuts=True)
    assert any(map(judge.knows, family(maps, seams=True))) == cut
    assert judge.count < most


def test_a_search_ends_when_nothing_is_left_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """One fully connected layer and a softmax have so few setups that all are soon planned; then no draw is new."""
    network, on = smallest(("fc",)), machine(1e5)
    counted, draws = [0], [0]

    def drawn(*given: Any) -> Setup:
        draws[0] += 1
        return changed(*given)

    monkeypatch.setattr(search, "changed", drawn)
    whole = dataclasses.replace(COMBINED, effort=1000, watch=lambda plans, most, seconds: counted.append(plans))
    plan(network, whole, on, least_plan(network, presets.setup("vdnn-all"), on).budget)
    assert 0 < counted[-1] < 1000 and draws[0] < 20_000
