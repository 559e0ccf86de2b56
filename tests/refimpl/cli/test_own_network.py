"""Commands that take a file in the place of a network's name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import refimpl
from refimpl import cli
from tests.refimpl.importing.onnx_files import everything, small


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("my_model.onnx").write_bytes(everything().SerializeToString())
    return "my_model.onnx"


@pytest.mark.parametrize("command", ["plan", "compare --with vdnn-all", "summary", "view"])
def test_a_command_takes_a_file(file: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *options = command.split()
    assert cli.main([name, file, "--batch", "5", *options]) == 0
    printed = capsys.readouterr()
    assert "my_model.onnx, batch 5" in printed.out or "One iteration of my_model.onnx" in printed.out, printed


def test_run_writes_the_trained_weights_into_the_file(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    images = random.standard_normal((15, 4, 9, 9), dtype=np.float32)
    np.savez("mine.npz", images=images, labels=random.integers(0, 7, 15))
    run = ["run", file, "--batch", "4", "--data", "mine.npz", "--steps", "2", "--backend", "cpu", "--json"]
    assert cli.main([*run, "--save", "state.npz", "--save", "trained.onnx"]) == 0
    assert json.loads(capsys.readouterr().out)["exported"] == "trained.onnx"
    before, after = (refimpl.networks.from_onnx(name, batch=4).initial for name in (file, "trained.onnx"))
    with np.load("state.npz") as state:
        for name, first in after.items():
            assert first.values.tobytes() == state[name].tobytes(), name
    changed = [name for name in after if after[name].values.tobytes() != before[name].values.tobytes()]
    assert len(changed) > len(after) / 2


def test_the_output_can_be_named(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    f = small()
    f.node("Gemm", "flat", f.weight("auxiliary", 2, 5), transB=1, to="auxiliary_end")
    Path("two.onnx").write_bytes(f.model("end", "auxiliary_end").SerializeToString())
    assert cli.main(["summary", "two.onnx"]) == 2
    said = (
        "two.onnx has 2 outputs; end it at one node, as FILE.onnx:NODE or with output=NODE, or give each its loss, "
        "with FILE.onnx:NODE=LOSS or loss={NODE: LOSS}: /end/Gemm, /auxiliary_end/Gemm"
    )
    assert capsys.readouterr().err == f"refimpl summary: {said}\n"
    assert cli.main(["summary", "two.onnx:/auxiliary_end/Gemm", "--batch", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layers"][-1]["shape"] == [3, 2]


LOSSES = """
import refimpl, torch

def make(batch, loss):
    return refimpl.networks.from_torch(torch.nn.Conv2d(3, 2, 1), (batch, 3, 8, 8), loss=loss)

def classifier(batch):
    return refimpl.networks.tiny_vgg(batch=batch)
"""


def summary(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[str, str]]:
    """Names and kinds of the layers at the end, as a command shows them."""
    assert cli.main(["summary", *arguments, "--batch", "3", "--json"]) == 0
    layers = json.loads(capsys.readouterr().out)["layers"]
    return [(layer["layer"], layer["kind"]) for layer in layers]


def test_a_loss_is_named_for_an_output_or_for_each(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert summary(capsys, f"{file}:=mean_squared_error")[-1][1] == "mean_squared_error"
    f = small()
    f.node("Gemm", "flat", f.weight("auxiliary", 2, 5), transB=1, to="auxiliary_end")
    Path("two.onnx").write_bytes(f.model("end", "auxiliary_end").SerializeToString())
    ended = summary(capsys, "two.onnx:/auxiliary_end/Gemm=binary_cross_entropy")
    assert ended[-1][1] == "binary_cross_entropy"
    each = "two.onnx:/end/Gemm=softmax,/auxiliary_end/Gemm=mean_squared_error"
    ends = {("/end/Gemm.loss", "softmax"), ("/auxiliary_end/Gemm.loss", "mean_squared_error")}
    assert ends <= {*summary(capsys, each)}
    pytest.importorskip("torch")
    Path("mine.py").write_text(LOSSES)
    assert summary(capsys, "mine.py:make:=pixel_softmax")[-1][1] == "pixel_softmax"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("small.onnx:=sofmax", "there is no loss 'sofmax'; did you mean softmax?"),
        ("small.onnx:x=softmax", "has no node 'x'"),
        ("mine.py:classifier:=softmax", "classifier takes no loss; give it the parameter loss"),
    ],
)
def test_a_wrong_loss_is_refused(arguments: str, says: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "mine.py:" in arguments:
        pytest.importorskip("torch")
    Path("mine.py").write_text(LOSSES)
    assert cli.main(["summary", *arguments.replace("small.onnx", file).split()]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            "run lenet --save x.onnx",
            "refimpl run: --save x.onnx: lenet came from no ONNX file; only such a one can",
        ),
        (
            "plan nothing.py",
            "refimpl plan: nothing.py: name the function that makes the network, as in nothing.py:make",
        ),
    ],
)
def test_what_is_wrong_is_one_line(file: str, arguments: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith(says) and said.count("\n") == 1
