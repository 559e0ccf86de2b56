"""A policy measured on the device at hand, beside the same kernels without a budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import refimpl
from refimpl.backend import Trainer
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.planner import CopyOut
from refimpl.studies.reproduce import measured

pytestmark = pytest.mark.vdnn


@pytest.fixture(scope="module")
def found() -> measured.Comparison:
    ask = measured.Request(None, None, "vdnn-all", machine("here"), "1100KiB", "cpu", 2)
    return ask.compare(build("tiny-vgg", 4), 1100 << 10)


def test_both_run_with_the_same_kernels_and_one_within_the_budget(found: measured.Comparison) -> None:
    within, without = found.within, found.without
    assert within.peak_bytes <= within.budget_bytes == 1100 << 10 < without.budget_bytes
    assert within.peak_bytes < without.peak_bytes
    assert within.out_rate and within.in_rate and without.out_rate is None and without.in_rate
    assert within.hidden == 0  # a processor does one thing at a time
    assert found.plain_out > 0 and found.plain_in > 0
    assert within.flops_rate > 0 and within.host_seconds is None
    assert found.slowdown == pytest.approx(within.seconds / without.seconds - 1)
    assert found.performance_lost == pytest.approx(found.slowdown / (1 + found.slowdown))


def test_a_links_rate_is_that_of_its_copies(found: measured.Comparison) -> None:
    from refimpl.machine import Span, Timeline
    from refimpl.network import Tensor

    copies = [CopyOut(1, Tensor("x", (256,), "map", managed=True), 0, 0, 1024, 1) for _ in range(2)]
    spans = [Span(copy, 1, "out", start, start + 0.5) for start, copy in enumerate(copies)]
    assert measured.link_rate(Timeline(spans, ("compute", "out"), 2.0, "test"), CopyOut) == pytest.approx(2048)


def test_it_is_written_down_with_the_device_and_the_date(found: measured.Comparison, tmp_path: Path) -> None:
    page, document = found.write(tmp_path, "vdnn", "vDNN")
    assert found.device in page.read_text() and "slower" in page.read_text()
    read = json.loads(document.read_text())
    assert read["slowdown"] == pytest.approx(found.slowdown) and read["within"]["setup"] == "vdnn-all"
    assert (
        found.date in page.name and page.name.startswith("vdnn-tiny-vgg-") and page.read_text().startswith("# vDNN: ")
    )


def test_the_fastest_iteration_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(Trainer, "repeat", lambda trainer: next(taken))
    said: list[str] = []
    program = refimpl.plan(build("lenet", 2), "baseline", machine("here"), "16MiB")
    found = measured.measure(program, "cpu", 3, said.append)
    assert (found.seconds, found.images_rate) == (1.0, 2.0) and next(taken, None) is None
    assert said == [f"baseline: iteration {number}" for number in (1, 2, 3)]
