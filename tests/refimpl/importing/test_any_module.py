"""Any module as PyTorch keeps it: what is predicted beside what PyTorch itself holds, with numbers, on this CPU.

`Held` is the slow twin of `observed`: PyTorch trains, a hook lists the storages that autograd saves, and after every
operator it is asked which storages are still alive.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from functools import cache
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refimpl
from refimpl import NetworkError, SetupError
from refimpl.combined import Fates
from refimpl.combined.file import setup_with
from refimpl.machine.devices import Cpu
from refimpl.machine.measure import Bench
from refimpl.network import Network
from refimpl.planner.heading import heading, opaque_shares
from refimpl.report.json import plan_json
from refimpl.report.tables import plan_table
from refimpl.report.uncounted import uncounted
from refimpl.slots.context import Context, made_once
from refimpl.text import MachineError
from tests.matrix import diagonal
from tests.messages import raises_naming
from tests.refimpl.modules import every_preset_fits_or_says_so, least_plan

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tests.refimpl.torch.trained_modules import MAKES, WRITES, Overwriting  # noqa: E402

LONG = 6  #: tokens; PyTorch runs a recurrent layer token by token


class Maps(nn.Module):
    """What PyTorch keeps besides maps: positions of a pooling, ReLU6's clone, dropout's noise."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.third = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 1)
        self.clipped, self.drop, self.end = nn.ReLU6(inplace=True), nn.Dropout(0.3, inplace=True), nn.Linear(32, 7)

    def forward(self, x: Any) -> Any:
        x = functional.max_pool2d(functional.relu_(self.norm(self.first(x))), 2)
        beside = self.clipped(self.second(x))
        beside += x
        x = torch.cat([torch.sigmoid(beside) * x, self.third(beside)], 1)
        return self.end(self.drop(x).mean((2, 3)))


class Windows(nn.Module):
    """Attention in shifted windows, with a learnt summand: operators that have no kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 16, 4, 4), nn.LayerNorm(16)
        self.three, self.back, self.end = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 5)
        self.table = nn.Parameter(torch.zeros(31, 2))
        self.register_buffer("places", (torch.arange(16)[:, None] - torch.arange(16)[None]) + 15)

    def forward(self, x: Any) -> Any:
        x = self.norm(self.patches(x).permute(0, 2, 3, 1))
        shifted = torch.roll(x, (-2, -2), (1, 2))
        n, h, w, c = shifted.shape
        windows = shifted.view(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = self.three(windows).reshape(-1, 16, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        scores = (q * 8**-0.5) @ k.transpose(-2, -1) + self.table[self.places].permute(2, 0, 1)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, c)
        mixed = self.back(mixed).view(n, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return self.end((x + torch.roll(mixed, (2, 2), (1, 2))).mean((1, 2)))


class Words(nn.Module):
    """Tokens, a table that is the head, too, a table of places, a GRU, a frozen layer, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.run = nn.Embedding(50, 24), nn.GRU(24, 24, batch_first=True)
        self.frozen, self.head = nn.Linear(24, 24), nn.Linear(24, 50, bias=False)
        self.head.weight = self.table.weight
        self.frozen.requires_grad_(False)
        self.places = nn.Embedding(32, 24)
        self.register_buffer("order", torch.arange(LONG))

    def forward(self, tokens: Any) -> Any:
        x, _ = self.run(self.table(tokens) + self.places(self.order))
        return self.head(functional.silu(self.frozen(x))), x.cumsum(1)


