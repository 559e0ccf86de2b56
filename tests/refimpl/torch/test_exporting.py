"""A module's list of operators: which values each reads, when a value ends, and what it overwrites."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from refimpl.torch import PlannedError  # noqa: E402
from refimpl.torch.exporting import ExportedModule, Slot, as_it_trains  # noqa: E402
from refimpl.torch.reporting import measured, report  # noqa: E402
from tests.messages import raises_naming  # noqa: E402


class Mixed(nn.Module):
    """Statistics, an operator in place, one of a list, one with a mask, a constant, and two outputs with names."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc, self.offsets = nn.BatchNorm1d(6), nn.Linear(6, 6), torch.arange(6.0)

    def forward(self, x: Any, scale: Any = None) -> Any:
        y = functional.relu(self.norm(x), inplace=True)
        z = functional.dropout(self.fc(y), 0.5, self.training)
        return {"sum": torch.cat([y, z + self.offsets], 1), "first": z[:, :3]}


@pytest.fixture(scope="module")
def exported() -> Iterator[ExportedModule]:
    yield ExportedModule(Mixed().eval(), (torch.randn(4, 6),), {})


def named(exported: ExportedModule, name: str) -> Any:
    (found,) = [one for one in exported.operators if name in str(one.target)]
    return found


def test_the_state_is_the_module_s_own(exported: ExportedModule) -> None:
    module = exported.module
    there = {name for _, _, name in exported.state}
    assert there == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
    assert sum(part is module.norm._parameters for _, part, _ in exported.state) == 2
    assert sum(part is module.norm._buffers for _, part, _ in exported.state) == 3
    assert sum(part is module.fc._parameters for _, part, _ in exported.state) == 2
    assert len(exported.given) == 1 and [value.tolist() for _, value in exported.constants] == [[0, 1, 2, 3, 4, 5]]


def test_what_an_operator_does_beside_its_output(exported: ExportedModule) -> None:
    norm, relu, drop, cat = (named(exported, name) for name in ("batch_norm", "relu_", "dropout", "cat"))
    assert relu.overwrites == norm.out and {one.overwrites for one in (norm, drop, cat)} == {None}
    means = [slot for slot, _, name in exported.state if name in ("running_mean", "running_var")]
    assert sorted(norm.args[place] for place in norm.running) == sorted(means)
    assert (relu.running, relu.running_named) == ([], [])
    assert drop.is_random and not (norm.is_random or cat.is_random)
    assert {one.device for one in exported.operators} == {torch.device("cpu")}
    assert not exported.module.training and not exported.module.norm.training, "the mode that it was in"


def test_a_value_ends_after_the_last_operator_that_reads_it(exported: ExportedModule) -> None:
    for number, operator in enumerate(exported.operators):
        for slot in operator.done:
            assert slot in (*operator.inputs, operator.out)
            later = {one for other in exported.operators[number + 1 :] for one in other.inputs}
            assert slot not in later
    ended = [slot for operator in exported.operators for slot in operator.done]
    outputs = {one for one in exported.outputs if isinstance(one, Slot)}
    written = {one for _, one in exported.written}
    made = {operator.out for operator in exported.operators}
    read = {slot for operator in exported.operators for slot in operator.inputs}
    assert len(ended) == len(set(ended)) and not outputs & set(ended)
    assert set(ended) == (made | read) - outputs - written


def test_the_fingerprint_follows_from_operators_and_shapes_alone() -> None:
    def fingerprint(*parts: Any, batch: int = 2) -> str:
        return ExportedModule(nn.Sequential(*parts), (torch.randn(batch, 4),), {}).fingerprint

    one = fingerprint(nn.Linear(4, 4), nn.ReLU())
    assert one == fingerprint(nn.Linear(4, 4), nn.ReLU()), "other weights"
    others = [
        fingerprint(nn.Linear(4, 4), nn.ReLU(), batch=3),
        fingerprint(nn.Linear(4, 5), nn.ReLU()),
        fingerprint(nn.Linear(4, 4), nn.Tanh()),
        fingerprint(nn.ReLU(), nn.Linear(4, 4)),
    ]
    assert len({one, *others}) == 5 and len(one) == 8


def test_modes_and_caches_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    writes, reads = SimpleNamespace(use_cache=True), SimpleNamespace(use_cache=False)
    module[0].config, module[1].config = writes, reads
    module[1].eval()
    masks = SimpleNamespace(is_torchdynamo_exporting="own", find_packed_sequence_indices="own")
    monkeypatch.setitem(sys.modules, "transformers.masking_utils", masks)  # type: ignore[arg-type]

    def inside(args: tuple[Any, ...] = (1,), **kwargs: Any) -> None:
        with as_it_trains(module, args, kwargs):
            assert module.training and module[1].training and not torch.is_grad_enabled()
            assert not writes.use_cache and not reads.use_cache
            assert masks.is_torchdynamo_exporting() is False  # type: ignore[operator]
            if len(args) > 1 or kwargs:
                assert masks.find_packed_sequence_indices == "own", "positions say where a text begins"
            else:
                assert masks.find_packed_sequence_indices("positions") is None  # type: ignore[operator]
            raise KeyError

    for case in ({}, {"args": (1, 2)}, {"position_ids": 1}):
        with pytest.raises(KeyError):
            inside(**case)  # type: ignore[arg-type]
        assert module.training and module[0].training and not module[1].training and torch.is_grad_enabled()
        assert writes.use_cache is True and reads.use_cache is False
        assert masks.is_torchdynamo_exporting == masks.find_packed_sequence_indices == "own"


def test_a_module_that_cannot_be_exported_is_one_line() -> None:
    class Raises(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("first line\nsecond line")

    with raises_naming(PlannedError, "Raises", "ValueError", "first line"):
        ExportedModule(Raises(), (torch.zeros(2),), {})


def test_a_report_sets_what_was_measured_beside_the_prediction() -> None:
    predicted = {"held": 1 << 20, "peak": 3 << 20, "out": 5 << 20, "in": 6 << 20, "gradients_out": 7 << 20}
    last = SimpleNamespace(held=9 << 20, moved=lambda: (10 << 20, 11 << 20), table=SimpleNamespace(recomputed=12))
    orders = SimpleNamespace(plan={"predicted": predicted, "resident": 1 << 20, "keeps": "pytorch"})
    planned = SimpleNamespace(last=last, orders=orders, parameters=lambda: iter(()))
    meter = SimpleNamespace(peak=13 << 20)
    assert measured(planned, meter) == {"held": 9 << 20, "peak": 14 << 20, "out": 10 << 20, "in": 11 << 20}
    assert measured(planned)["peak"] is None
    rows = [line.split() for line in report(planned, meter).splitlines()]
    assert [row[-4::2] for row in rows[1:5]] == [["1", "9"], ["4", "14"], ["5", "10"], ["6", "11"]]
    assert rows[5][-1] == "12" and {"7", "gradients,"} <= {*rows[6]} and len(rows) == 7
    del predicted["gradients_out"]
    assert len(report(planned).splitlines()) == 6 and "not counted" in report(planned)
    orders.plan["keeps"] = "own"
    assert 'keeps="pytorch"' in report(planned)
    planned.last = None
    with raises_naming(PlannedError, "report"):
        report(planned)
