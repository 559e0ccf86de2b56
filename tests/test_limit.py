"""An endless loop is a failed test with a traceback, and the other tests go on."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.limit import Endless, limited


def test_a_loop_is_ended() -> None:
    with pytest.raises(Endless, match=r"0\.05 s of processor time; more: pytest --limit"), limited(0.05):
        while True:
            with suppress(Exception):
                sum(range(1000))


def test_the_limit_ends_with_the_test() -> None:
    with limited(0.05):
        pass
    for _ in range(100):
        sum(range(20_000))
