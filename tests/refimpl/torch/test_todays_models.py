"""Models of the kinds that people train today under plans: bits, and what is held and the peak as predicted.

`python -m tests.refimpl.torch.todays_table` asks all of them, under more policies.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.matrix import more  # noqa: E402
from tests.refimpl.torch.todays_models import CASES  # noqa: E402
from tests.refimpl.torch.todays_table import carried_out  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["VQ autoencoder", more("checkpoint inside"), more("frozen backbone"), more("RoBERTa")]
)
def test_bits_and_bytes_of_a_model(name: str) -> None:
    if name == "RoBERTa":
        pytest.importorskip("transformers")
    for policy, found in carried_out(CASES[name], ("vdnn-all", "superneurons"), rounds=0):
        assert found.is_alike, policy
        assert abs(found.held_off) < 0.001 and abs(found.peak_off) < 0.12, (policy, found)
