"""vDNN's golden figures: bytes of the paper's networks, calculated once with the model of its specification.

They follow from networks and policies alone, and from no clock: moving one is a change of what the paper describes.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.network.accounting import network_wide_bytes
from refimpl.planner import plan
from refimpl.vdnn import ALL, CONV, OffloadInputs, static

pytestmark = pytest.mark.vdnn

GIB = 2**30


class Golden(NamedTuple):
    """Bytes offloaded; of these prefetched by the window; the most alive, and where.  Least workspaces."""

    offloaded: int
    prefetched: int
    live: int
    step: str


FIGURES = {
    ("googlenet", 128): (
        Golden(3_010_158_592, 2_733_989_888, 1_027_604_480, "step 276 (pool1 backward)"),
        Golden(1_356_357_632, 1_356_357_632, 1_767_800_832, "step 175 (4e.pool backward)"),
    ),
    ("vgg16", 256): (
        Golden(15_414_067_200, 15_414_067_200, 10_019_143_680, "step 72 (conv1_2 backward)"),
        Golden(9_145_679_872, 9_145_679_872, 11_509_170_176, "step 70 (pool1 backward)"),
    ),
    ("vgg116", 32): (
        Golden(17_597_726_720, 17_597_726_720, 1_644_167_168, "step 432 (conv1_22 backward)"),
        Golden(16_814_178_304, 16_814_178_304, 1_644_167_168, "step 432 (conv1_22 backward)"),
    ),
}


@pytest.mark.parametrize(("module", "which"), [(ALL, 0), (CONV, 1)], ids=("all", "conv"))
@pytest.mark.parametrize(("name", "batch"), FIGURES, ids=lambda value: str(value))
def test_bytes_of_a_network_under_a_policy(name: str, batch: int, module: OffloadInputs, which: int) -> None:
    golden = FIGURES[name, batch][which]
    program = plan(build(name, batch), static("test", module), MACHINES["titan-x"], UNLIMITED)
    counts, peak = program.counts, program.peak
    assert (counts.offloaded_bytes, counts.prefetched_bytes, peak.live_bytes, str(peak.step)) == golden
    assert counts.on_demand_bytes == golden.offloaded - golden.prefetched


@pytest.mark.parametrize(
    ("name", "batch", "gib"),
    [
        ("alexnet", 128, 0.990), ("overfeat", 128, 1.916), ("googlenet", 128, 3.694), ("vgg16", 256, 21.688),
        ("vgg416", 32, 65.267),
    ],
)  # fmt: skip
def test_the_network_wide_total_without_workspaces(name: str, batch: int, gib: float) -> None:
    assert network_wide_bytes(build(name, batch)) / GIB == pytest.approx(gib, abs=0.001)
