"""The bench of training: what it measures of a network, and what it writes down."""

from __future__ import annotations

import pytest

from refimpl.names.networks import build
from refimpl.studies.bench import pytorch, training
from refimpl.studies.bench.training import TrainingRow


def test_an_iteration_is_measured() -> None:
    row = training.measure("lenet", 2, seconds=0.0)
    assert (row.network, row.batch, row.turns) == ("lenet", 2, training.TURNS)
    assert row.ours > 0 and row.ours_processor > 0 and row.simulated > 0
    assert (row.ratio is None) == (row.pytorch is None) == (not pytorch.at_hand())


def test_pytorch_learns_as_plain_descent_with_momentum() -> None:
    """Two steps by hand: m = g, then m = 0.9 m + g; w = w − 1e-4 m."""
    torch = pytest.importorskip("torch")
    theirs = pytorch.TorchTraining(build("lenet", 2), pytorch.PLAIN)
    weights = {name: value for name, value in theirs._state.items() if value.requires_grad}
    momentum = {name: torch.zeros_like(value) for name, value in weights.items()}
    assert len(weights) == 8
    for _ in range(2):
        before = {name: value.detach().clone() for name, value in weights.items()}
        theirs.step()
        for name, value in weights.items():
            momentum[name] = 0.9 * momentum[name] + value.grad
            torch.testing.assert_close(value.detach(), before[name] - 1e-4 * momentum[name])
        assert any(bool((value.detach() != before[name]).any()) for name, value in weights.items())


def test_the_page_says_what_is_met_and_what_is_missed() -> None:
    rows = [TrainingRow(name, batch, 9, 0.3, 0.2, 0.25, 0.2, 0.19) for name, batch in training.NETWORKS]
    rows[2] = TrainingRow("lenet", 128, 9, 0.3, 0.2, 0.25, None, None)
    text = training.TrainingReport(versions={}, load=2.0, threads=2, rows=rows).short()
    assert "| alexnet(8) | 300.0 | 200.0 | 1.50 | 1.05 | 1 | missed | 250.0 | 9 |" in text
    assert "| lenet(128) | 300.0 |   |   |   | 1.1 | not measured |" in text
    assert "turns on 2 threads. PyTorch is not installed here: pip install torch" in " ".join(text.split())
