"""The largest network that fits: the search beside the slow twin that plans every size."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.checks.arguments import KernelError
from refimpl.memory import UNLIMITED, BestFit, BlockHeap
from refimpl.names import largest_batch as searching
from refimpl.names.largest_batch import attempt, largest, least_conceivable, reach
from refimpl.names.networks import build
from refimpl.network import Builder, Network
from refimpl.planner import Setup
from refimpl.slots.baseline import NetworkWide
from tests.messages import raises_naming
from tests.refimpl.modules import LastUsed, OffloadSome, machine, setup

MACHINE = machine()
MIB = 1 << 20
BUDGET = 2 * MIB

PLAIN = setup()
SETUPS = {
    "network-wide": setup(liveness=NetworkWide()),
    "offload": setup(offload=OffloadSome(), allocator=BlockHeap()),
    "evict": setup(cache=LastUsed(), allocator=BestFit()),
}


def tiny(batch: int) -> Network:
    return build("tiny-vgg", batch)


def fitting(wanted: Setup, budget: int, up_to: int) -> list[int]:
    """The slow twin: every size that fits."""
    return [size for size in range(1, up_to + 1) if attempt(tiny(size), wanted, MACHINE, budget)]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETUPS)
def test_it_fits_and_one_more_does_not(name: str) -> None:
    found = largest(tiny, SETUPS[name], MACHINE, BUDGET)
    assert found.size > 5 and found.program is not None
    assert found.program.network.batch == found.size and found.program.peak_bytes <= BUDGET
    assert found.tried[found.size] and found.tried.get(found.size + 1) in (False, None)
    assert found.size == max(size for size, fits in found.tried.items() if fits)
    every = fitting(SETUPS[name], BUDGET, found.size * 3 // 2)
    assert found.size in every and found.size + 1 not in every
    if every == list(range(1, len(every) + 1)):  # monotone here, as it mostly is: then there is no larger one
        assert found.size == every[-1]


def test_the_search_ends_at_the_threshold_from_wherever_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes up to `last` fit, the search begins at `guess`, and nothing above `most` is conceivable."""
    for most in range(13):
        for guess, last in itertools.product(range(most + 1), repeat=2):
            reached = iter((most, guess))
            monkeypatch.setattr(searching, "reach", lambda nbytes, budget, reached=reached: next(reached))
            monkeypatch.setattr(searching, "least_conceivable", lambda size, setup: 0)
            monkeypatch.setattr(searching, "plan", lambda *asked: SimpleNamespace(peak_bytes=0))
            monkeypatch.setattr(searching, "attempt", lambda size, *asked, last=last: size <= last or None)
            found = largest(lambda size: size, PLAIN, MACHINE, BUDGET)  # type: ignore[arg-type,return-value]
            assert found.size == last, (most, guess, found.tried)


def test_nothing_fits() -> None:
    found = largest(tiny, PLAIN, MACHINE, MIB // 4)
    assert found.size == 0 and found.program is None and not any(found.tried.values())
    one = least_conceivable(tiny(1))
    found = largest(tiny, SETUPS["network-wide"], MACHINE, one)  # conceivable, and yet too little
    assert found.size == 0 and found.tried == {1: False}


def with_many_numbers(batch: int) -> Network:
    """A map of 2²⁶ numbers an image: 31 images are 2³¹ less 2²⁶ of them, and no kernel can index those of 32."""
    b = Builder("many", (batch, 1, 1 << 13, 1 << 13))
    b.conv(1, 1)
    b.pixel_softmax()
    return b.build()


def test_a_size_that_no_kernel_can_index_is_too_large() -> None:
    found = largest(with_many_numbers, PLAIN, MACHINE, UNLIMITED // 2)
    assert found.size == 31 and found.tried[32] is False and "2147483647" in (found.no_kernel or "")
    assert largest(with_many_numbers, PLAIN, MACHINE, 4 << 30).no_kernel is None
    with raises_naming(KernelError, "2147483647"):
        largest(lambda batch: with_many_numbers(32 * batch), PLAIN, MACHINE, UNLIMITED // 2)


@given(st.integers(0, 10**6), st.integers(0, 10**4), st.integers(0, 10**7))
@settings(max_examples=50)
def test_reach_is_the_last_size_within_the_budget(one: int, step: int, budget: int) -> None:
    size = reach([one, one + step], budget)
    if one > budget:
        assert size == 0
    elif step:
        assert one + (size - 1) * step <= budget < one + size * step
