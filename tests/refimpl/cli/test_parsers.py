"""Every command's description, examples and options, whole: nothing in them may differ.

`parsers.txt` has them.  After a change that is meant to change them, `python -m tests.refimpl.cli.test_parsers`
rewrites it: read the difference before you commit it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from refimpl.cli import COMMANDS, parser

STORED = Path(__file__).parent / "parsers.txt"


def lines(one: argparse.ArgumentParser, name: str) -> Iterator[str]:
    """What a parser says of itself, and of all that it parses, commands below it too."""
    yield f"{name}\n  {one.description}\n"
    if one.epilog:
        yield f"  {' | '.join(one.epilog.splitlines())}\n"
    for group in one._action_groups:
        if group.description:  # those of argparse have none, and other titles in each version of Python
            yield f"  {group.title}: {group.description}\n"
        for action in group._group_actions:
            if action.dest != "help":
                yield f"    {told(action)}\n"
    for group in one._mutually_exclusive_groups:
        yield f"  one of: {', '.join(action.dest for action in group._group_actions)}\n"
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner, below in action.choices.items():
                if name != "refimpl":
                    yield from lines(below, f"{name} {inner}")


def told(action: argparse.Action) -> str:
    """An option or an argument."""
    words = [" ".join(action.option_strings) or action.dest, f"({type(action).__name__.strip('_')}, to {action.dest})"]
    words += [
        f"{what}={value!r}"
        for what in ("metavar", "nargs", "const", "default")
        if plain(value := getattr(action, what))
    ]
    choices = [] if action.choices is None else [*action.choices]
    return " ".join([*words, *([f"of {', '.join(map(str, choices))}"] if choices else []), f": {action.help}"])


def plain(value: object) -> bool:
    return isinstance(value, str | int | float | list | tuple)


def told_of_all() -> str:
    every = parser()
    below = next(action for action in every._actions if isinstance(action, argparse._SubParsersAction))
    blocks = [lines(every, "refimpl"), *(lines(below.choices[name], f"refimpl {name}") for name in COMMANDS)]
    return "\n".join("".join(block) for block in blocks)


def test_the_commands_say_the_same_of_themselves() -> None:
    assert told_of_all() == STORED.read_text(encoding="utf-8")


if __name__ == "__main__":
    STORED.write_text(told_of_all(), encoding="utf-8")
    sys.stdout.write("1 file written\n")
