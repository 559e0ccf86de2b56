"""The bench's cases on small maps: each binds its launches, and its rivals compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from refimpl.machine.devices import Cpu
from refimpl.studies.bench.cases import BenchSizes, layer_cases, other_cases
from refimpl.studies.bench.kernels import Case
from refimpl.studies.bench.products import torch

WIDE = (1, 3 * 768, 8, 1)
SMALL = BenchSizes(
    maps=(2, 32, 6, 6), inputs=(2, 64, 1, 1), tokens=(2, 8), embedded=(2, 16, 8, 1), words=50, attended=WIDE,
    images=WIDE, packed=WIDE, rows=(8, 10, 1, 1), pixels=(2, 5, 6, 6), outputs=7,
)  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    monkeypatch.setattr(BenchSizes, "of", lambda gpu, quick: SMALL)
    return [*layer_cases(False, True), *other_cases(False, True)]


def first(result: Any) -> np.ndarray:
    """An array of a rival's result, or of the first of several."""
    one = result[0] if isinstance(result, tuple) else result
    return np.asarray(one).squeeze()


def test_each_case_binds_its_launches_and_numpy_and_pytorch_compute_the_same(small: list[Case]) -> None:
    """That the launches compute what PyTorch computes, the kernels' own tests and those of the kinds say."""
    compared = set()
    for case in small:
        ours, rivals = case.prepare(Cpu())
        assert all(ours.values()), case
        results = {name: first(rival.run()) for name, rival in rivals.items() if name != "copy"}
        if len(results) == 2 and case.family != "elementwise":  # whose rivals work in place
            np.testing.assert_allclose(results["PyTorch"], results["NumPy"], rtol=1e-4, atol=1e-4)
            compared.add(case.family)
    assert torch is None or compared == {"fc", "relu", "mul", "join", "concat", "position"}


def test_bytes_are_those_of_maps_read_and_written_once(small: list[Case]) -> None:
    """In numbers of a map; what a channel or an image has counts little."""
    one = 4 * 2 * 32 * 6 * 6
    maps = {(case.family, case.what): case.amount / one for case in small}
    for family, what, expected in (
        ("relu", "forward", 2), ("relu", "backward", 3), ("pool", "forward, max 2×2", 1.25),
        ("pool", "backward, max 2×2", 2.5), ("pool", "backward, average 2×2", 1.25), ("join", "forward, two", 3),
        ("batchnorm", "forward, training", 3), ("batchnorm", "backward, training", 5),
        ("layernorm", "backward, layer", 5), ("take", "forward", 1.5), ("elementwise", "axpy", 3),
    ):  # fmt: skip
        assert maps[family, what] == pytest.approx(expected, rel=0.12), (family, what)
    found = {(case.family, case.what): case for case in small}
    assert found["embedding", "forward"].amount == 2 * 4 * 2 * 768 * 8
    assert found["fc", "backward_filter"].amount == 4 * (7 * 64 + 2 * 64 + 2 * 7)
    assert found["attention", "forward, all"].unit == "GFLOP/s" and found["fc", "forward"].unit == "GB/s"
