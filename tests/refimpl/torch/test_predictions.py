"""What a plan predicts of PyTorch's memory, where that is not easy: each module is one that was predicted wrongly."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any

import pytest

import refimpl
from refimpl.report.uncounted import uncounted
from tests.matrix import more
from tests.messages import raises_naming

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from refimpl.torch import Meter, Planned  # noqa: E402
from tests.refimpl.torch.test_private import Seen  # noqa: E402
from tests.refimpl.torch.todays_models import MoCo, images  # noqa: E402
from tests.refimpl.torch.trained_modules import Beside, program_of, same  # noqa: E402


class Clones(nn.Sequential):
    """ReLU6 in place saves a copy of what it overwrites."""

    def __init__(self) -> None:
        parts: list[Any] = []
        for channels in (3, 16, 16, 16):
            parts += [nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU6(inplace=True)]
        super().__init__(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


class Attention(nn.Module):
    """With dropout, attention on a CPU is several nodes of autograd; cos and sin are shared by all blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.angle = nn.Parameter(torch.zeros(16, 8))
        self.qkv = nn.ModuleList(nn.Linear(32, 96) for _ in range(3))
        self.out = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.last = nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        cos = self.angle.cos().exp()
        for qkv, out in zip(self.qkv, self.out, strict=True):
            q, k, v = (one.unflatten(-1, (4, 8)).transpose(1, 2) for one in qkv(x).chunk(3, -1))
            mixed = functional.scaled_dot_product_attention(q * cos, k * cos, v, dropout_p=0.1)
            x = x + out(mixed.transpose(1, 2).flatten(-2))
        return self.last(x.mean(1))


class Powers(nn.Module):
    """The backward of a power makes three temporary maps."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(torch.tanh(x) + 0.1 * x.pow(3))
        return x


class Recurrent(nn.Module):
    """An LSTM keeps a workspace, whose size no fake tensor has."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(32, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.lstm(x)[0]))


class Tied(nn.Module):
    """Two gradients of a weight are summed after the backward of a view."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x: Any) -> Any:
        return torch.tanh(x @ self.weight.t()) @ self.weight


class Variables(nn.Module):
    """Variables hold maps that are not read any more, until the next block has others for them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            a = layer(x).tanh()
            b = a.exp()
            c = b.sin()
            x = c.tanh()
        return x


