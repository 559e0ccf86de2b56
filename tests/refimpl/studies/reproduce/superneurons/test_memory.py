"""`refimpl reproduce superneurons`: what each part finds, met or missed, and that the totals are totals."""

from __future__ import annotations

from collections import Counter

import pytest

from refimpl.studies.reproduce.evaluation import MIB
from refimpl.studies.reproduce.published import Found
from refimpl.studies.reproduce.superneurons import memory
from refimpl.studies.reproduce.superneurons.memory import FIGURES

pytestmark = pytest.mark.superneurons


def quietly(name: str) -> None:
    pass


def missed(found: Found) -> dict[str, float]:
    return {figure.published.what: figure.ours for figure in found.figures if not figure.met}


# -- the memory curve --------------------------------------------------------------------------------------------------


def test_all_138_golden_rows_are_met() -> None:
    found = memory.curve(quietly)
    assert missed(found) == pytest.approx(
        {"offload and prefetch: peak, printed": 1132.056, "recomputation: peak, in the text": 886.230}, abs=5e-4
    )
    assert len(found.figures) == 2 + 3 * 3 + 2
    assert len(found.rows) == 138 and all(row.met for row in found.rows)
    assert Counter(row.setup for row in found.rows) == dict.fromkeys(memory.CURVE, 46)
    for point, row in zip(memory.published_curve(), found.rows, strict=False):  # the right layer beside the right point
        assert (row.step, row.direction, row.layer.upper()) == (int(point["step"]), point["direction"], point["layer"])


@pytest.mark.parametrize(("mib", "tensors"), [(100.021, 7), (99.979, 7), (100.0, 8)])
def test_a_row_that_differs_is_not_met(mib: float, tensors: int) -> None:
    assert memory.CurveRow("liveness", 1, "forward", "CONV1", 100.0, 100.02, 7, 7).met
    assert not memory.CurveRow("liveness", 1, "forward", "CONV1", 100.0, mib, 7, tensors).met


# -- everything together -----------------------------------------------------------------------------------------------


def test_the_memory_of_all_seven_networks_is_the_published_one() -> None:
    """To 0.06 %; with cuDNN's workspaces, whose version is not known, none is, and neither is what they buy."""
    found = memory.total(quietly)
    assert len(found.figures) == 3 * 7
    alone, with_workspaces, faster = found.figures[::3], found.figures[1::3], found.figures[2::3]
    assert all(figure.met and abs(figure.deviation) < 0.0006 for figure in alone)
    assert not any(figure.met for figure in (*with_workspaces, *faster))
    assert all(figure.ours > 1 and figure.published.value > 1 for figure in faster)
    assert [figure.ours for figure in faster] == [row.speed_up for row in found.rows]


def test_a_networks_total_by_hand() -> None:
    """A FORK's first branch is its input and a JOIN's output is its first input; weights count three times."""
    tiny = memory.network("tiny-resnet", 4)
    row = memory.total_row("tiny-resnet", tiny)
    forks, joins = ([layer for layer in tiny.layers if layer.kind == kind] for kind in ("fork", "join"))
    assert forks and joins
    aliased = sum(fork.outputs[0].nbytes for fork in forks) + sum(join.y.nbytes for join in joins)
    assert row.tensor_bytes + aliased == tiny.managed_bytes
    assert row.weight_bytes == 3 * 4 * sum(layer.parameter_count for layer in tiny.layers)
    assert row.memory_bytes == row.tensor_bytes + row.weight_bytes
    fastest = [memory.K40C.choices(call)[0] for step in tiny.steps for call in step.calls if call.choosable]
    workspaces = row.forward_workspace_bytes + row.backward_workspace_bytes
    assert workspaces == sum(choice.workspace_bytes for choice in fastest)
    assert row.speed_up == row.least_seconds / row.fastest_seconds >= 1


