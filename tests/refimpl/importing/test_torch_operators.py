"""Each operator of a PyTorch module alone: what it is here, with all of its attributes, or the refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from refimpl import NetworkError
from refimpl.importing.arrangement import Arrangement
from refimpl.importing.graph import UNSUPPORTED
from refimpl.importing.nodes import Node
from tests.messages import lacks, raises_naming

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as f  # noqa: E402

from refimpl.importing.torch_module import Example, exported_module, fill_module, graph_of  # noqa: E402

MAPS, ROWS, FLAT = (2, 4, 9, 9), (2, 4, 9), (2, 12)
Function = Callable[[Any, Any], Any]


class One(nn.Module):
    """A function of the module, `m`, and of its input, with some parameters and a buffer."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        for name, shape in {
            "filters": (5, 4, 3, 3), "columns": (5, 4, 3), "back": (4, 3, 3, 3), "five": (5,),
            "matrix": (9, 9), "wide": (12, 5), "channels": (4,), "row": (9,), "token": (2, 4, 1, 9),
        }.items():  # fmt: skip
            setattr(self, name, nn.Parameter(torch.randn(shape)))
        self.register_buffer("order", torch.tensor([2, 1, 0, 3]))
        self.register_buffer("running", torch.ones(4))

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def ends(functions: Sequence[Function], shape: tuple[int, ...] = MAPS) -> tuple[list[Node], dict[str, Node]]:
    """The node that each function ends in, and all nodes by their names: of one export, which takes a while."""
    module = One(lambda m, x: tuple(function(m, x) for function in functions))
    graph = graph_of(module, exported_module(module, Example.of(shape)), shape)
    nodes = {node.name: node for node in graph.nodes}
    assert len(graph.outputs) == len(functions)
    return [nodes[name] for name in graph.outputs], nodes


def ends_of_all(rows: Sequence[tuple[Function, tuple[int, ...], Any]]) -> dict[Function, Node]:
    """The same of functions of inputs of several shapes."""
    found: dict[Function, Node] = {}
    for shape in (MAPS, ROWS, FLAT):
        functions = [function for function, its, _ in rows if its == shape]
        found |= dict(zip(functions, ends(functions, shape)[0] if functions else (), strict=True))
    return found


#: Function, shape of its input, operation and attributes: of what no module trains beside PyTorch in the other files.
KNOWN: list[tuple[Function, tuple[int, ...], tuple[str, dict[str, Any]]]] = [
    (
        lambda m, x: f.conv2d(x, m.filters, padding="same", dilation=2), MAPS,
        ("conv", {"stride": (1, 1), "pad": (2,) * 4, "dilation": (2, 2), "groups": 1}),
    ),
    (
        lambda m, x: f.conv_transpose2d(x, m.back, None, (2, 3), (1, 0), (1, 2), 1), MAPS,
        ("conv_transpose", {"stride": (2, 3), "dilation": (1, 1), "pad": (1, 0, 1, 0), "out_pad": (1, 2), "groups": 1}),
    ),
    (lambda m, x: torch.einsum("...d,de->...e", x, m.matrix), MAPS, ("linear", {})),
    (
        lambda m, x: f.max_pool2d(x, (3, 2), 2, 1), MAPS,
        ("pool", {"mode": "max", "window": (3, 2), "stride": (2, 2), "pad": (1, 1), "ceil": False}),
    ),
    (lambda m, x: f.adaptive_avg_pool2d(x, (2, 3)), MAPS, ("pool_to", {"mode": "average", "size": (2, 3)})),
    (lambda m, x: f.adaptive_avg_pool1d(x, 4), ROWS, ("pool_to", {"mode": "average", "size": (4, 1)})),
    (lambda m, x: x.amax((-1, -2)), MAPS, ("global_pool", {"mode": "max", "axes": [-1, -2]})),
    (lambda m, x: f.layer_norm(x, (9,), m.row, m.row, 0.5), MAPS, ("layernorm", {"epsilon": 0.5})),
    (lambda m, x: f.rms_norm(x, (9,), m.row), MAPS, ("rmsnorm", {"epsilon": 2.0**-23})),
    (lambda m, x: f.rms_norm(x, (9,), eps=0.5), MAPS, ("rmsnorm", {"epsilon": 0.5, "affine": False})),
    (lambda m, x: f.instance_norm(x), MAPS, ("groupnorm", {"epsilon": 1e-5, "groups": 4, "affine": False})),
    (lambda m, x: x.clamp(min=0), MAPS, ("relu", {})),
    (lambda m, x: f.dropout(x, 0.0), MAPS, ("identity", {})),
    (lambda m, x: f.relu(x).detach(), MAPS, ("identity", {})),
    (lambda m, x: x / 4, MAPS, ("times", {"by": 0.25})),
    (lambda m, x: m.row * x, MAPS, ("scale", {"axis": 3})),
    (lambda m, x: torch.cat([m.token, x], -2), MAPS, ("prepend", {"axis": 2})),
    (lambda m, x: f.pad(x, (0, 0, 0, 0)), MAPS, ("identity", {})),
    (lambda m, x: x.index_select(1, m.order), MAPS, ("permute_channels", {"order": [2, 1, 0, 3], "axis": 1})),
    (
        lambda m, x: f.interpolate(x, (4, 5), mode="bilinear", align_corners=True), MAPS,
        ("upsample", {"mode": "bilinear", "size": (4, 5), "align_corners": True}),
    ),
    (lambda m, x: f.gelu(x, approximate="tanh"), MAPS, ("gelu", {"approximate": "tanh"})),
    (lambda m, x: f.max_pool2d(x, 2, return_indices=True)[0], MAPS, ("identity", {})),
]  # fmt: skip


