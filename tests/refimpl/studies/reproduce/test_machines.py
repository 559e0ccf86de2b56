"""Others' measured times beside the model's: the files' rows, the networks they are of, the sums, and the page."""

from __future__ import annotations

import json
from dataclasses import astuple
from functools import partial
from math import exp, log
from pathlib import Path
from statistics import NormalDist, median

import pytest

from refimpl.cli import main
from refimpl.machine import MACHINES
from refimpl.names.largest_batch import unlimited_baseline
from refimpl.studies.reproduce.machines import figures, independent
from refimpl.studies.reproduce.machines.figures import (
    PAGES,
    PARTS,
    Offs,
    WholeNetwork,
    part_errors,
    unseen_widths,
    whole_networks,
)
from refimpl.studies.reproduce.machines.fit import FITTED, fit
from refimpl.studies.reproduce.machines.independent import (
    GPUS,
    Measured,
    Prediction,
    compared,
    convolutions,
    fastest_seconds,
    networks,
)
from refimpl.studies.reproduce.machines.measured_networks import RESNETS, benchmarked
from refimpl.studies.tune.caffe import CONTEXT_BYTES
from tests.matrix import some

#: Parameters as the networks' authors or torchvision count them.
PARAMETERS = {
    "resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032, "resnet101": 44_549_160,
    "resnet152": 60_192_808, "resnet200": 64_673_832, "caffenet": 60_965_224,
}  # fmt: skip


def test_a_benchmark_s_network_has_its_parameters() -> None:
    assert {name: benchmarked(name, 1, False).parameter_count for name in (*RESNETS, "caffenet")} == PARAMETERS


def test_every_row_says_what_was_measured_where() -> None:
    whole, single = list(networks()), list(convolutions())
    assert len(whole) == 135 and len(single) == 366
    for row in (*whole, *single):
        assert row.gpu in independent.GPUS and row.source in independent.SOURCES and 2 <= row.cudnn <= 8
        assert row.parts and all(time > 0 for _, time in row.parts)
    assert {row.gpu for row in whole} | {row.gpu for row in single} == set(independent.GPUS)


def test_a_prediction_is_the_sum_of_the_fastest_algorithms_of_its_release() -> None:
    """AlexNet(128) on cuDNN 4 is convnet-benchmarks' row; cuDNN 2 has no FFT and is slower."""
    row = next(row for row in networks() if row.gpu == "titan-x" and row.subject == "alexnet(128)" and row.cudnn == 4)
    machine, offers = independent.GPUS[row.gpu], row.offers()
    by_hand = sum(
        1000 * min(machine.option_seconds(option) for option in ways) * times for ways, times in offers["maps"].items()
    )
    lines = {line.part: line for line in compared([row])}
    assert lines["maps"].predicted == pytest.approx(by_hand)
    assert lines["maps"].off == pytest.approx(by_hand / 24.32 - 1)
    older = independent.network_offers("alexnet", 128, row.source, 2.0, "cudnn5")
    assert independent.milliseconds(partial(fastest_seconds, machine), older["maps"]) > 1.5 * by_hand
    algorithms = {option.algorithm for ways in older["total"] for option in ways if option.algorithm}
    assert algorithms == {"IMPLICIT_GEMM", "ALGO_0"}


def test_the_images_gradient_and_the_optimiser_are_timed_where_the_source_timed_them() -> None:
    """caffe2 computes the gradient of the images; MXNet's iteration has the updates of the weights, too."""

    def calls(source: str, part: str) -> int:
        return sum(independent.network_offers("resnet18", 10, source, 5.0, "cudnn5")[part].values())

    assert calls("caffe2", "maps") == calls("convnet-benchmarks", "maps") + 2  # of conv1, and of softmax
    assert calls("mxnet", "weights") > calls("caffe2", "weights") == calls("convnet-benchmarks", "weights")
    assert calls("mxnet", "total") == calls("mxnet", "forward") + calls("mxnet", "backward")


def test_a_convolution_of_groups_is_a_call_a_group() -> None:
    """cuDNN learnt groups in a later release: Torch and MXNet called it for each."""
    conv = next(
        call for step in benchmarked("caffenet", 2, False).steps for call in step.calls if "conv2" in repr(call)
    )
    ways, times = independent.offered(conv, 5.1, "cudnn5")
    alone = next(way for way in ways if way.algorithm == "IMPLICIT_PRECOMP_GEMM").work[0].flops
    assert times == 2 and times * alone == conv.flops
    assert any(way.algorithm == "FFT" for way in ways)


def test_a_line_has_the_whole_of_a_row() -> None:
    def line(**times: float) -> WholeNetwork:
        row = Measured("titan-x", 4, "vgg16(16)", "caffe2", tuple(times.items()), True, dict)
        return WholeNetwork.of([Prediction(row, part, time, 1.1 * time) for part, time in times.items()])

    assert line(forward=1, maps=2, weights=4).measured == 7 and line(forward=1, total=3).measured == 3
    assert line(forward=1, total=3).off == pytest.approx(0.1)
    assert (line(forward=1).network, line(total=3).network) == ("vgg16(16) forward", "vgg16(16)")


