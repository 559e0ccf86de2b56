"""vDNN's policies: what they are made of, and the order in which the dynamic one searches."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES
from refimpl.memory import FirstFit
from refimpl.network import Network
from refimpl.network.zoo import build
from refimpl.planner import DoesNotFit, Program, Search, SetupError, plan
from refimpl.registry import presets
from refimpl.registry.fitting import least_budget
from refimpl.vdnn import ALL, static
from tests.refimpl.backend.running import MACHINE, differing, plain_training, trained
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan

pytestmark = pytest.mark.vdnn

GIB = 2**30
TITAN_X = MACHINES["titan-x"]
ORDER = ["all (m)", "none (p)", "conv (p)", "all (p)", "conv (greedy)", "all (greedy)"]


def dynamic(network: Network, gib: float) -> Program:
    return plan(network, presets.setup("vdnn-dyn"), TITAN_X, int(gib * GIB))


def test_the_static_presets_are_the_papers() -> None:
    setup = presets.setup("vdnn-all", {"algorithms": "performance"})
    assert setup.slots["offload"] == "vdnn-all" and setup.slots["prefetch"] == "vdnn-window"
    assert setup.slots["algorithms"] == "performance" and setup.slots["allocator"] == "best-fit"
    assert setup.copy_streams == "shared" and setup.join
    assert presets.setup("vdnn-conv").slots["offload"] == "vdnn-conv"


@pytest.mark.parametrize(
    ("batch", "gib", "adopted"),
    [
        (64, 12, "none (p)"),
        (128, 10, "conv (p)"),
        (128, 8, "all (p)"),
        (256, 12, "all (p)"),
        (256, 11.9, "all (greedy)"),
    ],
)
def test_the_first_that_fits_is_adopted(batch: int, gib: float, adopted: str) -> None:
    """VGG-16 on a Titan X; every earlier one in the paper's order was tried, and did not fit."""
    program = dynamic(build("vgg16", batch), gib)
    assert program.setup.name == f"vdnn-dyn: {adopted}"
    assert [trial.setup for trial in program.tried] == ORDER[: ORDER.index(adopted) + 1]
    first, *others, last = program.tried
    assert first.fits and last.fits and not any(trial.fits for trial in others)
    assert all("missing" in trial.failure and "step" in trial.failure for trial in others)
    assert last.peak_bytes == program.peak_bytes <= gib * GIB


def test_an_untrainable_network_is_said_to_be_so() -> None:
    with pytest.raises(
        DoesNotFit, match=r"vgg16 is untrainable by vdnn-dyn: even all \(m\) does not fit in 8 GiB: step"
    ):
        dynamic(build("vgg16", 256), 8)


def test_what_it_searches_cannot_be_set_and_the_rest_can() -> None:
    policy = presets.setup("vdnn-dyn", {"allocator": "first-fit", "prefetch": "vdnn-window-literal"})
    assert isinstance(policy, Search)
    assert policy.slots["offload"] == policy.slots["algorithms"] == "searched"
    assert policy.slots["allocator"] == "first-fit"
    program = plan(build("vgg16", 128), policy, TITAN_X, 10 * GIB)
    assert isinstance(program.setup.allocator, FirstFit) and program.setup.slots["prefetch"] == "vdnn-window-literal"
    for slot in ("offload", "algorithms"):
        with pytest.raises(SetupError, match="chooses offload and algorithms itself; take vdnn-all or vdnn-conv"):
            presets.setup("vdnn-dyn", {slot: "none" if slot == "offload" else "memory"})


@given(networks(layers=10), st.sampled_from(("vdnn-all", "vdnn-conv")), st.sampled_from(("memory", "vdnn-greedy")))
def test_whatever_the_network_and_the_budget_the_bits_are_the_baselines(
    network: Network, preset: str, algorithms: str
) -> None:
    """The tightest budget, poison on; the program is proved, and what left came back."""
    program = least_plan(network, presets.setup(preset, {"algorithms": algorithms}), MACHINE)  # type: ignore[arg-type]
    program.verify()
    counts = program.counts
    assert counts.prefetched_bytes + counts.on_demand_bytes == counts.offloaded_bytes
    _, state = trained(program, 2, poison=True)
    assert differing(state, plain_training(program, 2)) == []


def test_the_least_budget_is_that_of_the_candidate_without_which_nothing_is_adopted() -> None:
    """To 1 MiB, and smallest tried: all (m) holds 10.88 GiB, where holes let it."""
    network, policy = build("vgg16", 256), presets.setup("vdnn-dyn")
    least = least_budget(network, policy, TITAN_X)
    assert least == least_budget(network, static("all (m)", ALL), TITAN_X) and 10.87 < least / GIB < 11.6
    program = plan(network, policy, TITAN_X, least)
    assert program.peak_bytes <= least


@pytest.mark.timing
def test_the_deepest_network_is_searched_within_ten_seconds() -> None:
    """On two cores; it takes about one."""
    network = build("vgg416", 32)
    start = time.process_time()
    assert plan(network, presets.setup("vdnn-dyn"), TITAN_X, 12 * GIB).tried
    assert time.process_time() - start < 10
