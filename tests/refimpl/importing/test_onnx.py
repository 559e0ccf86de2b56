"""ONNX files as networks: the same numbers as the library's own evaluator, exact round trips, and hostile files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import refimpl
from refimpl import NetworkError
from refimpl.importing.graph import built
from refimpl.importing.nodes import Graph, Node
from refimpl.importing.onnx_file import OnnxFile
from refimpl.network.first_values import FirstValues
from tests.messages import raises_naming
from tests.refimpl.importing.onnx_files import File, damaged, everything, small

pytest.importorskip("torch")

from tests.refimpl.importing.beside_pytorch import after_a_step


def written(model: Any, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def trainer(network: refimpl.Network) -> refimpl.Trainer:
    return refimpl.Trainer(refimpl.plan(network, "baseline", "here"), "cpu")


def batch(network: refimpl.Network) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    return random.standard_normal(network.input.shape, dtype=np.float32), np.arange(network.batch, dtype=np.int32) % 2


def test_every_operator_computes_what_the_librarys_evaluator_does(tmp_path: Path) -> None:
    model = everything()
    # The evaluator normalises as many channels as there are images (its LRN loops over the wrong axis): 12 of each.
    network = refimpl.networks.from_onnx(written(model, tmp_path), batch=12)
    images, labels = batch(network)
    (right,) = ReferenceEvaluator(model).run(None, {"x": images})
    with trainer(network) as t:
        np.testing.assert_allclose(t.evaluate(images, labels).predictions, right, rtol=1e-4)
    kinds = {layer.kind for layer in network.layers}
    assert kinds >= {"conv", "batchnorm", "relu", "concat", "join", "lrn", "pool", "fc", "dropout", "softmax"}
    norm = next(layer for layer in network.layers if layer.kind == "batchnorm")
    assert norm.options["momentum"] == 0.2, "0.8 in the file: the share that stays"


def test_weights_go_in_and_come_out_bit_for_bit(tmp_path: Path) -> None:
    path, again = written(everything(), tmp_path), tmp_path / "again.onnx"
    network = refimpl.networks.from_onnx(path, batch=3)
    with trainer(network) as t:
        t.to_onnx(again)
        unchanged = refimpl.networks.from_onnx(again, batch=3)
        for name, first in network.initial.items():
            assert first.values.tobytes() == unchanged.initial[name].values.tobytes(), name
        t.step(*batch(network))
        t.to_onnx(again)
        state = t.state()
    trained = refimpl.networks.from_onnx(again, batch=3)
    assert trained.initial.keys() == network.initial.keys()
    for name, first in trained.initial.items():
        assert first.values.tobytes() == state[name].tobytes(), name
    assert any(
        network.initial[name].values.tobytes() != state[name].tobytes() for name in state if name in trained.initial
    )
    onnx.checker.check_model(onnx.load(again), full_check=True)


@pytest.mark.parametrize("in_file", ["N", 7])
def test_the_batch_in_the_file_is_replaced(tmp_path: Path, in_file: Any) -> None:
    f = small()
    f.shape = (in_file, *f.shape[1:])
    path = written(f.model("end"), tmp_path)
    assert refimpl.networks.from_onnx(path, batch=5).input.shape == (5, 4, 9, 9)
    assert refimpl.networks.build(str(path)).batch == 32


def test_an_output_cuts_what_comes_after_it(tmp_path: Path) -> None:
    f = small()
    f.node("Gemm", "flat", f.weight("auxiliary", 2, 5), transB=1, to="auxiliary_end")
    path = written(f.model("end", "auxiliary_end"), tmp_path)
    with raises_naming(NetworkError, 2, "/end/Gemm", "/auxiliary_end/Gemm"):
        refimpl.networks.from_onnx(path)
    assert refimpl.networks.from_onnx(path, output="/end/Gemm").predictions.shape == (32, 3)
    assert refimpl.networks.build(f"{path}:/auxiliary_end/Gemm", 2).predictions.shape == (2, 2)
    with raises_naming(NetworkError, "/end/gemm", "/end/Gemm"):
        refimpl.networks.from_onnx(path, output="/end/gemm")


def external(location: str, size: int = 180 * 4) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        model = small().model("end")
        tensor = model.graph.initializer[0]
        (folder / "data.bin").write_bytes(tensor.raw_data[:size])
        (folder.parent / "outside.bin").write_bytes(tensor.raw_data)
        if not (folder / "link.bin").is_symlink():
            (folder / "link.bin").symlink_to(folder.parent / "outside.bin")
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        return model

    return make


def changed(change: Callable[[Any], Any]) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        model = small().model("end")
        change(model.graph)
        return model

    return make


def stored_as(kind: Any) -> Callable[[Any], None]:
    def change(graph: Any) -> None:
        tensor = graph.initializer[0]
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(kind), tensor.name))

    return change


def replaced(place: int, **given: Any) -> Callable[[Any], None]:
    def change(graph: Any) -> None:
        node = graph.node[place]
        node.CopyFrom(helper.make_node(given.pop("op_type", node.op_type), node.input, node.output, node.name, **given))

    return change


HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda folder: b"", "onnx"),
    "cyclic": (changed(lambda g: g.node[0].input.__setitem__(0, "end")), "topologically sorted|cycle"),
    "a large shape without data": (changed(lambda g: g.initializer[0].dims.__setitem__(0, 10**9)), "w:"),
    "a large input": (
        changed(lambda g: setattr(g.input[0].type.tensor_type.shape.dim[2], "dim_value", 10**9)),
        "4×1000000000×9",
    ),
    "a domain": (changed(lambda g: setattr(g.node[0], "domain", "com.evil")), "/y0/Conv.*com.evil"),
    "two weights of one name": (changed(lambda g: g.initializer.append(g.initializer[0])), "2 .*'w'"),
    "two nodes of one name": (changed(lambda g: setattr(g.node[3], "name", "/y0/Conv")), "/y0/Conv"),
    "float16": (changed(stored_as(np.float16)), "float16|FLOAT16"),
    "a stride of 0": (changed(replaced(0, strides=[0, 0])), "strides"),
    "no such output": (changed(lambda g: setattr(g.output[0], "name", "nothing")), "nothing|output"),
    "a name that a terminal obeys": (changed(replaced(0, op_type="Cos\x1b[2J")), "Cos"),
    "outside": (external("../outside.bin"), "bin|passwd"),
    "a link to the outside": (external("link.bin"), "bin|passwd"),
    "missing data": (external("nothing.bin"), "nothing.bin"),
    "too little data": (external("data.bin", 100), "data.bin.*720"),
    "no nodes": (changed(lambda g: g.ClearField("node")), "graph"),
    "sparse weights": (changed(lambda g: g.sparse_initializer.add()), "sparse"),
    "a graph inside": (
        changed(lambda g: g.node[0].attribute.append(helper.make_attribute("body", type(g)(name="inner")))),
        "/y0/Conv: Conv",
    ),
    "two inputs": (changed(lambda g: g.input.add(name="other").type.CopyFrom(g.input[0].type)), "2 inputs"),
    "an input of doubles": (
        changed(lambda g: setattr(g.input[0].type.tensor_type, "elem_type", TensorProto.DOUBLE)),
        "double|DOUBLE",
    ),
    "an open height": (
        changed(lambda g: setattr(g.input[0].type.tensor_type.shape.dim[2], "dim_param", "H")),
        r"\(N, 4, H, 9\)",
    ),
}


def test_functions_of_a_files_own_are_refused(tmp_path: Path) -> None:
    model = small().model("end")
    model.functions.add(name="own")
    with raises_naming(NetworkError, "onnx.inliner.inline_local_functions"):
        refimpl.networks.from_onnx(written(model, tmp_path), batch=2)


def test_weights_as_numbers_and_constants_as_attributes_are_read(tmp_path: Path) -> None:
    plain = refimpl.networks.from_onnx(written(small().model("end"), tmp_path), batch=2)
    model = small().model("end")
    for tensor in model.graph.initializer:
        numbers = numpy_helper.to_array(tensor).reshape(-1)
        tensor.ClearField("raw_data")
        tensor.float_data.extend(numbers)
    again = refimpl.networks.from_onnx(written(model, tmp_path, "numbers.onnx"), batch=2)
    for name, first in plain.initial.items():
        assert first.values.tobytes() == again.initial[name].values.tobytes(), name
    f = File()
    x = f.node("Pad", "x", f.node("Constant", value_ints=[0, 0, 1, 2, 0, 0, 3, 4]), f.node("Constant", value_float=0.5))
    x = f.node("ReduceMean", x, f.node("Constant", value_ints=[2, 3]), keepdims=0)
    f.node("Gemm", x, f.weight("v", 3, 4), transB=1, to="end")
    pad, *_ = refimpl.networks.from_onnx(written(f.model("end", opset=18), tmp_path, "constants.onnx"), batch=2).layers
    assert pad.options == {"pad": (1, 2, 3, 4), "value": 0.5}


def test_trained_weights_that_a_file_has_not_are_refused(tmp_path: Path) -> None:
    file = OnnxFile(str(written(small().model("end"), tmp_path)))
    with raises_naming(NetworkError, "model.onnx", "none", "(2,)"):
        file.with_weights({"none": np.zeros(2, np.float32)})
    with raises_naming(NetworkError, "w", "(5, 4, 3)"):
        file.with_weights({"w": np.zeros((5, 4, 3), np.float32)})
    zeros = np.zeros((5, 4, 3, 3), np.float32)
    found = {
        one.name: numpy_helper.to_array(one)
        for one in onnx.load_from_string(file.with_weights({"w": zeros})).graph.initializer
    }
    assert not found["w"].any() and found["v"].any()


#: Of a resize: mode, positions, rounding, size of the map → the mode of upsampling; None: refused.
RESIZED: dict[tuple[str, str, str, int], str | None] = {
    ("nearest", "asymmetric", "floor", 10): "nearest",
    ("nearest", "half_pixel", "round_prefer_ceil", 21): "nearest",
    ("nearest", "half_pixel", "round_prefer_floor", 10): None,
    ("nearest", "align_corners", "floor", 14): None,
    ("linear", "half_pixel", "floor", 10): "bilinear",
    ("linear", "pytorch_half_pixel", "floor", 14): "bilinear",
    ("linear", "align_corners", "floor", 10): "bilinear",
    ("linear", "pytorch_half_pixel", "floor", 1): None,
    ("cubic", "half_pixel", "floor", 14): None,
}


@pytest.mark.parametrize("case", RESIZED)
def test_a_resize_is_imported_only_as_pytorch_computes_it(tmp_path: Path, case: tuple[str, str, str, int]) -> None:
    mode, how, rounding, size = case
    f = File()
    maps = f.node("Conv", "x", f.weight("w", 5, 4, 3, 3))  # 7×7
    sizes = f.constant("sizes", np.array([32, 5, size, size], np.int64))
    options = {"mode": mode, "coordinate_transformation_mode": how, "nearest_mode": rounding}
    maps = f.node("Resize", maps, "", "", sizes, to="resized", **options)
    flat = f.node("Flatten", f.node("GlobalAveragePool", maps))
    model = f.model(f.node("Gemm", flat, f.weight("v", 3, 5), transB=1))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 32
    path = written(model, tmp_path)
    if RESIZED[case] is None:
        with raises_naming(NetworkError, "/resized/Resize", mode, how, rounding):
            refimpl.networks.from_onnx(path)
        return
    (layer,) = [one for one in refimpl.networks.from_onnx(path).layers if one.kind == "upsample"]
    assert layer.options["mode"] == RESIZED[case] and layer.shape[2:] == (size, size)
    assert bool(layer.options.get("align_corners")) is (how == "align_corners")


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    make, says = HOSTILE[case]
    folder = tmp_path / "folder"
    folder.mkdir()
    path = written(make(folder), folder)
    with pytest.raises(NetworkError, match=says) as caught:
        refimpl.networks.from_onnx(path, batch=2)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 600


def test_weights_in_another_file_of_the_folder_are_read(tmp_path: Path) -> None:
    inside = refimpl.networks.from_onnx(written(small().model("end"), tmp_path, "inside.onnx"), batch=2)
    outside = refimpl.networks.from_onnx(written(external("data.bin")(tmp_path), tmp_path, "outside.onnx"), batch=2)
    for name, first in inside.initial.items():
        assert first.values.tobytes() == outside.initial[name].values.tobytes()


def test_a_refusal_names_every_operator_that_is_missing(tmp_path: Path) -> None:
    f = File()
    x = f.node("Conv", "x", f.weight("w", 5, 4, 3, 3))
    f.node("Gemm", f.node("Flatten", f.node("GlobalMaxPool", x)), f.weight("v", 3, 5), transB=1, to="early")
    for _ in range(3):
        x = f.node("Cos", f.node("Sin", x))
    x = f.node("Softmax", f.node("Sin", x), axis=1)
    x = f.node("Concat", f.node("Flatten", f.node("GlobalAveragePool", x)), "early", axis=1)
    f.node("Gemm", x, f.weight("u", 3, 8), transB=1, to="end")
    with pytest.raises(NetworkError) as refused:
        refimpl.networks.from_onnx(written(f.model("end"), tmp_path))
    said = "model.onnx, first /y4/Sin: the operators Sin (4 times) and Cos (3 times) are not supported; replace"
    assert str(refused.value).startswith(said), refused.value
    assert str(refused.value).endswith(", or end the network at /early/Gemm as FILE.onnx:NODE or with output=NODE")
    assert refimpl.networks.from_onnx(tmp_path / "model.onnx", 2, "/early/Gemm").predictions.shape == (2, 3)


def written_out(**changes: Any) -> Any:
    """A local response normalisation of five channels, as PyTorch's newer exporter writes it, with some changes."""
    f = File((1, 4, 9, 9))
    given: dict[str, Any] = {"pads": [0, 0, 2, 0, 0, 0, 0, 2, 0, 0], "window": [5, 1, 1], "five": [1, 1, 6, 9, -1]}
    given |= {"divided": "maps", "other": "maps", "alpha": 0.5, "k": 2.0, "beta": 0.75} | changes
    numbers = {name: f.constant(name, np.float32(given[name])) for name in ("alpha", "k", "beta")}
    maps = f.node("Conv", "x", f.weight("w", 6, 4, 1, 1), to="maps")
    f.node("Relu", maps, to="others")
    x = f.node("Mul", maps, given["other"])
    x = f.node("Reshape", x, f.constant("five", np.int64(given["five"])), allowzero=1)
    x = f.node("Pad", x, f.constant("pads", np.int64(given["pads"])), mode="constant")
    x = f.node("AveragePool", x, kernel_shape=given["window"], strides=[1, 1, 1], count_include_pad=1)
    x = f.node("Reshape", x, f.constant("four", np.array([1, 6, 9, 9], np.int64)))
    x = f.node("Add", f.node("Mul", x, numbers["alpha"]), numbers["k"])
    x = f.node("Div", given["divided"], f.node("Pow", x, numbers["beta"]), to="lrn")
    x = f.node("Flatten", f.node("GlobalAveragePool", x))
    f.node("Gemm", x, f.weight("v", 3, 6), transB=1, to="end")
    return f.model("end")


