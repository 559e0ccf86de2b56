"""The errors of this room."""

from __future__ import annotations

from refimpl.text import RefimplError


class PlannedError(RefimplError, ValueError):
    """A module, a plan or an input that do not fit together: one line that says what to do."""
