"""Shell completion by argcomplete: commands, options, and the names of this project's things.

Bash and zsh: `eval "$(register-python-argcomplete refimpl)"`; fish: `register-python-argcomplete --shell fish refimpl |
source`.  The shell then runs the command with `_ARGCOMPLETE` set; argcomplete is imported only in that case.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and end the process, if a shell is asking."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)


def names(kind: str, start: str) -> Iterable[str]:
    """All names of a kind, of which those are offered that begin with `start`."""
    if kind == "networks":
        from refimpl.network.zoo import NETWORKS

        files = (name for name in os.listdir() if name.endswith(".onnx"))
        named = (name for name in NETWORKS if ":" in start or ":" not in name)
        return [*named, *files] + ["resnet:"] * (":" not in start)
    if kind == "machines":
        from refimpl.machine import MACHINES

        return [*MACHINES, "here", *(name for name in os.listdir() if name.endswith(".json"))]
    if kind == "catalogues":
        from refimpl.machine import CATALOGUES

        return CATALOGUES
    if kind == "tiers":
        from refimpl.machine.tiers import RATES

        return RATES
    if kind == "presets":
        from refimpl.registry.presets import PRESETS

        return PRESETS
    if kind == "assignments":
        from refimpl.registry.modules import MODULES, SWITCHES

        slots = MODULES | SWITCHES
        slot, equals, _ = start.partition("=")
        return [f"{slot}={name}" for name in slots.get(slot, ())] if equals else [f"{slot}=" for slot in slots]
    if kind == "setups":
        return (*names("presets", start), *names("assignments", start))
    return ("digits", "synthetic", *(name for name in os.listdir() if name.endswith(".npz")))  # data
