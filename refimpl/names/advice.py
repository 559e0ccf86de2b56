"""Which presets an error may advise: all, or those that the reader of a notebook has met."""

from __future__ import annotations

from refimpl.names.presets import setup

_met: set[str] = set()  # empty: all


def advise_only(*presets: str) -> None:
    """From now on errors advise no other presets than these; without a name they advise any.

    Args:
        presets: names, as `--policy` takes them.
    """
    for preset in presets:
        setup(preset)  # an unknown name is refused
    _met.clear()
    _met.update(presets)


def may_advise(preset: str) -> bool:
    """Whether the reader has met a preset."""
    return not _met or preset in _met
