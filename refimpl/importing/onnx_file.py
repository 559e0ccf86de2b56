"""ONNX files, read with care, and written back with other weights.

A file may come from anywhere, so nothing in it is trusted: its size is looked at before it is read, a weight's data
must have exactly the bytes of its shape, data outside the file must be below the file's folder, and the library's own
checker and shape inference see the graph before we do.  Nothing in an ONNX file is code, and nothing is executed.

A file is *normalised* first: constants, copies, transposes and other shapes of weights become weights of their own, and
each is read by one node.  Then every weight that a layer reads is an initializer under the name by which the layer
reads it, and trained values are written back by that name.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from refimpl.importing.constants import Constants
from refimpl.importing.graph import cleaned
from refimpl.network.layer import NetworkError
from refimpl.text import counted, one_line, opened, shown, size

MOST_BYTES = (1 << 31) - 1  #: of a file; no protobuf message is larger
MOST_NODES = 100_000
MOST_PASSES = 8  #: of the shape inference
MOST_COPIED = 64 << 20  #: bytes of small weights that several nodes read, and that become one each
SHOWN = 1 << 10  #: bytes: smaller weights are shown to the shape inference, which wants to see shapes and axes
DOMAINS = ("", "ai.onnx")
DIVISORS = ("strides", "dilations", "kernel_shape")  #: attributes that some versions of the shape inference divide by


class OnnxFile:
    """A file's graph, checked and normalised."""

    def __init__(self, path: str) -> None:
        self.onnx = _library()
        self.path = str(path)
        self.name = os.path.basename(self.path)
        self.model = self._parsed()
        self.graph = self.model.graph
        self._straighten_squeezes()
        self._refuse_what_is_too_much()
        self._load_external()
        self._check()
        self._normalise()
        self.dtype = "float32"  #: of its input; "int32": it is tokens
        self.weights = {tensor.name: tensor for tensor in self.graph.initializer}

    # -- reading -------------------------------------------------------------------------------------------------------

    def _parsed(self) -> Any:
        if not os.path.isfile(self.path):
            raise NetworkError(f"there is no file {self.path}")
        nbytes = os.path.getsize(self.path)
        if nbytes > MOST_BYTES:
            raise NetworkError(f"{self.path} has {size(nbytes)}; an ONNX file has at most {size(MOST_BYTES)}")
        model = self.onnx.ModelProto()
        try:
            with opened(self.path, sys.maxsize) as file:
                model.ParseFromString(file.read())
        except OSError as error:
            raise NetworkError(f"{self.path} cannot be read: {error.strerror or error}") from None
        except Exception as error:  # protobuf's, of a class that depends on its version
            raise self.refused(f"it is not an ONNX file, or not a whole one: {error}") from None
        return model

    def refused(self, why: object) -> NetworkError:
        """The error for this file: one line, at most 200 letters of what the library says."""
        return NetworkError(f"{self.path}: {one_line(' '.join(str(why).split()))}")

    def refused_weight(self, tensor: Any, why: object) -> NetworkError:
        return self.refused(f"the weight {cleaned(tensor.name)}: {why}")

    def _straighten_squeezes(self) -> None:
        """Put the Squeeze in the place of an If that PyTorch's exporter has written for one."""
        makers = {name: node for node in self.graph.node for name in node.output}
        straight = self.onnx.GraphProto()
        for node in self.graph.node:
            straight.node.extend(_squeeze_of(node, makers) or [node])
        del self.graph.node[:]
        self.graph.node.extend(straight.node)

    def _refuse_what_is_too_much(self) -> None:
        graph = self.graph
        if not graph.node:
            raise self.refused("it is not an ONNX file, or it has no graph")
        if len(graph.node) > MOST_NODES:
            raise self.refused(f"it has {counted(len(graph.node), 'node')}; {MOST_NODES:,} are supported")
        if self.model.functions:
            raise self.refused("it has functions of its own; inline them with onnx.inliner.inline_local_functions")
        if graph.sparse_initializer:
            raise self.refused("it has sparse weights; export it with dense ones")
        for node in graph.node:
            if node.domain not in DOMAINS:
                raise self.refused(f"{label(node)}: the domain {shown(node.domain)} of {node.op_type} is unknown")
            for attribute in node.attribute:
                if attribute.HasField("g") or attribute.graphs:
                    raise self.refused(f"{label(node)}: {node.op_type} has a graph inside, which is not supported")
                if attribute.name in DIVISORS and min(attribute.ints, default=1) < 1:
                    raise self.refused(f"{label(node)}: {attribute.name} are {[*attribute.ints]}; they are at least 1")
        names = Counter(tensor.name for tensor in graph.initializer)
        for name, count in names.items():
            if count > 1:
                raise self.refused(f"{count} weights are named {shown(name)}")
        for tensor in self._tensors():
            if min(tensor.dims, default=0) < 0:
                raise self.refused_weight(tensor, f"it has the shape {tuple(tensor.dims)}")
            outside = tensor.data_location == self.onnx.TensorProto.EXTERNAL
            if not outside and prod(tensor.dims) > tensor.ByteSize():  # each number takes a byte or more
                raise self.refused_weight(tensor, f"its shape {tuple(tensor.dims)} does not fit its data")

    @property
    def opset(self) -> int:
        """The version of the operators."""
        return next((one.version for one in self.model.opset_import if one.domain in DOMAINS), 0)

    def _tensors(self) -> Iterator[Any]:
        """Every tensor with data: initializers, and those of constants."""
        yield from self.graph.initializer
        for node in self.graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t

    def _load_external(self) -> None:
        """Put data from other files into the model: regular files below this one's folder, each byte at most once."""
        outside = [tensor for tensor in self._tensors() if tensor.data_location == self.onnx.TensorProto.EXTERNAL]
        folder = os.path.realpath(os.path.dirname(self.path) or ".")
        room: dict[str, int] = {}
        for tensor in outside:
            about = {entry.key: entry.value for entry in tensor.external_data}
            location = about.get("location", "")
            found = os.path.realpath(os.path.join(folder, location.replace("\0", "?")))
            odd = not location or os.path.isabs(location) or ".." in re.split(r"[/\\]", location)
            if odd or os.path.commonpath([folder, found]) != folder:
                raise self.refused_weight(tensor, f"its data is in {shown(location)}, which is outside of the folder")
            if not os.path.isfile(found):
                raise self.refused_weight(tensor, f"its data is in {shown(location)}, and there is no such file")
            self._require_float(tensor)
            nbytes = 4 * prod(tensor.dims)
            try:
                offset, length = int(about.get("offset", 0)), int(about.get("length", nbytes))
            except ValueError:
                offset = length = -1
            whole = os.path.getsize(found)
            room[found] = room.get(found, whole) - nbytes
            if offset < 0 or length != nbytes or offset + length > whole or room[found] < 0:
                raise self.refused_weight(tensor, f"{shown(location)} does not have the {size(nbytes)} of its shape")
            with opened(found, sys.maxsize) as file:
                file.seek(offset)
                tensor.raw_data = file.read(nbytes)
            tensor.data_location = self.onnx.TensorProto.DEFAULT
            del tensor.external_data[:]

    def _require_float(self, tensor: Any) -> None:
        if tensor.data_type != self.onnx.TensorProto.FLOAT:
            raise self.refused_weight(tensor, f"it is {self._type(tensor.data_type)}; convert the weights to float32")

    def _type(self, number: int) -> str:
        return self.onnx.TensorProto.DataType.Name(number).lower() if number in range(1, 30) else f"of type {number}"

    def values(self, tensor: Any) -> np.ndarray:
        """A weight: float32, with exactly as many bytes as its shape has."""
        self._require_float(tensor)
        count = prod(tensor.dims)
        given = len(tensor.raw_data) / 4 if tensor.HasField("raw_data") else len(tensor.float_data)
        if given != count:
            raise self.refused_weight(tensor, f"its shape {tuple(tensor.dims)} does not fit its {given:g} numbers")
        if tensor.HasField("raw_data"):
            flat = np.frombuffer(tensor.raw_data, "<f4")
        else:
            flat = np.array(tensor.float_data, np.float32)
        return flat.astype(np.float32, copy=False).reshape(tuple(tensor.dims))

    def numbers(self, name: str) -> list[float] | None:
        """A small constant of any type as a list: axes, limits; None: it follows from the input, or is a large one."""
        try:
            found = self.constants.value(name)
            return None if found is None else [float(value) for value in found.reshape(-1)]
        except Exception as error:
            raise self.refused_weight(self.weights[name], f"{error}") from None

    # -- the library's checks ------------------------------------------------------------------------------------------

    def _skeleton(self) -> Any:
        """The model without its large weights, which are inputs of their type and shape."""
        model, graph = self.onnx.ModelProto(), self.graph
        model.ir_version = self.model.ir_version
        model.opset_import.extend(self.model.opset_import)
        model.graph.name = graph.name or "graph"
        model.graph.node.extend(graph.node)
        model.graph.output.extend(graph.output)
        there = {value.name for value in graph.input}
        model.graph.input.extend(graph.input)
        for tensor in graph.initializer:
            if prod(tensor.dims) * 4 <= SHOWN:
                model.graph.initializer.append(tensor)
            elif tensor.name not in there:
                made = self.onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
                model.graph.input.append(made)
        return model

    def _check(self) -> None:
        try:
            self.onnx.checker.check_model(self._skeleton())
        except Exception as error:
            raise self.refused(error) from None

    def shapes(self) -> tuple[str, int, dict[str, tuple[int, ...]]]:
        """The input's name, the batch in the file (2 where it leaves that open), and the shape of every value."""
        skeleton = self._skeleton()
        inputs = [value for value in self.graph.input if value.name not in self.weights]
        if len(inputs) != 1:
            raise self.refused(
                f"it has {counted(len(inputs), 'input')}; networks with one input, the images, can be imported"
            )
        kind = inputs[0].type.tensor_type
        whole = kind.elem_type in (self.onnx.TensorProto.INT64, self.onnx.TensorProto.INT32)
        self.dtype = "int32" if whole else "float32"
        if not whole and kind.elem_type != self.onnx.TensorProto.FLOAT:
            raise self.refused(f"its input is {self._type(kind.elem_type)}; float32, or tokens, can be imported")
        (value,) = [value for value in skeleton.graph.input if value.name == inputs[0].name]
        dims = value.type.tensor_type.shape.dim
        if not 2 <= len(dims) <= (2 if whole else 4) or any(dim.dim_value < 1 for dim in dims[1:]):
            found = ", ".join(cleaned(dim.dim_param) or str(dim.dim_value) for dim in dims)
            fixed = "a fixed number of tokens" if whole else "fixed channels, height and width"
            raise self.refused(f"its input has the shape ({found}); export it with {fixed}")
        batch = dims[0].dim_value if dims[0].dim_value > 0 else 2
        dims[0].dim_value = batch
        for output in skeleton.graph.output:
            output.type.tensor_type.ClearField("shape")
        for node in skeleton.graph.node:
            if node.op_type == "GroupNormalization":  # the library infers no shape for it; it has its input's
                node.op_type = "Identity"
                del node.input[1:], node.attribute[:]
        self._fold_constants(skeleton.graph)
        known = self._inferred(skeleton)
        self.constants.learn(known, batch)
        for _ in range(MOST_PASSES):  # a shape may tell a constant that tells a shape
            if not self._fold_constants(skeleton.graph):
                break
            known = self._inferred(skeleton)
            self.constants.learn(known, batch)
        return inputs[0].name, batch, known

    def _inferred(self, skeleton: Any) -> dict[str, tuple[int, ...]]:
        """The shape of every value, as far as the library knows it."""
        try:
            inferred = self.onnx.shape_inference.infer_shapes(
                skeleton, check_type=True, strict_mode=True, data_prop=True
            )
        except Exception as error:
            raise self.refused(error) from None
        known = {}
        for one in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
            dims = one.type.tensor_type.shape.dim
            if all(dim.HasField("dim_value") for dim in dims):
                known[one.name] = tuple(dim.dim_value for dim in dims)
        return known

    def _fold_constants(self, graph: Any) -> bool:
        """Put what nodes compute of constants in their place: the inference does not know every pads; whether any."""
        folded, there = {}, {tensor.name for tensor in graph.initializer} | self.weights.keys()
        for node in graph.node:
            for name in node.input[1:]:
                if name and name not in there and name not in folded:
                    value = self.constants.value(name)
                    if value is not None:
                        folded[name] = self.onnx.numpy_helper.from_array(value, name)
        kept = [node for node in graph.node if not (len(node.output) == 1 and node.output[0] in folded)]
        made = {name for node in kept for name in node.output}
        del graph.node[:]
        graph.node.extend(kept)
        graph.initializer.extend(tensor for name, tensor in folded.items() if name not in made)
        return not made.issuperset(folded)

    # -- normalising ---------------------------------------------------------------------------------------------------

    def _normalise(self) -> None:
        """Make every weight an initializer that one node reads: constants, copies and reshaped weights, too."""
        weights = {tensor.name: tensor for tensor in self.graph.initializer}
        self.turned_tables: dict[str, str] = {}  #: a transposed table of words, which a head multiplies by → the table
        self.constants = Constants(self.onnx, weights, list(self.graph.node), self.opset)
        kept = []
        copied = 0
        tables = {node.input[0] for node in self.graph.node if node.op_type == "Gather"}
        for node in self.graph.node:
            made = self._constant(node, weights)
            if made is None:
                kept.append(node)
                continue
            copied += made.ByteSize()
            if copied > MOST_BYTES:
                raise self.refused("its constants are too large")
            made.name = node.output[0]
            weights[made.name] = made
            if node.op_type == "Transpose" and node.input[0] in tables and len(made.dims) == 2:
                self.turned_tables[made.name] = node.input[0]
        read: Counter[str] = Counter()
        copied = 0
        for number, node in enumerate(kept):
            for place, name in enumerate(node.input):
                if name in weights and len(weights[name].dims) == 1:
                    read[name] += 1
                    if read[name] > 1:
                        copied += weights[name].ByteSize()
                        if copied > MOST_COPIED:
                            raise self.refused(f"too many nodes share the weight {shown(name)}")
                        one = self._copied(weights[name], f"{name}.{number}.{place}")
                        weights[one.name] = one
                        node.input[place] = one.name
        there = {tensor.name for tensor in self.graph.initializer}
        self.graph.initializer.extend(tensor for name, tensor in weights.items() if name not in there)
        if len(kept) < len(self.graph.node):
            nodes = self.onnx.GraphProto()
            nodes.node.extend(kept)
            del self.graph.node[:]
            self.graph.node.extend(nodes.node)

    def _constant(self, node: Any, weights: Mapping[str, Any]) -> Any:
        """The weight that a node makes of constants alone; None: it is another node."""
        given = {attribute.name: attribute for attribute in node.attribute}
        if node.op_type == "Constant":
            if "value" in given:
                return self._copied(given["value"].t)
            for name, attribute in given.items():
                kind = np.int64 if name.endswith(("int", "ints")) else np.float32
                if name in ("value_int", "value_ints", "value_float", "value_floats"):
                    value = self.onnx.helper.get_attribute_value(attribute)
                    return self.onnx.numpy_helper.from_array(np.array(value, kind))
        source = weights.get(node.input[0]) if node.input else None
        if source is None:
            return None
        if node.op_type == "Identity":
            return self._copied(source)
        if source.data_type != self.onnx.TensorProto.FLOAT:
            return None
        if node.op_type == "Cast" and "to" in given and given["to"].i == source.data_type:
            return self._copied(source)
        positions = node.op_type in ("Gather", "Slice") and len(source.dims) > 1  # some rows of a table
        if not positions and node.op_type not in ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"):
            return None
        moved = self.constants.moved(node, self.values(source))
        return None if moved is None else self.onnx.numpy_helper.from_array(np.array(moved, order="C"))

    def _copied(self, tensor: Any, name: str = "") -> Any:
        made = self.onnx.TensorProto()
        made.CopyFrom(tensor)
        made.name = name or tensor.name
        return made

    # -- writing -------------------------------------------------------------------------------------------------------

    def with_weights(self, trained: Mapping[str, np.ndarray]) -> bytes:
        """The file with other values of its weights, all of them inside."""
        for name, values in trained.items():
            tensor = self.weights.get(name)
            if tensor is None or self.values(tensor).shape != values.shape:
                raise self.refused(f"it has been changed: there is no weight {cleaned(name)} of shape {values.shape}")
            turned = [made for made, table in self.turned_tables.items() if table == name]
            for one, its in [(tensor, values), *((self.weights[made], values.T) for made in turned)]:
                one.ClearField("float_data")
                one.raw_data = np.ascontiguousarray(its, "<f4").tobytes()
        try:
            whole: bytes = self.model.SerializeToString()
        except ValueError:
            whole = b""
        if not whole or len(whole) > MOST_BYTES:
            raise self.refused(f"with its weights inside it would have more than {size(MOST_BYTES)}")
        return whole