@pytest.mark.parametrize(
    "change",
    [
        {"pads": [0, 0, 4, 0, 0, 0, 0, 0, 0, 0]}, {"five": [1, 1, 9, 6, -1]}, {"alpha": [0.5] * 9}, {"other": "others"},
        {"divided": "others"}, {"window": [1, 5, 1], "pads": [0, 0, 0, 2, 0, 0, 0, 0, 2, 0]},
    ],
)  # fmt: skip
def test_another_division_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with raises_naming(NetworkError, "Pow", "Div"):
        refimpl.networks.from_onnx(written(written_out(**change), tmp_path))


def cast(f: File, x: str, kind: int) -> str:
    made = f.node("Cast", x)
    f.nodes[-1].attribute.append(helper.make_attribute("to", kind))
    return made


def computed(f: File, value: float | int | list[int], how: str) -> str:
    """A constant, as exporters may write it: the name of what some nodes compute."""
    kind = np.int64 if isinstance(value, list) else np.float32
    given = np.array(value, kind)
    name = f"constant{len(f.weights)}_{len(f.nodes)}"
    if how == "Constant":
        return f.node("Constant", value=numpy_helper.from_array(given))
    if how == "Cast of a Constant":
        wide = given.astype(np.int32 if isinstance(value, list) else np.float64)
        made = f.node("Constant", value=numpy_helper.from_array(wide))
        return cast(f, made, TensorProto.INT64 if isinstance(value, list) else TensorProto.FLOAT)
    if how == "Identity":
        return f.node("Identity", f.node("Identity", f.constant(name, given)))
    if how == "Reshape":
        flat = f.constant(name, given.reshape(1, 1, -1))
        shape = f.constant(f"{name}_shape", np.array([-1] if isinstance(value, list) else [], np.int64))
        return f.node("Reshape", flat, shape)
    if how == "arithmetic":
        half = f.node("Mul", f.constant(name, given * 2), f.constant(f"{name}_1", np.array(3, kind)))
        return f.node(
            "Div", f.node("Sub", half, f.constant(f"{name}_2", given * 3)), f.constant(f"{name}_3", np.array(3, kind))
        )
    assert how == "a shape"  # 4 is the number of channels
    channels = f.node("Gather", f.node("Shape", "x"), f.constant(f"{name}_axis", np.int64(1)))
    zero = f.node("Sub", cast(f, channels, TensorProto.INT64), f.constant(f"{name}_4", np.int64(4)))
    zero = zero if isinstance(value, list) else cast(f, zero, TensorProto.FLOAT)
    return f.node("Add", f.constant(name, given), zero)


