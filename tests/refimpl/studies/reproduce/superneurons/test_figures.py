"""`refimpl reproduce superneurons`: what each part finds, met or missed, and that the totals are totals."""

from __future__ import annotations

from collections import Counter

import pytest

from refimpl.studies.reproduce.evaluation import MIB
from refimpl.studies.reproduce.published import Found
from refimpl.studies.reproduce.superneurons import figures, published

pytestmark = pytest.mark.superneurons


class Heard(Counter[str]):
    """A watch that remembers what it was told."""

    def __call__(self, name: str) -> None:
        self[name] += 1


def missed(found: Found) -> dict[str, float]:
    return {figure.published.what: figure.ours for figure in found.figures if not figure.met}


# -- the memory curve --------------------------------------------------------------------------------------------------


def test_all_138_golden_rows_are_met() -> None:
    heard = Heard()
    found = figures.curve(heard)
    printed = {figure.what: figure.value for figure in published.PRINTED_PEAKS.values()}
    assert missed(found) == pytest.approx(
        {"offload and prefetch: peak, printed": 1132.056, "recomputation: peak, in the text": 886.230}, abs=5e-4
    )
    assert missed(found).keys() == printed.keys(), "where the text differs from its own curve and table"
    assert len(found.figures) == 2 + 3 * 3 + 2
    assert [*heard] == ["superneurons-liveness", "superneurons-offload", "superneurons-recompute"]
    assert len(found.rows) == 138 and all(row.met for row in found.rows)
    assert Counter(row.setup for row in found.rows) == dict.fromkeys(published.PEAKS, 46)
    for point, row in zip(published.curve(), found.rows, strict=False):  # the right layer beside the right point
        assert (row.step, row.direction, row.layer.upper()) == (point.step, point.direction, point.layer)


@pytest.mark.parametrize(("mib", "tensors"), [(100.021, 7), (99.979, 7), (100.0, 8)])
def test_a_row_that_differs_is_not_met(mib: float, tensors: int) -> None:
    assert figures.CurveRow("liveness", 1, "forward", "CONV1", 100.0, 100.02, 7, 7).met
    assert not figures.CurveRow("liveness", 1, "forward", "CONV1", 100.0, mib, 7, tensors).met


# -- everything together -----------------------------------------------------------------------------------------------


def test_the_memory_of_all_seven_networks_is_the_published_one() -> None:
    """To 0.06 %; with cuDNN's workspaces, whose version is not known, none is, and neither is what they buy."""
    heard = Heard()
    found = figures.total(heard)
    assert [*heard] == [*figures.NETWORKS] and len(found.figures) == 3 * 7
    memory, with_workspaces, faster = found.figures[::3], found.figures[1::3], found.figures[2::3]
    assert all(figure.met and abs(figure.deviation) < 0.0006 for figure in memory)
    assert not any(figure.met for figure in (*with_workspaces, *faster))
    assert all(figure.ours > 1 and figure.published.value > 1 for figure in faster)
    assert [figure.ours for figure in faster] == [row.speed_up for row in found.rows]


def test_a_networks_total_by_hand() -> None:
    """A FORK's first branch is its input and a JOIN's output is its first input; weights count three times."""
    tiny = figures.network("tiny-resnet", 4)
    row = figures.total_row("tiny-resnet", tiny)
    forks, joins = ([layer for layer in tiny.layers if layer.kind == kind] for kind in ("fork", "join"))
    assert forks and joins
    aliased = sum(fork.outputs[0].nbytes for fork in forks) + sum(join.y.nbytes for join in joins)
    assert row.tensor_bytes + aliased == tiny.managed_bytes
    assert row.weight_bytes == 3 * 4 * sum(layer.parameter_count for layer in tiny.layers)
    assert row.memory_bytes == row.tensor_bytes + row.weight_bytes
    fastest = [figures.K40C.choices(call)[0] for step in tiny.steps for call in step.calls if call.choosable]
    workspaces = row.forward_workspace_bytes + row.backward_workspace_bytes
    assert workspaces == sum(choice.workspace_bytes for choice in fastest)
    assert row.speed_up == row.least_seconds / row.fastest_seconds >= 1


