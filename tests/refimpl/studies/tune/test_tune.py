"""`refimpl tune`, and `refimpl run --tuned` with what it printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from refimpl.backend import Trainer, data
from refimpl.cli.shared_options import RATE, rate
from refimpl.cli.tuned_file import tuned_file
from refimpl.names.networks import build
from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

pytestmark = pytest.mark.accudnn

TINY = ("tune", "tiny-vgg", "--machine", "titan-x", "--budget", "3MiB")
FIELDS = {
    "network", "machine", "catalogue", "budget_bytes", "policy", "objective", "simulated", "baselines", "curve",
    "trainable_batch", "optimal_batch", "images_a_second", "ratios", "gains", "learning", "cluster",
}  # fmt: skip


def document(refimpl: Command, *more: Any) -> dict[str, Any]:
    said = refimpl(*TINY, *more, "--json")
    assert said.status == 0 and said.err == ""
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.mark.slow
def test_the_document(refimpl: Command) -> None:
    """What its numbers are, tests/refimpl/studies/tune/test_tuning.py asks."""
    found = document(refimpl, "--workers", "2,1000", "--network", "1GB/s,latency=0.001,overlap=no")
    assert set(found) >= FIELDS
    assert found["simulated"] is True and found["objective"] == "cluster" and found["policy"] == "accudnn"
    best = next(one for one in found["curve"] if one["batch"] == found["optimal_batch"])
    few, many = found["cluster"]
    assert few["simulated"] is True and (few["workers"], many["workers"]) == (2, 1000)
    nbytes = build("tiny-vgg", 1).parameter_count * 4
    assert few["gradient_bytes"] == nbytes and few["reduce_seconds"] == pytest.approx(nbytes / 1e9 + 2e-3)
    assert few["wire_bytes"] == 2 * nbytes
    assert many["scaling"] < few["scaling"] < 1 and many["learning"]["global_batch"] == 1000 * best["batch"]


def test_rates() -> None:
    for text in ("10Gbit", "10 Gbit/s", "1.25GB/s", "1250000000"):
        assert rate(text) == 1.25e9 and RATE.fullmatch(text)
    assert rate(".5kB") == 500


def test_wrong_use_is_one_line(wrong: Wrong) -> None:
    for options, words in (
        ("--network 10Gb", "--network 10Gbit"), ("--network 0", "--network 10Gbit"), ("--workers 0", "--workers 1 0"),
        ("--workers 8,", "--workers 1"), ("--baseline cafe-lean", "cafe-lean caffe-lean"),
        ("--objective cluster --workers 1", "--workers"), ("--base-rate 0", "--base-rate 0"),
        ("--images -3", "--images -3"), ("--policy acudnn", "acudnn accudnn"),
        ("--picture curve.pdf", "curve.pdf .png .svg"), ("--budget 1EiB", "1EiB 1 PiB"),
    ):  # fmt: skip
        assert lacks(wrong(*TINY, *options.split()), *words.split()) == [], options


# -- refimpl run --tuned -----------------------------------------------------------------------------------------------


@pytest.fixture
def file(refimpl: Command, tmp_path: Path) -> Path:
    """Tuned for a batch that is larger than the base batch, so that there is a warm-up."""
    path = tmp_path / "tuned.json"
    said = refimpl(*TINY, "--base-batch", 2, "--base-rate", 0.001, "--json")
    path.write_text(said.out, encoding="utf-8")
    return path


RUN = ("run", "tiny-vgg", "--backend", "cpu", "--machine", "titan-x", "--budget", "64MiB", "--json")


@pytest.mark.slow
def test_batch_rate_and_warm_up_are_the_files_alone(
    refimpl: Command, wrong: Wrong, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = []
    step = Trainer.step

    def watched(trainer: Trainer, images: Any, labels: Any) -> float:
        rates.append(trainer.rate)
        return step(trainer, images, labels)

    monkeypatch.setattr(Trainer, "step", watched)
    tuned = tuned_file(str(file))
    assert tuned.rate > tuned.base_rate and tuned.warmup_epochs == 5
    said = refimpl(*RUN, "--tuned", file, "--steps", 3)
    found = json.loads(said.out)
    assert said.status == 0 and found["batch"] == tuned.batch
    warmup = 5 * data.synthetic((3, 32, 32), classes=10).per_epoch(tuned.batch)
    expected = [min(tuned.rate, tuned.base_rate + (tuned.rate - tuned.base_rate) * i / warmup) for i in range(3)]
    assert rates == pytest.approx(expected) and rates[0] == tuned.base_rate
    assert lacks(wrong("run", "lenet", "--backend", "cpu", "--tuned", file), file, "tiny-vgg", "lenet") == []
    for option in ("--batch", "--rate"):
        assert lacks(wrong(*RUN, "--tuned", file, option, 8), option, file) == []
