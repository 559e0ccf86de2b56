"""A module's script: its operators below autograd, in their order, and which values they make."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

import refimpl  # noqa: E402
from refimpl.importing.observed import script_here  # noqa: E402
from refimpl.importing.recorded import as_it_trains  # noqa: E402
from refimpl.torch.private import Watch  # noqa: E402


class Mixed(nn.Module):
    """Statistics, a copy that an operator in place saves, noise that is made empty and filled, a list, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.BatchNorm1d(6), nn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        y = functional.hardtanh(self.norm(x), 0.0, 6.0, inplace=True)
        z = functional.dropout(self.fc(y), 0.5, self.training)
        return {"sum": torch.cat([y, z], 1), "first": torch.topk(z, 2)[0]}


def script(module: Any, rows: int = 4) -> Any:
    return script_here(module, (torch.randn(rows, 6),), {})


def test_operators_and_what_they_make() -> None:
    module = Mixed().eval()
    found = script(module)
    assert not module.training and not module.norm.training, "the mode that it was in"
    lines = {name.removeprefix("aten."): (node, makes, write) for name, node, makes, write in found["operators"]}
    assert lines["native_batch_norm.default"] == ("batch_norm", ["batch_norm", 24, 24], None)
    assert lines["clone.default"] == ("hardtanh_", ["batch_norm"], None), "what it overwrites, before"
    assert lines["hardtanh_.default"] == ("hardtanh_", [], "hardtanh_")
    assert lines["addmm.default"] == ("linear", ["linear"], None) and lines["t.default"] == ("linear", [], None)
    assert lines["empty_like.default"] == ("dropout", [None], None)
    assert lines["div_.Scalar"] == ("dropout", [], 96), "it is the noise after its last operator"
    assert lines["mul.Tensor"] == ("dropout", ["dropout"], None)
    assert lines["topk.default"] == ("topk", ["topk", 64], None)
    assert found["device"] == "cpu" and found["torch"] == torch.__version__


class Classes(nn.Module):
    """Numbers as classes, each a row with a one; and a layer that is called with a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = parametrizations.spectral_norm(nn.Linear(6, 6))

    def forward(self, x: Any) -> Any:
        return self.fc(functional.one_hot(x.argmax(-1), 6).float())


def test_operators_are_those_that_run_on_numbers() -> None:
    module, x, ran = Classes().train(), torch.randn(4, 6), []

    class Names(Watch):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            ran.append(str(func))
            return func(*args, **(kwargs or {}))

    with Names():
        module(x)
    looks = {"aten.aminmax.default", "aten._local_scalar_dense.default"}  # at numbers, whether they are classes
    assert [name for name, *_ in script(module)["operators"]] == [name for name in ran if name not in looks]


def test_a_script_follows_from_operators_and_shapes_alone() -> None:
    one, other, more = script(Mixed()), script(Mixed()), script(Mixed(), rows=8)
    assert one == other != more and one["module"] == more["module"], "other weights; another batch"
    wider = nn.Sequential(nn.Linear(6, 7))
    assert script(wider)["module"] != script(nn.Sequential(nn.Linear(6, 6)))["module"]


def test_casts_of_autocast_are_operators() -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    plain = {name for name, *_ in script(module)["operators"]}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert {name for name, *_ in script(module)["operators"]} - plain == {"aten._to_copy.default"}
    network = refimpl.networks.from_torch(module, (4, 6), keeps="pytorch-cpu", autocast="bfloat16")
    assert "aten._to_copy.default" in {name for name, *_ in network.script["operators"]}


def test_our_own_layers_belong_to_the_same_operators() -> None:
    """A network of ours leaves out what no layer reads."""

    class Dead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            torch.relu(x)
            return self.other(torch.relu(self.one(x)))

    own, theirs = (refimpl.networks.from_torch(Dead(), (4, 6), keeps=keeps) for keeps in ("own", "pytorch"))
    assert own.script == theirs.script
    assert own.origins == {"linear": "one", "relu_1": "relu_2", "linear_1": "other"}
    assert own.origins.items() <= theirs.origins.items()


def test_a_module_without_a_script() -> None:
    class Raises(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError

    assert script_here(nn.Sequential(nn.Linear(6, 6), Raises()), (torch.zeros(2, 6),), {}) == {}
    with_loss = refimpl.networks.from_torch(nn.Linear(6, 6), (2, 6), loss=lambda out: out.sum(), keeps="pytorch")
    assert with_loss.script == {}


def test_modes_and_caches_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    writes, reads = SimpleNamespace(use_cache=True), SimpleNamespace(use_cache=False)
    module[0].config, module[1].config = writes, reads
    module[1].eval()
    masks = SimpleNamespace(is_torchdynamo_exporting="own", find_packed_sequence_indices="own")
    monkeypatch.setitem(sys.modules, "transformers.masking_utils", masks)  # type: ignore[arg-type]

    def inside(args: tuple[Any, ...] = (1,), exports: bool = False, **kwargs: Any) -> None:
        with as_it_trains(module, args, kwargs, exports):
            assert module.training and module[1].training and torch.is_grad_enabled() != exports
            assert writes.use_cache != exports and not reads.use_cache
            assert masks.is_torchdynamo_exporting() is False  # type: ignore[operator]
            if len(args) > 1 or kwargs:
                assert masks.find_packed_sequence_indices == "own", "positions say where a text begins"
            else:
                assert masks.find_packed_sequence_indices("positions") is None  # type: ignore[operator]
            raise KeyError

    for case in ({}, {"exports": True}, {"args": (1, 2)}, {"position_ids": 1}):
        with pytest.raises(KeyError):
            inside(**case)  # type: ignore[arg-type]
        assert module.training and module[0].training and not module[1].training and torch.is_grad_enabled()
        assert writes.use_cache is True and reads.use_cache is False
        assert masks.is_torchdynamo_exporting == masks.find_packed_sequence_indices == "own"
