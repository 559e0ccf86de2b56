"""Faults of networks: layers, calls, importers, and what data parallelism adds."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "a derived network is not compared with its export",
        "refimpl/importing/any_batch.py",
        "                if self.compared:",
        "                if not self.compared:",
        "tests/refimpl/importing/test_any_batch.py",
    ),
    Fault(
        "what an operator makes for its backward alone is forgotten",
        "refimpl/importing/observed.py",
        "for key in (*seen.outputs, *seen.saves) if key in new",
        "for key in seen.outputs if key in new",
        "tests/refimpl/importing/test_any_module.py",
    ),
    Fault(
        "the gradient of a shared table is the embedding's alone",
        "refimpl/network/later_calls.py",
        "added = self.parts[w] > 0",
        "added = False",
        "tests/refimpl/backend/test_tokens.py",
    ),
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
        "the second half of a split is imported as the first",
        "refimpl/importing/torch_module.py",
        "return graph.part(call, axis, sum(sizes[:number]), sizes[number])",
        "return graph.part(call, axis, 0, sizes[number])",
        "tests/refimpl/importing/test_imported_kinds.py",
        slow=True,
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
        "refimpl/zoo/resnet.py",
        "stride = 2 if i == 1 and group > 2 else 1",
        "stride = 2 if i == 1 else 1",
        "tests/refimpl/names/test_networks.py",
    ),
    Fault(
        "padding at the upper end is put at the lower",
        "refimpl/importing/onnx_nodes.py",
        'before.append(less if how == "SAME_UPPER" else more)',
        'before.append(more if how == "SAME_UPPER" else less)',
        "tests/refimpl/importing/test_onnx.py",
    ),
    Fault(
        "each rank clips its own gradients before they are averaged",
        "refimpl/network/data_parallel.py",
        'return call.function in UPDATES or call.family == "clip"',
        "return call.function in UPDATES",
        "tests/refimpl/backend/test_learning.py",
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
        "refimpl/importing/constants.py",
        "IMAGES = (1_000_003, 2_000_006)",
        "IMAGES = (1_000_003, 1_000_003)",
        "tests/refimpl/importing/test_onnx.py -k number_of_images",
    ),
    Fault(
        "an error in a module of one's own does not say where it is",
        "refimpl/importing/own_code.py",
        "return any(not set(INSTALLED) & set(below.parts) for below in inside)",
        "return False",
        "tests/refimpl/cli/test_own_module.py -k own_line",
    ),
)