# -- memory of the networks --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_memory_by_type_of_layer_adds_up() -> None:
    heard = Heard()
    rows = figures.memory(heard).rows
    assert [row.network for row in rows] == [*figures.NETWORKS] == [*heard]
    for row in rows:
        assert sum(row.kind_bytes.values()) == row.managed_bytes
        peaks = row.peak_bytes
        assert row.largest_step_bytes <= peaks["both"] <= peaks["recompute"] < peaks["liveness"] < row.managed_bytes
        assert peaks["offload"] < peaks["liveness"]
    alexnet = rows[0]
    assert alexnet.managed_bytes / MIB == pytest.approx(published.TOTAL.value, abs=published.CLOSE_MIB)
    assert alexnet.tensors == 36 and alexnet.layers == 23


def test_allocated_by_kind_by_hand() -> None:
    """SuperNeurons' rules: a ReLU's gradient is in place on dy, a convolution's is new, a fork sums into a branch's."""
    tiny = figures.network("tiny-vgg", 1)
    kinds = figures.allocated_by_kind(tiny)
    assert kinds["relu"] == sum(layer.y.nbytes for layer in tiny.layers if layer.kind == "relu")
    convs = [layer for layer in tiny.layers if layer.kind == "conv"]
    assert kinds["conv"] == sum(layer.y.nbytes + layer.x.nbytes for layer in convs), "the first one's dx too"
    residual = figures.network("tiny-resnet", 1)
    kinds = figures.allocated_by_kind(residual)
    assert kinds["fork"] == sum(y.nbytes for layer in residual.layers if layer.kind == "fork" for y in layer.outputs)
    joins = [layer for layer in residual.layers if layer.kind == "join"]
    assert kinds["join"] == 2 * sum(layer.y.nbytes for layer in joins), "one input's is dy itself, the other's a copy"


# -- recomputation -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_recomputation_is_met_but_for_one_peak() -> None:
    """401 MiB are printed; the model comes to 406.125, memory-centric and cost-aware, in both ResNets."""
    heard = Heard()
    found = figures.recomputation(heard)
    assert [*heard] == [*published.RECOMPUTED] and len(found.figures) == 18
    peaks = {f"ResNet-{depth}(32), {way}: peak" for depth in (50, 101) for way in ("memory-centric", "cost-aware")}
    assert missed(found) == dict.fromkeys(peaks, 406.125)
    resnet50 = next(row for row in found.rows if row.network == "resnet50")
    assert resnet50.resident_peak_bytes / MIB == pytest.approx(2876.656, abs=1e-3)
    assert resnet50.offloaded_bytes > 0 and resnet50.batch == 32
    for row in found.rows:
        assert row.offloaded_peak_bytes <= row.resident_peak_bytes


# -- the tensor cache --------------------------------------------------------------------------------------------------


def test_the_cache_moves_nothing_and_without_it_less_moves_than_published() -> None:
    heard = Heard()
    found = figures.cache(heard)
    assert [*heard] == [f"alexnet({batch})" for batch in published.WITHOUT_CACHE]
    met = [figure.published.what for figure in found.figures if figure.met]
    assert met == [f"AlexNet({batch}): moved with the cache" for batch in (256, 384, 512, 640, 896)]
    for row, without in zip(found.rows, found.figures[:6], strict=True):
        assert without.published is published.WITHOUT_CACHE[row.batch] and without.ours == row.without_bytes / 1e9
        assert f"the fit: {without.published.value:.2f}" in without.note, "which gives all six to the last digit"


@pytest.mark.slow
def test_the_larger_the_pool_the_less_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "SHRUNK", ("resnet50",))
    monkeypatch.setattr(figures, "SHARES", (0.01, 0.4, 0.6, 0.8, 1.0))
    rows = figures.shrinking(Heard()).rows
    assert [row.budget_share for row in rows] == [0.4, 0.6, 0.8, 1.0], "what does not fit has no row"
    moved = [row.moved_bytes for row in rows]
    assert moved == sorted(moved, reverse=True) and moved[0] > 0 and moved[-1] == 0
    assert rows[-1].evictions == 0 and all(row.evictions for row in rows[:-1])
    assert len({row.managed_bytes for row in rows}) == 1 and rows[0].managed_bytes > moved[0]
