"""`refimpl run` of networks that read tokens: on a text, on synthetic tokens, on windows of a .npz file."""

from __future__ import annotations

import json
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refimpl.backend import checkpoint
from refimpl.names.networks import tiny_gpt
from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

CPU = ("--backend", "cpu", "--batch", 4)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "mine.txt"
    path.write_bytes(b"To be, or not to be, that is the question.\n" * 60)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("network", ["tiny-gpt", "tiny-bert"])
def test_a_run_on_a_text_says_bits_and_what_the_network_writes(refimpl: Command, text: Path, network: str) -> None:
    run = ("run", network, *CPU, "--data", text, "--optimiser", "adamw", "--rate", "0.003", "--steps", 12)
    found = json.loads(refimpl(*run, "--json").out)
    assert found["bits"] == pytest.approx(found["tested_loss"] / log(2)) and found["bits"] < 8
    assert found["counted"]["what"] == "token" and 0 < found["tested"] < 5
    assert found["losses"][-1] < found["losses"][0]
    sample = found["sample"]
    if network == "tiny-bert":
        assert "█" in sample["masked"] and "█" not in sample["filled in"]
        assert all(a in (b, "█") for a, b in zip(sample["masked"], sample["filled in"], strict=True))
    else:
        assert sample["after"] in text.read_text() and len(sample["writes"]) == 12
    said = refimpl(*run).out.splitlines()
    lines = {line[:10].strip(): line for line in said}
    assert f"{found['bits']:.3f} a {'masked ' * (network == 'tiny-bert')}byte" in lines["Bits"]
    assert f"tokens of {found['tested']} windows that it has not learnt from" in lines["Accuracy"]


@pytest.mark.slow
def test_a_run_on_a_text_in_two_parts_is_the_same_to_the_last_bit(refimpl: Command, text: Path, tmp_path: Path) -> None:
    """The windows of an iteration follow from its number."""
    run = ("run", "tiny-gpt", *CPU, "--data", text, "--policy", "vdnn-all")
    whole, half, rest = (tmp_path / f"{name}.npz" for name in ("whole", "half", "rest"))
    for parts in ((4, "--save", whole), (2, "--save", half), (4, "--resume", half, "--save", rest)):
        assert refimpl(*run, "--steps", *parts).status == 0
    network = tiny_gpt(4)
    both: list[Any] = [checkpoint.read(path, network)[0] for path in (whole, rest)]
    assert [name for name in both[0] if both[0][name].tobytes() != both[1][name].tobytes()] == []


def test_synthetic_tokens_and_windows_of_ones_own(refimpl: Command, tmp_path: Path) -> None:
    said = json.loads(refimpl("run", "tiny-gpt", *CPU, "--steps", 2, "--json").out)
    assert said["tested"] == 16 and "sample" not in said
    tokens = np.random.default_rng(0).integers(0, 256, (10, 64))
    np.savez(tmp_path / "mine.npz", images=tokens, labels=np.roll(tokens, -1, 1))
    said = json.loads(refimpl("run", "tiny-gpt", *CPU, "--steps", 2, "--data", tmp_path / "mine.npz", "--json").out)
    assert (said["tested"], said["counted"]) == (2, {"what": "token", "number": 128})


def test_what_is_no_text_is_one_line(wrong: Wrong, text: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_bytes(b"too short")
    for words, named in (
        (("tiny-gpt", "--data", "digits"), ("tiny-gpt", "tokens", "text")),
        (("lenet", "--data", "text"), ("lenet", "images", "tiny-gpt")),
        (("lenet", "--data", text), ("lenet", "images", "tiny-gpt")),
        (("tiny-gpt", "--data", "txt"), ("'txt'", "text", "FILE.txt")),
        (("tiny-gpt", "--data", short), (short, "9 bytes", "130")),
        (("tiny-gpt", "--data", f"{text},validation=1.5"), ("1.5", "between 0 and 1")),
        (("tiny-gpt", "--data", f"{text},validation={tmp_path / 'none.txt'}"), ("none.txt",)),
        (("tiny-gpt", "--data", "synthetic,validation=0.1"), ("0.1", "synthetic")),
    ):
        assert lacks(wrong("run", *words, "--backend", "cpu"), *named) == []
