"""Completion by argcomplete: what the command answers a shell, and the shells themselves where they are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from refimpl.cli import parser
from refimpl.cli.completion import offer_names
from refimpl.machine import MACHINES
from refimpl.names.modules import MODULES, SWITCHES
from refimpl.names.networks import NETWORKS
from refimpl.names.presets import NEIGHBOURS, PRESETS


def offered(line: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What argcomplete offers at the end of a line, asked as a shell asks it."""
    from argcomplete.completers import SuppressCompleter
    from argcomplete.finders import CompletionFinder
    from argcomplete.lexers import split_line

    monkeypatch.setenv("_ARGCOMPLETE", "1")
    _, prefix, _, words, at = split_line(line, len(line))
    command = parser()
    offer_names(command)
    finder = CompletionFinder(command, default_completer=SuppressCompleter(), append_space=False)
    return set(finder._get_completions(words, prefix, "", at))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("comp", {"compare"}),
        ("plan alexnet:", {name for name in NETWORKS if name.startswith("alexnet:")}),
        ("plan vgg16 --kernels ", {"plain", "fast"}),
        ("plan vgg16 --policy ", {*PRESETS, *NEIGHBOURS}),
        ("plan vgg16 --machine ", {*MACHINES, "here", "mine.json"}),
        ("plan vgg16 --set ", {f"{slot}=" for slot in (*MODULES, *SWITCHES)}),
        ("view vgg16 --set recompute=", {f"recompute={name}" for name in MODULES["recompute"]}),
        ("compare vgg16 --with join=", {"join=yes", "join=no"}),
        ("run lenet --data ", {"digits", "text", "synthetic", "mine.npz"}),
        ("reproduce v", {"vdnn", "vdnnpp"}),
        ("view lenet --out ", set()),  # the shell's own files
    ],
)
def test_what_is_offered(line: str, names: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.json", "mine.npz", "other"):
        (tmp_path / name).touch()
    assert offered(f"refimpl {line}", monkeypatch) == names
