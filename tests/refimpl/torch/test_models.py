"""Models of torchvision and transformers under a plan: the bits of plain PyTorch, and what is held as predicted.

`pytest -m campaign tests/refimpl/torch/test_models.py -rP` asks all models of `docs/in_pytorch-evidence.md`.
"""

from __future__ import annotations

import pytest

import refimpl

torch = pytest.importorskip("torch")

from refimpl.torch import Meter, Planned  # noqa: E402
from tests.refimpl.torch.small_models import MODELS, TEXT, at_half, beside, mib  # noqa: E402
from tests.refimpl.torch.trained_modules import same  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXT)
def test_bits_and_bytes_of_a_language_model(name: str) -> None:
    pytest.importorskip("transformers")
    pair = beside(name, size=32, batch=2)
    network = refimpl.networks.from_torch(pair.module, pair.x, keeps="pytorch-cpu")
    assert not {"le", "and", "where", "cumsum"} & set(network.opaque), "the export has a mask"
    planned = Planned(pair.module, refimpl.plan(network, "vdnn-all", "titan-x"))
    assert same(pair.iteration(pair.plain, pair.module), pair.iteration(pair.plain, planned))
    assert planned.last is not None
    assert planned.last.held == planned.orders.plan["predicted"]["held"] > 0


@pytest.mark.campaign
@pytest.mark.parametrize("policy", ["vdnn-all", "superneurons", "accudnn", "combined, effort=10"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_in_half_of_what_pytorch_holds(name: str, policy: str) -> None:
    pair = beside(name)
    network = refimpl.networks.from_torch(pair.module, pair.x, keeps="pytorch-cpu", outer_loss=pair.loss_of)
    right = pair.iteration(pair.plain, pair.module)
    program, share = at_half(network, policy)
    predicted = program.decisions()["predicted"]
    for lean in (False, True) if policy == "superneurons" else (False,):
        planned = Planned(pair.module, program, lean=lean)
        for _ in range(2):  # the first time it looks for an operator's last node of autograd
            assert same(right, pair.iteration(pair.plain, planned))
        with Meter((), planned.transfers) as meter:
            pair.loss(planned).backward()
        assert planned.last is not None
        held, peak = planned.last.held, meter.peak
        print(f"{name}, {policy}, {share:.0%}: held {mib(held)} of {mib(predicted['held'])}, "
              f"peak {mib(peak)} of {mib(predicted['peak'])}")  # fmt: skip
        if not lean:
            assert held == pytest.approx(predicted["held"], rel=0.01)
            assert peak == pytest.approx(predicted["peak"], rel=0.1)