def test_a_call_is_this_operation() -> None:
    nodes = ends_of_all(KNOWN)
    for number, (function, shape, found) in enumerate(KNOWN):
        node = nodes[function]
        assert (node.operation, node.attributes) == found, f"KNOWN[{number}]"
        assert node.shape == tuple(One(function)(torch.ones(shape)).shape), f"KNOWN[{number}]"


#: Functions that move numbers, and compute none.
VIEWS: list[Function] = [
    lambda m, x: x.permute(0, 2, 3, 1),
    lambda m, x: x.transpose(1, -1),
    lambda m, x: x.mT,
    lambda m, x: x.moveaxis((1, 2), (-1, 1)),
    lambda m, x: x.flatten(1).t(),
    lambda m, x: x[:, 1:3],
    lambda m, x: x[:, :, -2:],
    lambda m, x: x[:, :, 4],
    lambda m, x: x.chunk(2, 1)[1],
    lambda m, x: x.split([1, 2, 1], 1)[1],
    lambda m, x: x.flatten(2),
    lambda m, x: x.unflatten(1, (2, 2)),
    lambda m, x: x.unsqueeze(2),
    lambda m, x: x[:, :1].squeeze(1),
    lambda m, x: x[:, :1].expand(2, 3, 9, 9),
    lambda m, x: x.unsqueeze(2).repeat_interleave(3, dim=2),
    lambda m, x: x[:, [1, 2]],
]


def test_a_view_has_the_numbers_that_pytorch_has() -> None:
    found, nodes = ends(VIEWS)
    for number, (function, node) in enumerate(zip(VIEWS, found, strict=True)):
        chain = [node]
        while chain[0].inputs != [""]:
            chain.insert(0, nodes[chain[0].inputs[0]])
        places = Arrangement.of(MAPS)
        for one in chain:
            assert one.operation == "view", f"VIEWS[{number}]"
            places = one.attributes["move"](places)
        wanted = One(function)(torch.arange(2 * 4 * 81).reshape(MAPS)).numpy()
        numbers = places.numbers(range(len(places.axes)), image=4 * 81, channel=81, position=1)
        assert places.shape == node.shape == wanted.shape, f"VIEWS[{number}]"
        np.testing.assert_array_equal(numbers, wanted.reshape(-1), f"VIEWS[{number}]")


