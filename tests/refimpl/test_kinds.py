"""Every kind of layer, and every place that has to know it: what one has forgotten is named.

`PLACES` are checks of one kind each; they return what is missing.  A kind that is only named has none of it, so every
check must find something missing of that one: a check that cannot fail is found, too.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.rungs import RUNGS, module_of
from refimpl.importing import graph, onnx_nodes, torch_module
from refimpl.machine import cpu_costs, cpu_model
from refimpl.machine.devices import Cpu
from refimpl.names import networks as zoo
from refimpl.network import SUPERNEURONS, VDNN, Builder, Call, Conventions, Network
from refimpl.network.conventions import VDNNPP
from refimpl.network.kinds import TRAITS, LayerKind, Traits
from refimpl.studies.bench.cases import cases
from tests.refimpl import drawn_networks
from tests.refimpl.drawn_networks import networks, with_kind
from tests.refimpl.plainly import SETTINGS, draw_batch, new_state, run_call, run_plainly, usual_algorithm

ROOT = Path(__file__).parents[2]
CONVENTIONS = {"vdnn": VDNN, "superneurons": SUPERNEURONS, "vdnnpp": VDNNPP, "forks": Conventions(fork_layers=True)}

#: An opaque kind has no kernel and no place: PyTorch runs it (tests/refimpl/importing/test_any_module.py).
OWN = {kind: traits for kind, traits in TRAITS.items() if not traits.opaque}

#: Kinds that no one asks for by name: the batch is there, and forks are put in.
MADE = ("data", "fork")

#: They end a network.  All but the softmax are in no file: what reads the end of an imported network is chosen.
LOSSES = tuple(kind for kind, traits in OWN.items() if traits.work == "loss")
NOT_IMPORTED = {*MADE, *LOSSES, "rotary", "embedding", "scores", "mix"} - {"softmax"}

#: Kind → an operator of ONNX's and one of PyTorch's; those of `graph.OF_ONE_INPUT` besides.
OPERATORS = {
    "conv": ("Conv", "conv2d"), "fc": ("Gemm", "linear"), "pool": ("MaxPool", "max_pool2d"), "lrn": ("LRN", "div"),
    "batchnorm": ("BatchNormalization", "batch_norm"), "dropout": ("Dropout", "dropout"), "concat": ("Concat", "cat"),
    "join": ("Add", "add"), "softmax": ("Softmax", "softmax"), "upsample": ("Resize", "upsample_nearest2d"),
    "conv_transpose": ("ConvTranspose", "conv_transpose2d"), "layernorm": ("LayerNormalization", "layer_norm"),
    "groupnorm": ("GroupNormalization", "group_norm"), "mul": ("Mul", "mul"), "scale": ("Mul", "mul"),
    "drop_path": ("Mul", "mul"), "channel_shuffle": ("Transpose", "channel_shuffle"),
    "permute_channels": ("Gather", "index"),
    "prepend": ("Concat", "cat"), "take": ("Slice", "slice"),
    "pad": ("Pad", "pad"),
    "embedding": ("Gather", "embedding"), "position": ("Add", "add"),
    "attention": ("Attention", "scaled_dot_product_attention"), "rmsnorm": ("RMSNormalization", "rms_norm"),
} | {kind: (onnx, kind) for onnx, kind in graph.OF_ONE_INPUT.items()}  # fmt: skip


def forms(kind: str) -> tuple[Any, ...]:
    return TRAITS[kind].forms  # type: ignore[index]


def built(kind: str, conventions: Conventions = CONVENTIONS["forks"]) -> Network:
    return with_kind(kind, forms(kind)[0], conventions)


def calls(kind: str) -> Iterator[Call]:
    """All that layers of this kind call, with every set of options; nothing without a method that adds one."""
    for form in forms(kind) if kind in MADE or hasattr(Builder, kind) else ():
        network = with_kind(kind, form, CONVENTIONS["forks"])
        for step in (*network.steps, *network.inference().steps):
            if step.layer.kind == kind:
                yield from (call for call in step.calls if call.family not in ("sgd", "elementwise"))


def families(kind: str) -> set[str]:
    """Of its kernels."""
    return {call.family for call in calls(kind)} or {kind} - {"data"}


# -- the places: each check yields what is missing ---------------------------------------------------------------------


def builder(kind: str) -> Iterator[str]:
    if kind not in MADE and not hasattr(Builder, kind):
        yield f"Builder has no method {kind}"


def forward_and_backward(kind: str) -> Iterator[str]:
    """Its calls name functions that there are, on the plain rung and on the fast one."""
    yield from (f"there is no kernels.{name}" for name in families(kind) if not find_spec(f"kernels.{name}"))
    for call in calls(kind):
        for rung in RUNGS:
            module, function = module_of(call.family, rung), call.function.partition(".")[2]
            if not hasattr(importlib.import_module(module), function):
                yield f"{module} has no {function}"


def numpy_twin(kind: str) -> Iterator[str]:
    for family in families(kind):
        for direction in ("forward", "backward"):
            if not any(name.startswith(f"{family}_{direction}") for name in vars(reference)):
                yield f"kernels.checks.reference has no {family}_{direction}"


def pytorch_twin(kind: str) -> Iterator[str]:
    functional = pytest.importorskip("torch").nn.functional
    from refimpl.studies.bench.pytorch_twins import TWINS

    there = hasattr(functional, kind) if TRAITS[kind].elementwise else kind in TWINS  # type: ignore[index]
    if kind != "data" and not there:
        yield "refimpl.studies.bench.pytorch_twins does not know it"


def drawn_operations(kind: str) -> Iterator[str]:
    """They test fast kernels beside plain ones, and all of them on a GPU."""
    from tests.kernels.operations import OPERATIONS

    words = set(re.findall(r"\w+", " ".join(OPERATIONS)))
    yield from (f"tests/kernels/operations.py draws nothing of {family}" for family in families(kind) - words)


def bench(kind: str) -> Iterator[str]:
    measured = {case.family for case in cases(Cpu(), quick=True)}
    yield from (f"refimpl bench has no case of {family}" for family in families(kind) - measured)


def drawn(kind: str) -> Iterator[str]:
    if kind not in (*drawn_networks.KINDS, *drawn_networks.OF_TOKENS, *drawn_networks.OF_PAIRS, "fc", *LOSSES, *MADE):
        yield "tests/refimpl/drawn_networks.py draws none"


def values_to_start_from(kind: str) -> Iterator[str]:
    for layer in built(kind).layers:
        if layer.kind == kind:
            missing = {*layer.parameters, *layer.statistics} - {*layer.traits.first}
            yield from (f"its record has no first value of {name}" for name in sorted(missing))


def costs(kind: str) -> Iterator[str]:
    for call in calls(kind):
        for made, how in cpu_costs.ways(call):
            for launched in cpu_model.launches(made.function, cpu_model.call_arguments(made) | how):
                if cpu_costs.has_cost(launched) and cpu_model.units(launched)[0] not in cpu_costs.reference():
                    yield f"cpu_costs.json has no {launched.kernel.name}: python -m tests.refimpl.machine.cpu_reference"


def importers(kind: str) -> Iterator[str]:
    onnx, theirs = OPERATORS.get(kind, ("", ""))
    if kind not in NOT_IMPORTED and onnx not in onnx_nodes.OPERATORS:
        yield "no operator of ONNX's becomes one"
    if kind not in NOT_IMPORTED and theirs not in torch_module.OPERATORS:
        yield "no operator of PyTorch's becomes one"


def docs(kind: str) -> Iterator[str]:
    sys.path[:0] = [str(ROOT / "docs")]
    commands = importlib.import_module("commands")
    if kind not in MADE and f"| `{kind}(" not in commands.layers_table():
        yield "docs/networks.md has no row of it"
    page = (ROOT / "docs" / "your-own-network.md").read_text(encoding="utf-8") + commands.operators_table()
    if kind not in NOT_IMPORTED and f"`{OPERATORS.get(kind, ('', ''))[0]}`" not in page:
        yield "docs/your-own-network.md names no operator that becomes one"


PLACES: dict[str, Callable[[str], Iterator[str]]] = {
    place.__name__: place
    for place in (
        builder, forward_and_backward, numpy_twin, pytorch_twin, drawn_operations, bench, drawn, values_to_start_from,
        costs, importers, docs,
    )
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_every_place_knows_every_kind(place: str) -> None:
    assert {kind: found for kind in TRAITS if not TRAITS[kind].opaque and (found := [*PLACES[place](kind)])} == {}


def test_every_kind_has_a_record() -> None:
    assert {*get_args(LayerKind)} == TRAITS.keys()


#: They look at a layer of the kind, so that there has to be one.
OF_LAYERS = {"values_to_start_from", "costs"}


@pytest.mark.slow
@pytest.mark.parametrize("place", [place for place in PLACES if place not in OF_LAYERS])
def test_a_place_that_has_forgotten_a_kind_says_so(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This one has a record and nothing else."""
    kinds: Any = TRAITS
    monkeypatch.setitem(kinds, "forgotten", Traits("pass", backward_reads=("x",), elementwise=True))
    assert [*PLACES[place]("forgotten")] != []


