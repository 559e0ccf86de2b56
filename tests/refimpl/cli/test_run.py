"""`refimpl run`: training, checkpoints, Ctrl-C, a user's own data, the report, and what can be wrong with them."""

from __future__ import annotations

import json
import re
import shlex
import signal
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refimpl.backend.data import Synthetic, load_npz
from refimpl.cli import resolve
from refimpl.cli.run import report
from refimpl.machine import Choice, Machine
from refimpl.machine.here import rough_cpu
from refimpl.machine.model import in_order
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.planner import plan
from tests.matrix import some
from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

SMALL = ("lenet", "--batch", 8, "--backend", "cpu")
DIGITS = (*SMALL, "--data", "digits")


def arrays(path: str) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def same(one: str, other: str) -> bool:
    """Two checkpoints hold the same state, to the last bit."""
    first, second = arrays(one), arrays(other)
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def test_a_leaner_network_learns_the_digits_as_the_plain_one_does(refimpl: Command, tmp_path: Path) -> None:
    for name in ("lenet", "lenet:lean"):
        refimpl("run", name, *DIGITS[1:], "--steps", 2, "--save", tmp_path / f"{name}.npz")
    plain, lean = (arrays(str(tmp_path / f"{name}.npz")) for name in ("lenet", "lenet:lean"))
    states = {*lean} - {"about"}
    assert "conv1.w" in states < {*plain} and all(np.array_equal(lean[name], plain[name]) for name in states)


def test_training_is_reported(refimpl: Command) -> None:
    said = refimpl("run", *DIGITS, "--steps", 3, "--budget", "8MiB")
    assert said.status == 0 and said.err == ""
    recounted = "as recounted from the executed instructions; budget 8 MiB"
    for word in ("lenet, batch 8, on the CPU: 3 iterations on digits", "Loss", "Accuracy", recounted):
        assert word in said.out
    assert max(map(len, said.out.splitlines())) <= 100


def test_the_document(refimpl: Command) -> None:
    said = refimpl("run", *DIGITS, "--epochs", 1, "--batch", 300, "--json", "--rate", 0.05, "--seed", 7)
    document = json.loads(said.out)
    assert said.status == 0 and said.err == ""
    assert document["iterations"] == len(document["losses"]) == 4  # 1,438 images to train on
    assert document["rate"] == 0.05 and document["seed"] == 7 and document["momentum"] == 0.9
    assert document["peak_bytes"]["predicted"] == document["peak_bytes"]["recounted"] > 0
    assert document["process_bytes"] is None or document["process_bytes"] > document["peak_bytes"]["recounted"]
    assert document["tested"] == 359 and 0 <= document["accuracy"] <= 1


def test_what_does_not_fit_is_status_3(refimpl: Command) -> None:
    said = refimpl("run", *DIGITS, "--steps", 1, "--budget", "64KiB")
    assert said.status == 3 and said.out == "" and lacks(said.err, "refimpl run", "64 KiB") == []


def test_by_hand_every_action_is_printed(refimpl: Command) -> None:
    said = refimpl("run", "lenet", "--batch", 2, "--policy", "vdnn-all", "--backend", "cpu", "--by-hand")
    lines = [line.split() for line in said.out.splitlines()]
    assert said.status == 0
    assert ["pool1", "forward", "offload", "#6", "conv1,", "100,352", "bytes"] in lines
    assert lines[-1][:3] == ["conv1", "backward", "wait"]
    refused = refimpl("run", "lenet", "--by-hand", "--policy", "vdnn-dyn", "--backend", "cpu")
    assert refused.status == 2 and lacks(refused.err, "vdnn-dyn", "vdnn-conv") == []
    assert lacks(refimpl("run", "lenet", "--by-hand", "--steps", 2).err, "--steps") == []


def test_a_run_in_two_parts_is_the_same_to_the_last_bit(refimpl: Command, tmp_path: Path) -> None:
    whole, half, rest = (str(tmp_path / name) for name in ("whole.npz", "half.npz", "rest.npz"))
    first = json.loads(refimpl("run", *DIGITS, "--steps", 6, "--seed", 3, "--save", whole, "--json").out)["losses"]
    begun = refimpl("run", *DIGITS, "--steps", 4, "--seed", 3, "--save", half, "--json")
    ended = refimpl("run", *DIGITS, "--steps", 6, "--resume", half, "--save", rest, "--json")
    assert json.loads(begun.out)["losses"] + json.loads(ended.out)["losses"] == first
    assert same(whole, rest) and not same(whole, half)