def test_memory_is_beside_both_accountings(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = independent.rows_of("memory.csv")
    assert len(rows) == 26 and {row["source"] for row in rows} == {*figures.MEMORY_SOURCES}
    assert {row["network"] for row in rows} <= {*RESNETS, "caffenet", "vgg16", "vgg19"}
    monkeypatch.setattr(figures, "rows_of", lambda name: rows[:1])
    (caffenet,) = figures.memory_rows()
    whole = unlimited_baseline(benchmarked("caffenet", 10, False), figures.TITAN_X).peak_bytes
    assert caffenet.network_wide == whole + CONTEXT_BYTES >= caffenet.layer_wise and caffenet.measured == 430 << 20


def test_the_tables_of_few_rows_are_written_into_the_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Counted by how far off they are: `make matrix` compares those of all rows with the page."""
    for name, made in (("networks", networks), ("convolutions", convolutions), ("memory_tables", list)):
        monkeypatch.setattr(figures, name, lambda made=made: [*made()][:2])
    page = tmp_path / "docs" / "simulate.md"
    page.parent.mkdir()
    page.write_text("<!-- begin reproduce machines -->\nold\n<!-- end reproduce machines -->\n", encoding="utf-8")
    monkeypatch.setattr("refimpl.studies.reproduce.command.root", lambda: tmp_path)
    asked = ["reproduce", "machines", "--only", "networks", "--only", "convolutions"]
    assert main([*asked, "--write", "--json"]) == 0
    tables, text = json.loads(capsys.readouterr().out), page.read_text(encoding="utf-8")
    assert all(f"{title}:\n\n| " in text for title in tables) and len(tables) == 3 and "Sources: " in text
    rows = tables["Whole networks, milliseconds of an iteration"]
    assert [row["fitted"] for row in rows] == [("no", "yes")[row.fitted] for row in [*networks()][:2]]
    offs = Offs("all", (0.05, -0.1, 0.15, -0.45, 2.0))
    assert [offs.within(share) for share in (0.1, 0.2, 0.5)] == [2, 3, 4] and offs.median == 0.15


def test_machines_have_no_option_of_a_paper_and_are_refused_before_anything_is_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in PARTS:
        monkeypatch.setitem(PARTS, part, lambda: pytest.fail("nothing can be written"))
    for given, says in (
        (["--run"], "--run belongs to one paper: vdnn, vdnnpp, superneurons, accudnn"),
        (["--only", "network"], "there is no part 'network'; did you mean networks?"),
        (["--only", "networks", "--write"], "give --only networks --only convolutions, or none"),
    ):
        assert main(["reproduce", "machines", *given]) == 2
        assert says in " ".join(capsys.readouterr().err.split())


def test_widths_hold_nine_tenths_of_the_unseen_errors() -> None:
    """Of whole networks and of their parts; a fitted row and an inference do not count."""

    def row(source: str, fitted: bool, *off: float) -> list[Prediction]:
        names = ("forward", "backward")[: len(off)]
        measured = Measured("titan-x", 4, "vgg16(16)", source, tuple((name, 10.0) for name in names), fitted, dict)
        return [Prediction(measured, name, 10.0, 10.0 * exp(one)) for name, one in zip(names, off, strict=True)]

    drawn = [NormalDist(0, 0.2).inv_cdf((i + 0.5) / 400) for i in range(400)]
    rows = [row("caffe2", False, one) for one in drawn] + [row("caffe2", False, one, -one) for one in drawn]
    others = [row("caffe2", True, 3.0), row("nvidia-inference", False, -3.0)]
    assert unseen_widths([*rows[:400], *others, rows[400]])[0] == pytest.approx(0.2, rel=0.03)
    assert unseen_widths(rows)[1] == pytest.approx(0.2 * 2**0.5, rel=0.03)
    total = Measured("titan-x", 4, "vgg16(16)", "caffe2", (("forward", 1.0), ("total", 3.0)), False, dict)
    assert part_errors([Prediction(total, "forward", 1, 2), Prediction(total, "total", 3, 3)]) == [log(2), log(1 / 2)]


@pytest.mark.slow
@pytest.mark.parametrize("name", some(FITTED, "t4"))
def test_a_fit_finds_the_figures_in_use(name: str) -> None:
    found, used = fit(name), MACHINES[name].efficiency
    assert astuple(found) == pytest.approx(astuple(used), rel=0.015)
    for gpu in FITTED[name][0]:
        assert GPUS[gpu].efficiency == used


@pytest.mark.matrix
def test_the_goals() -> None:
    """Titan X's rows of 16 images, whole networks by GPU, and Titan X's single convolutions."""
    whole = [WholeNetwork.of(row) for row in whole_networks()]
    small = {(one.network, one.cudnn): one.off for one in whole if one.gpu == "titan-x" and "(16)" in one.network}
    assert [name for name, off in small.items() if abs(off) > 0.12] == [("caffenet(16)", 5.1)]
    for gpu in FITTED:
        if offs := [abs(one.off) for one in whole if one.gpu == gpu]:
            assert median(offs) < 0.20, gpu
    single = [abs(one.off) for one in compared(convolutions()) if one.measured.gpu == "titan-x"]
    assert median(single) < 0.15


@pytest.mark.matrix
def test_the_page_has_what_the_command_prints() -> None:
    for name in PAGES:
        page = (Path(__file__).parents[4] / "docs" / PAGES[name]).read_text(encoding="utf-8")
        for table in PARTS[name]():
            assert f"{table.title}:\n\n{table.markdown()}" in page, "refimpl reproduce machines --write"
