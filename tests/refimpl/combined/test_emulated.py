"""A combined program on the emulated GPU: the CUDA back end trains with it to the baseline's bits."""

from __future__ import annotations

import dataclasses

import pytest

from refimpl.combined import COMBINED
from refimpl.memory import UNLIMITED
from refimpl.names import presets
from refimpl.names.machines import named as machine
from refimpl.network.small import tiny_resnet
from refimpl.planner import plan
from refimpl.studies.reproduce.measured import SameAlgorithms, everything_held
from tests.refimpl.backend.running import differing, trained

pytestmark = [pytest.mark.combined, pytest.mark.emulated, pytest.mark.slow]

SLOW_LINK = dataclasses.replace(machine("h100").with_catalogue("own"), link=1e9)


def test_a_combined_program_trains_to_the_baseline_s_bits() -> None:
    net = tiny_resnet(batch=2, shape=(3, 12, 12))
    roomy = plan(net, presets.baseline(liveness="layer-wise"), SLOW_LINK, UNLIMITED)
    budget = (roomy.peak_bytes + net.resident_bytes) // 2
    program = plan(net, dataclasses.replace(COMBINED, effort=20), SLOW_LINK, budget)
    program.verify()
    assert {fate.name for fate in program.fates.values()} > {"keep"}
    same = plan(net, everything_held(SameAlgorithms.as_in(program)), SLOW_LINK, UNLIMITED)
    losses, state = trained(program, 2, backend="emulated")
    expected_losses, expected = trained(same, 2, backend="emulated")
    assert losses == expected_losses and differing(state, expected) == []