class Odd(nn.Module):
    """Two operators without a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.end = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.end(torch.cumsum(torch.roll(self.conv(x), 2, 3), 1).mean((2, 3)))


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 8), nn.Linear(5, 8)

    def forward(self, a: Any, b: Any) -> Any:
        return torch.tanh(self.left(a)) * self.right(b)


IMAGES = torch.zeros(16, 3, 32, 32)
EXAMPLES: Mapping[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "maps": (Maps, (IMAGES,)), "windows": (Windows, (IMAGES,)),
    "words": (Words, (torch.zeros(8, LONG, dtype=torch.int64),)),
    "two inputs": (Two, (torch.zeros(64, 6), torch.zeros(64, 5))),
}  # fmt: skip


class Held(TorchDispatchMode):  # type: ignore[misc]
    """What PyTorch holds as a module trains: bytes of the storages that autograd has saved, and of all at the most."""

    def __init__(self, module: Any, inputs: tuple[Any, ...], loss: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self._alive: dict[int, tuple[Any, int]] = {}
        self.most = 0
        given = (*inputs, *module.parameters(), *module.buffers())
        self._known = {one.untyped_storage().data_ptr() for one in given}
        saved: dict[int, int] = {}

        def pack(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._known:
                saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with self, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            made = module(*inputs)
            made = made if loss is None else loss(made)
            self.at_the_turn = sum(saved.values())
            outputs = [one for one in (made if isinstance(made, tuple) else (made,)) if one.requires_grad]
            gradients = [torch.zeros_like(one) for one in outputs]
            del made
            torch.autograd.backward(outputs, gradients)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for one in torch.utils._pytree.tree_leaves(made):
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() not in self._known:
                storage = one.untyped_storage()
                self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self._alive = {key: held for key, held in self._alive.items() if not held[0].expired()}
        self.most = max(self.most, sum(nbytes for _, nbytes in self._alive.values()))
        return made


@cache
def described(name: str, keeps: str = "pytorch-cpu", **how: Any) -> tuple[Any, Network]:
    make, inputs = EXAMPLES[name]
    torch.manual_seed(0)
    module = make()
    return module, refimpl.networks.from_torch(module, inputs, keeps=keeps, **how)


def crossing(network: Network) -> int:
    """Bytes of the maps between forward and backward."""
    across = Context(network, refimpl.machines.titan_x).maps_across()
    return sum(tensor.nbytes for tensor in across if tensor.kind == "map")


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_held_at_the_turn_is_what_pytorch_saves(name: str) -> None:
    module, network = described(name)
    held = Held(module.train(), EXAMPLES[name][1])
    assert crossing(network) == pytest.approx(held.at_the_turn, rel=0.01)
    assert not {layer.name for layer in network.layers} & {""}


@pytest.mark.parametrize("name", ["maps", "windows"])
def test_the_peak_of_the_baseline_is_pytorchs(name: str) -> None:
    """Of all that is not a weight, a buffer or the batch; the variables of its forward keep maps, too."""
    module, network = described(name)
    held = Held(module.train(), EXAMPLES[name][1])
    program = refimpl.plan(network, "baseline", "titan-x", "12GiB")
    states = sum(tensor.nbytes for tensor in network.resident)
    assert program.peak_bytes - states == pytest.approx(held.most, rel=0.05)


@pytest.mark.parametrize(
    ("name", "policy"), diagonal(EXAMPLES, ["vdnn-all", "vdnnpp-all", "superneurons", "accudnn", "combined, effort=5"])
)
def test_every_policy_plans_it_and_is_proved(name: str, policy: str) -> None:
    _, network = described(name)
    program = refimpl.plan(network, policy, "titan-x", "12GiB")
    program.verify()
    assert program.planned_seconds > 0
    with raises_naming(refimpl.RunError, "can be planned and not run"):
        refimpl.Trainer(program)


#: Operations of `Overwriting`: about as many make a map as write over one.
OPERATIONS = st.lists(
    st.tuples(st.one_of(st.sampled_from([*MAKES]), st.sampled_from([*WRITES])), st.integers(0, 2), st.integers(0, 2)),
    min_size=1, max_size=8,
)  # fmt: skip
#: The old value of a map that a cheap layer makes is read, and then a part of it written over.
PART = [("norm", 0, 0), ("a part by itself", 0, 0), ("relu", 0, 0), ("conv", 0, 0)]


def test_what_is_made_of_a_map_before_it_is_written_over_is_not_dropped() -> None:
    network = refimpl.networks.from_torch(Overwriting(PART), (2, 3, 8, 8), keeps="pytorch")
    assert [x.name for x in made_once(network)] == ["mul"]
    with raises_naming(SetupError, "mul"):
        refimpl.plan(network, setup_with(Fates.of({"mul": "drop"})))


def test_a_rebuild_never_reads_what_was_written_over_since() -> None:
    network = refimpl.networks.from_torch(Overwriting(PART), (2, 3, 8, 8), keeps="pytorch")
    for name in ("superneurons-recompute", "superneurons", "dtr", "combined effort=5"):
        least_plan(network, refimpl.presets.setup(name), refimpl.machines.titan_x).verify()


@pytest.mark.campaign
@given(OPERATIONS)
@settings(max_examples=300)
def test_a_rebuild_never_reads_what_was_written_over_since_in_many_modules(
    described: list[tuple[str, int, int]],
) -> None:
    network = refimpl.networks.from_torch(Overwriting(described), (2, 3, 8, 8), keeps="pytorch")
    every_preset_fits_or_says_so(network)


def test_a_module_without_kernels_is_planned_as_pytorch_keeps_it() -> None:
    network = refimpl.networks.from_torch(Odd(), (4, 3, 16, 16))
    assert [layer.kind for layer in network.layers] == ["conv", "opaque", "opaque", "opaque", "fc", "opaque_loss"]
    assert network.opaque == {"roll": 1, "cumsum": 1, "mean": 1}
    assert "operators aten.roll.default and aten.cumsum.default are not supported" in network.cannot_run
    assert "mean" not in network.cannot_run, "a kernel of ours, and opaque to a plan for PyTorch alone"
    shares = opaque_shares(network, refimpl.machines.titan_x)
    assert shares.layers == 3 and 0 < shares.seconds < 1 and shares.nbytes == pytest.approx(2 / 3, rel=0.01)
    assert "67% of the bytes opaque" in heading(network, refimpl.machines.titan_x)
    with raises_naming(MachineError, "aten.roll.default"):
        Bench(Cpu(), network)
    with raises_naming(NetworkError, "for one rank"):
        network.data_parallel(2)
    with raises_naming(NetworkError, "aten.roll.default"):
        refimpl.networks.from_torch(Odd(), (4, 3, 16, 16), keeps="own")


def test_operations_are_those_that_pytorch_counts() -> None:
    """Of a convolution whose input needs no gradient backward has as many as forward, of a linear layer twice.

    In groups each filter sees the channels of one, in backward too, which PyTorch's own count of it leaves out.
    """
    grouped = nn.Sequential(nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 3, groups=16), nn.Flatten(), nn.Linear(3136, 2))
    apart = refimpl.networks.from_torch(grouped, (4, 3, 16, 16), keeps="pytorch").layer("1")
    assert (apart.forward.flops, apart.backward.flops) == (2 * 4 * 16 * 14 * 14 * 9, 4 * 4 * 16 * 14 * 14 * 9)
    _, network = described("maps")
    first, end = network.layer("first"), network.layer("end")
    assert first.forward.flops == first.backward.flops == 2 * 16 * 16 * 32 * 32 * 3 * 9
    assert (end.forward.flops, end.backward.flops) == (2 * 16 * 32 * 7, 4 * 16 * 32 * 7)


@pytest.mark.parametrize(
    ("loss", "operator", "shape"),
    [
        ("softmax", "cross_entropy_loss", (2, 3)),
        ("pixel_softmax", "cross_entropy_loss", (2, 5, 3)),
        ("binary_cross_entropy", "binary_cross_entropy_with_logits", (2, 3)),
    ],
)
def test_a_named_loss_is_pytorchs_own(loss: str, operator: str, shape: tuple[int, ...]) -> None:
    network = refimpl.networks.from_torch(nn.Linear(3, 3), shape, keeps="pytorch", loss=loss)
    assert operator in network.opaque and network.layers[-1].kind == "opaque_loss"
    *_, last, _ = network.layers
    assert last.operation and last.operation.operator == operator and last.shape in ((), (1,))
    wanted = (prod(shape[:-1]),) if "softmax" in loss else shape  # labels, or as many targets
    made = [layer for layer in network.layers if layer.operation and layer.operation.operator == "zeros"]
    assert [layer.shape for layer in made] == [wanted]


def test_autocast_keeps_maps_of_two_bytes() -> None:
    module, network = described("windows", autocast="bfloat16")
    with torch.autocast("cpu", torch.bfloat16):
        held = Held(module.train(), EXAMPLES["windows"][1])
    assert crossing(network) == pytest.approx(held.at_the_turn, rel=0.01)
    assert network.layer("three").y.dtype == "bfloat16"


class Cast(nn.Module):
    """A normalisation and an output that are computed in float32 under autocast, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.end = nn.Linear(24, 48), nn.RMSNorm(48), nn.Linear(48, 7)

    def forward(self, x: Any) -> Any:
        return self.end(self.norm(self.first(x).float())).float()


