"""Errors by what has to be in them.

The words of a message are free: a test looks for the names and the numbers that its reader needs.  What a command
prints word for word is in the golden files alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def lacks(message: str, *parts: object) -> list[str]:
    """The names and numbers that a message does not have, each as a word of its own."""
    words = [str(part) for part in parts]
    return [word for word in words if not re.search(rf"(?<![\w.]){re.escape(word)}(?!\w|\.\w)", message)]


@contextmanager
def raises_naming(error: type[BaseException], *parts: object) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Inside, this error is raised, in one line that has all these names and numbers."""
    with pytest.raises(error) as caught:
        yield caught
    message = str(caught.value)
    assert "\n" not in message
    assert not (missing := lacks(message, *parts)), f"{', '.join(missing)} not in: {message}"
