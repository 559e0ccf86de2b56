"""Models of the kinds that people train today under plans: bits, and what is held and the peak as predicted.

`python -m tests.refimpl.torch.todays_table` asks all of them, under more policies.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.matrix import some  # noqa: E402
from tests.refimpl.torch.todays_models import CASES  # noqa: E402
from tests.refimpl.torch.todays_table import carried_out  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize("name", some(CASES, "VQ autoencoder"))
def test_bits_and_bytes_of_a_model(name: str) -> None:
    if name in ("RoBERTa", "Qwen2"):
        pytest.importorskip("transformers")
    for policy, found in carried_out(CASES[name], ("vdnn-all", "superneurons"), rounds=0):
        assert found.is_alike, policy
        held_off = 0.03 if name == "MoCo" else 0.001  # the queue's copy is kept: docs/in_pytorch-evidence.md
        assert abs(found.held_off) < held_off and abs(found.peak_off) < 0.12, (policy, found)
