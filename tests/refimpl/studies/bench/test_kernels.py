"""The bench itself: how it times, what it makes of the times, and what it writes down."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from kernels.checks.conv_shape import PASSES, ConvShape
from kernels.fast import conv
from kernels.targets.launch import REGISTRY, KernelLaunch
from refimpl.cli import main
from refimpl.machine.devices import Cpu
from refimpl.machine.timing import Run, by
from refimpl.report.markdown import put_between
from refimpl.studies.bench import kernels as bench
from refimpl.studies.bench import rivals
from refimpl.studies.bench.attention_and_block import AttentionReport
from refimpl.studies.bench.cases import FAMILIES, cases
from refimpl.studies.bench.emulated_gpu import EmulatedReport
from refimpl.studies.bench.kernels import Case, Result, Rival
from refimpl.studies.bench.plan_times import PlanningReport
from refimpl.studies.bench.products import conv_launches
from refimpl.studies.bench.training import TrainingReport
from tests.messages import raises_naming


class Clocked(Cpu):
    """A CPU with a clock of its own, on which a run takes a known time."""

    now = 0.0

    def seconds(self, run: Run, times: int) -> float:
        return by(lambda: self.now)(run, times)

    def runs_for(self, seconds: float) -> Run:
        def run() -> None:
            self.now += seconds

        return run

    def launches(self, seconds: float) -> list[KernelLaunch]:
        run = self.runs_for(seconds)
        return [KernelLaunch(REGISTRY["elementwise_fill"], (1, 1, 1), (), lambda _stream: run())]


def result(family: str = "gemm", what: str = "ladder, tiled", ours: float = 40.0, **more: object) -> Result:
    values = {"size": "512×512×512", "unit": "GFLOP/s", "algorithm": "tiled", "seconds": 0.01, "headline": True}
    return Result(family=family, what=what, ours=ours, **{**values, **more})  # type: ignore[arg-type]


def report(results: list[Result], device: str = "cpu", load: float = 0.1) -> bench.KernelReport:
    targets = [t.verdict(results) for t in bench.TARGETS if t.kind == device]
    return bench.KernelReport(
        name="Some CPU, 2 cores", versions={"numpy": "2.4"}, date="2026-11-21", load=load, device=device, quick=False,
        seconds=1.0, results=results, targets=targets, targets_note="set for this one",
    )  # fmt: skip


def test_rates_and_ratios_follow_from_the_times() -> None:
    cpu = Clocked()
    others = {"NumPy": Rival(cpu.runs_for(0.02)), "copy": Rival(cpu.runs_for(0.01), amount=5e6)}
    ours = {"slow": cpu.launches(0.04), "fast": cpu.launches(0.01)}
    measured = bench.measure(cpu, Case("gemm", "x", "1", "GB/s", 1e7, lambda _: (ours, others)), budget=0)
    assert measured is not None and measured.algorithm == "fast" and measured.label == "x (fast)"
    assert measured.ours == pytest.approx(1.0) and measured.tried["slow"] == pytest.approx(0.25)
    assert measured.ratio["NumPy"] == pytest.approx(2.0)
    assert measured.ratio["copy"] == pytest.approx(2.0)  # half the bytes in the same time


def test_a_case_that_no_algorithm_serves_is_left_out() -> None:
    assert bench.measure(Cpu(), Case("conv", "x", "1", "GFLOP/s", 1.0, lambda _: ({}, {})), 0.1) is None


def test_targets_are_met_or_missed_or_not_measured() -> None:
    for ours, verdict in ((35.0, "met"), (34.9, "missed")):
        first, *_ = report([result(ours=ours)]).targets
        assert (first["measured"], first["verdict"]) == (ours, verdict)
    assert {t["verdict"] for t in report([result("sgd")]).targets} == {"not measured"}


def test_a_network_counts_every_layer_as_often_as_it_has_it() -> None:
    once = result("conv", "forward", size="VGG conv1_1", seconds=1.0, ratio={"cuDNN": 1.0}, times=1)
    thrice = result("conv", "forward", size="VGG conv5", seconds=1.0, ratio={"cuDNN": 0.2}, times=3)
    assert bench.over_layers("cuDNN", "forward")([once, thrice]) == pytest.approx((1 + 3 * 0.2) / 4)


def test_a_bound_launch_is_measured_beside_a_plain_call() -> None:
    measured = bench.launch_cost(Cpu())
    assert measured.ours > 0 and measured.beside["plain call"] > 0


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("pass_", PASSES)
def test_the_rivals_compute_the_same_convolution(pass_: str, groups: int) -> None:
    """A bench that compares different computations would be worth nothing."""
    shape = ConvShape.of((2, 6, 9, 8), (9, 6 // groups, 3, 2), (2, 1), (1, 0))
    random = np.random.default_rng(0)
    x, w, y = (random.standard_normal(s, dtype=np.float32) for s in (shape.x_shape, shape.w_shape, shape.y_shape))
    arrays = {"forward": (x, w, y), "backward_data": (y, w, x), "backward_filter": (x, y, w)}[pass_]
    a, b, ours, by_numpy = *arrays[:2], arrays[2].copy(), arrays[2].copy()
    for launch in conv_launches(Cpu(), pass_, shape, "direct", (a, b, ours)):
        launch.run(None)
    rivals.NUMPY_CONV[pass_](shape, a, b, by_numpy)
    np.testing.assert_allclose(by_numpy, ours, rtol=1e-4, atol=1e-4)
    torch = rivals.torch_or_none()
    if torch is not None:
        tensors = [torch.from_numpy(array) for array in arrays]
        answer = rivals.torch_conv(torch, pass_, shape, *tensors)
        answer = answer if pass_ == "forward" else answer[0 if pass_ == "backward_data" else 1]
        np.testing.assert_allclose(answer.numpy(), ours, rtol=1e-4, atol=1e-4)


def test_an_algorithm_that_does_not_serve_a_shape_makes_no_launches() -> None:
    shape = ConvShape.of((1, 2, 8, 8), (2, 2, 5, 5), (1, 1), (0, 0))
    assert conv.ALGORITHMS["winograd"].why_not("forward", shape) is not None
    assert conv_launches(Cpu(), "forward", shape, "winograd", ()) == []


def test_every_family_has_cases_on_either_device() -> None:
    class Elsewhere(Cpu):
        kind = "gpu"

    amounts = []
    for device in (Cpu(), Elsewhere()):
        whole, quick = cases(device), cases(device, quick=True)
        assert {case.family for case in whole} == {case.family for case in quick} == set(FAMILIES) - {"launch"}
        amounts += [sum(case.amount for case in quick), sum(case.amount for case in whole)]
    assert amounts == sorted(amounts), "a quick bench is smaller, and a GPU's is larger"
    assert {case.family for case in cases(Cpu(), family="pool")} == {"pool"}


def test_the_table_on_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (14.9, 0.0, 0.0))  # the longest remark: the machine was busy
    assert main(["bench", "--device", "cpu", "--quick", "--family", "sgd"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"sgd +momentum and decay +4096×1024 +[\d.]+ GB/s", said)
    assert "load 14.9" in said and max(map(len, said.splitlines())) <= 100


# -- written down ------------------------------------------------------------------------------------------------------

PAGE = "before\n<!-- begin bench cpu -->\nold\n<!-- end bench cpu -->\nafter\n"


def test_writing_fills_the_page_and_the_full_table(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "speed.md").write_text(PAGE)
    made = report([result(beside={"NumPy": 80.0}, ratio={"NumPy": 0.5}), result("sgd", "rest", 12.0, headline=False)])
    full, as_json, page = made.write(tmp_path)
    assert full.name == "some-cpu-2-cores-2026-11-21.md"
    assert "| gemm | ladder, tiled | 512×512×512 | 40.0 GFLOP/s | 80.0 (0.50) |" in full.read_text()
    assert "| gemm 512³ | 35 GFLOP/s | 40.0 | met |" in full.read_text() and "rest" in full.read_text()
    assert json.loads(as_json.read_text())["results"][0]["ours"] == 40.0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "Some CPU" in text
    assert "old" not in text and "rest" not in text, "only what is between the markers changes"
    assert put_between(text, "bench cpu", "x") == put_between(PAGE, "bench cpu", "x")
    with raises_naming(ValueError, "<!--", "-->"):
        put_between(PAGE, "bench gpu", "new")


def test_a_busy_machine_is_admitted() -> None:
    assert "busy" not in report([result()]).short()
    where = report([result()], load=1.7).short().split("\n\n")[0]
    assert "busy with other work (load 1.7)" in " ".join(where.split())
    assert max(map(len, where.splitlines())) <= 120


def test_the_markers_are_where_the_benches_write() -> None:
    others = (AttentionReport, EmulatedReport, PlanningReport, TrainingReport)
    pages = [(one.page, f"bench {one.option}") for one in others]
    for page, name in (*pages, *report([]).pages.items(), *report([], "gpu").pages.items()):
        assert put_between((Path(__file__).parents[4] / page).read_text(encoding="utf-8"), name, "x")
