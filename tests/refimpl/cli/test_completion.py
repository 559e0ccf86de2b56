"""Completion: what is offered at the end of a line, and the scripts in real shells where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from refimpl.cli import parser
from refimpl.cli.completion import SCRIPTS, candidates
from refimpl.machine import MACHINES
from refimpl.memory import ALLOCATORS
from refimpl.network.zoo import NETWORKS
from refimpl.registry.modules import MODULES, SWITCHES
from refimpl.registry.presets import PRESETS
from tests.refimpl.cli.said import Command


def offered(line: str) -> list[str]:
    return candidates(parser(), line.split(" "))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("comp", {"compare", "completion"}),
        ("list ", {"networks", "machines", "presets", "modules", "kernels"}),
        ("plan vgg1", {"vgg11", "vgg16", "vgg19", "vgg116"}),
        ("plan alexnet:", {name for name in NETWORKS if name.startswith("alexnet:")}),
        ("plan vgg16 --al", {"--algorithms"}),
        ("plan vgg16 --algorithms ", {"memory", "performance"}),
        ("plan vgg16 --re", {"--recompute"}),
        ("plan vgg16 --recompute ", {"speed", "memory", "cost"}),
        ("compare vgg16 --recompute=s", {"--recompute=speed"}),
        (
            "run vgg16 --policy superneurons-",
            {f"superneurons-{stage}" for stage in ("liveness", "offload", "recompute")},
        ),
        ("trace vgg16 --set recompute=", {f"recompute={name}" for name in MODULES["recompute"]}),
        ("plan vgg16 --set cache=super", {"cache=superneurons-lru"}),
        ("plan vgg16 --machine t", {name for name in MACHINES if name.startswith("t")}),
        ("plan vgg16 --machine=k", {"--machine=k40c"}),
        ("plan vgg16 --policy ", set(PRESETS)),
        ("plan vgg16 --set li", {"liveness="}),
        ("plan vgg16 --set allocator=", {f"allocator={name}" for name in ALLOCATORS}),
        ("plan vgg16 --set ", {f"{slot}=" for slot in (*MODULES, *SWITCHES)}),
        ("plan vgg16 --set bar", {"barrier="}),
        ("plan vgg16 --set barrier=", {"barrier=yes", "barrier=no"}),
        ("plan vgg16 --set copy-streams=s", {"copy-streams=shared", "copy-streams=separate"}),
        ("plan vgg16 --set pinned=vdnnpp-", {"pinned=vdnnpp-on-demand", "pinned=vdnnpp-compressed"}),
        (
            "plan vgg16 --set offload=vdnnpp-",
            {f"offload=vdnnpp-{which}" for which in ("all", "conv", "alternate-conv")},
        ),
        ("run vgg16 --policy vdnnpp-", {f"vdnnpp-{which}" for which in ("all", "conv", "alternate-conv", "dyn")}),
        ("compare vgg16 --with vdnnpp-a", {"vdnnpp-all", "vdnnpp-alternate-conv"}),
        ("compare vgg16 --with join=", {"join=yes", "join=no"}),
        ("compare vdnnpp", {"vdnnpp-demo"}),
        ("fragm", {"fragmentation"}),
        ("fragmentation vgg16:v", {"vgg16:vdnnpp"}),
        ("fragmentation vgg16 --pol", {"--policy"}),
        ("fragmentation vgg16 --policy a", {"all", "alternate-conv"}),
        ("fragmentation vgg16 --draw ", {"map", "bars"}),
        ("reproduce v", {"vdnn", "vdnnpp"}),
        ("plan vgg16 --draw p", {"pool"}),
        ("run lenet --data d", {"digits"}),
        ("trace vgg16 --format ", {"chrome", "snapshot", "rmm"}),
        ("completion ", set(SCRIPTS)),
    ],
)
def test_what_is_offered(line: str, names: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = offered(line)
    assert names <= set(found) and len(found) == len(set(found))
    if not line.endswith((" ", "comp", "vgg1", "machine t")) or line.endswith(("--recompute ", "--set ", "--draw ")):
        assert set(found) == names


@pytest.mark.parametrize("line", ["plan vgg16 --batch ", "plan --picture ", "profile lenet --out "])
def test_numbers_and_files_are_left_to_the_shell(line: str) -> None:
    assert offered(line) == []


def test_profiles_and_arrays_here_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.json").touch()
    (tmp_path / "mine.npz").touch()
    assert offered("plan lenet --machine m") == ["mine.json"] and offered("run lenet --data m") == ["mine.npz"]


def test_bash_gets_what_is_behind_the_break(refimpl: Command) -> None:
    assert refimpl("__complete", "bash", "refimpl plan vgg16 --set liveness=la").out == "layer-wise\n"
    assert refimpl("__complete", "zsh", "refimpl plan vgg16 --set liveness=la").out == "liveness=layer-wise\n"
    assert refimpl("__complete", "bash", "refimpl plan alexnet:sup").out == "superneurons\n"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`refimpl` on the path, whether or not the package is installed."""
    script = tmp_path / "refimpl"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m refimpl "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[3]))


BASH = """\
{script}
COMP_LINE="refimpl plan vgg16 --set liveness=lay"; COMP_POINT=${{#COMP_LINE}}
_refimpl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.usefixtures("command")
def test_the_script_in_bash() -> None:
    if not shutil.which("bash"):
        pytest.skip("bash is not installed")
    program = BASH.format(script=SCRIPTS["bash"])
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "layer-wise\n", done.stderr


#: What makes a shell complete, without a terminal.
ASKED = {
    "zsh": 'compadd() { print -l -- "$@"; }; words=(refimpl plan vgg4); CURRENT=3; _refimpl',
    "fish": "complete -C 'refimpl plan vgg4'",
}


@pytest.mark.usefixtures("command")
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_in_other_shells(shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    before = "compdef() { }\n" if shell == "zsh" else ""  # the completion system is not loaded
    program = before + SCRIPTS[shell] + ASKED[shell]
    done = subprocess.run([shell, "-c", program], capture_output=True, text=True, timeout=60)
    assert "vgg416" in done.stdout.split(), done.stderr


def test_the_scripts_are_printed(refimpl: Command) -> None:
    for shell, script in SCRIPTS.items():
        assert refimpl("completion", shell).out == script
