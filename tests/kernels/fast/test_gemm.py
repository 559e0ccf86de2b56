"""Every rung of the gemm ladder against NumPy: transposes, scales, batches, gaps, slices of k, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import gemm
from kernels.targets import cpu
from kernels.targets.launch import REGISTRY, bind
from tests.messages import raises_naming

RUNGS = [name for name in gemm.ALGORITHMS if name != gemm.BEST]
#: A CPU's rung is launched on a CPU alone; a GPU's, whose eight kernels take long to compile, where one is emulated.
MARKS: dict[str, Any] = {
    "vector_rows": (),
    "split_fragments": (pytest.mark.ptx, pytest.mark.emulated, pytest.mark.slow),
}
FROM_PTX = [pytest.param(name, marks=MARKS.get(name, pytest.mark.ptx)) for name in RUNGS]
SIDE = st.one_of(st.integers(1, 9), st.sampled_from([16, 31, 32, 33, 63, 64, 65, 97, 127, 128, 129, 150]))
SCALE = st.sampled_from([0.0, 1.0, -0.5])
EITHER = st.booleans()


def matrix(rng: np.random.Generator, batch: int | None, rows: int, columns: int, gap: int) -> np.ndarray:
    """A matrix, or a batch of them, whose rows (and matrices) are `gap` elements apart; the gaps hold NaN."""
    shape = (rows, columns) if batch is None else (batch, rows, columns)
    whole = np.full((*shape[:-2], rows + gap, columns + gap), np.nan, np.float32)
    part = whole[..., :rows, :columns]
    part[...] = rng.standard_normal(shape)
    return part


def operands(
    m: int, n: int, k: int, trans_a: bool, trans_b: bool, batches: tuple[int | None, ...] = (None,) * 3, gap: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng((m, n, k, gap))
    a = matrix(rng, batches[0], *((k, m) if trans_a else (m, k)), gap)
    b = matrix(rng, batches[1], *((n, k) if trans_b else (k, n)), gap)
    return a, b, matrix(rng, batches[2], m, n, gap)


def workspace_for(m: int, n: int, k: int, algorithm: str, batch: int = 1) -> np.ndarray | None:
    size = gemm.workspace_bytes(m, n, k, algorithm, batch) // 4
    return np.full(size, np.nan, np.float32) if size else None


def close(found: np.ndarray, expected: np.ndarray, k: int) -> None:
    """Rounding grows with the number of terms; they are about 1."""
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6 * (1 + k) ** 0.5 + 1e-6 * k**0.5)


@pytest.mark.parametrize("algorithm", FROM_PTX)
@given(m=SIDE, n=SIDE, k=SIDE, trans_a=EITHER, trans_b=EITHER, alpha=SCALE, beta=SCALE)
def test_against_the_reference(
    algorithm: str, m: int, n: int, k: int, trans_a: bool, trans_b: bool, alpha: float, beta: float
) -> None:
    a, b, c = operands(m, n, k, trans_a, trans_b)
    expected = reference.gemm(a, b, c, trans_a, trans_b, alpha, beta)
    if beta == 0:
        c[...] = np.nan  # must not be looked at
    gemm.gemm(a, b, c, trans_a=trans_a, trans_b=trans_b, alpha=alpha, beta=beta, algorithm=algorithm)
    close(c, expected, k)


@pytest.mark.parametrize("algorithm", [name for name in RUNGS if name != "split_fragments"])
@given(m=SIDE, n=SIDE, k=SIDE, trans_a=EITHER, trans_b=EITHER, gap=st.integers(0, 3), data=st.data())
def test_batches_gaps_and_matrices_shared_by_the_batch(
    algorithm: str, m: int, n: int, k: int, trans_a: bool, trans_b: bool, gap: int, data: st.DataObject
) -> None:
    batch = data.draw(st.integers(1, 3))
    batches = (data.draw(st.sampled_from([None, batch])), data.draw(st.sampled_from([None, batch])), batch)
    a, b, c = operands(m, n, k, trans_a, trans_b, batches, gap)
    expected = reference.gemm(a, b, c, trans_a, trans_b, 1.0, 1.0)
    whole = c.base
    assert whole is not None
    around = whole.copy()
    gemm.gemm(a, b, c, trans_a=trans_a, trans_b=trans_b, beta=1.0, algorithm=algorithm)
    close(c, expected, k)
    around[..., :m, :n] = c
    np.testing.assert_array_equal(whole, around, err_msg="something was written between the rows")


@pytest.mark.parametrize("algorithm", [name for name in RUNGS if name != "skinny"])
def test_k_is_added_up_in_ascending_order(algorithm: str) -> None:
    """1e8 swallows a 1 that is added to it: what is left of 1 + 1e8 - 1e8 + 1 … tells the order."""
    terms = np.array([1, 1e8, -1e8, 1, 1, 1e8, -1e8, 0.25], np.float32)
    expected = np.float32(0)
    for term in terms:
        expected += term
    c = np.empty((1, 1), np.float32)
    gemm.gemm(terms[None], np.ones((len(terms), 1), np.float32), c, algorithm=algorithm)
    assert c[0, 0] == expected == 0.25


@given(
    m=st.integers(1, 40),
    n=st.sampled_from([1, 5, 128, 131]),
    k=st.integers(1, 1500),
    trans_b=EITHER,
    batch=st.integers(1, 2),
)
def test_skinny_gives_the_same_bits_with_and_without_a_workspace(
    m: int, n: int, k: int, trans_b: bool, batch: int
) -> None:
    a, b, c = operands(m, n, k, False, trans_b, (None, batch, batch))
    expected = reference.gemm(a, b, None, False, trans_b)
    without, with_one = np.empty_like(c), np.empty_like(c)
    gemm.gemm(a, b, without, trans_b=trans_b, algorithm="skinny")
    workspace = workspace_for(m, n, k, "skinny", batch)
    gemm.gemm(a, b, with_one, trans_b=trans_b, algorithm="skinny", workspace=workspace)
    np.testing.assert_array_equal(without, with_one)
    close(with_one, expected, k)


@given(m=st.integers(1, 32), n=st.integers(1, 5000), k=st.integers(1, 30000))
def test_slices_cover_k_once(m: int, n: int, k: int) -> None:
    slices, length = gemm.slices_of(m, n, k)
    assert length % gemm.SLICE_STEP == 0
    assert (slices - 1) * length < k <= slices * length
    assert slices == 1 or length >= gemm.SHORTEST_SLICE
    assert gemm.workspace_bytes(m, n, k, "skinny") == (4 * slices * m * n if slices > 1 else 0)


def test_split_fragments_takes_small_tiles_for_few_rows_or_columns() -> None:
    taken = {}
    for m, n in ((64, 500), (500, 64), (65, 65)):
        a, b, c = operands(m, n, 3, False, False)
        (launched,) = bind(gemm.gemm, a, b, c, algorithm="split_fragments")
        taken[m, n] = launched.kernel.name, launched.grid
    assert taken[64, 500] == ("gemm_split_fragments_64x64_nn", (8, 1, 1))
    assert taken[500, 64] == ("gemm_split_fragments_64x64_nn", (8, 1, 1))
    assert taken[65, 65] == ("gemm_split_fragments_128x128_nn", (1, 1, 1))


def test_the_best_rung_depends_on_the_machine_and_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gemm.best_rung("gpu") == "split_fragments"
    for avx512, rung in ((True, "vector_rows"), (False, "register_2d")):
        monkeypatch.setattr(cpu, "has_avx512", lambda has=avx512: has)
        assert gemm.best_rung("cpu") == rung
        for m in (20, 150):
            a, b, best = operands(m, 130, 75, False, True)
            on_a_gpu = np.empty_like(best)
            gemm.gemm(a, b, best, trans_b=True)
            gemm.gemm(a, b, on_a_gpu, trans_b=True, algorithm="split_fragments")
            np.testing.assert_array_equal(best, on_a_gpu)


@pytest.mark.parametrize("trans_b", [False, True])
def test_skinny_has_kernels_for_each_machine_and_the_same_bits_by_all(
    trans_b: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tiles of rows, ragged tiles of columns, and slices of k with a short last piece; with a workspace or not."""
    m, n, k = 37, 300, 700
    a, b, c = operands(m, n, k, False, trans_b)
    found = []
    for avx512 in (True, False):
        monkeypatch.setattr(cpu, "has_avx512", lambda has=avx512: has)
        for workspace in (None, workspace_for(m, n, k, "skinny")):
            gemm.gemm(a, b, c, trans_b=trans_b, algorithm="skinny", workspace=workspace)
            found.append(c.tobytes())
    assert len(set(found)) == 1