def test_a_first_value_and_a_cost_that_are_missing_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: cost for name, cost in cpu_costs.reference().items() if name != "relu_clipped_backward"}
    monkeypatch.setattr(cpu_costs, "reference", lambda: known)
    assert "cpu_costs.json has no relu_clipped_backward" in "".join(costs("relu"))
    without = dataclasses.replace(TRAITS["batchnorm"], first={"beta": 0.0})
    monkeypatch.setitem(TRAITS, "batchnorm", without)  # type: ignore[arg-type]
    assert "its record has no first value of gamma" in [*values_to_start_from("batchnorm")]


# -- what the records say ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in OWN if kind != "data"])
def test_a_step_reads_what_its_kinds_record_says(kind: LayerKind) -> None:
    """Ours alone, and with what the published systems' library reads."""
    for holds in (False, True):
        network = built(kind, Conventions(relu_in_place=False, fork_layers=True, holds_inputs=holds))
        for layer in (layer for layer in network.layers if layer.kind == kind):
            traits, step = layer.traits, layer.backward
            told = {*traits.backward_reads, *(traits.library_reads if holds else ())}
            maps = {"x": {*layer.inputs}, "y": {*layer.outputs}}
            found = {name for name, tensors in maps.items() if tensors & {*step.reads, *step.updates}}
            assert found == told, f"{layer} reads {found}"


