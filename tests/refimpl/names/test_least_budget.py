"""What a budget has to be: a share of what the baseline needs, and the least that fits."""

from __future__ import annotations

import re

import pytest

import refimpl
from refimpl.machine import MACHINES
from refimpl.memory import BestFit, BlockHeap, BothEnds, FirstFit
from refimpl.memory.base import GRANULARITY
from refimpl.names import least_budget as fitting
from refimpl.names.advice import advise_only
from refimpl.names.by_name import budget_bytes
from refimpl.names.largest_batch import attempt
from refimpl.names.least_budget import MIB, least_budget, needed_by_baseline
from refimpl.names.networks import NETWORKS, build
from refimpl.names.presets import baseline, setup
from refimpl.planner import DoesNotFit, Setup, SetupError
from refimpl.slots.baseline import LayerWise
from tests.matrix import some

TITAN_X = MACHINES["titan-x"]
FEW = ("lenet", "googlenet", "alexnet:superneurons")  # the others are slow


@pytest.mark.parametrize("name", some(NETWORKS, *FEW))
def test_all_of_what_the_baseline_needs_holds_the_baseline(name: str) -> None:
    network = build(name)
    needed = budget_bytes("1.0", network, TITAN_X)
    program = refimpl.plan(network, "baseline", TITAN_X, 1.0)
    assert program.budget == program.pool_bytes == needed == needed_by_baseline(network, TITAN_X)
    assert program.verify().peak_bytes == program.peak_bytes <= needed
    assert needed <= fitting.least_budget(network, baseline(), TITAN_X) < needed + 2 * MIB  # type: ignore[operator]
    for share in (0.4, 1.3):
        assert budget_bytes(share, network, TITAN_X) == int(share * needed)


def test_512_bytes_less_than_the_least_do_not_fit() -> None:
    layer_wise = baseline().replace(liveness=LayerWise())
    for batch in (1, 2, 5):
        network = build("lenet", batch)
        least = least_budget(network, layer_wise, TITAN_X, GRANULARITY)
        assert least and attempt(network, layer_wise, TITAN_X, least)
        assert not attempt(network, layer_wise, TITAN_X, least - GRANULARITY)


@pytest.mark.parametrize("allocator", [BestFit(), FirstFit(), BothEnds(), BlockHeap()])
def test_a_plan_that_moves_nothing_is_replayed_and_not_planned_again(
    allocator: BestFit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same answer, from one plan."""
    network = build("tiny-resnet" if isinstance(allocator, FirstFit) else "lenet", 8)
    for wanted in (Setup("layer-wise", liveness=LayerWise()), setup("superneurons-recompute")):
        one = wanted.replace(allocator=allocator)
        assert fitting.moves_nothing(one)
        replayed = least_budget(network, one, TITAN_X, 4096)
        with monkeypatch.context() as patched:
            patched.setattr(fitting, "moves_nothing", lambda setup: False)
            assert least_budget(network, one, TITAN_X, 4096) == replayed
    assert not fitting.moves_nothing(setup("vdnn-all")) and not fitting.moves_nothing(setup("superneurons"))
    assert not fitting.moves_nothing(setup("baseline algorithms=vdnn-greedy"))


def test_the_least_budget_of_combined_is_searched_for() -> None:
    """Its unlimited plan moves nothing; with less memory it finds another one."""
    network = build("tiny-vgg")
    combined = setup("combined effort=2")
    least = least_budget(network, combined, TITAN_X, 1 << 18)
    baseline_least = least_budget(network, baseline(), TITAN_X, 1 << 18)
    assert least is not None and baseline_least is not None and least < 0.6 * baseline_least
    assert attempt(network, combined, TITAN_X, least) is not None


def test_errors_advise_only_the_presets_that_a_reader_has_met() -> None:
    def advised() -> list[str]:
        with pytest.raises(DoesNotFit) as found:
            refimpl.plan("tiny-resnet", "liveness=layer-wise", "titan-x", 0.6)
        return re.findall(r"--policy (\S+) fits", str(found.value))

    (anything,) = advised()
    try:
        advise_only("baseline", "vdnn-all")
        assert advised() == ["vdnn-all"] != [anything]
        advise_only("baseline")
        assert advised() == []
        with pytest.raises(SetupError):
            advise_only("no-such-preset")
    finally:
        advise_only()
    assert advised() == [anything]


@pytest.mark.parametrize(
    ("least", "changes", "text"),
    [
        (None, {}, "No budget is enough."),
        (None, {"policy": "vdnn-all"}, "No budget is enough. Within 6 MiB, --policy vdnn-all fits."),
        (7, {}, "It needs 7 MiB (--budget 7MiB)."),
        (
            7,
            {"liveness": "layer-wise", "algorithms": "memory"},
            "It needs 7 MiB (--budget 7MiB). Within 6 MiB, --set liveness=layer-wise --set algorithms=memory fits.",
        ),
    ],
)
def test_remedies_are_options_to_type(least: int | None, changes: dict[str, str], text: str) -> None:
    cheapest = fitting.Alternative(changes, 1.0) if changes else None
    assert str(fitting.Remedies(6 * MIB, least and least * MIB, cheapest)) == text


def test_the_least_budget_takes_names() -> None:
    by_name = refimpl.least_budget("tiny-vgg", "vdnn-all, join=no", "k40c", "host:1GiB")
    network, on = build("tiny-vgg"), MACHINES["k40c"]
    assert by_name == least_budget(network, setup("vdnn-all, join=no"), on)
    assert refimpl.least_budget("tiny-vgg", "vdnn-all", "k40c", "host:100KiB") is None
    with pytest.raises(refimpl.SetupError):
        refimpl.least_budget("tiny-vgg", "vdn-all")


def test_a_remedy_names_a_smaller_pool_or_a_larger_budget() -> None:
    one, more = 5 * MIB, 6 * MIB
    assert "A smaller pool fits" in str(fitting.Remedies(one, one, None)) and "5MiB" in str(
        fitting.Remedies(one, one, None)
    )
    assert "smaller" not in str(fitting.Remedies(one, more, None)) and "6MiB" in str(fitting.Remedies(one, more, None))
