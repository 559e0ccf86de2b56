"""`refimpl export`: where the script goes, and what is refused before a file is written."""

from __future__ import annotations

from pathlib import Path

from tests.refimpl.cli.said import Command, Wrong


def test_the_script_is_a_file_or_standard_output(refimpl: Command, tmp_path: Path) -> None:
    asked = ("export", "lenet", "--batch", 4, "--policy", "vdnn-all", "--machine", "h100", "--rate", 0.05)
    path = tmp_path / "lenet.py"
    said = refimpl(*asked, "--out", path)
    text = path.read_text(encoding="utf-8")
    assert said.status == 0 and said.out.startswith(f"{path}: lenet, batch 4, 124 instructions in ")
    assert f"in {len(text.splitlines())} lines.\n" in said.out
    assert f"without one: python -m kernels.targets.emulated {path}\n" in said.out
    assert '{"rate": 0.05, "momentum": 0.9, "decay": 0.0}\n' in text
    printed = refimpl(*asked).out
    body = "import argparse"
    assert printed[printed.index(body) :] == text[text.index(body) :]  # before it: the command, which is another one


def test_what_is_refused_leaves_the_file_as_it_was(wrong: Wrong, tmp_path: Path) -> None:
    path = tmp_path / "kept.py"
    path.write_text("before")
    for more in (["--set", "allocator=driver-calls"], ["--machine", "h100:cudnn4"], ["--out", tmp_path]):
        wrong("export", "lenet", "--machine", "h100", "--out", path, *more)
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]
