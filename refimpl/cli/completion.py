"""`refimpl completion`: a shell's script for completing the command's words.

The scripts are a few lines each: they hand the line typed so far to the command, which knows its own arguments and the
names of all networks, machines, presets and modules.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from refimpl.cli.arguments import DONE, Parser, add_command

ASKED = "__complete"  #: refimpl __complete SHELL LINE: what the scripts ask

SCRIPTS = {
    "bash": """\
_refimpl() {
    local IFS=$'\\n'
    COMPREPLY=($(refimpl __complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -F _refimpl refimpl
""",
    "zsh": """\
#compdef refimpl
_refimpl() {
    local -a found
    found=(${(f)"$(refimpl __complete zsh "${(j: :)words[1,CURRENT]}" 2>/dev/null)"})
    (( ${#found} )) || { _files; return }
    compadd -S '' -- ${(M)found:#*=}
    compadd -- ${found:#*=}
}
compdef _refimpl refimpl
""",
    "fish": """\
function __refimpl_complete
    set -l found (refimpl __complete fish (commandline -cp | string collect) 2>/dev/null)
    if test (count $found) -gt 0
        string join \\n -- $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c refimpl -f -a '(__refimpl_complete)'
""",
}

WHERE = {
    "bash": 'add to ~/.bashrc:  eval "$(refimpl completion bash)"',
    "zsh": 'add to ~/.zshrc, behind compinit:  eval "$(refimpl completion zsh)"',
    "fish": "refimpl completion fish > ~/.config/fish/completions/refimpl.fish",
}


def add(commands: Any) -> None:
    parser = add_command(
        commands, "completion", "completion for a shell",
        "Print the script that makes a shell complete refimpl's words: commands, options, networks, modules, …",
        [f"{shell}: {how}" for shell, how in WHERE.items()],
    )  # fmt: skip
    parser.add_argument("shell", choices=tuple(SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    print(SCRIPTS[options.shell], end="")
    if sys.stdout.isatty():
        print(WHERE[options.shell], file=sys.stderr)
    return DONE


def answer(parser: Parser, asked: Sequence[str]) -> int:
    """Print what could stand at the end of the line, one a line."""
    shell, line = (*asked, "", "")[:2]
    words = line.split()[1:] + ([""] if not line or line[-1].isspace() else [])
    for candidate in candidates(parser, words):
        print(_behind_a_break(candidate, words[-1]) if shell == "bash" else candidate)
    return DONE


def _behind_a_break(candidate: str, word: str) -> str:
    """Bash completes what comes behind the last = or : of a word."""
    broken = re.match(r".*[=:]", word)
    return candidate[broken.end() :] if broken else candidate


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """What the last word could become, given the ones before it."""
    *before, last = words or [""]
    for place, word in enumerate(before):
        below = _subparsers(parser)
        if word in below:
            return candidates(below[word], words[place + 1 :])
    option, equals, value = last.partition("=")
    taken = next((a for a in parser._actions if before and before[-1] in a.option_strings and a.nargs != 0), None)
    if equals and option.startswith("--"):
        taken = next((a for a in parser._actions if option in a.option_strings), None)
        return [f"{option}={found}" for found in _values(taken, value)] if taken else []
    if taken:
        return _values(taken, last)
    if last.startswith("-"):
        return sorted(o for a in parser._actions for o in a.option_strings if o.startswith(last) and len(o) > 2)
    if _subparsers(parser):
        return [name for name in _subparsers(parser) if name.startswith(last)]
    positional = next((a for a in parser._actions if not a.option_strings), None)
    return _values(positional, last) if positional else []


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _values(action: argparse.Action, start: str) -> list[str]:
    """The values of an argument that begin like this; none where a file is meant, or a number."""
    known: Iterable[str] = action.choices or names(getattr(action, "completed_by", ""), start)
    return [name for name in known if name.startswith(start)]


def names(kind: str, start: str) -> Iterable[str]:
    """All names of a kind."""
    if kind == "networks":
        from refimpl.network.zoo import NETWORKS

        return [name for name in NETWORKS if ":" in start or ":" not in name] + ["resnet:"] * (":" not in start)
    if kind == "machines":
        from refimpl.machine import MACHINES

        return [*MACHINES, "here", *(name for name in os.listdir() if name.endswith(".json"))]
    if kind == "catalogues":
        from refimpl.machine import CATALOGUES

        return CATALOGUES
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
    if kind == "data":
        return ("digits", "synthetic", *(name for name in os.listdir() if name.endswith(".npz")))
    return ()
