"""Signals in the middle of an iteration: the first one waits for its end, the second one does not."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from refimpl.backend.interrupts import held_interrupts, sigterm_as_ctrl_c

NUMBERS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[int]]:
    """The signals that reach the program's own handlers, in order; afterwards they are as before."""
    found: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: found.append(number)) for number in NUMBERS}
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_is_heard_at_the_end_and_a_second_one_at_once(number: int, heard: list[int]) -> None:
    own = signal.getsignal(number)
    with held_interrupts():
        signal.raise_signal(number)
        assert heard == []
    assert heard == [number] and signal.getsignal(number) == own
    with held_interrupts():
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGINT)
        assert heard == [number, signal.SIGINT]
    assert heard == [number, signal.SIGINT, number]


@pytest.mark.parametrize("held", [held_interrupts, sigterm_as_ctrl_c])
def test_another_thread_changes_no_handler(held: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    before: list[Any] = [signal.getsignal(number) for number in NUMBERS]
    inside: list[Any] = []

    def work() -> None:
        with held():
            inside.extend(signal.getsignal(number) for number in NUMBERS)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == before


def test_sigterm_is_ctrl_c_inside() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(KeyboardInterrupt), sigterm_as_ctrl_c():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