def calibrated(first: str) -> Machine:
    """This computer with a calibration by which one algorithm is the fastest everywhere."""

    @dataclass(frozen=True)
    class Calibrated(Machine):
        def _make_choices(self, call: Any) -> tuple[Choice, ...]:
            made = super()._make_choices(call)
            return in_order(replace(one, seconds=one.seconds / (1e6 if one.algorithm == first else 1)) for one in made)

    rough = rough_cpu()
    return Calibrated(**{each.name: getattr(rough, each.name) for each in fields(rough) if each.init})


@pytest.mark.slow
@pytest.mark.parametrize("policy", some(["baseline", "superneurons", "vdnn-dyn"], "superneurons"))
def test_a_run_is_repeated_and_resumed_to_the_bit_on_a_machine_with_another_calibration(
    refimpl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    half, whole, again, run = (str(tmp_path / name) for name in ("half.npz", "whole.npz", "again.npz", "run.json"))
    train = ["run", "lenet", "--batch", 8, "--backend", "cpu", "--policy", policy, "--json"]

    def said(first: str, *options: Any) -> dict[str, Any]:
        monkeypatch.setattr(resolve, "machine", lambda *_: calibrated(first))
        done = refimpl(*train, *options)
        assert done.status == 0, done.err
        found: dict[str, Any] = json.loads(done.out)
        return found

    one = said("direct", "--steps", 4, "--save", whole)
    Path(run).write_text(json.dumps(one))
    assert "direct" in one["algorithms"].values() and one["like"] is None
    assert said("implicit_gemm", "--steps", 4)["losses"] != one["losses"], "the calibration decides"
    repeated = said("implicit_gemm", "--steps", 4, "--set", f"like={run}", "--save", again)
    assert (repeated["losses"], repeated["accuracy"]) == (one["losses"], one["accuracy"])
    assert repeated["algorithms"] == one["algorithms"] and same(again, whole)
    assert said("implicit_gemm", "--steps", 4, "--set", f"like={whole}")["losses"] == one["losses"]
    said("direct", "--steps", 2, "--save", half)
    resumed = said("implicit_gemm", "--steps", 4, "--resume", half, "--save", again)
    assert one["losses"][2:] == resumed["losses"] and same(again, whole) and resumed["like"] == half
    free = said("implicit_gemm", "--steps", 4, "--resume", half, "--set", "like=none", "--save", again)
    assert one["losses"][2:] != free["losses"] and free["like"] is None
    assert "implicit_gemm" in free["algorithms"].values()


def test_a_run_says_which_algorithms_it_took(refimpl: Command, wrong: Wrong, tmp_path: Path) -> None:
    saved, none = str(tmp_path / "saved.npz"), str(tmp_path / "none.json")
    out = refimpl("run", *DIGITS, "--steps", 1, "--save", saved).out
    assert re.search(r"\nChosen    5 convolution calls: (\w+ [0-9](, )?)+\n", out), out
    out = refimpl("run", *DIGITS, "--steps", 1, "--set", f"like={saved}").out
    assert re.search(rf"\nChosen    5 convolution calls: .*, as in {saved}\n", out), out
    Path(none).write_text("{}")
    assert lacks(wrong("run", *DIGITS, "--set", f"like={none}"), none, "refimpl run --json") == []
    Path(none).write_text('{"algorithms": {"conv.forward conv1": "direct"}}')
    said = wrong("run", *DIGITS, "--set", f"like={none}")
    assert lacks(said, none, "conv.forward conv2", "lenet") == []
    document = json.loads(refimpl("run", *DIGITS, "--steps", 1, "--json").out)
    Path(none).write_text(json.dumps({"algorithms": document["algorithms"] | {"conv.forward conv1": "fft"}}))
    assert lacks(wrong("run", *DIGITS, "--set", f"like={none}"), "fft", "conv.forward conv1") == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_save_and_the_line_that_is_printed_resumes(
    refimpl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """A real signal, in the middle of the run; the command that is printed is then given as printed."""
    monkeypatch.chdir(tmp_path)
    options = ("--steps", 5, "--save", "end.npz")
    drawn = Synthetic.batch

    def interrupted(source: Synthetic, batch: int, iteration: int, seed: int = 0):
        if iteration == 3:
            signal.raise_signal(number)
        return drawn(source, batch, iteration, seed)

    with monkeypatch.context() as patched:
        patched.setattr(Synthetic, "batch", interrupted)
        said = refimpl("run", *SMALL, *options)
    assert said.status == 130 and said.out == ""
    first, second = said.err.splitlines()
    assert first == "refimpl run: interrupted after iteration 3; saved: end.npz"
    words = shlex.split(second.removeprefix("resume with: "))
    assert words[0] == "refimpl" and refimpl(*words[1:]).status == 0
    assert refimpl("run", *SMALL, "--steps", 5, "--save", "whole.npz").status == 0
    assert same("end.npz", "whole.npz")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_what_cannot_be_saved_is_refused_before_training(
    wrong: Wrong, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(resolve, "trainer", lambda *_, **__: pytest.fail("there is a trainer"))
    for path in ("/dev/null", tmp_path, tmp_path / ("x" * 300), tmp_path / "no" / "a.npz", "/proc/a.npz"):
        assert lacks(wrong("run", *SMALL, "--steps", 1, "--save", path), "--save", path) == []


NETWORKS_OF_ONES_OWN = """
from refimpl.network import Builder

def pixels(batch=4):
    b = Builder("pixels", (batch, 1, 8, 8))
    b.conv(11, 3, pad=1)
    b.pixel_softmax()
    return b.build()

def numbers(batch=4):
    b = Builder("numbers", (batch, 1, 8, 8))
    b.conv(1, 3, pad=1)
    b.mean_squared_error()
    return b.build()
"""


def test_own_targets_and_labels_a_pixel(
    refimpl: Command, wrong: Wrong, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(NETWORKS_OF_ONES_OWN)
    images = np.random.default_rng(0).random((20, 1, 8, 8), np.float32)
    labels = np.where(images[:, 0] > 0.5, 10, 255)
    np.savez("pixels.npz", images=images, labels=labels, ignore_index=255, classes=11)
    np.savez("numbers.npz", images=images, targets=images)
    cpu = ("--backend", "cpu", "--steps", 2, "--batch", 4)
    counted = np.count_nonzero(load_npz("pixels.npz").test_labels == 10)
    said = refimpl("run", "mine.py:pixels", *cpu, "--data", "pixels.npz").out
    assert f"of {counted} pixels of 4 images that it has not learnt from" in said
    said = refimpl("run", "mine.py:numbers", *cpu, "--data", "numbers.npz").out
    assert "the mean over 256 numbers of 4 images that" in said
    document = json.loads(refimpl("run", "mine.py:numbers", *cpu, "--data", "digits", "--json").out)
    assert document["accuracy"] is None and document["counted"] == {"what": "number", "number": 359 * 64}
    assert document["tested_loss"] > 0 and document["tested"] == 359
    assert lacks(wrong("run", "mine.py:pixels", *cpu, "--data", "numbers.npz"), "targets", "labels a pixel") == []


def test_a_validation_split_of_ones_own(refimpl: Command, wrong: Wrong, tmp_path: Path) -> None:
    mine, other = tmp_path / "mine.npz", tmp_path / "other.npz"
    random = np.random.default_rng(0)
    for path, count in ((mine, 40), (other, 7)):
        labels = np.arange(count) % 3
        np.savez(path, images=random.normal(size=(count, 1, 8, 8)).astype(np.float32), labels=labels)
    run = ("run", "lenet", "--batch", 4, "--backend", "cpu", "--steps", 1, "--json")
    for validation, count in ((0.1, 4), (other, 7)):
        assert json.loads(refimpl(*run, "--data", f"{mine},validation={validation}").out)["tested"] == count
    assert json.loads(refimpl(*run, "--data", "digits,validation=0.5").out)["tested"] == 898
    assert lacks(wrong(*run, "--data", f"{mine},validation=0.99"), 4, "1 image") == []
    assert lacks(wrong(*run, "--data", f"{mine},validation=2"), "share", 2) == []
    assert lacks(wrong(*run, "--data", f"digits,validation={other}"), "validation=", "digits") == []
    assert lacks(wrong(*run, "--data", "synthetic,validation=0.5"), "validation", "synthetic") == []
    assert lacks(wrong(*run, "--data", f"{mine},validation={tmp_path / 'none.npz'}"), "none.npz") == []


def test_a_checkpoint_is_written_on_the_way(refimpl: Command, wrong: Wrong, tmp_path: Path) -> None:
    """The run diverges, and what it saved last is there."""
    path, good = tmp_path / "kept.npz", tmp_path / "good.npz"
    assert refimpl("run", *DIGITS, "--steps", 3, "--save", f"{path},every=2").status == 0
    with np.load(path) as saved:
        assert json.loads(str(saved["about"]))["settings"]["iteration"] == 3
    failed = refimpl("run", *DIGITS, "--steps", 60, "--rate", 1e20, "--save", f"{good},every=1")
    assert failed.status == 2 and failed.err.count("\n") == 1
    with np.load(good) as saved:
        assert json.loads(str(saved["about"]))["settings"]["iteration"] >= 1
    assert lacks(wrong("run", *DIGITS, "--save", f"{path},every=0"), "--save", "every=0") == []
    assert lacks(wrong("run", *DIGITS, "--save", path, "--save", good), "--save", path, good) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--data", "digit"], "digit digits"),
        (["--data", "x" * 300 + ".npz"], "x" * 300 + ".npz"),
        (["--steps", 0], "--steps 1 0"),
        (["--steps", 1, "--epochs", 1], "--steps --epochs"),
        (["--steps", 1, "--resume", "missing.npz"], "missing.npz"),
        (["--machine", "h100:cudnn4"], "cudnn4"),
        (["--seed", -1], "--seed 0 -1"),
        (["--rate", "nan", "--steps", 1], "--rate 0 nan"),
        (["--backend", "gpu"], "gpu cpu cuda"),
        (["--data", "digits", "--batch", 2000], "2000"),
    ],
)
def test_wrong_use_is_one_line(
    wrong: Wrong, options: list[Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = wrong("run", "lenet", *([] if "--backend" in options else ["--backend", "cpu"]), *options)
    assert lacks(said, *says.split()) == []


def test_a_checkpoint_of_another_network_and_one_that_is_done(refimpl: Command, wrong: Wrong, tmp_path: Path) -> None:
    path = tmp_path / "lenet.npz"
    assert refimpl("run", *DIGITS, "--steps", 2, "--save", path).status == 0
    assert lacks(wrong("run", "tiny-vgg", "--backend", "cpu", "--resume", path), path, "lenet", "tiny-vgg") == []
    assert lacks(wrong("run", *DIGITS, "--steps", 2, "--resume", path), path, 2) == []
    assert lacks(wrong("run", *DIGITS, "--steps", 3, "--seed", 1, "--resume", path), "--seed", 0) == []


def test_without_a_gpu_the_cuda_backend_is_status_4(refimpl: Command) -> None:
    from kernels.targets import gpu

    if gpu.why_not() is None:
        pytest.skip("there is a GPU")
    said = refimpl("run", "lenet", "--backend", "cuda", "--steps", 1)
    assert said.status == 4 and said.out == "" and said.err.count("\n") == 1 and "GPU" in said.err


SEVERAL = """
import refimpl

def make(batch):
    b = refimpl.Builder("two of each", (batch, 2, 4, 4))
    other = b.add_input("other", (batch, 3, 4, 4))
    trunk = b.join(b.conv(4, 1, after=b.input), b.conv(4, 1, after=other))
    b.conv(3, 1)
    b.pixel_softmax(name="mask", weight=0.5)
    b.fc(4, after=trunk)
    b.softmax(name="digit")
    return b.build()
"""


def test_several_inputs_and_losses_are_trained_and_each_is_reported(
    refimpl: Command, wrong: Wrong, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(SEVERAL)
    random = np.random.default_rng(0)
    arrays = {
        "images": random.standard_normal((30, 2, 4, 4)), "other": random.standard_normal((30, 3, 4, 4)),
        "mask": random.integers(0, 3, (30, 4, 4)), "digit": random.integers(0, 4, 30),
    }  # fmt: skip
    np.savez("mine.npz", **arrays)  # type: ignore[arg-type]
    command = ["run", "mine.py:make", "--batch", "4", "--backend", "cpu", "--data"]
    text = refimpl(*command, "mine.npz", "--steps", "3", "--save", "state.npz").out
    assert "= 0.5 × mask + digit, on 6 images that it has not learnt from" in text
    assert "\n  mask: loss " in text and ", of 96 pixels\n" in text
    assert "\n  digit: loss " in text and ", of 6 images\n" in text
    found = json.loads(refimpl(*command, "mine.npz", "--steps", "4", "--resume", "state.npz", "--json").out)
    each = found["each_loss"]
    assert found["weighted_loss"] == pytest.approx(0.5 * each["mask"]["loss"] + each["digit"]["loss"])
    assert found["tested_loss"] == each["digit"]["loss"] and len(found["losses"]) == 1
    np.savez("less.npz", **{name: array for name, array in arrays.items() if name != "other"})  # type: ignore[arg-type]
    for data, says in (
        (["less.npz"], "less.npz has no other, only images, mask, digit"),
        (["digits"], "give --data FILE.npz with an array for each"),
    ):
        assert says in wrong(*command, *data)


# -- the report --------------------------------------------------------------------------------------------------------

DOCUMENT: dict[str, Any] = {
    "network": "lenet", "batch": 8, "backend": "cpu", "ranks": 1, "data": "digits", "losses": [2.5, 2.0, 1.0, 0.5],
    "tested": 32, "tested_loss": 0.625, "accuracy": 0.875, "counted": {"what": "image", "number": 32},
    "peak_bytes": {"predicted": 1 << 20, "recounted": 1 << 20}, "process_bytes": None,
    "seconds": {"iteration": 0.25, "predicted": 0.125}, "algorithms": {"a": "direct", "b": "winograd", "c": "direct"},
    "like": None, "wire_bytes": 0, "host_seconds_per_instruction": None, "driver_calls": None, "checkpoint": None,
    "exported": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "changes", "says"),
    [
        ("vdnn-all", {"process_bytes": 3 << 20, "checkpoint": "a.npz", "exported": "a.onnx"}, (
            "lenet, batch 8, on the CPU: 4 iterations on digits.", "Loss █▆▃▁ 2.500 → 0.500",
            "Accuracy 87.5% of 32 images that", "peak 1 MiB, as recounted", "Process 3 MiB of main memory at most",
            "250 ms an iteration; planned for titan-x: 125 ms", "3 convolution calls: direct 2, winograd 1",
            "Saved a.npz", "Exported a.onnx",
        )),
        ("baseline allocator=driver-calls", {}, ("Driver no calls: on the CPU there is none",)),
        ("vdnnpp-all", {}, ("Pool 1.593 MiB: no more of the budget is taken", "On host no map compressed")),
        ("vdnn-all", {"accuracy": None, "counted": {"what": "number", "number": 32}}, (
            "Tested loss 0.625, the mean over 32 numbers of 32 images",
        )),
        ("vdnn-all", {"bits": 2.25, "bits_of": "a byte", "sample": {"after": "a\n\tb", "writes": "c\\\r"}}, (
            "Bits 2.250 a byte: the loss, 0.625 / log 2", r"After a\n\tb", r"Writes c\\\r",
        )),
        ("vdnn-all", {
            "backend": "emulated", "like": "b.npz", "peak_bytes": {"predicted": 1 << 20, "recounted": 2 << 20},
        }, (
            "peak 1 MiB, but 2 MiB recounted", "this is the emulation's own time, and no GPU's", "as in b.npz",
            "Checked every access of every kernel and copy",
        )),
        ("vdnn-all", {
            "backend": "cuda", "ranks": 2, "wire_bytes": 1 << 16, "host_seconds_per_instruction": 2.5e-6,
            "driver_calls": {"allocations": 3, "frees": 2, "seconds": 0.001},
        }, (
            "batch 8 on each of 2 ranks, on the GPU", "all ranks together send 64 KiB", "2.5 µs an instruction",
            "3 allocations and 2 frees an iteration, 1 ms in the calls",
        )),
    ],
)  # fmt: skip
def test_the_report_of_a_run(
    capsys: pytest.CaptureFixture[str], policy: str, changes: dict[str, Any], says: tuple[str, ...]
) -> None:
    network = build("tiny-vgg:vdnnpp" if policy == "vdnnpp-all" else "lenet", 8)
    report(DOCUMENT | changes, plan(network, setup(policy), machine("titan-x"), 64 << 20), [])
    said = " ".join(capsys.readouterr().out.split())
    assert [words for words in says if words not in said] == []
