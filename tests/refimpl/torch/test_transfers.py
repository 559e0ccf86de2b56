"""Waits: with copies that run only when something waits for them, a wait that is missing gives wrong gradients."""

from __future__ import annotations

from typing import Any

import pytest

import refimpl

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from refimpl.torch import DeferredTransfers, Planned  # noqa: E402
from tests.matrix import more  # noqa: E402
from tests.refimpl.torch.trained_modules import SHAPE, Beside, Branches, penalised, program_of, same  # noqa: E402


@pytest.fixture(scope="module")
def beside() -> Beside:
    module = Branches().train()
    module.pool = torch.nn.Conv2d(32, 32, 2, stride=2)  # a pooling saves its input and reads nothing but its shape
    return Beside(module)


@pytest.fixture(scope="module")
def network(beside: Beside) -> Any:
    return refimpl.networks.from_torch(beside.module, SHAPE)


@pytest.mark.parametrize("policy", ["vdnn-all", "superneurons-offload", "vdnnpp-all"])
def test_the_same_bits_where_copies_are_late_and_freed_blocks_are_overwritten(
    beside: Beside, network: Any, policy: str
) -> None:
    planned = Planned(beside.module, program_of(network, policy), transfers=DeferredTransfers())
    right = beside.iteration(beside.plain, beside.module)
    assert same(right, beside.iteration(beside.plain, planned))
    assert same(right, beside.iteration(beside.plain, planned))


def autocast(beside: Beside, model: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = functional.cross_entropy(model(beside.x), beside.y)
        loss.backward()  # what runs again is not cast once more
    return loss


@pytest.mark.parametrize("policy", ["vdnn-all", "superneurons"])
@pytest.mark.parametrize("loop", [penalised, autocast], ids=lambda loop: loop.__name__)
def test_what_others_still_hold_is_not_overwritten(beside: Beside, network: Any, loop: Any, policy: str) -> None:
    planned = Planned(beside.module, program_of(network, policy), transfers=DeferredTransfers())

    def step(model: Any) -> Any:
        return loop(beside, model)

    right = beside.iteration(step, beside.module)
    for _ in range(3):
        assert same(right, beside.iteration(step, planned))


@pytest.mark.parametrize("policy", ["vdnn-all", more("superneurons-offload")])
def test_a_wait_that_is_left_out_is_found(beside: Beside, network: Any, policy: str) -> None:
    program = program_of(network, policy)
    right = beside.iteration(beside.plain, beside.module)
    complete = DeferredTransfers()
    beside.iteration(beside.plain, Planned(beside.module, program, transfers=complete))
    assert complete.waits > 4 and not complete.late_writes
    caught = 0
    planned = Planned(beside.module, program)
    for number in range(1, complete.waits + 1):
        transfers = DeferredTransfers()
        transfers.leave_out = number
        planned._transfers = transfers
        wrong = not same(right, beside.iteration(beside.plain, planned)) or transfers.late_writes > 0
        assert wrong == transfers.was_needed, number
        caught += wrong
    assert caught > 4  # the others are made up for by a later one, before the module lets go of what is copied


def test_a_block_is_freed_as_soon_as_its_copy_is_over() -> None:
    transfers = DeferredTransfers()
    storage = torch.ones(2).untyped_storage()
    host, event = transfers.out(storage, "cpu")
    assert not transfers.is_over(event)
    other, later = transfers.out(storage, "cpu")
    transfers.wait(later)  # the copies of a stream run in their order
    assert transfers.is_over(event) and host.tolist() == other.tolist() == storage.tolist()
    back, event = transfers.back(host, "cpu")
    assert back.tolist() == [0xFF] * 8
    transfers.wait(event)
    assert back.tolist() == storage.tolist()
    assert (transfers.out_bytes, transfers.in_bytes) == (16, 8)
