"""`refimpl torch`: who fits a module, the lines that are printed, and plans that PyTorch's loop cannot carry out."""

from __future__ import annotations

import copy
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from refimpl.cli import in_pytorch  # noqa: E402
from refimpl.importing import from_torch  # noqa: E402
from refimpl.names.by_name import plan  # noqa: E402
from refimpl.names.presets import PRESETS  # noqa: E402
from tests.messages import lacks  # noqa: E402
from tests.refimpl.cli.said import Command, Wrong  # noqa: E402

MODULES = """
import torch
from torch import nn


def make(batch):
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(1024, 10),
    ), (batch, 3, 16, 16)


class Product(nn.Module):
    def forward(self, left, right):
        return self.fc(left * right)

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)


def of_two():
    return Product(), (torch.zeros(2, 4), torch.zeros(2, 4))


def loss_of(out):
    return nn.functional.cross_entropy(out, torch.zeros(len(out), dtype=torch.int64))


def deep(batch):
    parts = [part for _ in range(8) for part in (nn.Linear(256, 256), nn.GELU())]
    return nn.Sequential(*parts, nn.Linear(256, 8)), (batch, 256)


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def of_blocks(batch):
    blocks = [Residual(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(4)]
    return nn.Sequential(nn.Linear(16, 16), *blocks, nn.Linear(16, 4)), (batch, 16)


class OwnLoss(Product):
    def forward(self, left, right):
        out = super().forward(left, right)
        return loss_of(out), out


def of_loss():
    return OwnLoss(), of_two()[1]


class Branching(nn.Module):
    def __init__(self, asks):
        super().__init__()
        self.asks, self.fc = asks, nn.Linear(4, 4)

    def forward(self, x):
        if x.sum() > 0 if self.asks == "value" else x[x > 0].shape[0] > 2:
            return self.fc(x)
        return x


def of_values():
    return Branching("value"), (4, 4)


def of_shapes():
    return Branching("shape"), (4, 4)


def module():
    return make(2)[0]


def network():
    return "a network", (2, 3)


def broken():
    raise KeyError("weights")
"""
QUICK = ("--machine", "h100", "--set", "effort=1", "--no-verify")
FEW = ("baseline", "vdnn-dyn", "superneurons", "accudnn", "combined")  #: presets; tests of other commands plan them all


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(in_pytorch, "PRESETS", {name: PRESETS[name] for name in FEW})
    path = tmp_path / f"modules_{abs(hash(tmp_path))}.py"
    path.write_text(MODULES)
    return path.name


def pasted(out: str) -> str:
    """The lines to paste."""
    lines = re.findall(r"^ {4}(\S.*)$", out, re.MULTILINE)
    assert len(lines) == 5
    return "\n".join(lines)


def trained(module: Any, lines: str, inputs: Any) -> list[Any]:
    """Loss, gradients and statistics after these lines."""
    torch.manual_seed(5)
    names = {"module": module, "inputs": inputs, "labels": torch.arange(len(inputs)) % 10}
    exec(lines, names | {"loss_of": torch.nn.functional.cross_entropy}, names)
    return [names["loss"].detach(), *(weight.grad for weight in module.parameters()), *module.buffers()]


PLAIN = "loss = torch.nn.functional.cross_entropy(module(inputs), labels)\nloss.backward()"


