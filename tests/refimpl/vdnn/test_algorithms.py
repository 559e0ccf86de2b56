"""vDNN's greedy algorithms: a call steps down from its fastest one where that would overflow, and no other call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import Choice
from refimpl.vdnn import Greedy

pytestmark = pytest.mark.vdnn


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(-1, 10))
def test_it_steps_down_until_one_fits(workspaces: list[int], hole: int) -> None:
    """The fastest comes first; where none fits, the least workspace is taken, and the plan fails."""
    choices = [Choice(f"{place}", nbytes, 1.0 + place) for place, nbytes in enumerate(workspaces)]
    fitting = [choice for choice in choices if choice.workspace_bytes <= hole]
    least = [choice for choice in choices if choice.workspace_bytes == min(workspaces)]
    assert Greedy().pick(choices, hole) is [*fitting, *least][0]
