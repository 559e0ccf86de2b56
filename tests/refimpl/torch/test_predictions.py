"""What a plan predicts of PyTorch's memory, where that is not easy: each module is one that was predicted wrongly."""

from __future__ import annotations

from typing import Any

import pytest

import refimpl

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from refimpl.torch import Meter, Planned  # noqa: E402
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


CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "clones": (Clones, (8, 3, 16, 16)),
    "attention": (Attention, (8, 16, 32)),
    "powers": (Powers, (512, 64)),
}


@pytest.mark.parametrize("policy", ["superneurons", "dtr", "accudnn"])
@pytest.mark.parametrize("case", CASES)
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
