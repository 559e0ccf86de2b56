"""What fits: planning by name, the least budget of a setup, and what would fit where one does not."""

from refimpl.fit.advice import advise_only

__all__ = ["advise_only"]