def test_every_rung_has_a_kernel_of_its_own_and_says_what_it_is() -> None:
    assert RUNGS[0] == "coalesced"
    assert all(rung.summary for rung in gemm.ALGORITHMS.values())
    names = [name for name, kernel in REGISTRY.items() if kernel.family == "gemm"]
    assert all(any(name.startswith(f"gemm_{rung}") for name in names) for rung in RUNGS)


# --- Errors: one line that names the argument and what would do -------------------------------------------------------


def refused(match: tuple[object, ...], *arrays: Any, **options: Any) -> None:
    a, b, c = arrays
    before = c.copy() if isinstance(c, np.ndarray) else None
    with raises_naming(KernelError, *match) as caught:
        gemm.gemm(a, b, c, **options)
    assert "\n" not in str(caught.value)
    if before is not None:
        np.testing.assert_array_equal(c, before)


def test_wrong_shapes() -> None:
    a, b, c = operands(4, 6, 5, False, False)
    refused(("(5, 6)", "(6, 5)", "b"), a, b, c, trans_b=True)
    refused(("(4, 5)", "(4, 4)", "a"), a, b, c, trans_a=True)
    refused(("(5, 6)", "(5, 7)", "b"), a, b, np.zeros((4, 7), np.float32))
    refused(("(2, 4, 5)", "(3, 4, 5)", "a"), np.stack([a] * 2), b, np.stack([c] * 3))
    refused(("(4,)", "c"), a, b, np.zeros(4, np.float32))
    refused(("(0, 5)", "a"), a[:0], b, c)


