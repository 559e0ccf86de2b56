"""vDNN++'s dynamic policy: the order of its candidates, a budget for each outcome, and what it says if nothing fits."""

from __future__ import annotations

import pytest

from refimpl.machine import MACHINES
from refimpl.memory import FirstFit
from refimpl.names import presets
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Context, DoesNotFit, Program, Search, Setup, SetupError, plan
from refimpl.vdnnpp import VDNNPP_DYN
from tests.messages import raises_naming

pytestmark = pytest.mark.vdnnpp

MIB = 2**20
TITAN_X = MACHINES["titan-x"]
PLENTY = 1 << 40

#: Of the specification: first that all can do without any workspace, then from fast to frugal.
ORDER = [
    "all (least)", "none (fastest)", "conv (fastest)", "all (fastest)",
    "conv (fitting)", "all (fitting)", "conv (least)", "all (least)",
]  # fmt: skip


@pytest.fixture(scope="module")
def vgg() -> Network:
    return build("vgg16:vdnnpp", 128)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mib", "adopted"),
    [
        (12000, "none (fastest)"),
        (10500, "conv (fastest)"),
        (9000, "all (fastest)"),
        (8300, "conv (fitting)"),
        (7700, "all (fitting)"),
    ],
)
def test_the_first_that_fits_is_adopted(vgg: Network, mib: int, adopted: str) -> None:
    """VGG-16(128) on a Titan X; every earlier one was tried, and did not fit."""
    program = plan(vgg, presets.setup("vdnnpp-dyn"), TITAN_X, mib * MIB)
    assert program.setup.name == f"vdnnpp-dyn: {adopted}"
    assert [trial.setup for trial in program.tried] == ORDER[: ORDER.index(adopted, 1) + 1]
    first, *others, last = program.tried
    assert first.fits and last.fits and not any(trial.fits for trial in others)
    assert all("missing" in trial.failure and "step" in trial.failure for trial in others)
    assert last.peak_bytes == program.peak_bytes <= mib * MIB
    assert last.seconds == program.planned_seconds


def test_an_untrainable_network_is_said_to_be_so(vgg: Network) -> None:
    message = ("vgg16:vdnnpp", "vdnnpp-dyn", "4.883 GiB")
    with raises_naming(DoesNotFit, *message):
        plan(vgg, presets.setup("vdnnpp-dyn"), TITAN_X, 5000 * MIB)


@pytest.mark.parametrize("fits", range(1, len(ORDER)))
def test_the_order_by_what_fits_and_nothing_else(fits: int) -> None:
    """With the memory played: everything fits from the nth candidate on, or only the nth and what makes it trainable.

    The two last outcomes need a pool whose holes refuse a workspace that is smaller than they are; budgets for them
    are hard to find.
    """
    network = build("tiny-vgg:vdnnpp", 2)
    asked: list[str] = []

    def played(setup: Setup, smaller: bool | None = None) -> Program:
        candidate = setup.name.partition(": ")[2]
        asked.append(candidate)
        if len(asked) > 1 and candidate != ORDER[fits]:
            plan(network, setup, TITAN_X, 1024)  # raises
        return plan(network, setup, TITAN_X, PLENTY)

    program = VDNNPP_DYN.search(played, Context(network, TITAN_X, PLENTY))
    assert program.setup.name == f"vdnnpp-dyn: {ORDER[fits]}"
    assert asked == ORDER[: fits + 1] == [trial.setup for trial in program.tried]


def test_no_time_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where everything fits, "none" is adopted, though on this machine nothing would be faster than another."""
    monkeypatch.setattr(Program, "simulate", lambda self: pytest.fail("the policy tests memory alone"))
    program = plan(build("tiny-vgg:vdnnpp", 2), VDNNPP_DYN, TITAN_X, PLENTY)
    assert program.setup.name == "vdnnpp-dyn: none (fastest)" and program.counts.offloaded_bytes == 0


def test_what_it_searches_cannot_be_set_and_the_rest_can(vgg: Network) -> None:
    policy = presets.setup("vdnnpp-dyn", {"allocator": "first-fit", "prefetch": "vdnnpp-window-late"})
    assert isinstance(policy, Search)
    assert policy.slots["offload"] == policy.slots["algorithms"] == "searched"
    assert policy.slots["pinned"] == "vdnnpp-compressed"
    program = plan(vgg, policy, TITAN_X, 10500 * MIB)
    assert isinstance(program.setup.allocator, FirstFit) and program.setup.slots["prefetch"] == "vdnnpp-window-late"
    for slot, module in (("offload", "none"), ("algorithms", "memory")):
        with raises_naming(SetupError, "vdnnpp-all", "vdnnpp-conv"):
            presets.setup("vdnnpp-dyn", {slot: module})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-vgg", "tiny-inception:vdnnpp", "tiny-resnet:superneurons"])
def test_from_plenty_down_to_nothing(name: str) -> None:
    """Whatever is adopted fits the budget and is proved; what does not fit even all (least) is untrainable."""
    network = build(name, 64)
    enough = 2 * plan(network, VDNNPP_DYN, TITAN_X, PLENTY).peak_bytes
    adopted: list[str] = []
    for budget in range(enough, 0, -enough // 12):
        try:
            program = plan(network, VDNNPP_DYN, TITAN_X, budget)
        except DoesNotFit as error:
            assert "untrainable by vdnnpp-dyn" in str(error)
            continue
        program.verify()
        assert program.peak_bytes <= budget
        adopted.append(program.setup.name.removeprefix("vdnnpp-dyn: "))
    assert len(set(adopted)) > 1 and set(adopted) <= {*ORDER}