@pytest.mark.parametrize("how", ["Constant", "Cast of a Constant", "Identity", "Reshape", "arithmetic", "a shape"])
def test_what_is_computed_from_constants_is_a_constant(tmp_path: Path, how: str) -> None:
    f = File()
    x = f.node("Pad", "x", computed(f, [0, 0, 1, 2, 0, 0, 0, 1], how))
    x = f.node("Conv", x, f.weight("w", 5, 4, 3, 3))
    x = f.node("Clip", x, computed(f, 0.0, how), computed(f, 6.0, how))
    x = f.node("ReduceMean", x, computed(f, [2, 3], how), keepdims=0)
    f.node("Dropout", f.node("Gemm", x, f.weight("v", 3, 5), transB=1), computed(f, 0.25, how), to="end")
    network = refimpl.networks.from_onnx(written(f.model("end", opset=18), tmp_path), batch=3)
    assert [layer.kind for layer in network.layers] == ["conv", "relu", "pool", "fc", "dropout", "softmax"]
    conv, relu, *_, dropout, _ = network.layers
    assert conv.options["pad"] == (1, 2, 0, 1) and relu.options["at_most"] == 6
    assert dropout.options["probability"] == 0.25


def test_weights_that_are_moved_before_they_are_read_are_trained_and_written_back(tmp_path: Path) -> None:
    f = File()
    shape = f.constant("shape", np.array([5, 4, 3, 3], np.int64))
    w = f.node(
        "Transpose",
        f.node("Reshape", f.weight("w", 3, 3, 4, 5), f.constant("flat", np.array([9, 4, 5], np.int64))),
        perm=[2, 1, 0],
    )
    x = f.node("Conv", "x", f.node("Reshape", w, shape), f.node("Squeeze", f.weight("b", 1, 5)))
    x = f.node("Flatten", f.node("GlobalMaxPool", x))
    f.node("Gemm", x, cast(f, f.weight("v", 3, 5), TensorProto.FLOAT), transB=1, to="end")
    model = f.model("end")
    network = refimpl.networks.from_onnx(written(model, tmp_path), batch=12)
    images, labels = batch(network)
    (logits,) = ReferenceEvaluator(model).run(None, {"x": images})
    right = -(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))[np.arange(12), labels]
    after = after_a_step(network, images, labels)
    np.testing.assert_allclose(after[network.losses.name].ravel(), right, rtol=1e-4)
    weights = {first.source: first.as_source(after[name].astype(np.float32)) for name, first in network.initial.items()}
    (tmp_path / "trained.onnx").write_bytes(OnnxFile(str(tmp_path / "model.onnx")).with_weights(weights))
    trained = refimpl.networks.from_onnx(tmp_path / "trained.onnx", batch=12)
    assert len(trained.initial) == 4 - 1
    for name, first in trained.initial.items():
        assert first.values.tobytes() == after[name].astype(np.float32).tobytes(), name


