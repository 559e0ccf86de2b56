"""Faults of networks: layers, calls, importers, and what data parallelism adds."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "the record of batch normalisation says that it keeps the sign",
        "refimpl/network/kinds.py",
        '"pass", backward_reads=("x",), parameters=each_channel("gamma", "beta"),',
        '"pass", backward_reads=("x",), sign="kept", parameters=each_channel("gamma", "beta"),',
        "tests/refimpl/test_kinds.py",
    ),
    Fault(
        "the gradient of an element-wise kind is computed from the wrong map",
        "refimpl/network/calls.py",
        "arguments = {name: maps[name] for name in traits.backward_reads}",
        "arguments = {name: layer.y for name in traits.backward_reads}",
        "tests/refimpl/test_kinds.py",
        slow=True,
    ),
    Fault(
        "a pooling window starts in the right padding",
        "refimpl/network/shapes.py",
        "if ceil and (count - 1) * stride >= size + before:",
        "if ceil and (count - 1) * stride > size + before:",
        "tests/refimpl/network",
    ),
    Fault(
        "the gradients of two readers of a map are not added",
        "refimpl/network/calls.py",
        "return part, [self._add(so_far, part)]",
        "return part, []",
        "tests/refimpl/network",
    ),
    Fault(
        "the weights of convolutions are never updated",
        "refimpl/network/calls.py",
        "return calls + self._update(layer)",
        "return calls",
        "tests/refimpl/network",
    ),
    Fault(
        "the bias's gradient is computed before the ReLU's",
        "refimpl/network/calls.py",
        'calls.insert(0, Call("relu.backward"',
        'calls.append(Call("relu.backward"',
        "tests/refimpl/network",
    ),
    Fault(
        "the network-wide accounting counts one gradient buffer instead of two",
        "refimpl/network/accounting.py",
        '"gradient map": 2 * max(gradients, default=0)',
        '"gradient map": max(gradients, default=0)',
        "tests/refimpl/network",
    ),
    Fault(
        "the route enters a layer before all its producers have run",
        "refimpl/network/routes.py",
        "if visits[node] < len(before(node)):",
        "if visits[node] < len(before(node)) - 1:",
        "tests/refimpl/network",
    ),
    Fault(
        "the first unit of ResNet's first group halves its maps",
        "refimpl/network/zoo/resnet.py",
        "stride = 2 if i == 1 and group > 2 else 1",
        "stride = 2 if i == 1 else 1",
        "tests/refimpl/network",
    ),
    Fault(
        "an imported layer may have another shape than in the file",
        "refimpl/network/imported/graph.py",
        "    if found != wanted and not (",
        "    if not found and not (",
        "tests/refimpl/network/test_onnx.py::test_a_layer_of_another_shape_than_in_the_file_is_refused",
        or_else=(("    if not same:\n", "    if not same and not found:\n"),),
    ),
    Fault(
        "padding at the upper end is put at the lower",
        "refimpl/network/imported/onnx_nodes.py",
        'before.append(less if how == "SAME_UPPER" else more)',
        'before.append(more if how == "SAME_UPPER" else less)',
        "tests/refimpl/network/test_onnx.py",
    ),
    Fault(
        "ONNX's momentum of batch normalisation is taken for ours",
        "refimpl/network/imported/onnx_nodes.py",
        'round(1 - call.attribute("momentum", 0.9), 6)',
        'round(call.attribute("momentum", 0.9), 6)',
        "tests/refimpl/network/test_onnx.py::test_every_operator_computes_what_the_librarys_evaluator_does",
    ),
    Fault(
        "two imported layers may share a weight",
        "refimpl/network/imported/graph.py",
        "            if first != node.name:\n",
        "            if first == network:\n",
        "tests/refimpl/network/test_onnx.py::test_two_layers_with_one_weight_are_refused",
    ),
    Fault(
        "a normalisation over other neighbours than PyTorch's is taken for PyTorch's",
        "refimpl/network/imported/onnx_nodes.py",
        '        or padded.numbers("pads", 1) != around\n',
        "",
        "tests/refimpl/network/test_onnx.py",
    ),
    Fault(
        "the last gradients are never reduced",
        "refimpl/network/data_parallel.py",
        "    if bucket:\n        yield bucket",
        "    if bucket and full is None:\n        yield bucket",
        "tests/refimpl/network/test_data_parallel.py",
    ),
    Fault(
        "what an ONNX file computes from the number of images is taken for a constant",
        "refimpl/network/imported/constants.py",
        "IMAGES = (1_000_003, 2_000_006)",
        "IMAGES = (1_000_003, 1_000_003)",
        "tests/refimpl/network/test_onnx.py -k number_of_images",
    ),
    Fault(
        "an error in a module of one's own does not say where it is",
        "refimpl/network/imported/own_code.py",
        "return any(not set(INSTALLED) & set(below.parts) for below in inside)",
        "return False",
        "tests/refimpl/cli/test_own_module.py -k own_line",
    ),
)