def test_the_lines_that_are_printed_give_the_bits_of_plain_pytorch(
    refimpl: Command, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refimpl("torch", f"{file}:make", "--batch", 8, "--budget", 0.8, "--out", "plan.json", *QUICK)
    assert said.status == 0 and said.err == ""
    assert lacks(said.out, "vdnn-dyn", "Chosen: accudnn", "never run on a GPU", "cuBLAS's") == []
    assert json.loads(Path("plan.json").read_text())["predicted"]["out"] > 0
    module, _ = runpy.run_path(file)["make"](8)
    inputs = torch.randn(8, 3, 16, 16)
    right = trained(copy.deepcopy(module), f"import torch\n{PLAIN}", inputs)
    found = trained(module, pasted(said.out), inputs)
    assert all(torch.equal(one, other) for one, other in zip(right, found, strict=True))
    assert "copied to the host" in capsys.readouterr().out


def test_no_plan_moves_gradients_and_what_would_fit_is_said(refimpl: Command, file: str) -> None:
    asked = ("torch", f"{file}:make", "--batch", 8, "--json", "--out", "plan.json", *QUICK)
    for policy in ("superneurons", "combined"):  # whose caches would evict any tensor
        said = refimpl(*asked, "--budget", 0.9, "--policy", policy)
        assert said.status == 0, said.err
        predicted = json.loads(said.out)["predicted"]
        assert predicted["gradients_out"] == 0 and predicted == json.loads(Path("plan.json").read_text())["predicted"]
    Path("plan.json").unlink()

    said = refimpl(*asked, "--budget", 0.3)
    assert said.status == 3 and said.err.count("\n") == 1 and not Path("plan.json").exists()
    document = json.loads(said.out)
    assert [one["setup"] for one in document["presets"]] == [*FEW]
    assert not any(one["fits"] for one in document["presets"]) and document["chosen"] is None
    assert "no preset fits" in said.err and document["why"] in said.err
    found = re.search(r": (\S+) fits in (\S+ \wiB)$", said.err.strip())
    assert found
    module, example = runpy.run_path(file)["make"](8)
    plan(from_torch(module, example, keeps="pytorch"), found[1], "h100", found[2])  # fits
    said = refimpl(*asked, "--budget", 0.3, "--policy", "combined")
    assert said.status == 3 and lacks(said.err, "combined does not fit", "take another policy") == []


def test_a_policy_of_ones_own_and_a_module_of_several_inputs(refimpl: Command, file: str) -> None:
    said = refimpl("torch", f"{file}:of_two", "--policy", "vdnn-all, join=no", "--budget", "1GiB", "--least", *QUICK)
    assert said.status == 0, said.err
    assert lacks(said.out, "Chosen: vdnn-all, join=no", "planned(*inputs)", "Not written", "least") == []


def test_what_fits_as_it_is_needs_no_plan(refimpl: Command, file: str) -> None:
    """The answer comes first, and what was assumed is in the title."""
    said = refimpl("torch", f"{file}:of_two", "--machine", "rtx-3060", "--out", "plan.json", *QUICK[2:])
    assert re.match(r"fits: \d.* of 11.5 GiB usable on rtx-3060; you need no plan.\n", said.out)
    assert lacks(said.out, "AdamW, float32, loss not counted", "Chosen: baseline", "for the context") == []
    assert "In your own loop" not in said.out
    decided = json.loads(Path("plan.json").read_text())
    assert decided["predicted"]["out"] == 0 and not any(one["recomputed"] for one in decided["maps"].values())


def test_what_does_not_fit_is_told_what_to_do(refimpl: Command, file: str) -> None:
    """A policy, the largest batch that fits without one, or autocast; each with the bytes that it takes."""
    Path("box.toml").write_text('like = "rtx-3060"\nmemory = "650MiB"\n')
    said = refimpl("torch", f"{file}:deep", "--batch", 8192, "--machine", "box.toml", "--json", *QUICK[2:])
    assert said.status == 0, said.err
    document = json.loads(said.out)
    answer = document["answer"]
    assert answer["fits"] == "no" and answer["room_bytes"] == (650 - 512) << 20 and answer["room"] == "usable"
    assert sum(answer["parts"].values()) == answer["need"]["predicted"]
    weights = 8 * (256 + 1) * 256 + 257 * 8
    assert answer["parts"]["weights"] == 4 * weights and answer["parts"]["optimiser"] == 8 * weights
    policy, batch, autocast = answer["do"]
    assert policy["policy"] == document["chosen"] and policy["slow_down"] >= 1
    assert all(one["need"]["most"] <= answer["room_bytes"] < answer["need"]["least"] for one in (policy, batch))
    assert autocast["autocast"] == "bfloat16" and autocast["need"]["predicted"] < 0.7 * answer["need"]["predicted"]
    assert re.fullmatch(
        r"does not fit: \d+ MiB \(.*\) of 138 MiB usable on box; do: "
        r"--policy \S+ \([\d.]+ MiB .* 1\.\d\d × the time\); or --batch \d+; or --autocast bfloat16: [\d.]+ MiB \(.*\)",
        answer["sentence"],
    )
    Path("chip.toml").write_text('like = "m1-pro"\nmemory = "138MiB"\n')  # offloading frees nothing there
    on_chip = refimpl("torch", f"{file}:deep", "--batch", 8192, "--machine", "chip.toml", "--json", *QUICK[2:])
    assert json.loads(on_chip.out)["predicted"]["out"] == 0
    for number, fits in ((batch["batch"], "yes"), (batch["batch"] + 1, "maybe")):
        again = ("torch", f"{file}:deep", "--batch", number, "--machine", "box.toml", "--policy", "baseline", "--json")
        assert json.loads(refimpl(*again, *QUICK[2:]).out)["answer"]["fits"] == fits


def test_a_checkpoint_around_each_block_is_a_row(refimpl: Command, file: str) -> None:
    """Its plan keeps the inputs of four blocks and of two layers around them, and the output."""
    asked = ("torch", f"{file}:of_blocks", "--batch", 64, "--budget", "1GiB", *QUICK)
    said = refimpl(*asked, "--policy", "checkpoint-per-block", "--json")
    assert said.status == 0, said.err
    document = json.loads(said.out)
    assert [one["setup"] for one in document["presets"]] == [*FEW, "checkpoint-per-block"]
    assert document["chosen"] == "checkpoint-per-block" and document["predicted"]["held"] <= 64 * 4 * (6 * 16 + 4)
    assert lacks(refimpl(*asked).out, "your module", "checkpoint per", "Chosen: baseline") == []


def test_loss_autocast_and_optimiser_are_counted(refimpl: Command, file: str) -> None:
    """An optimiser keeps as many bytes of each weight as of PyTorch's; a loss is a function of the file, or ours."""

    def asked(*words: str, of: str = "of_two") -> tuple[int, dict[str, Any]]:
        again = ("torch", f"{file}:{of}", "--budget", "1GiB", "--policy", "baseline", "--json")
        found = json.loads(refimpl(*again, *words, *QUICK).out)
        return found["answer"]["need"]["predicted"], found["assumed"]

    module, _ = runpy.run_path(file)["of_two"]()
    weights = sum(one.nbytes for one in module.parameters())
    sizes = [asked("--optimiser", name)[0] for name in ("sgd:momentum=0", "sgd", "adam", "adamw")]
    assert [size - sizes[0] for size in sizes] == [0, weights, 2 * weights, 2 * weights] and sizes[3] == asked()[0]
    own, named = asked("--loss", "loss_of"), asked("--loss", "softmax")
    assert own[0] == named[0] and named[1]["loss"] == "softmax"
    assert asked(of="of_loss")[1]["loss"] == "its own loss"
    nbytes, assumed = asked("--autocast", "bfloat16")
    assert nbytes < sizes[3] and assumed == {
        "optimiser": "AdamW", "dtype": "float32", "autocast": "bfloat16", "loss": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["lenet"], "my_file.py:make"),
        (["{}:mak"], "did you mean make?"),
        (["{}:module"], "returned a Sequential; return (module, example)"),
        (["{}:network"], "str is not a torch.nn.Module"),
        (["{}:broken"], "KeyError: 'weights'"),
        (["{}:of_two", "--batch", "4"], "takes no batch"),
        (["{}:of_values"], "line 61, in forward"),
        (["{}:of_shapes"], "line 61, in forward"),
        (["{}:make", "--loss", "lossof"], "has no function 'lossof', and there is no loss 'lossof'"),
        (["{}:make", "--optimiser", "adagrad"], "There are: sgd, adamw, adam."),
        (["{}:make", "--policy", "vdnnn"], "vdnn"),
        (["{}:make", "--out", "absent/plan.json"], "absent/plan.json"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_use_is_one_line(wrong: Wrong, file: str, words: list[str], says: str) -> None:
    assert says in wrong("torch", *(word.format(file) for word in words))
