"""`refimpl` in Python, from end to end; what fits, and what would."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import refimpl
from refimpl.machine import TITAN_X, Machine
from refimpl.names import least_budget
from refimpl.names.budgets import BudgetError
from refimpl.names.largest_batch import attempt, least_conceivable
from refimpl.names.least_budget import MIB, alternatives, needed_by_baseline, remedies
from refimpl.names.presets import baseline
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Setup
from refimpl.vdnnpp.pool_search import FoundPool
from tests.matrix import diagonal
from tests.refimpl.modules import least_bytes


def test_importing_refimpl_imports_nothing_of_it() -> None:
    program = (
        "import sys, refimpl; sys.exit(any(name.startswith('refimpl.') or name == 'numpy' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_budgets_of_every_kind() -> None:
    network = refimpl.networks.lenet(batch=8)
    needed = needed_by_baseline(network, TITAN_X)
    assert refimpl.plan(network).budget == TITAN_X.memory_bytes
    assert refimpl.plan(network, budget="1GiB").budget == 1 << 30
    assert refimpl.plan(network, budget=1.5).budget == int(1.5 * needed)
    assert refimpl.plan("lenet", machine="k40c").machine.name == "k40c"
    with pytest.raises(BudgetError):
        refimpl.plan(network, budget="twelve")


def test_what_does_not_fit_says_what_would() -> None:
    network = refimpl.networks.vgg16(batch=64)
    with pytest.raises(DoesNotFit) as refused:
        refimpl.plan(network, budget="6900MiB")
    assert str(refused.value).endswith("MiB). Within 6.738 GiB, --set liveness=layer-wise fits.")
    program = refimpl.plan(network, refimpl.presets.baseline(liveness="layer-wise"), budget="6900MiB")
    assert program.peak_bytes <= 6900 * MIB


# -- the least budget --------------------------------------------------------------------------------------------------


def smallest_of_all(network: Network, setup: Setup, machine: Machine) -> int:
    """The slow twin: every multiple of 1 MiB from the least conceivable one."""
    budget = -(-least_conceivable(network) // MIB) * MIB
    while attempt(network, setup, machine, budget) is None:
        budget += MIB
    return budget


@pytest.mark.parametrize(
    ("allocator", "liveness"), diagonal(["best-fit", "worst-fit", "both-ends"], ["layer-wise", "network-wide"])
)
def test_the_least_budget_fits_and_a_mebibyte_less_does_not(liveness: str, allocator: str) -> None:
    network = refimpl.networks.tiny_resnet(batch=64)
    setup = refimpl.presets.setup("baseline", {"liveness": liveness, "allocator": allocator})
    least = least_bytes(network, setup, TITAN_X)
    assert least % MIB == 0 and attempt(network, setup, TITAN_X, least)
    assert attempt(network, setup, TITAN_X, least - MIB) is None
    assert smallest_of_all(network, setup, TITAN_X) <= least
    if allocator == "best-fit":
        assert smallest_of_all(network, setup, TITAN_X) == least


def test_the_alternatives_differ_from_the_setup_as_they_say() -> None:
    found = list(alternatives(baseline(), seams=False))
    assert len(found) >= 3
    for changes, other in found:
        if "policy" not in changes:
            assert baseline().slots | changes == other.slots != baseline().slots


def test_what_would_fit_is_looked_for_once_the_message_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    def noted(*given: Any) -> str:
        looked.append(given)
        return "Take less."

    monkeypatch.setattr("refimpl.names.by_name.remedies", noted)
    with pytest.raises(refimpl.DoesNotFit) as caught:
        refimpl.plan("lenet", "baseline", "titan-x", "1MiB")
    assert not looked
    assert str(caught.value).endswith(". Take less.") and str(caught.value) == str(caught.value) and len(looked) == 1


def test_the_fastest_setup_that_fits_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three others: one does not fit, one is slower; searches for a pool are not asked where another fits."""
    network, seconds = refimpl.networks.lenet(batch=8), {"slow": 3.0, "quick": 1.0, "searching": 0.5}
    asked: list[str] = []
    fit: set[str] = set()

    def planned(network: Any, setup: Any, machine: Any, budget: int) -> Any:
        asked.append(setup)
        if setup == "unused tier":
            raise refimpl.SetupError("it uses no tier")
        return SimpleNamespace(planned_seconds=seconds[setup]) if setup in fit else None

    others = [
        ({"policy": name}, SimpleNamespace(allocator=FoundPool() if name == "searching" else None, quick=name))
        for name in ("unused tier", "slow", "searching", "quick")
    ]
    monkeypatch.setattr(least_budget, "alternatives", lambda setup, seams: iter(others))
    monkeypatch.setattr(least_budget, "attempt", planned)
    monkeypatch.setattr(least_budget, "least_budget", lambda *given: 5 * MIB)
    monkeypatch.setattr(least_budget, "smaller_pool", lambda *given: None)
    table: list[tuple[set[str], str | None, int]] = [
        ({"slow", "quick", "searching"}, "quick", 3),
        ({"slow"}, "slow", 3),
        ({"searching"}, "searching", 4),
        (set(), None, 4),
    ]
    for fitting, advised, asked_for in table:
        asked.clear()
        fit.clear()
        fit.update(fitting)
        found = remedies(network, baseline(), TITAN_X, 4 * MIB)
        assert (found.cheapest and found.cheapest.changes["policy"]) == advised and len(asked) == asked_for
        assert found.cheapest is None or found.cheapest.seconds == seconds[advised or ""]
        assert (found.budget_bytes, found.least_bytes) == (4 * MIB, 5 * MIB)
    assert asked[-1] == "searching"  # last
    asked.clear()
    assert remedies(network, baseline(), TITAN_X, 1).cheapest is None and not asked  # no setup can do with a byte