#: Function, shape of its input, and what the refusal names; nothing: an operator that is not known.
UNKNOWN: list[tuple[Function, tuple[int, ...], tuple[Any, ...]]] = [
    (lambda m, x: x.sin(), MAPS, ()),
    (lambda m, x: x * x, MAPS, ()),
    (lambda m, x: torch.mm(m.wide.T, x.T), FLAT, ("second factor",)),
    (lambda m, x: torch.einsum("bcij,bcij->bij", x, x), MAPS, ("einsum", "last axis")),
    (lambda m, x: torch.einsum("bcij,dc->bdij", x, m.filters[:, :, 0, 0]), MAPS, ("einsum", "last axis")),
    (lambda m, x: torch.einsum("bcij,ij->bci", x, m.matrix), MAPS, ("einsum", "last axis")),
    (lambda m, x: torch.einsum("bcij,ij->bcij", x, m.matrix), MAPS, ("einsum", "last axis")),
    (lambda m, x: torch.einsum("bcij,jj->bcij", x, m.matrix), MAPS, ("einsum", "last axis")),
    (lambda m, x: torch.einsum("bj->jb", x), FLAT, ("einsum", "last axis")),
    (lambda m, x: torch.addmm(m.five, x, m.wide, beta=2), FLAT, ("beta=2", 1)),
    (lambda m, x: f.max_pool2d(x, 2, dilation=2), MAPS, ("dilated",)),
    (lambda m, x: f.avg_pool2d(x, 2, divisor_override=3), MAPS, ("divisor_override=3",)),
    (lambda m, x: f.batch_norm(x, m.running, m.running, training=True), MAPS, ("affine=True",)),
    (lambda m, x: f.batch_norm(x, None, None, m.channels, m.channels, True), MAPS, ("track_running_stats=True",)),
    (lambda m, x: f.layer_norm(x, (9, 9)), MAPS, ([9, 9],)),
    (lambda m, x: f.layer_norm(x, (9,), m.row), MAPS, ("weight", "bias")),
    (lambda m, x: f.instance_norm(x, m.running, m.running, use_input_stats=False), MAPS, ("use_input_stats=False",)),
    (lambda m, x: x.clamp(-1, 1), MAPS, (-1, 1)),
    (lambda m, x: x / x.mean(), MAPS, ("local response normalisation",)),
    (lambda m, x: x * m.matrix, MAPS, ("9×9",)),
    (lambda m, x: x + 1, MAPS, ("number",)),
    (lambda m, x: torch.add(x, x, alpha=2), MAPS, ("two maps",)),
    (lambda m, x: torch.cat([x, m.token], 2), MAPS, ("before others",)),
    (lambda m, x: torch.cat([m.token, m.token, x], 2), MAPS, ("before others",)),
    (lambda m, x: f.pad(x, (1, 2, 3, 4), mode="reflect"), MAPS, ("mode=reflect", "constant")),
    (lambda m, x: f.pad(x, (1, 1, 1, 1, 1, 1)), MAPS, ("rows", "columns")),
    (lambda m, x: x[:, ::2], MAPS, ("step=2", 1)),
    (lambda m, x: x[:, m.order, m.order], MAPS, ("several axes",)),
    (lambda m, x: x[:, x.flatten()[:4].long()], MAPS, ("computed",)),
    (lambda m, x: f.conv2d(x, m.filters * 2), MAPS, ("weight", "computed")),
    (lambda m, x: f.relu(f.conv2d(x, m.filters)).detach(), MAPS, ("detach()", "gradient")),
    (lambda m, x: f.softmax(x, 1), MAPS, ("classes",)),
    (lambda m, x: f.interpolate(x, scale_factor=1.3), MAPS, ("9×9", 1.3)),
    (lambda m, x: f.max_pool2d(x, 2, return_indices=True)[1], MAPS, ("first output",)),
    (lambda m, x: x.repeat_interleave(m.order[:1], dim=1, output_size=8), MAPS, ("repeats",)),
    (lambda m, x: x * torch.empty(2, 4, 1, 1).bernoulli_(0.8).div_(0.8), MAPS, ([2, 4, 1, 1],)),
    (lambda m, x: x * torch.empty(2, 1, 1, 1).bernoulli_(0.8).div_(0.5), MAPS, ([2, 1, 1, 1],)),
    (lambda m, x: f.scaled_dot_product_attention(x, x, x, dropout_p=0.5), MAPS, ("dropout_p=0.5", 0.0)),
    (lambda m, x: f.scaled_dot_product_attention(x, x, x, m.matrix), MAPS, ("position biases",)),
    (lambda m, x: f.scaled_dot_product_attention(x, x, x, x > 0), MAPS, ("mask", "input")),
    (lambda m, x: f.scaled_dot_product_attention(x, x, m.token.expand(2, 4, 9, 9)), MAPS, ("value", "map")),
]