def test_a_value_that_follows_from_the_number_of_images_is_no_constant(tmp_path: Path) -> None:
    f = File()
    images = f.node("Gather", f.node("Shape", "x"), f.constant("first", np.int64(0)))
    x = f.node("Clip", "x", f.constant("zero", np.float32(0)), cast(f, images, TensorProto.FLOAT))
    f.node("Gemm", f.node("Flatten", f.node("GlobalMaxPool", x)), f.weight("v", 3, 4), transB=1, to="end")
    with raises_naming(NetworkError, "/y3/Clip", "max"):
        refimpl.networks.from_onnx(written(f.model("end"), tmp_path), batch=6)


@pytest.mark.parametrize("large", ["ConstantOfShape", "Max", "a long chain"])
def test_a_constant_that_would_be_large_is_not_computed(tmp_path: Path, large: str) -> None:
    f = File()
    many = f.constant("many", np.array([1 << 40], np.int64))
    one = f.constant("one", np.float32(1))
    if large == "ConstantOfShape":
        x = f.node("ConstantOfShape", many)
    elif large == "Max":
        sides = [
            f.constant(f"side{i}", np.ones([2 if i == j else 1 for j in range(40)], np.float32)) for i in range(40)
        ]
        x = f.node("Max", *sides)
    else:
        x = one
        for _ in range(5000):
            x = f.node("Neg", x)
    x = f.node("Clip", "x", f.constant("zero", np.float32(0)), f.node("ReduceMax", x, keepdims=0))
    f.node("Gemm", f.node("Flatten", f.node("GlobalMaxPool", x)), f.weight("v", 3, 4), transB=1, to="end")
    with pytest.raises(NetworkError):
        refimpl.networks.from_onnx(written(f.model("end"), tmp_path), batch=2)


