"""Lab A5a, an offload: pytest tutorials/labs/test_a5a.py --submission mine.py"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import accumulate
from typing import Any

import pytest

from refimpl import Context
from refimpl.accudnn.carried_out import Everything
from refimpl.combined.carried_out import InTime
from refimpl.combined.fixed import FixedAddresses
from refimpl.memory.allocation_trace import rounded
from refimpl.network import Tensor
from refimpl.planner import DoesNotFit, Program
from refimpl.slots import BoundOffload
from refimpl.text import duration, size
from tutorials.labs.gates import Marked
from tutorials.labs.lab import LAYER_WISE, Case, Lab, machine, network_of

#: The setup around the submission, which takes the place of `Everything`: a prefetch needs some offload.
SETUP = LAYER_WISE.replace(
    copy_streams="shared", allocator=FixedAddresses(), offload=Everything(), prefetch=InTime(slack=0.1)
)
LAB = Lab("a5a", ("offload",), {"SETUP": SETUP}, again=(1.06, 1.12, 1.2), trained=Case("", "lenet", 16, 4_723_712))


def held(context: Context, away: Collection[Tensor]) -> list[int]:
    """Bytes on the device at each step, by its number, while the maps that are `away` leave for as long as they wait.

    Each algorithm is the fastest; every block has a multiple of 512 bytes.
    """
    network = context.network
    change = [0] * (len(network.steps) + 2)
    change[0] = sum(rounded(tensor.nbytes) for tensor in network.resident)
    for tensor, uses in context.uses.items():
        if uses:
            first = 1 if tensor in context.batch else uses[0].number  # the batch is copied in before step 1
            spans = [(first, context.last_use(tensor))]
            if tensor in away:
                left, back = context.last_forward_use(tensor), context.first_backward_use(tensor)
                spans = [(first, left), (back, context.last_use(tensor))]
            for begin, end in spans:
                change[begin] += rounded(tensor.nbytes)
                change[end + 1] -= rounded(tensor.nbytes)
    found = [*accumulate(change)]
    for step in network.steps:
        workspaces = [machine().choices(call)[0].workspace_bytes for call in step.calls if call.choosable]
        found[step.number] += rounded(max(workspaces, default=0))
    return found


def waits(context: Context, tensor: Tensor) -> int:
    """The number of steps between a map's last use in forward and its first in backward."""
    return context.first_backward_use(tensor) - context.last_forward_use(tensor) - 1


Asked = Callable[[str, int, float], tuple[Context, BoundOffload]]


@pytest.fixture
def bound(modules: dict[str, Any]) -> Asked:
    """`bound("tiny-vgg", 16, 0.5)`: the submission, bound; the budget at a share of the way from the least to all."""

    def made(network: str, batch: int, share: float) -> tuple[Context, BoundOffload]:
        context = Context(network_of(network, batch), machine())
        least, most = (max(held(context, away)) for away in (context.maps_across(), ()))
        context.budget = int(least + share * (most - least))
        return context, modules["offload"].bind(context)

    return made


# -- step 1: some maps leave -------------------------------------------------------------------------------------------


def test_offloads_are_tensors_with_reasons(bound: Asked) -> None:
    context, mine = bound("tiny-vgg", 16, 0.5)
    found = mine.offloads()
    assert isinstance(found, Mapping), f"offloads() returns {found!r}; return a dict: each map, and why it leaves"
    for one, reason in found.items():
        assert isinstance(one, Tensor), f"offloads() has the key {one!r}; the keys are tensors of context.maps_across()"
        assert one in context.maps_across(), (
            f"{one} is not used in both passes; context.maps_across() has those that are"
        )
        assert isinstance(reason, str) and reason, f"offloads()[{one}] is {reason!r}; say in a few words why it leaves"
    assert found, "offloads() is empty, and the budget is too small for all maps; return some of context.maps_across()"


