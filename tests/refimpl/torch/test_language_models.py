"""Models of the package transformers under a plan: the bits of plain PyTorch, with its own kernel for attention."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

import refimpl

torch = pytest.importorskip("torch")

from refimpl.torch import Planned  # noqa: E402
from refimpl.torch.exporting import as_it_trains  # noqa: E402
from tests.refimpl.torch.small_models import TEXT, beside  # noqa: E402
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


def test_transformers_is_told_that_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its masks are as in training, unless positions are given; after an error, too, it has its own functions again."""
    masks: Any = ModuleType("transformers.masking_utils")
    masks.is_torchdynamo_exporting = exporting = lambda: True
    masks.find_packed_sequence_indices = packed = lambda positions: positions
    monkeypatch.setitem(sys.modules, "transformers.masking_utils", masks)
    module = torch.nn.Linear(2, 2)
    with as_it_trains(module, [None], {}):
        assert not masks.is_torchdynamo_exporting() and masks.find_packed_sequence_indices(7) is None
    with pytest.raises(RuntimeError, match="the user's"), as_it_trains(module, [None], {"position_ids": None}):
        assert not masks.is_torchdynamo_exporting() and masks.find_packed_sequence_indices(7) == 7
        raise RuntimeError("the user's")
    assert (masks.is_torchdynamo_exporting, masks.find_packed_sequence_indices) == (exporting, packed)
