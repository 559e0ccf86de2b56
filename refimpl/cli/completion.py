"""Shell completion by argcomplete: commands, options, and the names of this project's things.

Bash and zsh: `eval "$(register-python-argcomplete refimpl)"`; fish: `register-python-argcomplete --shell fish refimpl |
source`.  The shell then runs the command with `_ARGCOMPLETE` set; argcomplete is imported only in that case.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from functools import partial
from typing import Any

#: Argument, as `argparse` stores it → the kind of its names.  The shell offers files for all others.
KINDS = {
    "network": "networks", "networks": "networks", "machine": "machines",
    "tiers": "tiers", "policy": "presets", "assignments": "assignments",
    "setups": "setups", "against": "setups", "data": "data",
}  # fmt: skip


def words_to_complete() -> list[str]:
    """The words of the line that a shell wants completed; none if no shell is asking."""
    return os.environ.get("COMP_LINE", "").split() if "_ARGCOMPLETE" in os.environ else []


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and end the process, if a shell is asking."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        offer_names(parser)
        argcomplete.autocomplete(parser)


def offer_names(parser: argparse.ArgumentParser) -> None:
    """Tell argcomplete which names an argument takes, of all commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                offer_names(command)
        elif action.dest in KINDS and action.metavar != "FILE":
            action.completer = partial(names, KINDS[action.dest])  # type: ignore[attr-defined]


def names(kind: str, prefix: str, **asked: Any) -> Iterable[str]:
    """All names of a kind; argcomplete takes those that begin with `prefix`."""
    if kind == "networks":
        from refimpl.names.networks import NETWORKS

        files = (name for name in os.listdir() if name.endswith(".onnx"))
        named = (name for name in NETWORKS if ":" in prefix or ":" not in name)
        return [*named, *files] + ["resnet:"] * (":" not in prefix)
    if kind == "machines":
        from refimpl.machine import MACHINES

        return [*MACHINES, "here", *(name for name in os.listdir() if name.endswith((".json", ".toml")))]
    if kind == "tiers":
        from refimpl.memory.tiers import RATES

        return RATES
    if kind == "presets":
        from refimpl.names.presets import NEIGHBOURS, PRESETS

        return [*PRESETS, *NEIGHBOURS]
    if kind == "assignments":
        from refimpl.names.modules import MODULES, SWITCHES

        slots = MODULES | SWITCHES
        slot, equals, _ = prefix.partition("=")
        return [f"{slot}={name}" for name in slots.get(slot, ())] if equals else [f"{slot}=" for slot in slots]
    if kind == "setups":
        return (*names("presets", prefix), *names("assignments", prefix))
    return ("digits", "text", "synthetic", *(name for name in os.listdir() if name.endswith((".npz", ".txt"))))  # data
