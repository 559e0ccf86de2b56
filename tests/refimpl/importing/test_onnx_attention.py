"""Attention in ONNX files: the operator, and the products that exporters write; each trains as the module does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import refimpl
from refimpl import NetworkError
from refimpl.importing.onnx_file import OnnxFile
from tests.messages import raises_naming
from tests.refimpl.importing.onnx_files import File

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.refimpl.importing.beside_pytorch import beside_pytorch, described, same_weights  # noqa: E402

IMAGES, TOKENS, WIDE, HEADS = 3, 16, 8, 2
EACH = WIDE // HEADS


class Tokens(nn.Module):
    """Patches of an image as 16 tokens, causal attention of two heads, GELU, and a linear layer."""

    def __init__(self, causal: bool = True, keys: int = HEADS) -> None:
        super().__init__()
        self.patch, self.causal, self.keys = nn.Conv2d(3, WIDE, 2, 2), causal, keys
        self.q, self.k, self.v = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, keys * EACH), nn.Linear(WIDE, keys * EACH)
        self.out, self.head = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 5)

    def forward(self, x: Any) -> Any:
        x = self.patch(x).flatten(2).transpose(1, 2)
        q, k, v = (layer(x).view(*x.shape[:2], -1, EACH).transpose(1, 2) for layer in (self.q, self.k, self.v))
        k, v = (part.repeat_interleave(HEADS // self.keys, 1) if self.keys < HEADS else part for part in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.head(functional.gelu(self.out(y.transpose(1, 2).flatten(2))).mean(1))


class Written(File):
    """The same as a file; `attention` writes what is between the three linear layers and the last."""

    def __init__(self, module: Tokens, attention: Callable[[Written, str, str, str], str], opset: int) -> None:
        super().__init__(("N", 3, 8, 8))
        for name, weight in module.state_dict().items():
            values = weight.numpy().T if name.endswith("weight") and weight.ndim == 2 else weight.numpy()
            self.constant(name, values)
        x = self.node("Conv", "x", "patch.weight", "patch.bias", strides=[2, 2])
        x = self.reshaped(x, 0, WIDE, TOKENS)
        x = self.node("Transpose", x, perm=[0, 2, 1])
        y = attention(self, *(self.linear(x, name) for name in "qkv"))
        y = self.linear(y, "out")
        if opset < 20:
            inner = self.node("Erf", self.node("Div", y, self.number(2**0.5)))
            y = self.node("Mul", self.node("Mul", y, self.node("Add", inner, self.number(1.0))), self.number(0.5))
        else:
            y = self.node("Gelu", y)
        y = self.node("ReduceMean", y, self.constant("axes", np.array([1], np.int64)), keepdims=0)
        self.made = self.model(self.node("Gemm", y, "head.weight", "head.bias"), opset=opset)

    def linear(self, x: str, name: str) -> str:
        return self.node("Add", self.node("MatMul", x, f"{name}.weight"), f"{name}.bias")

    def reshaped(self, x: str, *shape: int) -> str:
        return self.node("Reshape", x, self.constant(f"shape{len(self.nodes)}", np.array(shape, np.int64)))

    def number(self, value: float) -> str:
        return self.constant(f"number{len(self.nodes)}.{len(self.weights)}", np.float32(value))

    def heads(self, x: str, count: int = HEADS) -> str:
        return self.node("Transpose", self.reshaped(x, 0, TOKENS, count, EACH), perm=[0, 2, 1, 3])

    def whole(self, y: str) -> str:
        return self.reshaped(self.node("Transpose", y, perm=[0, 2, 1, 3]), 0, TOKENS, WIDE)


def operator(f: Written, q: str, k: str, v: str) -> str:
    return f.whole(f.node("Attention", *(f.heads(x) for x in (q, k, v)), is_causal=1))


def operator_of_rows(f: Written, q: str, k: str, v: str) -> str:
    """Queries, keys and values whose heads are one axis with their channels."""
    return f.node("Attention", q, k, v, is_causal=1, q_num_heads=HEADS, kv_num_heads=HEADS)


def operator_of_groups(f: Written, q: str, k: str, v: str) -> str:
    return f.node("Attention", q, k, v, q_num_heads=HEADS, kv_num_heads=1, scale=EACH**-0.5)


def operator_with_a_mask(f: Written, q: str, k: str, v: str) -> str:
    mask = f.constant("mask", np.tri(TOKENS).astype(bool))
    return f.whole(f.node("Attention", *(f.heads(x) for x in (q, k, v)), mask))


def products(f: Written, q: str, k: str, v: str) -> str:
    """As PyTorch's exporter writes them: a root of the factor for each, the mask a summand."""
    root, q, k, v = f.number(EACH**-0.25), f.heads(q), f.heads(k), f.heads(v)
    mask = f.constant("mask", np.where(np.tri(TOKENS), 0, -np.inf).astype(np.float32))
    scores = f.node("MatMul", f.node("Mul", q, root), f.node("Mul", f.node("Transpose", k, perm=[0, 1, 3, 2]), root))
    shares = f.node("Softmax", f.node("Add", scores, mask), axis=-1)
    shares = f.node("Where", f.node("IsNaN", shares), f.number(0.0), shares)
    return f.whole(f.node("MatMul", shares, v))