def label(node: Any) -> str:
    """A node's name, or that of its output, as our layers may have it."""
    return cleaned(node.name or (node.output[0] if node.output else "a node"))


def _squeeze_of(node: Any, makers: Mapping[str, Any]) -> list[Any]:
    """Constant and Squeeze for "squeeze this axis if it has one number, else copy"; no nodes for anything else.

    PyTorch's exporter writes so where it does not look at the axis.  One with more numbers is refused for its shape.
    """
    graphs = {attribute.name: attribute.g.node for attribute in node.attribute if attribute.HasField("g")}
    inside = [one for name in ("then_branch", "else_branch") for one in graphs.get(name, ())]
    if len(graphs) != 2 or [one.op_type for one in inside] != ["Constant", "Squeeze", "Identity"]:
        return []
    axes, squeeze, copy = inside
    read = node.input[:1]
    for operator in ("Equal", "Gather", "Shape"):
        maker = makers.get(read[0]) if read else None
        read = maker.input[:1] if maker is not None and maker.op_type == operator else []
    if not read or read != squeeze.input[:1] or read != copy.input[:1] or len(squeeze.output) != 1:
        return []
    squeeze.output[:] = node.output
    return [axes, squeeze]


def _library() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
        import onnx.shape_inference
    except ImportError:
        raise NetworkError("reading ONNX files needs the package onnx: pip install 'refimpl[onnx]'") from None
    return onnx