def settled(kind: str, conventions: Conventions) -> Iterator[Network]:
    for form in forms(kind):
        network = with_kind(kind, form, conventions)
        if kind == "data" or any(layer.kind == kind for layer in network.layers):
            yield network


@pytest.mark.slow
@pytest.mark.parametrize("kind", OWN)
def test_a_layer_of_each_kind_trains_as_in_pytorch(kind: str, torch: Any) -> None:
    """With the conventions in turn; drawn networks have kinds with other ones (`network/test_training.py`)."""
    for network in settled(kind, [*CONVENTIONS.values()][[*OWN].index(kind) % len(CONVENTIONS)]):  # type: ignore[arg-type]
        trains_as_in_pytorch(network)


def trains_as_in_pytorch(network: Network) -> None:
    """One iteration with fast kernels, and PyTorch's in double precision; plain kernels are compared with fast ones."""
    from tests.refimpl.by_torch import trains_as_in_torch

    trains_as_in_torch(network, least=1e-2)


def known_to_others(kind: LayerKind) -> bool:
    """Whether its kernels' own tests draw shapes of whole networks, or of all element-wise kinds."""
    return TRAITS[kind].published or TRAITS[kind].elementwise


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in TRAITS
        if kind in (*drawn_networks.KINDS, *drawn_networks.OF_TOKENS, *drawn_networks.OF_PAIRS)
        if not known_to_others(kind)
    ],
)
@given(drawn=st.data())
@settings(max_examples=4)
def test_layers_of_drawn_shapes_and_options_train_as_in_pytorch(kind: str, drawn: Any, torch: Any) -> None:
    """Of the kinds that have no test of their own for it."""
    network = drawn.draw(networks(layers=3, kinds=("conv", kind, kind)))
    trains_as_in_pytorch(network)


@pytest.mark.parametrize("kind", [kind for kind in OWN if kind != "data"])
def test_the_sign_of_an_output_is_as_its_record_says(kind: LayerKind) -> None:
    """A layer that keeps the sign is run once more, on its inputs without theirs."""
    for network in settled(kind, Conventions(relu_in_place=False, fork_layers=True)):
        state = new_state(network)
        arrays = state | run_plainly(network, state, *draw_batch(network), SETTINGS)
        for layer in (layer for layer in network.layers if layer.kind == kind):
            arrays |= {
                x.name: np.abs(arrays[x.name]) if TRAITS[kind].sign == "kept" else arrays[x.name] for x in layer.inputs
            }
            for call in layer.forward.calls:
                run_call(call, arrays, SETTINGS, usual_algorithm)
            negative = any(arrays[y.name].min() < 0 for y in layer.outputs)
            assert negative == (TRAITS[kind].sign == "any")


@pytest.mark.parametrize("kind", [kind for kind, traits in TRAITS.items() if traits.elementwise])
def test_an_element_wise_kind_is_imported(kind: str, torch: Any, tmp_path: Path) -> None:
    """From ONNX and from PyTorch, by the operator's name."""
    onnx = pytest.importorskip("onnx")
    from tests.refimpl.importing.onnx_files import File

    operator, function = OPERATORS[kind]

    class Module(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = torch.nn.Conv2d(4, 5, 3), torch.nn.Linear(245, 3)

        def forward(self, x: Any) -> Any:
            return self.fc(getattr(torch.nn.functional, function)(self.conv(x)).flatten(1))

    file = File()
    attributes: dict[str, Any] = (
        {"alpha": 1 / 6} if kind == "hardsigmoid" else {}
    )  # ONNX's own default is another function
    maps = file.node(operator, file.node("Conv", "x", file.weight("w", 5, 4, 3, 3)), **attributes)
    end = file.node("Gemm", file.node("Flatten", maps), file.weight("v", 245, 3), file.weight("b", 3))
    onnx.save(file.model(end, opset=24), tmp_path / "a.onnx")
    for network in (zoo.from_onnx(tmp_path / "a.onnx", batch=2), zoo.from_torch(Module(), (2, 4, 9, 9))):
        assert [layer.kind for layer in network.layers] == ["conv", kind, "fc", "softmax"]