def test_names_that_begin_alike_for_200_letters_are_different_names(tmp_path: Path) -> None:
    f, long = File(), "a" * 200
    x = f.node("Conv", "x", f.weight(f"{long}1w", 5, 4, 3, 3), to=f"{long}1")
    x = f.node("Conv", x, f.weight(f"{long}2w", 5, 5, 3, 3), to=f"{long}2")
    f.node("Gemm", f.node("Flatten", f.node("GlobalMaxPool", x)), f.weight("v", 3, 5), transB=1, to="end")
    f.nodes[0].name, f.nodes[1].name = f"{long}1", ""
    network = refimpl.networks.from_onnx(written(f.model("end"), tmp_path), batch=2)
    names = [layer.name for layer in network.layers]
    assert len({*names}) == 5 and all(len(name) <= 200 for name in names)


def test_layers_that_share_a_weight_in_two_ways_are_refused() -> None:
    """A module of PyTorch can share one; an ONNX file's weights are copied."""
    w = {"w": FirstValues("shared", np.zeros((2, 2), np.float32))}
    both = w | {"b": FirstValues("both", np.zeros(2, np.float32))}
    own = w | {"b": FirstValues("own", np.ones(2, np.float32))}
    layers = [
        Node("a", "linear", ["x"], (2, 2), weights=both),
        Node("b", "linear", ["a"], (2, 2), weights=both),
        Node("c", "linear", ["b"], (2, 2), weights=own),
    ]
    with raises_naming(NetworkError, "a", "c", "shared"):
        built(Graph("drawn", "PyTorch", "x", (2, 2), layers, ["c"]), 2)


def test_a_layer_of_another_shape_than_in_the_file_is_refused() -> None:
    relu = Node("act", "relu", ["x"], (2, 2, 5, 5))
    graph = Graph("drawn", "ONNX", "x", (2, 2, 4, 4), [relu, Node("end", "softmax", ["act"], (2, 50))], ["end"])
    with raises_naming(NetworkError, "act", "2×4×4", "2×5×5"):
        built(graph, 2)


@pytest.mark.slow
@pytest.mark.parametrize("count", [25, pytest.param(2000, marks=pytest.mark.campaign)])
def test_changed_bytes_are_refused_or_harmless(count: int, tmp_path: Path) -> None:
    assert 0 < damaged(count, count, tmp_path) < count