def test_a_call_is_refused() -> None:
    nodes = ends_of_all(UNKNOWN)
    for number, (function, _, says) in enumerate(UNKNOWN):
        node = nodes[function]
        assert node.operation == UNSUPPORTED, f"UNKNOWN[{number}]"
        why = node.attributes["why"]
        assert bool(why) == bool(says) and not lacks(why, *says), f"UNKNOWN[{number}]: {why}"


def test_weights_have_our_layout() -> None:
    ways: list[tuple[Function, Callable[[np.ndarray], np.ndarray]]] = [
        (lambda m, x: torch.mm(x, m.wide), np.transpose),
        (lambda m, x: f.linear(x, m.wide.T), np.transpose),
        (lambda m, x: torch.einsum("ab,bc->ac", x, m.wide), np.transpose),
        (lambda m, x: torch.einsum("ab,cb->ac", x, m.wide.t()), np.transpose),
        (lambda m, x: f.linear(x, m.wide[:, :3].transpose(0, 1)), lambda values: values[:, :3].T),
    ]
    module = One(lambda m, x: tuple(function(m, x) for function, _ in ways))
    values = module.wide.detach().numpy()
    graph = graph_of(module, exported_module(module, Example.of(FLAT)), FLAT)
    for (_, move), node in zip(ways, graph.nodes, strict=True):
        found = node.weights["w"]
        np.testing.assert_array_equal(found.values, move(values))
        assert found.source == "wide" and not found.frozen
        changed = found.as_source(found.values + 1)
        np.testing.assert_array_equal(move(changed), move(values) + 1)
        assert changed.shape == values.shape
    module = One(lambda m, x: f.conv1d(x, m.columns))
    module.columns.requires_grad_(False)
    found = graph_of(module, exported_module(module, Example.of(ROWS)), ROWS).nodes[-1].weights["w"]
    assert found.frozen and found.values.shape == (5, 4, 3, 1)


def test_values_that_do_not_fit_change_no_weight() -> None:
    module = nn.Linear(2, 3)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    right = np.ones((3, 2), np.float32)
    for wrong, says in (
        ({"weight": right, "other": right}, ("Linear", "other")),
        ({"weight": right, "bias": right}, ("bias", "(3,)", "(3, 2)")),
    ):
        with raises_naming(NetworkError, *says):
            fill_module(module, wrong)
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    fill_module(module, {"weight": right})
    assert torch.equal(module.weight, torch.ones(3, 2)) and torch.equal(module.bias, before["bias"])
    with raises_naming(NetworkError, "weight", "torch.float64", "float32"):
        fill_module(module.double(), {"weight": right})


def test_examples_of_what_a_module_is_called_with() -> None:
    tokens, maps = torch.zeros(2, 5, dtype=torch.int64), torch.zeros(MAPS)
    for given in (MAPS, maps, maps.numpy()):
        assert Example.of(given).alone == (MAPS, "float32") and str(Example.of(given)) == str(MAPS)
    for same in (tokens, tokens.int()):
        assert Example.of(same).alone == ((2, 5), "int32") and Example.of(same).args[0].dtype == torch.int64
    both = Example.of((maps, [tokens, 0.5]))
    assert both.alone is None and str(both) == f"shapes {MAPS}, (2, 5)" and both.args[1][1] == 0.5
    assert both.args[0].is_meta and both.zeros(torch, "cpu").args[1][0].device.type == "cpu"
    mixed = Example.of(((maps,), {"labels": tokens, "scale": 2}))
    assert [*mixed.kwargs] == ["labels", "scale"] and mixed.kwargs["scale"] == 2 and mixed.args[0].shape == MAPS
    named = Example.of({"x": maps.requires_grad_()})
    assert named.alone is None and named.kwargs["x"].requires_grad and not named.args
    assert Example.of(maps.double()).alone is None
    assert Example.of((2,)).alone is None and Example.of((2, 1, 1, 1, 1)).alone is None
    for wrong in ((), (2, 0), (2, 2.5), (2, "x")):
        with raises_naming(NetworkError, "height"):
            Example.of(wrong)