def test_casts_of_what_autocast_has_cast() -> None:
    assert refimpl.networks.from_torch(Cast(), (16, 24), keeps="own").cannot_run == ""
    network = refimpl.networks.from_torch(Cast(), (16, 24), keeps="pytorch-cpu", autocast="bfloat16")
    with torch.autocast("cpu", torch.bfloat16):
        held = Held(Cast().train(), (torch.zeros(16, 24),))
    assert crossing(network) == pytest.approx(held.at_the_turn, rel=0.01)


def test_a_loss_of_ones_own_is_part_of_the_network() -> None:
    labels = torch.zeros(16, dtype=torch.int64)

    def loss(out: Any) -> Any:
        return functional.cross_entropy(out, labels, label_smoothing=0.1)

    module, network = described("maps", loss=loss)
    held = Held(module.train(), EXAMPLES["maps"][1], loss)
    assert crossing(network) == pytest.approx(held.at_the_turn, rel=0.01)
    assert "cross_entropy" in network.layers[-2].name
    assert network.layer("first").parameters["weight"].weight.name == "first.weight"


def test_gradients_stay_until_the_optimiser_and_its_states_are_resident() -> None:
    """One gradient of what is shared, none of what is frozen."""
    module, network = described("words")
    learnt = sum(one.nbytes for one in module.parameters() if one.requires_grad)
    adam = network.trained_by(optimiser="adamw", clip=1.0)
    assert sum(tensor.nbytes for tensor in adam.resident if tensor.kind == "momentum") == 2 * learnt
    last = next(step for step in reversed(network.steps) if step.calls)
    read = {tensor for tensor in last.uses if tensor.kind == "weight gradient" and " by " not in tensor.name}
    assert sum(tensor.nbytes for tensor in read) == learnt
    assert not any(tensor.kind == "scratch" for tensor in network.resident)
    assert network.origins["embedding"] == "table" and adam.origins == network.origins