# -- memory of the networks --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_technique_leaves_less() -> None:
    rows = memory.memory(quietly).rows
    assert [row.network for row in rows] == [*memory.NETWORKS]
    for row in rows:
        peaks = row.peak_bytes
        assert row.largest_step_bytes <= peaks["both"] <= peaks["recompute"] < peaks["liveness"] < row.managed_bytes
        assert peaks["offload"] < peaks["liveness"]
    assert rows[0].managed_bytes / MIB == pytest.approx(FIGURES.one("total").value, abs=memory.CLOSE_MIB)
    assert rows[0].tensors == 36 and rows[0].layers == 23


# -- time and memory by type of layer ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_memory_by_type_is_met_to_the_last_digit_but_alexnets() -> None:
    needs = [figure for figure in memory.types(quietly).figures if figure.published.source.endswith("Figure 8b")]
    assert len(needs) == 4 + 3 + 3 + 4 * 4
    for figure in needs:
        assert figure.met == (not figure.published.what.startswith("AlexNet"))
        assert not figure.met or figure.ours == pytest.approx(figure.published.value, abs=0.015)


def test_alexnets_shares_are_met_with_a_gradient_of_its_own_for_lrn() -> None:
    """The claim in the documentation: one more tensor for every LRN, as large as its output."""
    needed = memory.type_row("alexnet").needed_bytes
    needed["LRN"] += sum(layer.y.nbytes for layer in memory.network("alexnet").layers if layer.kind == "lrn")
    for kind, figure in FIGURES.by_two("memory shares")["alexnet"].items():
        assert memory.share(needed, kind) == pytest.approx(figure.value, abs=0.015)


def test_the_calls_of_a_library_by_hand() -> None:
    """Two a layer, forward and backward, and five of a CONV and an FC; the fitted cost is added for each."""
    row = memory.type_row("resnet50")
    assert row.calls == {
        "CONV": 5 * 53, "POOL": 2 * 2, "ACT": 2 * 49, "LRN": 0, "BN": 2 * 53, "FC": 5, "DROPOUT": 0, "SOFTMAX": 2,
        memory.STRUCTURE: 2 * (16 + 16),
    }  # fmt: skip
    assert sum(row.calls.values()) == memory.library_calls(memory.network("resnet50")) == 544
    assert row.seconds["BN"] == row.kernel_seconds["BN"] + 106 * memory.CALL_SECONDS
    assert sum(memory.share(row.seconds, kind) for kind in row.seconds) == pytest.approx(100)


def test_structure_layers_have_no_type_and_a_shared_tensor_counts_for_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "NETWORKS", {"tiny-resnet": 2})
    tiny, row = memory.network("tiny-resnet"), memory.type_row("tiny-resnet")
    assert {layer.kind for layer in tiny.layers} - memory.TYPES.keys() == {"fork", "join"}
    steps = [step for step in tiny.steps if step.layer.kind == "relu"]
    assert row.needed_bytes["ACT"] == sum(tensor.nbytes for step in steps for tensor in step.uses)
    busy = memory.planned(tiny, memory.FASTEST).simulate().busy("compute")
    assert sum(row.kernel_seconds.values()) == pytest.approx(busy) and row.kernel_seconds[memory.STRUCTURE] > 0


# -- recomputation -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_recomputation_is_met_but_for_one_peak() -> None:
    """401 MiB are printed; the model comes to 406.125, memory-centric and cost-aware, in both ResNets."""
    found = memory.recomputation(quietly)
    assert len(found.figures) == 18
    peaks = {f"ResNet-{depth}(32), {way}: peak" for depth in (50, 101) for way in ("memory-centric", "cost-aware")}
    assert missed(found) == dict.fromkeys(peaks, 406.125)
    resnet50 = next(row for row in found.rows if row.network == "resnet50")
    assert resnet50.resident_peak_bytes / MIB == pytest.approx(2876.656, abs=1e-3)
    assert resnet50.offloaded_bytes > 0 and resnet50.batch == 32
    for row in found.rows:
        assert row.offloaded_peak_bytes <= row.resident_peak_bytes