class Checkpoints(nn.Module):
    """The first map of a checkpoint is read at the beginning of its backward."""

    def __init__(self) -> None:
        super().__init__()
        parts = [nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
        self.blocks = nn.ModuleList(nn.Sequential(*copy.deepcopy(parts)) for _ in range(4))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = checkpoint(block, torch.sin(x), use_reentrant=False)
        return x


class Masks(nn.Module):
    """No backward runs of a mask: what a plan orders there is ordered at the next step."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x).tanh().exp()
            x = x * (x > x.mean()).to(x.dtype)
        return x


CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "clones": (Clones, (8, 3, 16, 16)),
    "attention": (Attention, (8, 16, 32)),
    "powers": (Powers, (512, 64)),
    "recurrent": (Recurrent, (8, 16, 32)),
    "tied": (Tied, (8, 64)),
    "variables": (Variables, (512, 64)),
    "checkpoints": (Checkpoints, (512, 64)),
    "masks": (Masks, (512, 64)),
}


OFTEN = [
    *((case, "superneurons") for case in CASES),
    ("clones", "dtr"),
    ("clones", "accudnn"),
    ("attention", "dtr"),
    ("checkpoints", "accudnn"),
    ("masks", "vdnn-all"),
]


@pytest.mark.parametrize(
    ("case", "policy"),
    [*OFTEN, *(more(*one) for one in product(CASES, ("dtr", "accudnn")) if one not in OFTEN)],
)
def test_held_and_peak_are_as_predicted(case: str, policy: str) -> None:
    made, shape = CASES[case]
    torch.manual_seed(0)
    pair = Beside(made().train(), shape)
    program = program_of(refimpl.networks.from_torch(pair.module, shape, keeps="pytorch-cpu"), policy)
    program.verify()
    planned = Planned(pair.module, program)

    def counted(model: Any) -> Any:
        with Meter((), planned.transfers) as meter:
            loss = model(pair.x).sum()
            loss.backward()
        counted.peak = meter.peak  # type: ignore[attr-defined]
        return loss

    right = pair.iteration(counted, pair.module)
    pair.iteration(counted, planned)  # the first time it looks for an operator's last node of autograd
    assert same(right, pair.iteration(counted, planned))
    predicted = program.decisions()["predicted"]
    assert planned.last is not None
    assert planned.last.held == predicted["held"]
    assert counted.peak == pytest.approx(predicted["peak"], rel=0.05), case  # type: ignore[attr-defined]


def test_a_map_that_drains_until_it_is_wanted_counts() -> None:
    """Its bytes never went back, and no decision lets it go."""
    program = program_of(refimpl.networks.from_torch(MoCo(), (images(), images()), keeps="pytorch-cpu"), "accudnn")
    for row in program.rows:
        now = row.step.number
        there = [life for life in program.lifetimes() if life.allocate.step < now]
        there = [life for life in there if life.free is None or now < life.free.released]
        assert sum(life.tensor.nbytes for life in there) <= row.live_bytes


def test_a_loss_outside_of_the_module_counts() -> None:
    """The cross-entropy of many classes takes three times the outputs, and is where the peak is."""
    torch.manual_seed(0)
    pair = Beside(nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2048)).train(), (64, 32))
    without, counting = (
        refimpl.torch.plan(pair.module, pair.x, "superneurons", "12GiB", "titan-x", loss=loss)
        for loss in (None, pair.loss_of)
    )
    planned = Planned(pair.module, counting)

    def counted(model: Any) -> Any:
        with Meter((), planned.transfers) as meter:
            loss = pair.loss(model)
            loss.backward()
        counted.peak = meter.peak  # type: ignore[attr-defined]
        return loss

    assert same(pair.iteration(counted, pair.module), pair.iteration(counted, planned))
    peaks = [program.decisions()["predicted"]["peak"] for program in (without, counting)]
    assert counted.peak == pytest.approx(peaks[1], rel=0.001)  # type: ignore[attr-defined]
    assert peaks[1] > 1.5 * peaks[0]
    assert without.decisions()["script"] == counting.decisions()["script"]
    named = [{one.name for one in uncounted(program)} for program in (without, counting)]
    assert named[0] - named[1] == {"the loss"}


def test_a_loss_that_fails_is_refused_in_one_line() -> None:
    module = nn.Linear(4, 3)
    with raises_naming(refimpl.NetworkError, "the loss of what Linear returns failed", "logits"):
        refimpl.torch.plan(module, (2, 4), loss=lambda out: out.logits.sum())
    with raises_naming(refimpl.NetworkError, "loss= or outer_loss="):
        refimpl.networks.from_torch(module, (2, 4), loss="softmax", outer_loss=lambda out: out.sum())


def test_a_batch_norm_runs_again_once_with_the_relu_that_overwrites_it() -> None:
    parts = [(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)) for _ in range(4)]
    module, x = nn.Sequential(*(one for its in parts for one in its)).train(), torch.randn(2, 8, 8, 8)
    planned = Planned(module, program_of(refimpl.networks.from_torch(module, x, keeps="pytorch-cpu"), "superneurons"))
    for _ in range(3):
        loss = planned(x).sum()
        with Seen() as seen:
            loss.backward()
        assert seen.names.count("aten.native_batch_norm.default") == 4


def test_an_empty_tensor_hides_no_peak() -> None:
    with Meter(()) as meter:
        one = torch.zeros(100)
        other = torch.zeros(50)
        torch.empty(0)
        del other
        kept = one + 1
    assert meter.levels_since(0) == (600, 800) and meter.peak == 800
    assert meter.left == one.nbytes + kept.nbytes