def products_and_where(f: Written, q: str, k: str, v: str) -> str:
    """A mask that the file computes, and a division after the product."""
    ones = f.node("Expand", f.number(1.0), f.constant("square", np.array([TOKENS, TOKENS], np.int64)))
    seen = f.node("Equal", f.node("Trilu", ones, upper=0), f.number(1.0))
    q, k, v = f.heads(q), f.heads(k), f.heads(v)
    scores = f.node("Div", f.node("MatMul", q, f.node("Transpose", k, perm=[0, 1, 3, 2])), f.number(EACH**0.5))
    shares = f.node("Softmax", f.node("Where", seen, scores, f.number(-1e9)), axis=3)
    return f.whole(f.node("MatMul", f.node("Dropout", shares, f.number(0.0)), v))


#: How a file has attention → who writes it, the operators' version, and the module's options.
CASES: dict[str, tuple[Callable[[Written, str, str, str], str], int, dict[str, Any]]] = {
    "operator": (operator, 23, {}),
    "operator of rows": (operator_of_rows, 23, {}),
    "operator of groups": (operator_of_groups, 23, {"causal": False, "keys": 1}),
    "operator with a mask": (operator_with_a_mask, 23, {}),
    "products": (products, 18, {}),
    "products and where": (products_and_where, 18, {}),
}


def saved(model: Any, folder: Path) -> Path:
    onnx.save(model, folder / "tokens.onnx")
    return folder / "tokens.onnx"


def comes_back(path: Path, network: refimpl.Network) -> bool:
    """Whether other values of all weights, written into the file, are what it is imported with afterwards."""
    changed: dict[str, np.ndarray] = {}
    for first in network.initial.values():
        changed[first.source] = first.as_source(first.values + 1, changed.get(first.source))
    again = path.with_name("trained.onnx")
    again.write_bytes(OnnxFile(str(path)).with_weights(changed))
    trained = refimpl.networks.from_onnx(again, network.batch)
    pairs = zip(network.initial.values(), trained.initial.values(), strict=True)
    return all(np.array_equal(one.values + 1, other.values) for one, other in pairs)


@cache
def trained_beside(**options: Any) -> tuple[Tokens, refimpl.Network]:
    """A module, and its network, which trains as the module does."""
    torch.manual_seed(0)
    module = Tokens(**options)
    beside = beside_pytorch(module, torch.randn(IMAGES, 3, 8, 8))
    assert beside.agrees, beside
    return module, beside.network


@pytest.mark.parametrize("case", CASES)
def test_a_file_is_the_same_network_as_the_module_and_weights_come_back(case: str, tmp_path: Path) -> None:
    attention, opset, options = CASES[case]
    module, twin = trained_beside(**options)
    path = saved(Written(module, attention, opset).made, tmp_path)
    network = refimpl.networks.from_onnx(path, IMAGES)
    assert described(network) == described(twin) and same_weights(network, twin)
    assert comes_back(path, network)


