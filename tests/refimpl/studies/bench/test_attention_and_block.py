"""The bench of attention and a block beside PyTorch: what it measures, and the page that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from refimpl.studies.bench import attention_and_block as measuring
from refimpl.studies.bench import rivals
from refimpl.studies.bench.attention_and_block import FUSED, MATH, MODULE, AttentionReport, AttentionSizes, BesideTorch


def test_attention_is_measured_beside_both_paths(torch: Any) -> None:
    rows = measuring.of_attention(AttentionSizes("small", 2, 9, True), 2)
    assert [(row.what, row.path) for row in rows] == [
        ("attention of small, 2×12×9×64, causal", p) for p in (MATH, FUSED)
    ]
    assert all(row.ours > 0 and row.theirs > 0 for row in rows)


def test_the_page_says_what_is_met_and_what_is_missed(tmp_path: Path) -> None:
    rows = [BesideTorch("attention", FUSED, 0.3, 0.1), BesideTorch("a block", MODULE, 0.2, 0.1)]
    report = AttentionReport(versions={}, load=0.0, threads=1, turns=7, rows=rows)
    full, text = next(report.write(tmp_path)), report.short()
    assert full.name.startswith("attention-") and "`refimpl bench --attention --write`" in full.read_text()
    assert "| attention | fused | 300.0 | 100.0 | 3.00 | 3 | met |" in text
    assert "| a block | a module | 200.0 | 100.0 | 2.00 | 1.3 | missed |" in text
    assert "Processor time on 1 thread, the least of 7 turns." in text


@pytest.mark.parametrize("causal", [False, True])
def test_pytorchs_attention_is_the_softmax_of_the_products(torch: Any, causal: bool) -> None:
    """Forward by hand, and backward by differentiating that, twice from one output."""
    torch.manual_seed(0)
    q, k, v, dy = (torch.randn(1, 2, 5, 4, dtype=torch.float64) for _ in range(4))
    given = [one.clone().requires_grad_() for one in (q, k, v)]
    products = given[0] @ given[1].transpose(-1, -2) / 2
    later = torch.ones(5, 5).triu(1).bool()
    by_hand = (products.masked_fill(later, -float("inf")) if causal else products).softmax(-1) @ given[2]
    torch.testing.assert_close(rivals.torch_attention(torch, "forward", causal)(q, k, v, dy), by_hand)
    backward = rivals.torch_attention(torch, "backward", causal)
    for factor in (1.0, 3.0):
        found = backward(q, k, v, factor * dy)
        wanted = torch.autograd.grad(by_hand, given, factor * dy, retain_graph=True)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)