def test_a_map_leaves_after_its_last_writer(bound: Asked) -> None:
    context, mine = bound("tiny-resnet", 8, 0.5)
    after: dict[Tensor, list[int]] = {}
    for step in context.network.steps:
        for one in mine.leaves(step):
            after.setdefault(one, []).append(step.number)
    for one in mine.offloads():
        if one not in context.batch:  # nothing is copied: its copy on the host is there
            written = context.last_forward_write(one, context.network.depth + 1)
            steps = ", ".join(map(str, after.get(one, []))) or "none"
            assert after.get(one) == [written], (
                f"{one} is complete after step {written}, and leaves() names it after step {steps}; "
                "begin its copy as soon as it is complete: context.last_forward_write"
            )
    strange = [one for one in after if one not in mine.offloads()]
    assert not strange, f"leaves() names {strange[0]}, which offloads() does not have"


def test_a_map_that_is_needed_soon_stays(bound: Asked) -> None:
    context, mine = bound("tiny-resnet", 8, 0.5)
    for one in mine.offloads():
        assert waits(context, one) >= 2, (
            f"{one} is used by steps {context.last_forward_use(one)} and {context.first_backward_use(one)}: "
            "there is no time to leave and come back; let it stay"
        )


# -- step 2: as many as the budget asks for ----------------------------------------------------------------------------


def test_nothing_leaves_where_all_fits(bound: Asked) -> None:
    context, mine = bound("tiny-vgg", 16, 2.0)
    found = mine.offloads()
    assert not found, (
        f"all fits: the fullest step has {size(max(held(context, ())))} of {size(context.budget)} with all maps there; "
        f"{len(found)} maps leave, and none has to"
    )


def test_it_stops_when_the_books_fit(bound: Asked) -> None:
    for network, batch in (("tiny-resnet", 8), ("tiny-unet", 8)):
        context, mine = bound(network, batch, 0.4)
        away = [*mine.offloads()]
        now = held(context, away)
        step = now.index(max(now))
        assert now[step] <= context.budget, (
            f"{network}({batch}): with your maps away, step {step} ({context.network.steps[step - 1]}) has "
            f"{size(now[step])} of {size(context.budget)}; more have to leave (`held` in test_a5a.py counts the bytes)"
        )
        needed = [one for one in away if max(held(context, [x for x in away if x is not one])) > context.budget]
        assert needed, (
            f"{network}({batch}): {len(away)} maps leave, and without any one of them all steps fit, too; "
            "stop as soon as the fullest step fits"
        )


# -- step 3: in which order --------------------------------------------------------------------------------------------


Planned = Callable[..., Program]


def hardly_waits(planned: Planned, network: str, batch: int, budget: int, most: float, hint: str) -> None:
    """Fails where kernels wait for copies longer than `most` seconds."""
    where = f"{network}({batch}) in {size(budget)}"
    try:
        stall = planned(network, batch, budget).simulate().stall
    except DoesNotFit as error:
        pytest.fail(f"{where}: {error}", pytrace=False)
    assert stall <= most, f"{where}: kernels wait {duration(stall)} for copies; {duration(most)} are enough: {hint}"


def test_who_waits_longest_leaves_first(planned: Planned) -> None:
    hint = "let the maps leave first that wait longest, from last_forward_use to first_backward_use"
    hardly_waits(planned, "tiny-unet", 20, 15_905_792, 300e-6, hint)


# -- step 4: the fullest step, and the better of two choices -----------------------------------------------------------


def test_the_fullest_step_is_relieved(planned: Planned) -> None:
    hint = "choose at the fullest step, of the maps that wait through it, the one with the most slack a byte"
    hardly_waits(planned, "tiny-vgg", 48, 6_726_656, 140e-6, hint)


def test_the_faster_of_two_choices_is_taken(planned: Planned) -> None:
    hint = "plan with the maps of step 3 and with those of the fullest step, and take the faster"
    hardly_waits(planned, "tiny-inception", 60, 11_660_288, 150e-6, hint)


class TestMark(Marked):
    lab = LAB
