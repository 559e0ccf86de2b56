"""Each operator of an ONNX file alone: what it is here, with all of its attributes, or the refusal."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper
from onnx.defs import onnx_opset_version

from refimpl.importing.arrangement import Arrangement
from refimpl.importing.graph import UNSUPPORTED
from refimpl.importing.nodes import Node
from refimpl.importing.onnx_file import OnnxFile
from refimpl.importing.onnx_nodes import graph_of
from tests.messages import lacks
from tests.refimpl.importing.onnx_files import File

MAPS, ROWS, FLAT = ("N", 4, 9, 9), ("N", 4, 9), ("N", 12)
random = np.random.default_rng(0)


def w(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@dataclass
class Case:
    """One node that reads x first, unless its inputs say where."""

    operator: str
    inputs: list[Any] = field(default_factory=list)  #: after x; or with "x" among them
    attributes: dict[str, Any] = field(default_factory=dict)
    shape: tuple[Any, ...] = MAPS
    opset: int = 17
    number: int = 0  #: of the output
    outputs: int = 1

    def node(self, folder: Path) -> Node:
        if self.opset > onnx_opset_version():
            pytest.skip(f"the library that is installed knows no version {self.opset} of the operators")
        f = File(self.shape)
        inputs = self.inputs if any(isinstance(one, str) and one == "x" for one in self.inputs) else ["x", *self.inputs]
        names = [one if isinstance(one, str) else self._tensor(f, f"c{place}", one) for place, one in enumerate(inputs)]
        f.node(self.operator, *names, to="end", **self.attributes)
        f.nodes[-1].output.extend(f"end{number}" for number in range(1, self.outputs))
        path = folder / "one.onnx"
        path.write_bytes(f.model("end", opset=self.opset).SerializeToString())
        graph = graph_of(OnnxFile(str(path)))
        assert len(graph.nodes) == self.outputs
        return graph.nodes[self.number]

    @staticmethod
    def _tensor(f: File, name: str, values: Any) -> str:
        f.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name


def conv(**changes: Any) -> tuple[str, dict[str, Any]]:
    return "conv", {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1} | changes


def pool(mode: str = "max", **changes: Any) -> tuple[str, dict[str, Any]]:
    return "pool", {"mode": mode, "stride": (1, 1), "pad": (0, 0, 0, 0), "ceil": False} | changes


KERNEL = w(5, 4, 3, 3)
SAME = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}

#: The node → its operation and attributes here: of what is in no file that is compared with a module or an evaluator.
KNOWN: list[tuple[Case, tuple[str, dict[str, Any]]]] = [
    (Case("Conv", [w(5, 4, 4, 4)], SAME), conv(stride=(2, 2), pad=(1, 1, 2, 2))),
    (Case("Conv", [w(5, 4, 4, 2)], SAME | {"auto_pad": "SAME_LOWER"}), conv(stride=(2, 2), pad=(2, 1, 1, 0))),
    (
        Case("Conv", [KERNEL], {"auto_pad": "SAME_UPPER", "dilations": [2, 1]}),
        conv(dilation=(2, 1), pad=(2, 1, 2, 1)),
    ),
    (
        Case("ConvTranspose", [w(4, 3, 3)], {"strides": [3], "output_padding": [2], "pads": [1, 2]}, ROWS),
        (
            "conv_transpose",
            {"stride": (3, 1), "dilation": (1, 1), "out_pad": (2, 0), "pad": (1, 0, 2, 0), "groups": 1},
        ),
    ),
    (Case("Mul", [np.float32(3)]), ("times", {"by": 3.0})),
    (Case("Mul", [w(9)]), ("scale", {"axis": 3})),
    (Case("Div", [np.float32(4)]), ("times", {"by": 0.25})),
    (Case("Clip", [np.float32(0), np.float32(3.4e38)]), ("relu", {})),
    (Case("Clip", [], {"min": 0.0, "max": 6.0}, opset=6), ("relu", {"at_most": 6})),
    (
        Case("MaxPool", [], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1}),
        pool(window=(3, 2), pad=(1, 0, 1, 1), ceil=True),
    ),
    (Case("MaxPool", [], {"kernel_shape": [1, 1]}), ("identity", {})),
    (Case("MaxPool", [], {"kernel_shape": [1, 1], "strides": [2, 1]}), pool(window=(1, 1), stride=(2, 1))),
    (
        Case("AveragePool", [], {"kernel_shape": [2, 2], "pads": [0, 1, 0, 1]}),
        pool("average", window=(2, 2), pad=(0, 1, 0, 1), count_padding=False),
    ),
    (Case("ReduceMean", [], {"axes": [2, 3]}), ("global_pool", {"mode": "average", "axes": [2.0, 3.0]})),
    (Case("ReduceMax", [i(-1, -2)], opset=18), ("global_pool", {"mode": "max", "axes": [-1.0, -2.0]})),
    (Case("InstanceNormalization", [w(4), w(4)]), ("groupnorm", {"epsilon": 1e-5, "groups": 4})),
    (Case("LayerNormalization", [w(9), w(9)], {"axis": 3, "epsilon": 0.5}), ("layernorm", {"epsilon": 0.5})),
    (
        Case("GroupNormalization", [w(4), w(4)], {"num_groups": 2, "epsilon": 0.5}, opset=21),
        ("groupnorm", {"epsilon": 0.5, "groups": 2}),
    ),
    (Case("RMSNormalization", [w(9)], {"axis": 3, "epsilon": 0.5}, opset=23), ("rmsnorm", {"epsilon": 0.5})),
    (Case("LRN", [], {"size": 5}), ("lrn", {"size": 5, "ahead": 2, "alpha": 1e-4, "beta": 0.75, "k": 1.0})),
    (Case("Dropout"), ("dropout", {"probability": 0.5})),
    (Case("Dropout", [], {"ratio": 0.3}, opset=10), ("dropout", {"probability": 0.3})),
    (Case("Concat", [w(2, 4, 1), "x"], {"axis": -1}, (2, 4, 9)), ("prepend", {"axis": 2})),
    (Case("LogSoftmax", [], {"axis": 1}, FLAT), ("softmax", {})),
    (Case("Gelu", [], {"approximate": "tanh"}, opset=20), ("gelu", {"approximate": "tanh"})),
    (Case("LeakyRelu"), ("leaky_relu", {"negative_slope": 0.01})),
    (Case("HardSigmoid", [], {"alpha": 1 / 6}), ("hardsigmoid", {})),
    (Case("Swish", opset=24), ("silu", {})),
    (Case("Pad", [], {"pads": [0, 0, 1, 2, 0, 0, 3, 4]}, opset=2), ("pad", {"pad": (1, 2, 3, 4), "value": 0.0})),
    (Case("Gather", [i(-1, 1, 0, 2)], {"axis": -3}), ("permute_channels", {"order": [3, 1, 0, 2], "axis": 1})),
]  # fmt: skip


@pytest.mark.parametrize(("case", "found"), KNOWN, ids=lambda one: f"{one.operator}" if isinstance(one, Case) else "")
def test_an_operator_is_this_operation(case: Case, found: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    node = case.node(tmp_path)
    assert (node.operation, node.attributes) == found
    assert node.inputs and set(node.inputs) == {""}, "the graph's input"


#: The node → what NumPy makes of the same numbers.
VIEWS: list[tuple[Case, Any]] = [
    (Case("Transpose"), lambda x: x.T),
    (Case("Flatten"), lambda x: x.reshape(2, -1)),
    (Case("Reshape", [i(0, 2, -1)]), lambda x: x.reshape(2, 2, -1)),
    (Case("Squeeze", [i(1)], shape=("N", 1, 9, 9)), lambda x: x[:, 0]),
    (Case("Unsqueeze", [i(2)]), lambda x: x[:, :, None]),
    (Case("Expand", [i(3, 1, 1, 1, 1)]), lambda x: np.broadcast_to(x, (3, 2, 4, 9, 9))),
    (Case("Slice", [i(1), i(3), i(1)]), lambda x: x[:, 1:3]),
    (Case("Slice", [i(-3), i(10**9), i(-2)]), lambda x: x[:, :, -3:]),
    (Case("Slice", [], {"starts": [1], "ends": [-1], "axes": [1]}, opset=9), lambda x: x[:, 1:-1]),
    (Case("Gather", [i(1, 2)], {"axis": 1}), lambda x: x[:, 1:3]),
    (Case("Gather", [np.int64(-1)], {"axis": 2}), lambda x: x[:, :, -1]),
    (Case("Split", [i(2, 3, 4)], {"axis": 3}, outputs=3, number=2), lambda x: x[..., 5:]),
]


@pytest.mark.parametrize(("case", "right"), VIEWS, ids=lambda one: one.operator if isinstance(one, Case) else "")
def test_a_view_has_the_numbers_that_numpy_has(case: Case, right: Any, tmp_path: Path) -> None:
    node = case.node(tmp_path)
    assert node.operation == "view"
    shape = 2, *case.shape[1:]
    wanted = right(np.arange(np.prod(shape)).reshape(shape))
    found = node.attributes["move"](Arrangement.of(shape))
    images, channels = np.prod(shape[1:]), np.prod(shape[2:])
    numbers = found.numbers(range(len(found.axes)), image=int(images), channel=int(channels), position=1)
    assert found.shape == node.shape == wanted.shape
    np.testing.assert_array_equal(numbers, wanted.reshape(-1))


#: The node → what its refusal names.
UNKNOWN: list[tuple[Case, tuple[Any, ...]]] = [
    (Case("Sin"), ()),
    (Case("ConvTranspose", [w(4, 6, 3, 3)], {"auto_pad": "SAME_UPPER"}), ("auto_pad=SAME_UPPER", "NOTSET")),
    (Case("Gemm", [w(12, 5)], {"alpha": 0.5}, FLAT), ("alpha=0.5", 1.0)),
    (Case("Gemm", [w(2, 5)], {"transA": 1}, FLAT), ("transA=1", 0)),
    (Case("Gemm", [w(5, 2), "x"], shape=(2, 12)), ("x",)),
    (Case("Mul", ["x", "x"]), ()),
    (Case("Mul", [w(4, 1, 9)]), ("4×1×9",)),
    (Case("Div", [w(4, 1, 1)]), ()),
    (Case("Clip", [np.float32(-1), np.float32(1)]), (-1.0, 1.0)),
    (Case("MaxPool", [], {"kernel_shape": [2, 2], "dilations": [2, 2]}), ("dilated",)),
    (Case("LayerNormalization", [w(9, 9), w(9, 9)], {"axis": 2}), ("axis=2", 3)),
    (Case("LayerNormalization", [w(9)]), ("weight", "bias")),
    (Case("RMSNormalization", [w(9, 9)], {"axis": 2}, opset=23), ("axis=2", 3)),
    (Case("Concat", [w(2, 4, 9, 9), w(2, 4, 9, 9), "x"], {"axis": 1}), ("constant",)),
    (Case("Softmax"), ("classes",)),
    (Case("HardSigmoid"), ("alpha=0.2", "beta=0.5")),
    (Case("Swish", [], {"alpha": 2.0}, opset=24), ("alpha=2.0", 1.0)),
    (Case("Pad", [i(0, 0, 1, 2, 0, 0, 3, 4)], {"mode": "reflect"}), ("mode=reflect", "constant")),
    (Case("Pad", [i(0, 0, 1, 2, 0, 0, 3, -4)]), ("rows", "columns")),
    (Case("Pad", [i(1, 1), "", i(2)], opset=18), ("rows", "columns")),
    (Case("Slice", [i(1, 1), i(3, 3), i(1, 2)]), ("several axes",)),
    (Case("Slice", [i(0), i(3), i(1), i(2)]), ("every second row",)),
    (Case("Gather", [i(0, 2)], {"axis": 1}), ("2 numbers", 4, "axis 1")),
    (Case("Resize", ["x", "", np.array([1, 1, 1.5, 1.5], np.float32)], {"mode": "linear"}), ("9×9",)),
    (Case("Resize", ["x", "", np.array([1, 1, 2, 2], np.float32)], {"antialias": 1}, opset=18), ("antialias=1",)),
    (
        Case("Attention", [w(2, 2, 9, 9)] * 2, shape=(2, 2, 9, 9), opset=23),
        ("attention",),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("case", "says"), UNKNOWN, ids=lambda one: one.operator if isinstance(one, Case) else "")
def test_an_operator_is_refused(case: Case, says: tuple[Any, ...], tmp_path: Path) -> None:
    node = case.node(tmp_path)
    assert node.operation == UNSUPPORTED and node.attributes["operator"] == case.operator
    assert bool(node.attributes["why"]) == bool(says), "an unknown one needs no reason"
    assert not lacks(node.attributes["why"], *says), node.attributes["why"]


def test_weights_have_our_layout(tmp_path: Path) -> None:
    matrix, bias, rows = w(12, 5), w(5), w(5, 4, 3)
    found = Case("Gemm", [matrix, bias], shape=FLAT).node(tmp_path).weights
    np.testing.assert_array_equal(found["w"].values, matrix.T)
    np.testing.assert_array_equal(found["b"].values, bias)
    found = Case("Gemm", [matrix.T], {"transB": 1}, FLAT).node(tmp_path).weights
    np.testing.assert_array_equal(found["w"].values, matrix.T)
    assert set(found) == {"w"}
    np.testing.assert_array_equal(Case("MatMul", [matrix], shape=FLAT).node(tmp_path).weights["w"].values, matrix.T)
    np.testing.assert_array_equal(Case("Conv", [rows], shape=ROWS).node(tmp_path).weights["w"].values, rows[..., None])
    given = {name: w(4) for name in ("gamma", "beta", "running_mean", "running_variance")}
    for name, first in Case("BatchNormalization", [*given.values()]).node(tmp_path).weights.items():
        np.testing.assert_array_equal(first.values, given[name], err_msg=name)
    given = {"gamma": w(9), "beta": w(9)}
    for name, first in Case("LayerNormalization", [*given.values()]).node(tmp_path).weights.items():
        np.testing.assert_array_equal(first.values, given[name], err_msg=name)