class Words(nn.Module):
    """A table, learnt positions, of which some are used, GELU, and classes for every token."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places, self.head = nn.Embedding(23, WIDE), nn.Embedding(24, WIDE), nn.Linear(WIDE, 23)

    def forward(self, tokens: Any) -> Any:
        return self.head(functional.gelu(self.table(tokens) + self.places(torch.arange(2, 2 + TOKENS))))


def of_words(module: nn.Module, rows: list[int], tokens: Any = TOKENS) -> Any:
    f = File(("N", tokens))
    for name, weight in module.state_dict().items():
        f.constant(name, weight.numpy().T if name == "head.weight" else weight.numpy())
    places = f.node("Gather", "places.weight", f.constant("rows", np.array([rows])), axis=0)
    y = f.node("Gelu", f.node("Add", f.node("Gather", "table.weight", "x", axis=0), places))
    end = f.node("Add", f.node("MatMul", y, "head.weight"), "head.bias", to="end")
    model = f.model(end, opset=20)
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, [None, None, None]))
    return model


def test_a_head_that_multiplies_by_the_transposed_table_shares_it(tmp_path: Path) -> None:
    """One weight, which both gradients train, and which is written back once, for both."""
    f = File(("N", TOKENS))
    table = f.weight("table", 23, 8)
    y = f.node("Gelu", f.node("Gather", table, "x", axis=0))
    end = f.node("MatMul", y, f.node("Transpose", table, perm=[1, 0]), to="end")
    model = f.model(end, opset=20)
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, [None, None, None]))
    path = saved(model, tmp_path)
    network = refimpl.networks.from_onnx(path, IMAGES)
    words, _, head, _ = network.layers
    assert [one.kind for one in network.layers] == ["embedding", "gelu", "conv", "pixel_softmax"]
    assert head.parameters["w"] is words.parameters["w"] and len([*network.parameters()]) == 1
    changed = {"table": np.ones((23, 8), np.float32)}
    tables = onnx.load_from_string(OnnxFile(str(path)).with_weights(changed)).graph.initializer
    first, *others = [numpy_helper.to_array(one) for one in tables if len(one.dims) == 2]
    assert first.shape == (23, 8) and (first == 1).all()
    assert others and all(np.array_equal(one, first.T) for one in others)


def test_a_file_that_reads_tokens_is_the_same_network_as_the_module(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Words()
    beside = beside_pytorch(module, torch.randint(0, 23, (IMAGES, TOKENS)))
    assert beside.agrees, beside
    path = saved(of_words(module, [*range(2, 2 + TOKENS)]), tmp_path)
    network = refimpl.networks.from_onnx(path, IMAGES)
    assert [layer.kind for layer in network.layers] == ["embedding", "position", "gelu", "conv", "pixel_softmax"]
    assert described(network) == described(beside.network) and same_weights(network, beside.network)
    assert comes_back(path, network)


def test_files_of_tokens_that_cannot_be_imported(tmp_path: Path) -> None:
    with raises_naming(NetworkError, "fixed number of tokens"):
        refimpl.networks.from_onnx(saved(of_words(Words(), [0], "T"), tmp_path), IMAGES)
    twice = saved(of_words(Words(), [0] * TOKENS), tmp_path)  # the sum of their gradients would be the row's
    with raises_naming(NetworkError, "addition", "weight"):
        refimpl.networks.from_onnx(twice, IMAGES)


def biased(f: Written, q: str, k: str, v: str) -> str:
    bias = f.weight("bias", 1, HEADS, TOKENS, TOKENS)
    return f.whole(f.node("Attention", *(f.heads(x) for x in (q, k, v)), bias))


def biased_products(f: Written, q: str, k: str, v: str) -> str:
    q, k, v = f.heads(q), f.heads(k), f.heads(v)
    scores = f.node("MatMul", q, f.node("Transpose", k, perm=[0, 1, 3, 2]))
    shares = f.node("Softmax", f.node("Add", scores, f.weight("bias", 1, HEADS, TOKENS, TOKENS)), axis=-1)
    return f.whole(f.node("MatMul", shares, v))


def capped(f: Written, q: str, k: str, v: str) -> str:
    return f.whole(f.node("Attention", *(f.heads(x) for x in (q, k, v)), softcap=5.0))


@pytest.mark.parametrize(
    ("attention", "says"),
    [
        (biased, ("relative position biases",)), (biased_products, ("relative position biases",)),
        (capped, ("softcap=5.0",)),
    ],
)  # fmt: skip
def test_another_attention_is_refused_in_one_line(attention: Any, says: tuple[str, ...], tmp_path: Path) -> None:
    path = saved(Written(Tokens(), attention, 23).made, tmp_path)
    with raises_naming(NetworkError, *says):
        refimpl.networks.from_onnx(path, IMAGES)


def rms(f: File, x: str, epsilon: float) -> str:
    """Written out as a module is exported that has no operator for it."""
    mean = f.node(
        "ReduceMean", f.node("Pow", x, f.constant("two", np.float32(2))), f.constant("last", np.array([-1])), keepdims=1
    )
    root = f.node("Sqrt", f.node("Add", mean, f.constant("epsilon", np.float32(epsilon))))
    return f.node("Mul", f.weight("gamma", WIDE), f.node("Mul", x, f.node("Reciprocal", root)))


def rms_operator(f: File, x: str, epsilon: float) -> str:
    return f.node("RMSNormalization", x, f.weight("gamma", WIDE), axis=-1, epsilon=epsilon)


def test_factors_that_happen_to_be_1_are_learnt(tmp_path: Path) -> None:
    """A normalisation whose factors have not been trained has them nevertheless."""
    f = File(("N", 3, 8, 8))
    x = f.node("Conv", "x", f.weight("w", WIDE, 3, 2, 2), strides=[2, 2])
    x = f.node("Transpose", f.node("Reshape", x, f.constant("shape", np.array([0, WIDE, TOKENS]))), perm=[0, 2, 1])
    y = f.node("ReduceMean", rms(f, x, 1e-3), f.constant("axes", np.array([1])), keepdims=0)
    f.weights = [one for one in f.weights if one.name != "gamma"]
    f.constant("gamma", np.ones(WIDE, np.float32))
    path = saved(f.model(f.node("Gemm", y, f.weight("head", WIDE, 5)), opset=23), tmp_path)
    network = refimpl.networks.from_onnx(path, IMAGES)
    assert [layer.parameter_count for layer in network.layers if layer.kind == "rmsnorm"] == [WIDE]


@pytest.mark.parametrize("write", [rms, rms_operator])
def test_an_rms_normalisation_is_one_layer(write: Callable[[File, str, float], str], tmp_path: Path) -> None:
    f = File(("N", 3, 8, 8))
    x = f.node("Conv", "x", f.weight("w", WIDE, 3, 2, 2), strides=[2, 2])
    x = f.node("Reshape", x, f.constant("shape", np.array([0, WIDE, TOKENS])))
    x = f.node("Transpose", x, perm=[0, 2, 1])
    token = x
    if write is rms:
        first = f.node("Expand", f.weight("token", 1, 1, WIDE), f.constant("images", np.array([1, 1, 1])))
        token = f.node("Concat", first, x, axis=1)
    places = f.node("Add", token, f.weight("places", 1, TOKENS + (write is rms), WIDE))
    y = f.node("ReduceMean", write(f, places, 1e-3), f.constant("axes", np.array([1])), keepdims=0)
    model = f.model(f.node("Gemm", y, f.weight("head", WIDE, 5)), opset=23)
    if write is rms:  # one image, as a class token of one row has
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8]))
    network = refimpl.networks.from_onnx(saved(model, tmp_path), 1)
    ahead = ["conv", *["prepend"] * (write is rms), "position"]
    assert [layer.kind for layer in network.layers] == [*ahead, "rmsnorm", "pool", "fc", "softmax"]
    (layer,) = (layer for layer in network.layers if layer.kind == "rmsnorm")
    assert layer.options["epsilon"] == pytest.approx(1e-3) and "gamma" in layer.parameters
    images = np.random.default_rng(0).standard_normal((1, 3, 8, 8), dtype=np.float32)
    from onnx.reference import ReferenceEvaluator

    (logits,) = ReferenceEvaluator(model).run(None, {"x": images})
    wanted = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    with refimpl.Trainer(refimpl.plan(network, "baseline", "here"), "cpu") as trainer:
        found = trainer.evaluate(images, np.zeros(1, np.int32)).predictions
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def rotary_operator(f: File, x: str, cosines: np.ndarray, sines: np.ndarray) -> str:
    return f.node("RotaryEmbedding", x, f.constant("cos", cosines[None]), f.constant("sin", sines[None]))


def rotary_tables(f: File, x: str, cosines: np.ndarray, sines: np.ndarray) -> str:
    """As a model is exported that turns halves."""
    low, high, axis = (f.constant(f"axis{number}", np.array([number])) for number in (0, EACH // 2, 3))
    first, second = (
        f.node("Slice", x, low, high, axis),
        f.node("Slice", x, high, f.constant("end", np.array([99])), axis),
    )
    turned = f.node("Concat", f.node("Neg", second), first, axis=3)
    given = [np.concatenate([table, table], 1)[None, None] for table in (cosines, sines)]
    one, other = f.node("Mul", x, f.constant("cos", given[0])), f.node("Mul", turned, f.constant("sin", given[1]))
    return f.node("Add", one, other)


@pytest.mark.parametrize("write", [rotary_operator, rotary_tables])
def test_a_rotary_position_is_one_layer(write: Any, tmp_path: Path) -> None:
    angles = np.arange(TOKENS)[:, None] * 500.0 ** (-np.arange(EACH // 2) / (EACH // 2))
    f = File((1, 3, 8, 8))
    x = f.node("Conv", "x", f.weight("w", WIDE, 3, 2, 2), strides=[2, 2])
    x = f.node("Reshape", x, f.constant("shape", np.array([1, HEADS, EACH, TOKENS])))
    x = f.node("Transpose", x, perm=[0, 1, 3, 2])
    x = write(f, x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
    y = f.node("Reshape", f.node("Transpose", x, perm=[0, 1, 3, 2]), f.constant("row", np.array([1, -1])))
    model = f.model(f.node("Gemm", y, f.weight("head", WIDE * TOKENS, 5)), opset=23)
    network = refimpl.networks.from_onnx(saved(model, tmp_path), 1)
    assert [layer.kind for layer in network.layers] == ["conv", "rotary", "fc", "softmax"]
    options = network.layers[1].options
    assert (options["base"], options["heads"], options["neighbours"]) == (500.0, HEADS, False)
