"""`DistributedDataParallel` around a planned module: two processes, the gradients of plain PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import refimpl

pytest.importorskip("torch")

from tests.refimpl.torch.trained_modules import SHAPE, Branches, program_of

ROOT = Path(__file__).parents[3]

PROCESS = """
import sys
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from refimpl.torch import Planned
from tests.refimpl.torch.trained_modules import SHAPE, Beside, Branches, same

rank, store, plan = int(sys.argv[1]), sys.argv[2], sys.argv[3]
distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
beside = Beside(Branches().train())
beside.x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(rank))
found = []
for model in (beside.module, Planned(beside.module, plan)):
    around = DistributedDataParallel(model)
    assert all(name.startswith("module.stem") for name in list(around.state_dict())[:2])
    found.append(beside.iteration(beside.plain, around))
assert same(*found)
gathered = [torch.empty_like(found[1]["fc.weight"]) for _ in range(2)]
distributed.all_gather(gathered, found[1]["fc.weight"])
assert torch.equal(*gathered)
distributed.destroy_process_group()
print("the same bits")
"""


@pytest.mark.slow
def test_two_processes_train_as_plain_pytorch_does(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    program = program_of(refimpl.networks.from_torch(Branches().train(), SHAPE), "superneurons")
    plan.write_text(json.dumps(program.decisions()), encoding="utf-8")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(rank), str(tmp_path / "store"), str(plan)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for process in processes:
        out, error = process.communicate(timeout=200)
        assert out == "the same bits\n", error[-2000:]
