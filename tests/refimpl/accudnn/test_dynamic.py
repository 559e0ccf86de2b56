"""The policy: which program it adopts, in how many plans, beside the other papers' policies, and what it says."""

from __future__ import annotations

import dataclasses
from functools import lru_cache

import pytest

from refimpl.accudnn import Model
from refimpl.accudnn.choice import choose
from refimpl.accudnn.dynamic import MOST_PLANS
from refimpl.combined.fixed import FixedAddresses
from refimpl.combined.papers import ACCUDNN
from refimpl.machine import MACHINES, Machine
from refimpl.memory import UNLIMITED
from refimpl.names import by_name, presets
from refimpl.names.largest_batch import attempt, unlimited_baseline
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Context, DoesNotFit, Program, Setup, plan
from tests.refimpl.accudnn.chains import FIVE
from tests.refimpl.modules import least_bytes

pytestmark = pytest.mark.accudnn

TITAN_X = MACHINES["titan-x"]
GIB, MIB = 1 << 30, 1 << 20


def budget_at(network: Network, machine: Machine, x: float) -> int:
    """Bytes: a share of the way from the least that the model can train in to the baseline's peak."""
    least = Model.of(Context(network, machine, UNLIMITED)).least()
    return int(least + x * (unlimited_baseline(network, machine).peak_bytes - least))


@lru_cache(maxsize=4)
def built(name: str, batch: int) -> Network:
    return build(name, batch)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "batch"), [("tiny-vgg", 32), ("tiny-resnet", 32)])
def test_wherever_vdnn_dyn_fits_it_fits_and_is_no_slower(name: str, batch: int) -> None:
    network, compared = built(name, batch), 0
    for percent in range(2, 100, 7):
        budget = budget_at(network, TITAN_X, percent / 100)
        theirs = attempt(network, presets.setup("vdnn-dyn"), TITAN_X, budget)
        if theirs:
            ours = plan(network, presets.setup("accudnn"), TITAN_X, budget)
            assert ours.planned_seconds <= 1.001 * theirs.planned_seconds
            compared += 1
    assert compared > 3


def test_what_was_tried_and_why() -> None:
    program = plan(build("alexnet", 256), presets.setup("accudnn"), TITAN_X, int(1.289 * GIB))
    failed, adopted = program.tried[:2]
    assert failed.setup == "0% free, best-fit" and not failed.fits and "missing" in failed.failure
    assert adopted.setup == "0% free, fixed-addresses" and adopted.seconds == program.planned_seconds
    assert adopted.note == "idle: 4 maps" and adopted.predicted == pytest.approx(program.planned_seconds, rel=0.01)


def test_a_decision_is_carried_out_with_both_allocators() -> None:
    """Its name has the share that is left free, its note what leaves; where nothing leaves nothing is prefetched."""
    decision = choose(FIVE, 10)
    assert decision is not None and [one.name for one in decision.coming] == ["y1"]
    found = [*ACCUDNN.carried_out(decision, 0.15, 4321)]
    assert [one.setup.name for one in found] == ["accudnn: 15% free, best-fit", "accudnn: 15% free, fixed-addresses"]
    assert [one.counted_first for one in found] == [False, True]
    assert {(one.predicted, one.note) for one in found} == {(decision.seconds, "idle: 1 map")}
    assert isinstance(found[1].setup.allocator, FixedAddresses) and found[1].setup.allocator.limit == 4321
    assert found[0].setup.slots["offload"] == "accudnn-model" and found[0].setup.slots["prefetch"] == "accudnn-late"
    capped = dataclasses.replace(decision, coming={}, caps={3: 512, 4: 0}, rank="slack")
    (first, _) = ACCUDNN.carried_out(capped, 0.0, 4321)
    assert first.note == "slack: 0 maps, 2 smaller workspaces" and first.setup.name == "accudnn: 0% free, best-fit"
    assert (first.setup.slots["offload"], first.setup.slots["prefetch"]) == ("none", "none")


def played(fits: str, network: Network, budget: int) -> tuple[Program | None, list[str]]:
    """The search, where only candidates whose name contains `fits` do; and what it planned."""
    asked: list[str] = []

    def attempted(setup: Setup) -> Program:
        asked.append(setup.name.partition(": ")[2])
        return plan(network, setup, TITAN_X, UNLIMITED if fits in setup.name else 1024)

    try:
        return ACCUDNN.search(attempted, Context(network, TITAN_X, budget)), asked
    except DoesNotFit:
        return None, asked


def test_the_last_resorts_in_their_order() -> None:
    network = build("tiny-vgg", 64)
    least = Model.of(Context(network, TITAN_X, UNLIMITED)).least()
    nothing, asked = played("no candidate at all", network, int(1.2 * least))
    assert nothing is None and len(asked) <= MOST_PLANS
    last = [
        "everything, prefetched", "everything, on demand", "everything (least), fixed-addresses",
        "everything (least), best-fit", "everything (least), first-fit",
    ]  # fmt: skip
    assert asked[-5:] == last and all("free" in name for name in asked[:-5])
    for name in last:
        program, asked = played(name, network, int(1.2 * least))
        assert program and program.setup.name == f"accudnn: {name}" and asked[-1] == name
    assert played("no candidate at all", network, least - 512)[1] == last  # the model cannot train: it chooses nothing


def test_a_budget_that_is_too_small_is_one_line_with_the_least() -> None:
    with pytest.raises(DoesNotFit) as refused:
        by_name.plan("lenet", "accudnn", "titan-x", "2MiB")
    said = str(refused.value)
    assert said.startswith("lenet is untrainable by accudnn: even everything (least) does not fit in 2 MiB")
    assert "\n" not in said and "It needs" in said
    least = least_bytes(build("lenet"), presets.setup("accudnn"), TITAN_X)
    assert f"(--budget {least // MIB}MiB)" in said
    by_name.plan("lenet", "accudnn", "titan-x", least).verify()
