"""vDNN's policies: what they are made of, and the order in which the dynamic one searches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.machine import MACHINES
from refimpl.memory import BestFit
from refimpl.names import presets
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Program, Setup, plan
from refimpl.slots.algorithms import MemoryOptimal, PerformanceOptimal
from refimpl.slots.baseline import NoOffload
from refimpl.vdnn import ALL, CONV, Greedy, static
from tests.refimpl.backend.running import MACHINE
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan

pytestmark = pytest.mark.vdnn

GIB = 2**30
TITAN_X = MACHINES["titan-x"]
ORDER = ["all (m)", "none (p)", "conv (p)", "all (p)", "conv (greedy)", "all (greedy)"]


def dynamic(network: Network, gib: float) -> Program:
    return plan(network, presets.setup("vdnn-dyn"), TITAN_X, int(gib * GIB))


@pytest.mark.parametrize("name", ["vdnn-all", "vdnn-conv"])
@pytest.mark.parametrize("algorithms", ["memory", "performance", "vdnn-greedy"])
def test_the_static_presets_are_the_papers(name: str, algorithms: str) -> None:
    """One memory stream, a join, cnmem's best fit, a pinned buffer a map; only offload and algorithms differ."""
    setup = presets.setup(name, {"algorithms": algorithms})
    assert setup.slots == {
        "recompute": "none", "offload": name, "liveness": "layer-wise", "prefetch": "vdnn-window", "cache": "none",
        "algorithms": algorithms, "allocator": "best-fit", "pinned": "buffer-a-map",
    }  # fmt: skip
    assert (setup.copy_streams, setup.join, setup.barrier) == ("shared", True, False)
    assert setup.allocator == BestFit(granularity=512)


def candidates() -> dict[str, Setup]:
    """The paper's list, written down once more: name → offload and algorithms."""
    offloads = {"none": NoOffload(), "conv": CONV, "all": ALL}
    algorithms = {"(m)": MemoryOptimal(), "(p)": PerformanceOptimal(), "(greedy)": Greedy()}
    return {name: static(name, offloads[name.split()[0]], algorithms[name.split()[1]]) for name in ORDER}


@pytest.mark.slow
@given(networks(layers=10), st.floats(0.8, 3))
@settings(max_examples=12)
def test_the_dynamic_policy_is_the_first_of_the_papers_list_that_fits(network: Network, share: float) -> None:
    """Each candidate planned alone; all (m) decides whether any is tried, and is adopted last."""
    budget = int(share * least_plan(network, presets.setup("vdnn-all"), MACHINE).budget)  # type: ignore[arg-type]
    frugal, *others = [name for name, setup in candidates().items() if attempt(network, setup, MACHINE, budget)] or [""]
    try:
        program = plan(network, presets.setup("vdnn-dyn"), MACHINE, budget)
    except DoesNotFit:
        assert frugal != ORDER[0], "untrainable exactly where all (m) does not fit"
        return
    assert program.setup.name == f"vdnn-dyn: {others[0] if others else frugal}"
    assert [(trial.setup, trial.fits) for trial in program.tried if trial.fits][0] == (ORDER[0], True)


@pytest.mark.parametrize(
    ("name", "batch", "gib", "adopted"),
    [
        ("alexnet", 128, 1.2, "conv (p)"),
        ("vgg16", 64, 12, "none (p)"),
        ("vgg16", 128, 8, "all (p)"),
        ("vgg16", 256, 11.9, "all (greedy)"),
        ("overfeat", 128, 2.5, "conv (greedy)"),
    ],
)
def test_the_first_that_fits_is_adopted(name: str, batch: int, gib: float, adopted: str) -> None:
    """On a Titan X; every earlier one in the paper's order was tried, and did not fit."""
    program = dynamic(build(name, batch), gib)
    assert program.setup.name == f"vdnn-dyn: {adopted}"
    assert [trial.setup for trial in program.tried] == ORDER[: ORDER.index(adopted) + 1]
    first, *others, last = program.tried
    assert first.fits and last.fits and not any(trial.fits for trial in others)
    assert all("missing" in trial.failure and "step" in trial.failure for trial in others)
    assert last.peak_bytes == program.peak_bytes <= gib * GIB
