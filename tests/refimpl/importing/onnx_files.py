"""ONNX files made by hand, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import refimpl

INPUT = ("N", 4, 9, 9)


class File:
    """A file under construction: nodes one after another, weights drawn."""

    def __init__(self, shape: tuple[Any, ...] = INPUT, seed: int = 0) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.shape = shape
        self._random = np.random.default_rng(seed)

    def weight(self, name: str, *shape: int, least: float = -0.5) -> str:
        values = self._random.uniform(least, least + 1, shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, name: str, values: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.array(values), name))
        return name

    def node(self, operator: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        to = to or f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [to], name=f"/{to}/{operator}", **attributes))
        return to

    def model(self, *outputs: str, opset: int = 17) -> Any:
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]) for name in outputs]
        graph = helper.make_graph(self.nodes, "graph", [given], ends, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def everything() -> Any:
    """A file with every operator that is supported."""
    f = File()
    x = f.node("Pad", "x", f.constant("pads", np.array([0, 0, 1, 0, 0, 0, 0, 1], np.int64)))
    x = f.node("Conv", x, f.weight("w0", 6, 2, 3, 3), f.weight("b0", 6), group=2, pads=[1, 1, 1, 0], dilations=[1, 2])
    given = [
        f.weight("gamma", 6, least=0.5),
        f.weight("beta", 6),
        f.weight("mean", 6),
        f.weight("variance", 6, least=1),
    ]
    trunk = f.node("Relu", f.node("BatchNormalization", x, *given, momentum=0.8, epsilon=1e-4))
    left = f.node("Clip", trunk, f.constant("zero", np.float32(0)), f.constant("six", np.float32(6)))
    right = f.node("Conv", trunk, f.weight("w1", 6, 1, 2, 2), group=6, auto_pad="SAME_UPPER")
    both = f.node("Concat", left, f.node("Add", right, trunk), axis=1)
    lrn = f.node("LRN", both, size=4, alpha=0.01, beta=0.5, bias=2.0)
    maps = f.node("MaxPool", lrn, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    pad: dict[str, Any] = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    average = f.node("AveragePool", maps, kernel_shape=[3, 3], **pad)
    counted = f.node("AveragePool", maps, kernel_shape=[3, 3], count_include_pad=1, **pad)
    maps = f.node("Sum", average, counted)
    flat = f.node("Reshape", maps, f.constant("flat", np.array([0, -1], np.int64)))
    f.node("Identity", f.weight("w2", 20, 72), to="w2_copy")
    f.node("Transpose", "w2_copy", to="w2_transposed", perm=[1, 0])
    hidden = f.node("Add", f.node("MatMul", flat, "w2_transposed"), f.weight("b2", 20))
    hidden = f.node("Dropout", f.node("Relu", hidden), f.constant("ratio", np.float32(0.3)))
    out = f.node("Gemm", hidden, f.weight("w3", 20, 7), f.weight("b3", 7))
    return f.model(f.node("Softmax", out, axis=-1))


def small() -> File:
    """A convolution and a linear layer; the value "y2" is the output."""
    f = File()
    x = f.node("Conv", "x", f.weight("w", 5, 4, 3, 3))
    x = f.node("Flatten", f.node("GlobalAveragePool", x), to="flat")
    f.node("Gemm", x, f.weight("v", 3, 5), transB=1, to="end")
    return f


def damaged(count: int, seed: int, folder: Path) -> int:
    """Files with up to three bytes changed are imported, or refused in one line; returns how many were imported."""
    whole = everything().SerializeToString()
    random = np.random.default_rng(seed)
    imported = 0
    for number in range(count):
        changed = bytearray(whole)
        for place in random.integers(0, len(whole), random.integers(1, 4)):
            changed[place] ^= 1 << random.integers(0, 8)
        if number % 20 == 0:
            changed = changed[: random.integers(0, len(whole))]
        path = folder / f"{number}.onnx"
        path.write_bytes(changed)
        try:
            refimpl.networks.from_onnx(path, batch=2)
            imported += 1
        except refimpl.NetworkError as error:
            assert "\n" not in str(error) and str(error).isprintable(), str(error)
    return imported
