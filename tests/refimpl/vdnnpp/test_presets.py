"""vDNN++'s dynamic policy: the order of its candidates, and what it says if nothing fits."""

from __future__ import annotations

import pytest

from refimpl.machine import MACHINES
from refimpl.memory import FirstFit
from refimpl.names import presets
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Context, Program, Search, Setup, SetupError, plan
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
