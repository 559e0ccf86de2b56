"""The options of how a network learns: `plan` and `compare` know of them, `run` trains by them, `export` has them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

DIGITS = ("run", "lenet", "--batch", 32, "--backend", "cpu", "--data", "digits", "--steps", 6)
ADAMW = ("--optimiser", "adamw:decay_on=weights,clip=1", "--freeze", "conv1")
SCHEDULED = (
    *ADAMW,
    "--optimiser",
    "adamw:beta1=0.8,beta2=0.9,decay_on=weights,clip=1",
    "--rate",
    0.002,
    "--schedule",
    "cosine,warmup:2",
)


def test_a_run_by_adamw_is_resumed_with_its_schedule_to_the_bit(refimpl: Command, tmp_path: Path) -> None:
    whole, half, end = (tmp_path / f"{name}.npz" for name in ("whole", "half", "end"))
    straight = json.loads(refimpl(*DIGITS, *SCHEDULED, "--save", whole, "--json").out)
    assert straight["optimiser"] == "adamw" and straight["beta1"] == 0.8 and straight["rate"] == 0.002
    assert straight["schedule"] == "cosine:6" and straight["warmup"] == 2 and "momentum" not in straight
    refimpl(*DIGITS, *SCHEDULED, "--schedule", "cosine:6,warmup:2", "--steps", 3, "--save", half)
    assert refimpl(*DIGITS, *ADAMW, "--resume", half, "--save", end).status == 0
    with np.load(whole) as first, np.load(end) as second:
        assert all(first[name].tobytes() == second[name].tobytes() for name in first.files if name != "about")
        assert "exp_avg of conv2.w" in first.files and "exp_avg of conv1.w" not in first.files


def test_an_exported_script_has_the_optimiser_and_the_schedule(refimpl: Command) -> None:
    asked = (
        "export",
        "lenet",
        "--batch",
        4,
        "--machine",
        "h100",
        *SCHEDULED,
        "--schedule",
        "cosine:50:0.0001,warmup:2",
    )
    text = refimpl(*asked).out
    assert '{"rate": 0.002, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-08, "decay": 0.01}' in text
    assert 'LEARNING["rate"] = cosine(iteration, RATE, t_max=50, eta_min=0.0001, warmup=2)' in text
    assert "clip.apply(" in text and '**LEARNING | {"decay": 0.0}' in text
    compile(text, "script", "exec")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--freeze", "*"), ("8 parameters", "frozen", "!fc4")),
        (("--freeze", "cov*"), ("cov*", "conv1.w")),
        (("--schedule", "cosine,warmup:6"), ("ends before it begins", "--schedule", 6)),
        (("--schedule", "cosine,warm:6"), ("warm:6", "warmup:20", "--schedule")),
        (("--schedule", "linear"), ("linear", "cosine", "--schedule")),
        (("--optimiser", "adamw:momentum=0.9"), ("momentum", "adamw", "beta1")),
        (("--optimiser", "sgd:momentum=1"), ("momentum", "1")),
        (("--optimiser", "adam"), ("adam", "adamw")),
        (("--network", "10Gbit,bucket=4MiB,overlap=no"), ("--network", "bucket", "overlap=no")),
        (("--network", "10Gbit,delay=1"), ("--network", "delay", "latency")),
        (("--optimiser", "sgd:clip=0"), ("clip", "0")),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line(options: tuple[object, ...], says: tuple[object, ...], wrong: Wrong) -> None:
    assert lacks(wrong(*DIGITS, *options), *says) == []
