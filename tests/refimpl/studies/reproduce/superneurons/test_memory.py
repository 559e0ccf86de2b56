"""`refimpl reproduce superneurons`: totals are totals, by hand.  ../test_rows.py has what is met."""

from __future__ import annotations

import pytest

from refimpl.studies.reproduce.superneurons import memory

pytestmark = pytest.mark.superneurons


@pytest.mark.parametrize(("mib", "tensors"), [(100.021, 7), (99.979, 7), (100.0, 8)])
def test_a_row_that_differs_is_not_met(mib: float, tensors: int) -> None:
    assert memory.CurveRow("liveness", 1, "forward", "CONV1", 100.0, 100.02, 7, 7).met
    assert not memory.CurveRow("liveness", 1, "forward", "CONV1", 100.0, mib, 7, tensors).met


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


def test_time_memory_and_calls_by_type_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Structure layers have no type; a shared tensor counts for each step.  A layer has two calls of a library, forward
    and backward, and a CONV and an FC five; the fitted cost is added for each."""
    monkeypatch.setattr(memory, "NETWORKS", {"tiny-resnet": 2})
    tiny, row = memory.network("tiny-resnet"), memory.type_row("tiny-resnet")
    assert {layer.kind for layer in tiny.layers} - memory.TYPES.keys() == {"fork", "join"}
    steps = [step for step in tiny.steps if step.layer.kind == "relu"]
    assert row.needed_bytes["ACT"] == sum(tensor.nbytes for step in steps for tensor in step.uses)
    busy = memory.planned(tiny, memory.FASTEST).simulate().busy("compute")
    assert sum(row.kernel_seconds.values()) == pytest.approx(busy) and row.kernel_seconds[memory.STRUCTURE] > 0
    layers = {kind: sum(layer.kind == kind for layer in tiny.layers) for kind in (*memory.TYPES, "fork", "join")}
    for kind, name in memory.TYPES.items():
        assert row.calls[name] == (5 if kind in ("conv", "fc") else 2) * layers[kind]
    assert row.calls[memory.STRUCTURE] == 2 * (layers["fork"] + layers["join"])
    assert row.seconds["BN"] == row.kernel_seconds["BN"] + row.calls["BN"] * memory.CALL_SECONDS
    assert sum(memory.share(row.seconds, kind) for kind in row.seconds) == pytest.approx(100)


def test_what_is_fitted_to_figure_8a_does_not_meet_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the published shares of time are those of the kernels alone; the fitted ones are in the note."""
    monkeypatch.setattr(memory, "NETWORKS", {"alexnet": 4})
    found = memory.types(lambda doing: None)
    (row,) = found.rows
    for figure in found.figures[: len(memory.FIGURES.by_two("time shares")["alexnet"])]:
        kind = figure.published.what.partition(", ")[2].partition(":")[0]
        assert figure.ours == memory.share(row.kernel_seconds, kind) != memory.share(row.seconds, kind)
        assert figure.note == f"with a cost fitted to it: {memory.share(row.seconds, kind):.1f}"
