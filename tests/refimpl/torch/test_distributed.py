"""Processes of their own: where only PyTorch is installed; under `DistributedDataParallel`, under `fully_shard`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import refimpl

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.refimpl.torch.trained_modules import SHAPE, Branches, program_of  # noqa: E402

ROOT = Path(__file__).parents[3]

#: One process imports PyTorch alone, then all of this, and is then two.
RANKS = """
import copy, os, sys
others = ("numpy", "numba", "llvmlite", "scipy", "onnx")
sys.modules |= dict.fromkeys(others)  # importing them fails
import torch
from torch import nn
from refimpl.torch import Planned
alone, store, parallel, sharded = sys.argv[1:]
torch.manual_seed(0)
module, x, sums = SMALL.train(), torch.randn(4, 3, 8, 8), []
for model in (module, Planned(module, alone)):
    module.zero_grad()
    model(x).logsumexp(1).sum().backward()
    sums.append([weight.grad.clone() for weight in module.parameters()])
assert all(map(torch.equal, *sums))
assert not [name for name in sys.modules if name.startswith("refimpl.") and name.split(".")[1] not in ("torch", "text")]
for name in others:
    del sys.modules[name]

from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from refimpl.torch import DeferredTransfers, PlannedError
from tests.messages import raises_naming
from tests.refimpl.torch.test_distributed import Blocks
from tests.refimpl.torch.trained_modules import SHAPE, Beside, Branches, same

child = os.fork()
rank = 1 if child else 0
distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)

# DistributedDataParallel
beside = Beside(Branches().train())
beside.x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(rank))
found, summed = [], []
for model in (beside.module, Planned(beside.module, parallel)):
    around = DistributedDataParallel(model)
    around.zero_grad()
    torch.manual_seed(0)
    with around.no_sync():
        around(beside.x).square().mean().backward()
    around(beside.x).square().mean().backward()
    summed.append([weight.grad.clone() for weight in model.parameters()])
    around.zero_grad()
    assert all(name.startswith("module.stem") for name in list(around.state_dict())[:2])
    found.append(beside.iteration(beside.plain, around))
assert same(*found)
assert all(map(torch.equal, *summed))
gathered = [torch.empty_like(found[1]["fc.weight"]) for _ in range(2)]
distributed.all_gather(gathered, found[1]["fc.weight"])
assert torch.equal(*gathered)

# fully_shard
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
module, found = Blocks().train(), []
x = torch.randn(16, 32, generator=torch.Generator().manual_seed(rank))
for planned in (None, Planned(copy.deepcopy(module), sharded, transfers=DeferredTransfers())):
    model = planned or module
    for block in model.blocks:
        fully_shard(block, mesh=mesh)  # whose weights are freed after its forward
    fully_shard(model, mesh=mesh)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(3):
        model(x).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    found.append([weight.full_tensor() for weight in model.parameters()])
assert planned.last.recomputed
assert all(map(torch.equal, *found))
with raises_naming(PlannedError, "is sharded; shard what is planned: fully_shard(Planned(module, plan))"):
    Planned(module, sharded)
distributed.destroy_process_group()
os.write(1, b"alike ")
assert not child or os.waitpid(child, 0)[1] == 0
"""

SMALL = """nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
    nn.Linear(128, 5),
)"""


class Blocks(nn.Module):
    """Norms and GELUs run again in backward, and read the weights of blocks whose turn has not come."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.LayerNorm(32))
            for _ in range(4)
        )

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="gloo's ranks are a process and its copy")
def test_one_process_and_then_two_train_as_plain_pytorch_does(tmp_path: Path) -> None:
    plans = []
    for module, shape in ((eval(SMALL), (4, 3, 8, 8)), (Branches(), SHAPE), (Blocks(), (16, 32))):
        program = program_of(refimpl.networks.from_torch(module.train(), shape, keeps="pytorch-cpu"), "superneurons")
        plans.append(tmp_path / f"{type(module).__name__}.json")
        plans[-1].write_text(json.dumps(program.decisions()), encoding="utf-8")
    words: list[str | Path] = [RANKS.replace("SMALL", SMALL), plans[0], tmp_path / "store", *plans[1:]]
    found = subprocess.run([sys.executable, "-c", *words], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert found.stdout == "alike alike ", found.stderr[-2000:]