def test_what_backward_alone_reads_is_held_by_no_variable() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(), nn.Linear(8, 4))
    network = refimpl.networks.from_torch(module, (4, 8), keeps="pytorch-cpu")
    held = {layer.name: layer.operation.held for layer in network.layers[:-1]}
    assert held == {"0": (1,), "1": (1, 0, 0), "2": (1, 0), "3": (0,)}


def test_what_a_plan_does_not_count_is_an_item_with_its_range() -> None:
    """A column has 27 numbers."""
    program = refimpl.plan(refimpl.networks.from_torch(Odd(), (4, 3, 16, 16)), "baseline", "titan-x", "12GiB")
    items = {one.name: (one.least, one.most) for one in uncounted(program)}
    assert items["cuDNN's workspaces"] == (0, 4 * 16 * 16 * 27 * 4)
    assert items["the optimiser's temporaries"] == (0, 4 * (8 * 27 + 8 + 5 * 8 + 5))
    assert items["rounding"] == (0, 0) and items["the context"] == (0, None)
    document = plan_json(program, program.simulate())
    assert [one["name"] for one in document["not_counted"]] == [*items]
    assert document["opaque"]["operators"] == {"roll": 1, "cumsum": 1, "mean": 1}
    told = plan_table(program, program.simulate()).text()
    assert "not counted: the context" in told and "67% of the bytes opaque" in told
    own = refimpl.plan(refimpl.networks.lenet(batch=8), "baseline", "titan-x", "12GiB")
    assert uncounted(own) == [] and "not counted" not in plan_table(own, own.simulate()).text()