def test_wrong_types_and_strides() -> None:
    a, b, c = operands(4, 6, 5, False, False)
    refused(("a", "float64"), a.astype(np.float64), b, c)
    refused(("b", "list"), a, b.tolist(), c)
    refused(("(1, 5)", "b"), a, np.asfortranarray(b), c)
    refused(("ldc", 0, "c", 6), a, b, np.lib.stride_tricks.as_strided(c, (4, 6), (0, 4)))


def test_an_unknown_rung_names_the_nearest() -> None:
    a, b, c = operands(4, 6, 5, False, False)
    refused(("split_fragment", "split_fragments"), a, b, c, algorithm="split_fragment")
    with raises_naming(KernelError, "register_2d"):
        gemm.workspace_bytes(1, 1, 1, "register2d")


def test_a_workspace_that_is_too_small_or_of_another_type() -> None:
    m, n, k = 2, 3, 1024
    a, b, c = operands(m, n, k, False, False)
    needed = gemm.workspace_bytes(m, n, k, "skinny")
    small = np.empty(needed // 4 - 1, np.float32)
    refused(("workspace", needed - 4, "skinny", needed), a, b, c, algorithm="skinny", workspace=small)
    refused(("workspace", "float64"), a, b, c, algorithm="skinny", workspace=np.empty(needed, np.float64))
