"""Predicted and measured images a second, really, on this CPU; see `real_check`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.refimpl.accudnn.real_check import CASES

pytestmark = [pytest.mark.accudnn, pytest.mark.campaign]  # too uncertain where other programs run


def test_images_a_second_grow_with_the_batch_as_predicted() -> None:
    """Within 15 %, at five batches of two networks; at the largest of each something leaves."""
    command = [sys.executable, "-m", "tests.refimpl.accudnn.real_check"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=True).stdout
    lines = [line.split() for line in said.splitlines()]
    assert len(lines) == sum(map(len, CASES.values()))
    assert max(abs(float(line[-1])) for line in lines) < 0.15, said
    assert all(int(line[7]) > 0 for line in (lines[4], lines[9])), said