class Between(nn.Module):
    """A function before the layer."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function, self.end = function, nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.end(self.function(x))


class Negated(torch.autograd.Function):  # type: ignore[name-defined,misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return -gradient


OF_VALUES: list[Callable[[Any], Any]] = [
    lambda x: x[x[:, 0].nonzero()[:, 0]],
    lambda x: x[x[:, 0] > 0],
    lambda x: x * x.sum().item(),
    lambda x: x[x[0].long().tolist()],
    lambda x: x if x.sum() > 0 else -x,
]


@pytest.mark.parametrize(("function", "keeps"), diagonal(OF_VALUES, ["pytorch", "own"]))
def test_what_depends_on_values_is_refused_with_the_users_own_line_and_no_other_word(
    function: Any, keeps: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    (torchs,) = [one for one in logger.handlers if type(one) is logging.StreamHandler]
    monkeypatch.setattr(torchs, "stream", sys.stderr)
    line = f"(test_any_module.py, line {function.__code__.co_firstlineno}, in <lambda>)"
    if function is OF_VALUES[2] and keeps == "pytorch":  # a number that nothing of a plan depends on
        assert refimpl.networks.from_torch(Between(function), (4, 4), keeps=keeps).layers[1].name == "mul"
        return
    with raises_naming(NetworkError, "cannot follow Between", "a tensor's values", line) as caught:
        refimpl.networks.from_torch(Between(function), (4, 4), keeps=keeps)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().err == ""


def test_our_own_kernels_refuse_a_gradient_that_an_export_does_not_say() -> None:
    def without_gradient(x: Any) -> Any:
        with torch.no_grad():
            return functional.relu(x)

    hidden = "relu runs under torch.no_grad", "Negated is an autograd.Function"
    for function, what, learns in zip((without_gradient, Negated.apply), hidden, (False, True), strict=True):
        module = nn.Sequential(nn.Linear(4, 4), Between(function))
        with raises_naming(NetworkError, what):
            refimpl.networks.from_torch(module, (4, 4), keeps="own")
        network = refimpl.networks.from_torch(module, (4, 4))
        assert what in network.cannot_run and network.layers[1].operation.learns == learns
    assert not refimpl.networks.from_torch(Between(without_gradient), (4, 4)).cannot_run, "nothing before it learns"


def test_pytorchs_warnings_of_an_export_are_not_heard(recwarn: pytest.WarningsRecorder) -> None:
    refimpl.networks.from_torch(Words(), EXAMPLES["words"][1][0])
    assert not recwarn.list


def test_what_cannot_be_planned_is_refused() -> None:
    with raises_naming(NetworkError, "no output", "learns"):
        refimpl.networks.from_torch(Odd().requires_grad_(False), (4, 3, 16, 16), keeps="pytorch")
    with raises_naming(NetworkError, "'tensorflow'", "pytorch-cpu"):
        refimpl.networks.from_torch(Odd(), (4, 3, 16, 16), keeps="tensorflow")
    with raises_naming(NetworkError, "autocast is 'int8'"):
        refimpl.networks.from_torch(Odd(), (4, 3, 16, 16), keeps="pytorch", autocast="int8")
