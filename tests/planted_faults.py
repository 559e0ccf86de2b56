"""Faults planted on purpose, one at a time, and which tests catch them.

    python -m tests.planted_faults                     every fault, in copies of this tree
    python -m tests.planted_faults --only softmax      those whose room, file or words have it
    python -m tests.planted_faults --new               those that the table does not have yet
    python -m tests.planted_faults --against TREE      another tree and its own tests too
    python -m tests.planted_faults --write             the table into tests/planted_faults.md

A test suite is worth what it catches.  Every room of the project has faults in `FAULTS`: a wait left out, a loop that
ends one too early, the wrong producer, a checkpoint that is not checked.  For each the script replaces `old` by `new`
in a copy of the tree, runs the tests named, and stops at the first that fails.  A fault that no test catches means that
some capability has no test.  Each core has a copy of its own.  The test that the table names runs first, and the others
only if it does not fail.

A fault counts as caught if that test passes again without it.

`old` occurs once in `file`.  Where the code has moved, the one other file that has it once is taken, and the table says
which.  Of the tests named, those that a tree does not have are left out.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.cpu.build import cache_directory

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "planted_faults.md"
PACKAGES = ("kernels", "refimpl")
COPIED = (*PACKAGES, "tests", "docs", "tutorials", "README.md", "CONTRIBUTING.md", "pyproject.toml", "setup.py")
PATIENCE = 600  #: seconds for the tests of one fault


@dataclass(frozen=True)
class Fault:
    what: str  #: what is wrong now
    file: str
    old: str
    new: str
    tests: str  #: arguments of pytest; what is there of them
    slow: bool = False  #: whether tests marked slow are needed
    or_else: tuple[tuple[str, str], ...] = ()  #: other texts for `old` and `new`, where the code has been rewritten

    @property
    def room(self) -> str:
        package, room, *_ = self.file.split("/")
        return room.removesuffix(".py") if package == "refimpl" else package


KERNELS = (
    Fault(
        "axpy forgets y in the last tile",
        "kernels/elementwise.py",
        "                y[e] += alpha * x[e]",
        "                y[e] = alpha * x[e]",
        "tests/kernels/test_elementwise.py",
    ),
    Fault(
        "a copy leaves out the last element",
        "kernels/elementwise.py",
        "            if i + j * BLOCK < n:\n                y[np.uint32(i + j * BLOCK)] = x",
        "            if i + j * BLOCK < n - 1:\n                y[np.uint32(i + j * BLOCK)] = x",
        "tests/kernels/test_elementwise.py",
    ),
    Fault(
        "ReLU passes negative numbers above -1",
        "kernels/relu.py",
        "return ZERO if control <= ZERO else value",
        "return ZERO if control <= -np.float32(1) else value",
        "tests/kernels/test_relu.py",
    ),
    Fault(
        "max pooling passes over NaN",
        "kernels/pool.py",
        "\n            if value > largest or value != value:",
        "\n            if value > largest:",
        "tests/kernels/test_pool.py",
    ),
    Fault(
        "the gradient of average pooling misses each element's last window",
        "kernels/pool.py",
        "min(np.int32(divide(here + pad, by_stride) + 1), np.int32(count))",
        "min(np.int32(divide(here + pad, by_stride)), np.int32(count))",
        "tests/kernels/test_pool.py",
    ),
    Fault(
        "LRN's gradient sums one channel too few",
        "kernels/lrn.py",
        "j = np.int32(c - size + 1)",
        "j = np.int32(c - size + 2)",
        "tests/kernels/test_lrn.py",
    ),
    Fault(
        "LRN leaves out the factor k",
        "kernels/lrn.py",
        "power = math.exp(-beta * math.log(k + scale * squares))",
        "power = math.exp(-beta * math.log(np.float32(1) + scale * squares))",
        "tests/kernels/test_lrn.py",
    ),
    Fault(
        "batch normalisation merges chunks with the wrong variance",
        "kernels/batchnorm.py",
        "squares += difference * difference * merged * share",
        "squares += difference * difference * share * share",
        "tests/kernels/test_batchnorm.py",
    ),
    Fault(
        "batch normalisation leaves out the last value of a chunk",
        "kernels/batchnorm.py",
        "size = np.int32(min(count - first, CHUNK))\n        origin",
        "size = np.int32(min(count - first, CHUNK - 1))\n        origin",
        "tests/kernels/test_batchnorm.py",
    ),
    Fault(
        "dropout's generator runs 9 rounds instead of 10",
        "kernels/dropout.py",
        "ROUNDS = 10",
        "ROUNDS = 9",
        "tests/kernels/test_dropout.py",
    ),
    Fault(
        "dropout's gradient uses the next iteration's mask",
        "kernels/dropout.py",
        '_apply("dropout.backward", dy, dx, probability, seed, layer, iteration, stream)',
        '_apply("dropout.backward", dy, dx, probability, seed, layer, iteration + 1, stream)',
        "tests/kernels/test_dropout.py",
    ),
    Fault(
        "softmax lacks a barrier between reading the maximum and overwriting it",
        "kernels/softmax.py",
        "    largest = shared[0]\n    cuda.syncthreads()\n",
        "    largest = shared[0]\n",
        "tests/kernels/test_checked.py -k softmax",
        slow=True,
    ),
    Fault(
        "a label one past the last class reads the next row",
        "kernels/softmax.py",
        "if label >= 0 and label < classes:",
        "if label >= 0 and label <= classes:",
        "tests/kernels/test_softmax.py",
    ),
    Fault(
        "softmax's gradient is that of the sum, not of the mean",
        "kernels/softmax.py",
        "reciprocal(classes), 1 / rows",
        "reciprocal(classes), 1.0",
        "tests/kernels/test_softmax.py",
    ),
    Fault(
        "concat's gradient takes every part from the start",
        "kernels/concat.py",
        "length, tiles(length), start, image, 0, length, stream=stream",
        "length, tiles(length), 0, image, 0, length, stream=stream",
        "tests/kernels/test_concat.py",
    ),
    Fault(
        "join leaves out the third of three tensors in full tiles",
        "kernels/join.py",
        "        if count > 2:\n            for j",
        "        if count > 3:\n            for j",
        "tests/kernels/test_join.py",
    ),
    Fault(
        "weight decay has the wrong sign",
        "kernels/sgd.py",
        "momentum * v + (dw + decay * w)",
        "momentum * v + (dw - decay * w)",
        "tests/kernels/test_sgd.py",
    ),
    Fault(
        "a fully connected layer adds its neighbour's bias",
        "kernels/fc.py",
        "b[np.uint32(i) % np.uint32(outputs)]",
        "b[np.uint32(i + 1) % np.uint32(outputs)]",
        "tests/kernels/test_fc.py",
    ),
    Fault(
        "the bias's gradient leaves out the first image",
        "kernels/fc.py",
        "for i in range(batch):",
        "for i in range(1, batch):",
        "tests/kernels/test_fc.py",
    ),
    Fault(
        "tiled GEMM multiplies 15 of 16 columns",
        "kernels/gemm.py",
        "        for p in range(16):\n            total += a_tile[y, p]",
        "        for p in range(15):\n            total += a_tile[y, p]",
        "tests/kernels/test_gemm.py",
    ),
    Fault(
        "tiled GEMM lacks the barrier before the next tile is stored",
        "kernels/gemm.py",
        "            total += a_tile[y, p] * b_tile[p, x]\n        cuda.syncthreads()\n",
        "            total += a_tile[y, p] * b_tile[p, x]\n",
        "tests/kernels/test_checked.py -k gemm-tiled",
        slow=True,
    ),
    Fault(
        "tiled GEMM reads one column past the end of A",
        "kernels/gemm.py",
        "if row < m and p0 + x < k else ZERO\n        b_tile[y, x]",
        "if row < m and p0 + x <= k else ZERO\n        b_tile[y, x]",
        "tests/kernels/test_checked.py -k gemm-tiled",
        slow=True,
    ),
    Fault(
        "double-buffered GEMM multiplies the half that is being filled",
        "kernels/gemm.py",
        "now = 1 - (p0 >> 3) & 1",
        "now = (p0 >> 3) & 1",
        "tests/kernels/test_gemm.py",
    ),
    Fault(
        "the fastest GEMM reads its second fragment of B one column too far",
        "kernels/gemm.py",
        "b[j + 4] = b_tile[p, half_columns + column + j]",
        "b[j + 4] = b_tile[p, half_columns + column + j - 1]",
        "tests/kernels/test_gemm.py",
    ),
    Fault(
        "direct convolution adds the first filter's bias to all",
        "kernels/conv/direct.py",
        "value += bias[np.uint32(k)]",
        "value += bias[np.uint32(0)]",
        "tests/kernels/test_conv.py",
    ),
    Fault(
        "the direct gradient of the data misses the first row",
        "kernels/conv/direct.py",
        "if up >= 0 and np.uint32(up)",
        "if up > 0 and np.uint32(up)",
        "tests/kernels/test_conv.py",
    ),
    Fault(
        "im2col takes the top row for padding",
        "kernels/conv/im2col.py",
        "row_inside = 0 <= top + r < height",
        "row_inside = 0 < top + r < height",
        "tests/kernels/test_im2col.py tests/kernels/test_conv.py",
    ),
    Fault(
        "im2col gathers gradients from the wrong tap",
        "kernels/conv/im2col.py",
        "first_s = w + pad_w - last_q * stride_w",
        "first_s = w + pad_w - last_q * stride_w + 1",
        "tests/kernels/test_im2col.py tests/kernels/test_conv.py",
    ),
    Fault(
        "Winograd's filter transform has a wrong sign",
        "kernels/conv/winograd.py",
        "outer = HALF * (g0 + g2)",
        "outer = HALF * (g0 - g2)",
        "tests/kernels/test_winograd.py",
    ),
    Fault(
        "Winograd writes past the right edge of an odd map",
        "kernels/conv/winograd.py",
        "right_inside = 2 * tile_column + 1 < width",
        "right_inside = 2 * tile_column + 1 <= width",
        "tests/kernels/test_winograd.py",
    ),
    Fault(
        "implicit GEMM starts all sums from one filter's bias",
        "kernels/conv/implicit_gemm.py",
        "value = bias[np.uint32(bias_first + k)]",
        "value = bias[np.uint32(bias_first + first_filter)]",
        "tests/kernels/test_conv.py",
    ),
    Fault(
        "implicit GEMM stores its second fragment one filter too far",
        "kernels/conv/implicit_gemm.py",
        "out[np.uint32(at + (i + half) * out_area)] = acc[i + 4, j]",
        "out[np.uint32(at + (i + half) * out_area)] = acc[i + 3, j]",
        "tests/kernels/test_conv.py",
    ),
    Fault(
        "the gradient of a convolution's bias counts elements twice",
        "kernels/conv/bias.py",
        "e = first + i * THREADS",
        "e = first + i * (THREADS - 1)",
        "tests/kernels/test_conv.py",
    ),
    Fault(
        "every group of implicit GEMM reads the first group's weights",
        "kernels/conv/implicit_gemm.py",
        "first_weight = weight_first + group * weight_group",
        "first_weight = weight_first",
        "tests/kernels/test_conv.py::test_awkward_shapes[implicit_gemm-forward-depthwise]",
    ),
    Fault(
        "a clipped ReLU's gradient passes at the limit",
        "kernels/relu.py",
        "control >= limit",
        "control > limit",
        "tests/kernels/test_relu.py",
    ),
    Fault(
        "a convolution's output is one row too high",
        "kernels/conv/shape.py",
        "room_h // sh + 1, room_w",
        "room_h // sh + 2, room_w",
        "tests/kernels/test_conv.py",
    ),
    Fault(
        "arrays of another shape are accepted",
        "kernels/arguments.py",
        "tuple(array.shape) != tuple(shape)",
        "len(array.shape) != len(shape)",
        "tests/kernels/test_arguments.py tests/kernels",
    ),
    Fault(
        "checked mode does not see two threads that write one element",
        "kernels/cpu/runtime.py",
        "        race(WRITES_WRITTEN, element.writer, site, report)",
        "        pass",
        "tests/kernels/test_cpu.py",
    ),
    Fault(
        "the last block of a grid is not run",
        "kernels/cpu/sharing.py",
        "(share + 1) * columns // shares",
        "((share + 1) * columns - 1) // shares",
        "tests/kernels/test_cpu.py",
    ),
    Fault(
        "compiled code is taken from the cache although a constant differs",
        "kernels/cpu/build.py",
        'described.append(f"{name}={constant_source(value)}")',
        "described.append(name)",
        "tests/kernels/test_cpu.py",
    ),
    Fault(
        "double precision in machine code is not noticed",
        "kernels/machine_code.py",
        'return ".f64" in self.ptx',
        'return ".f128" in self.ptx',
        "tests/kernels/test_machine_code.py",
    ),
    Fault(
        "the rung for AVX-512 leaves out the last step of a piece",
        "kernels/gemm.py",
        "steps = min(DEPTH, k - p0)",
        "steps = min(DEPTH - 1, k - p0)",
        "tests/kernels/test_gemm.py",
    ),
    Fault(
        "the last chunk of a share is as long as the others",
        "kernels/cpu/sharing.py",
        "end = min(first + chunk, rows * width)",
        "end = first + chunk",
        "tests/kernels/test_cpu.py::test_a_late_threads_share_is_run_by_others",
    ),
    Fault(
        "every thread of the CPU begins with the first share",
        "kernels/cpu/sharing.py",
        "share = (own + turn) % shares",
        "share = turn",
        "tests/kernels/test_cpu.py::test_a_thread_runs_its_own_share_when_none_is_late",
    ),
    Fault(
        "a damaged entry of the kernel cache is executed",
        "kernels/cpu/build.py",
        "        return digests(entry) == {name: digest",
        "        return digests(entry).keys() == {name: digest",
        "tests/kernels/test_cpu.py::test_a_damaged_entry_is_compiled_again_and_that_is_said_once",
        slow=True,
    ),
    Fault(
        "a kernel cache that others can write is used",
        "kernels/cpu/build.py",
        "found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)",
        "found.st_mode & stat.S_IXOTH & stat.S_IWOTH",
        "tests/kernels/test_cpu.py::test_a_cache_that_others_can_write_is_not_used",
    ),
    Fault(
        "the emulated GPU subtracts the other way round",
        "kernels/emulated/translate.py",
        '"sub": ("u", "{0} - {1}")',
        '"sub": ("u", "{1} - {0}")',
        "tests/kernels/emulated --device emulated",
    ),
    Fault(
        "the emulated GPU knows a kernel by its name alone",
        "kernels/emulated/driver.c",
        "if (at == images[i]->length) return images[i];",
        "return images[i];",
        "tests/kernels/emulated/test_images.py::test_two_kernels_of_one_name_are_two_kernels --device emulated",
    ),
    Fault(
        "the emulated GPU forgets at a barrier that a local array is not written",
        "kernels/emulated/translate.py",
        "for r in registers] + self.shadows.of(registers)",
        "for r in registers]",
        "tests/kernels/emulated/test_unwritten.py --device emulated",
    ),
    Fault(
        "the emulated GPU does not see a read that nothing orders after a write",
        "kernels/emulated/order.h",
        "if (!before && (write || h->write) && h->lo",
        "if (!before && write && h->write && h->lo",
        "tests/refimpl/backend/test_emulated.py --device emulated -m emulated",
        slow=True,
    ),
)

NETWORK = (
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
)

MEMORY = (
    Fault(
        "a freed block is not joined with the hole on its right",
        "refimpl/memory/free_list.py",
        "        if end in self._bytes:\n            end += self._remove(end)\n",
        "",
        "tests/refimpl/memory",
    ),
    Fault(
        "best fit passes over a hole of exactly the size wanted",
        "refimpl/memory/free_list.py",
        "bisect_left(self._by_size, (nbytes, 0))",
        "bisect_left(self._by_size, (nbytes + 1, 0))",
        "tests/refimpl/memory",
    ),
    Fault(
        "right placement cuts a block off the left end",
        "refimpl/memory/both_ends.py",
        "holes.cut_right(hole, nbytes)",
        "holes.cut_left(hole, nbytes)",
        "tests/refimpl/memory",
    ),
    Fault(
        "the block heap says a larger hole than it has",
        "refimpl/memory/block_heap.py",
        "return self._empty.largest * self.granularity",
        "return (self._empty.largest + 1) * self.granularity",
        "tests/refimpl/memory",
    ),
    Fault(
        "a block is one granule too small",
        "refimpl/memory/base.py",
        "return -(-nbytes // self.granularity) * self.granularity or self.granularity",
        "return nbytes // self.granularity * self.granularity or self.granularity",
        "tests/refimpl/memory",
    ),
    Fault(
        "the numbers after a compressed map's last full word are lost",
        "refimpl/memory/packing.py",
        "        numbers[full:] = self._packed[full:]\n",
        "",
        "tests/refimpl/memory/test_packing.py",
    ),
    Fault(
        "the peak of a replayed log is its last value",
        "refimpl/memory/log.py",
        "asked_peak = max(asked_peak, asked)",
        "asked_peak = asked",
        "tests/refimpl/memory/test_log.py",
    ),
)

MACHINE = (
    Fault(
        "two kernels of different streams run at once",
        "refimpl/machine/clock.py",
        "start = max(self.now[stream], self._free[engine])",
        "start = self.now[stream]",
        "tests/refimpl/machine",
    ),
    Fault(
        "the simulator does not wait for events",
        "refimpl/machine/simulate.py",
        "clock.wait(instruction.stream, events[instruction.event])",
        "clock.wait(instruction.stream, 0.0)",
        "tests/refimpl/machine tests/refimpl/planner",
    ),
    Fault(
        "an overlap ends with the shorter of two copies",
        "refimpl/machine/simulate.py",
        "merged[-1] = merged[-1][0], max(end, merged[-1][1])",
        "merged[-1] = merged[-1][0], end",
        "tests/refimpl/machine",
    ),
    Fault(
        "a kernel takes the shorter of arithmetic and traffic",
        "refimpl/machine/model.py",
        "max(arithmetic, traffic)",
        "min(arithmetic, traffic)",
        "tests/refimpl/machine",
        slow=True,
    ),
    Fault(
        "the FFT's workspace leaves out the filters",
        "refimpl/machine/catalogues/cudnn4.py",
        "planes = conv.images * (conv.channels + conv.filters) + conv.channels * conv.filters",
        "planes = conv.images * (conv.channels + conv.filters)",
        "tests/refimpl/machine",
        slow=True,
    ),
    Fault(
        "cores without a block cost nothing on the calibrated CPU",
        "refimpl/machine/cpu.py",
        "return up(blocks, threads) / blocks if blocks < 8 * threads else 1.0",
        "return up(blocks, threads) / blocks if blocks < 0 else 1.0",
        "tests/refimpl/machine/test_cpu.py",
    ),
    Fault(
        "a damaged calibration is used",
        "refimpl/machine/cpu_costs.py",
        "if sound and whole and NEEDED",
        "if whole and NEEDED",
        "tests/refimpl/machine/test_cpu.py::test_a_calibration_with_one_wrong_cost_is_measured_again",
    ),
    Fault(
        "costs that were measured of other kernels are used",
        "refimpl/machine/cpu_costs.py",
        "        digest.update(source.read_bytes())\n",
        "        source.read_bytes()\n",
        "tests/refimpl/machine/test_cpu.py::test_costs_of_other_kernels_are_another_calibration",
    ),
    Fault(
        "of several turns the slowest counts",
        "refimpl/machine/timing.py",
        "float] = min,",
        "float] = max,",
        "tests/refimpl/machine/test_timing.py",
    ),
)

PLANNER = (
    Fault(
        "a write does not wait for the reads before it",
        "refimpl/planner/order.py",
        "            needed = list(map(max, needed, block.reads))\n",
        "            pass\n",
        "tests/refimpl/planner/test_host.py tests/refimpl/superneurons/test_offload.py",
    ),
    Fault(
        "the first access to a new block does not wait for what was there before",
        "refimpl/planner/order.py",
        "                needed = list(map(max, needed, block.prior))\n",
        "",
        "tests/refimpl/planner tests/refimpl/vdnn",
    ),
    Fault(
        "a wait is left out where one instruction is missing",
        "refimpl/planner/order.py",
        "needed[q] > seen[q]]",
        "needed[q] > seen[q] + 1]",
        "tests/refimpl/planner tests/refimpl/vdnn",
    ),
    Fault(
        "a joined stream is forgotten",
        "refimpl/planner/order.py",
        "        for stream in joined:\n            self.wait",
        "        for stream in joined[1:]:\n            self.wait",
        "tests/refimpl/planner tests/refimpl/vdnn",
    ),
    Fault(
        "the history loses what is right of a new block",
        "refimpl/planner/history.py",
        "            if stop > end:\n                cut.append((end, stop, accesses))\n",
        "",
        "tests/refimpl/planner/test_history.py tests/refimpl/planner",
    ),
    Fault(
        "of two accesses the earlier is kept",
        "refimpl/planner/history.py",
        "return tuple(map(max, one, other))",
        "return tuple(map(min, one, other))",
        "tests/refimpl/planner/test_history.py tests/refimpl/planner",
    ),
    Fault(
        "a host copy stays valid although the map was written to",
        "refimpl/planner/pinned.py",
        "copy.valid = False",
        "copy.valid = copy.valid",
        "tests/refimpl/planner tests/refimpl/superneurons",
    ),
    Fault(
        "a map that cannot be rebuilt is evicted without a copy",
        "refimpl/planner/mover.py",
        "not self.recompute.can_rebuild(tensor,",
        "tensor is None and not self.recompute.can_rebuild(tensor,",
        "tests/refimpl/superneurons/test_cache.py tests/refimpl/superneurons",
    ),
    Fault(
        "a gap is cut out where a long block reaches over its neighbours",
        "refimpl/planner/gap.py",
        "reached = max(reached, end)",
        "reached = end",
        "tests/refimpl/planner/test_gap.py tests/refimpl/planner",
    ),
    Fault(
        "the last forward use of a map is its first",
        "refimpl/planner/context.py",
        "tensor: max((step.number for step in uses[tensor] if step.forward), default=0)",
        "tensor: min((step.number for step in uses[tensor] if step.forward), default=0)",
        "tests/refimpl/planner tests/refimpl/vdnn",
    ),
    Fault(
        "a rebuild's source is released as if nothing were rebuilt from it",
        "refimpl/planner/context.py",
        "return max(uses[-1].number if uses else 0, max(self.rebuilt_from.get(tensor, ()), default=0))",
        "return uses[-1].number if uses else 0",
        "tests/refimpl/planner tests/refimpl/superneurons",
    ),
    Fault(
        "the memory-optimal choice takes the largest workspace",
        "refimpl/planner/baseline.py",
        "key=lambda choice: (choice.workspace_bytes, choice.seconds))",
        "key=lambda choice: (-choice.workspace_bytes, choice.seconds))",
        "tests/refimpl/planner tests/refimpl/vdnn",
    ),
    Fault(
        "an algorithm is chosen whose workspace does not fit the largest hole",
        "refimpl/planner/baseline.py",
        "if choice.workspace_bytes <= nbytes)",
        "if choice.workspace_bytes <= 2 * nbytes)",
        "tests/refimpl/superneurons/test_workspace.py tests/refimpl/superneurons",
        or_else=(
            (
                "            if choice.workspace_bytes <= largest_hole:\n                return choice",
                "            if choice.workspace_bytes <= 2 * largest_hole:\n                return choice",
            ),
        ),
    ),
    Fault(
        "a setup is accepted although a module lacks what it needs",
        "refimpl/planner/setup.py",
        "if feature not in offered:",
        "if feature not in offered and feature not in WITHOUT:",
        "tests/refimpl/planner/test_setup.py tests/refimpl/planner",
        or_else=(("sorted(module.needs - offered)", "sorted(module.needs - offered - set(WITHOUT))"),),
    ),
    Fault(
        "verify accepts a read that is not ordered after the write",
        "refimpl/planner/verify/happens_before.py",
        "            raise Unordered(block, block.write_stream, block.written_at)\n        block.read_at",
        "            pass\n        block.read_at",
        "tests/refimpl/planner/test_verify_faults.py tests/refimpl/planner",
    ),
    Fault(
        "verify accepts a write that is not ordered after a read",
        "refimpl/planner/verify/happens_before.py",
        "            if position > self._now[stream]:",
        "            if position > self._now[stream] + 10**9:",
        "tests/refimpl/planner/test_verify_faults.py tests/refimpl/planner",
    ),
    Fault(
        "verify forgets who used a new block's bytes before",
        "refimpl/planner/verify/memory.py",
        "self.live[address] = Block(tensor, address, address + nbytes, inherited(cut))",
        "self.live[address] = Block(tensor, address, address + nbytes, {})",
        "tests/refimpl/planner/test_verify_faults.py tests/refimpl/planner",
    ),
    Fault(
        "verify accepts a wrong value",
        "refimpl/planner/verify/check.py",
        "(number is not None and block.number != number)",
        "(number is not None and block.number == -1)",
        "tests/refimpl/planner/test_verify_faults.py tests/refimpl/planner",
    ),
    Fault(
        "verify accepts a leak",
        "refimpl/planner/verify/check.py",
        "        if leaked:  # rule 4",
        "        if leaked and not leaked:  # rule 4",
        "tests/refimpl/planner/test_verify_faults.py tests/refimpl/planner",
    ),
    Fault(
        "verify accepts an arena larger than the budget",
        "refimpl/planner/verify/check.py",
        "if program.arena_bytes > program.budget:",
        "if program.arena_bytes > 2 * program.budget:",
        "tests/refimpl/planner",
    ),
)

PAPERS = (
    Fault(
        "vDNN's first consumer sends a map out, not its last",
        "refimpl/planner/last_consumer.py",
        "self.add(context.last_forward_use(x), x,",
        "self.add(context.uses[x][0].number + 1, x,",
        "tests/refimpl/vdnn",
        or_else=(("[context.last_forward_use(x)].append(x)", "[context.uses[x][0].number + 1].append(x)"),),
    ),
    Fault(
        "vDNN's prefetch window does not end at a CONV",
        "refimpl/planner/window.py",
        '            if layer.kind == "conv":\n                return None',
        '            if layer.kind == "none":\n                return None',
        "tests/refimpl/vdnn",
    ),
    Fault(
        "vDNN prefetches a layer's map twice",
        "refimpl/planner/window.py",
        "                self._prefetched.add(layer)\n",
        "",
        "tests/refimpl/vdnn",
    ),
    Fault(
        "vDNN's greedy choice never steps down",
        "refimpl/planner/baseline.py",
        "if choice.workspace_bytes <= nbytes)",
        "if choice is choices[0])",
        "tests/refimpl/vdnn",
        or_else=(
            ("            if choice.workspace_bytes <= largest_hole:\n", "            if choice is choices[0]:\n"),
        ),
    ),
    Fault(
        "vDNN-all keeps what CONCATs alone read",
        "refimpl/vdnn/offload.py",
        '("conv", "pool", "concat")',
        '("conv", "pool")',
        "tests/refimpl/vdnn",
    ),
    Fault(
        "a POOL's backward searches by default",
        "refimpl/vdnn/prefetch.py",
        '("pool",)',
        "()",
        "tests/refimpl/vdnn/test_prefetch.py",
    ),
    Fault(
        "vDNN's streams are joined a layer late",
        "refimpl/planner/loop.py",
        "if self.setup.join and order.copies > copies:",
        "if self.setup.join and order.copies == copies:",
        "tests/refimpl/vdnn",
        slow=True,
    ),
    Fault(
        "performance lost is a share of the oracle's time",
        "refimpl/studies/reproduce/vdnn/figures.py",
        "None if self.performance is None else 1 - self.performance",
        "None if self.performance is None else 1 / self.performance - 1",
        "tests/refimpl/studies/reproduce/vdnn",
    ),
    Fault(
        "vDNN-dyn adopts the feasible candidate although a faster one fits",
        "refimpl/planner/search.py",
        "next(filter(None, planned), frugal)",
        "next(filter(None, planned), frugal) and frugal",
        "tests/refimpl/vdnn",
        or_else=(
            (
                "try_out(self._as_set(candidate), attempt, tried)\n                break",
                "try_out(self._as_set(candidate), attempt, tried) and adopted\n                break",
            ),
        ),
    ),
    Fault(
        "vDNN++'s alternate-conv begins with the second CONV",
        "refimpl/vdnnpp/offload.py",
        "layer not in last][:: self.every]",
        "layer not in last][self.every - 1 :: self.every]",
        "tests/refimpl/vdnnpp",
        or_else=(("layer is not last][:: self.every]", "layer is not last][self.every - 1 :: self.every]"),),
    ),
    Fault(
        "vDNN++ compresses a map before its ReLU has run",
        "refimpl/vdnnpp/compression.py",
        "or not last_write <= step.number <=",
        "or not 0 <= step.number <=",
        "tests/refimpl/vdnnpp",
    ),
    Fault(
        "a compressed map is counted without its mask",
        "refimpl/vdnnpp/compression.py",
        "return WORKERS * taken * slot * 4 + 4 * ceil(numbers / 32)",
        "return WORKERS * taken * slot * 4",
        "tests/refimpl/vdnnpp",
    ),
    Fault(
        "the pool search grows by the whole request, not by what is missing",
        "refimpl/vdnnpp/pool_search.py",
        "size += rounded(rounded(misfit.event.nbytes) - misfit.largest_hole)",
        "size += rounded(rounded(misfit.event.nbytes))",
        "tests/refimpl/vdnnpp",
    ),
    Fault(
        "SuperNeurons' analysis frees a checkpoint one step before it is rebuilt from",
        "refimpl/superneurons/liveness.py",
        "uses[number - 1].append(checkpoint)",
        "uses[number - 2].append(checkpoint)",
        "tests/refimpl/superneurons",
    ),
    Fault(
        "cost-aware recomputation weighs a segment without its checkpoint",
        "refimpl/superneurons/segments.py",
        "nbytes({*step.uses, segment.checkpoint} - kept)",
        "nbytes({*step.uses} - kept)",
        "tests/refimpl/superneurons",
        or_else=(("nbytes({*step.uses, *segment.checkpoints} - kept)", "nbytes({*step.uses} - kept)"),),
    ),
    Fault(
        "l_peak leaves out the gradients",
        "refimpl/superneurons/segments.py",
        "max(nbytes({*step.uses, *self.nearest(step.layer)}) for step in self.backward)",
        "max(nbytes({*step.reads, *self.nearest(step.layer)}) for step in self.backward)",
        "tests/refimpl/superneurons",
    ),
    Fault(
        "a rebuild frees what the step itself reads",
        "refimpl/superneurons/recompute.py",
        "return x not in step.uses and self._context.last_forward_use(x) < step.number",
        "return self._context.last_forward_use(x) < step.number",
        "tests/refimpl/superneurons",
    ),
    Fault(
        "the tensor cache evicts what was used last",
        "refimpl/superneurons/cache.py",
        "next((tensor for tensor in self._recent if tensor not in locked), None)",
        "next((tensor for tensor in reversed(self._recent) if tensor not in locked), None)",
        "tests/refimpl/superneurons/test_cache.py",
    ),
    Fault(
        "the tensor cache evicts what the running step uses",
        "refimpl/superneurons/cache.py",
        "next((tensor for tensor in self._recent if tensor not in locked), None)",
        "next(iter(self._recent), None)",
        "tests/refimpl/superneurons/test_cache.py",
    ),
    Fault(
        "SuperNeurons prefetches four steps ahead, not three",
        "refimpl/superneurons/prefetch.py",
        "DISTANCE = 3",
        "DISTANCE = 4",
        "tests/refimpl/superneurons",
    ),
    Fault(
        "AccUDNN's model has a map away one step too early",
        "refimpl/accudnn/model.py",
        "change[one.f + 1] -= one.nbytes",
        "change[one.f] -= one.nbytes",
        "tests/refimpl/accudnn/test_model.py",
        slow=True,
    ),
    Fault(
        "AccUDNN releases a map while its copy runs",
        "refimpl/accudnn/schedule.py",
        "            if sent[one] > now:\n",
        "            if sent[one] > now + 1e9:\n",
        "tests/refimpl/accudnn/test_model.py tests/refimpl/accudnn/test_policy.py",
    ),
    Fault(
        "AccUDNN shrinks a workspace to its least",
        "refimpl/accudnn/choice.py",
        "        if not fitting:\n            return None\n        caps[step] = fitting[0]",
        "        if not fitting:\n            return None\n        caps[step] = fitting[-1]",
        "tests/refimpl/accudnn/test_model.py tests/refimpl/accudnn/test_policy.py",
    ),
    Fault(
        "the tuner takes the largest of the batches that are alike",
        "refimpl/accudnn/tuner.py",
        'return min(alike) if objective == "single" else max(alike)',
        'return max(alike) if objective == "single" else max(alike)',
        "tests/refimpl/accudnn/test_tuner.py",
    ),
    Fault(
        "gradients are reduced before they are ready",
        "refimpl/accudnn/cluster.py",
        "end = max(end, bucket[-1].ready) +",
        "end = max(end, bucket[0].ready) +",
        "tests/refimpl/accudnn/test_cluster.py",
    ),
    Fault(
        "the tensor that is needed next is evicted, not the last",
        "refimpl/combined/farthest.py",
        "return max(waiting, key=lambda tensor: (self._next_use(tensor, now), tensor.nbytes), default=None)",
        "return min(waiting, key=lambda tensor: (self._next_use(tensor, now), tensor.nbytes), default=None)",
        "tests/refimpl/combined",
    ),
    Fault(
        "the combined search keeps the last program that fits",
        "refimpl/combined/judge.py",
        "        if program.planned_seconds < self.seconds:\n",
        "        if program.planned_seconds < inf:\n",
        "tests/refimpl/combined/test_search.py",
    ),
    Fault(
        "the combined search changes fates where no map has one",
        "refimpl/combined/search.py",
        "if kind < 0.55 and large:",
        "if kind < 0.55:",
        "tests/refimpl/combined/test_search.py",
        slow=True,
    ),
    Fault(
        "a fate may drop the batch",
        "refimpl/combined/fates.py",
        'word in ("drop", "again"):\n',
        'word == "again":\n',
        "tests/refimpl/combined",
    ),
    Fault(
        "Rotor's second forward costs nothing",
        "refimpl/studies/optimum/rotor.py",
        "again = run[j] - run[s] + without(",
        "again = without(",
        "tests/refimpl/studies/optimum/test_rotor.py",
    ),
    Fault(
        "the enumeration ends before the optimum",
        "refimpl/studies/optimum/exhaustive.py",
        "best.planned_seconds * (1 - ROUNDING)",
        "best.planned_seconds * 0.5",
        "tests/refimpl/studies/optimum/test_exhaustive.py",
        slow=True,
    ),
    Fault(
        "the bound leaves the workspace of a single step out",
        "refimpl/studies/optimum/bound.py",
        "return max(used(network, step) + least_workspace(machine, step) for",
        "return max(used(network, step) for",
        "tests/refimpl/studies/optimum/test_bound.py",
    ),
    Fault(
        "the bound counts a map as there although it is away",
        "refimpl/studies/optimum/bound.py",
        "held - self.solver.qsum(self.absent[moment]) <=",
        "held - 0 * self.solver.qsum(self.absent[moment]) <=",
        "tests/refimpl/studies/optimum/test_bound.py",
        slow=True,
    ),
    Fault(
        "half a line of a killed run is read as a point",
        "refimpl/studies/pareto/points.py",
        'complete = text[: text.rfind("\\n") + 1]',
        "complete = text",
        "tests/refimpl/studies/pareto/test_points.py",
        slow=True,
    ),
)

BACKEND = (
    Fault(
        "the CPU runs instructions before the events they wait for",
        "refimpl/backend/orders.py",
        "if awaited is not None and awaited not in happened:",
        "if awaited is not None and awaited not in happened and awaited < 0:",
        "tests/refimpl/backend",
    ),
    Fault(
        "bytes that are not valid any more are left readable",
        "refimpl/backend/poison.py",
        "            if not self._left[value]:\n",
        "            if self._left[value] < 0:\n",
        "tests/refimpl/backend/test_poison.py",
        slow=True,
    ),
    Fault(
        "a checkpoint of another shape is loaded",
        "refimpl/backend/checkpoint.py",
        "if array.shape != tensor.shape or array.dtype",
        "if array.size == 0 or array.dtype",
        "tests/refimpl/backend",
        or_else=(("if found.shape != tensor.shape or found.dtype", "if found.dtype"),),
    ),
    Fault(
        "restoring a checkpoint does not restore the settings",
        "refimpl/backend/trainer.py",
        "            setattr(self, name, value)\n",
        "            getattr(self, name)\n",
        "tests/refimpl/backend",
    ),
    Fault(
        "a label one past the last class is accepted",
        "refimpl/backend/batches.py",
        "(given < 0) | (given >= classes)",
        "(given < 0) | (given > classes)",
        "tests/refimpl/backend",
    ),
    Fault(
        "the images that fill up the last batch count in an evaluation",
        "refimpl/backend/batches.py",
        "        count = len(some)\n",
        "        count = batch\n",
        "tests/refimpl/backend",
    ),
    Fault(
        "running averages are not put back after a loss that is NaN",
        "refimpl/backend/trainer.py",
        "            self.device.copy_in(address, host, nbytes)\n",
        "            pass\n",
        "tests/refimpl/backend",
    ),
    Fault(
        "the first weights do not depend on the tensor's name",
        "refimpl/backend/parameters.py",
        'f"{seed}/{name}".encode()',
        'f"{seed}/".encode()',
        "tests/refimpl/backend",
    ),
    Fault(
        "an epoch's batches overlap",
        "refimpl/backend/data.py",
        "[place * batch : (place + 1) * batch]",
        "[place : place + batch]",
        "tests/refimpl/backend",
    ),
    Fault(
        "a setting that has changed is not bound again",
        "refimpl/backend/bound.py",
        "if value != self._settings[name]}",
        "if value is None}",
        "tests/refimpl/backend",
    ),
    Fault(
        "a piece of the host's work runs although the one before it failed",
        "refimpl/backend/host_thread.py",
        "if before is not None and before.error is not None:",
        "if before is not None and before is self:",
        "tests/refimpl/backend/test_host_thread.py",
    ),
    Fault(
        "an exported script uploads the batch of another iteration",
        "refimpl/backend/script.py",
        "first = iteration % (len(images) // batch) * batch",
        "first = (iteration + 1) % (len(images) // batch) * batch",
        "tests/refimpl/backend/test_script.py",
        slow=True,
    ),
)

REPORT = (
    Fault(
        "draining bytes are counted with their tensor",
        "refimpl/report/figures.py",
        "        if life.let_go < life.end:\n            changes +=",
        "        if life.let_go > life.end:\n            changes +=",
        "tests/refimpl/report",
    ),
    Fault(
        "the JSON document's stall is the time in kernels",
        "refimpl/report/json.py",
        '"stall": timeline.stall',
        '"stall": timeline.busy("compute")',
        "tests/refimpl/report tests/refimpl/cli",
    ),
    Fault(
        "a trace's slices are on the wrong track",
        "refimpl/report/chrome_trace.py",
        '"tid": span.stream + 1, "ts": start',
        '"tid": span.stream, "ts": start',
        "tests/refimpl/report",
        slow=True,
    ),
    Fault(
        "1024 bytes are not 1 KiB",
        "refimpl/text.py",
        "        if nbytes >= unit:",
        "        if nbytes > unit:",
        "tests/refimpl/report tests/refimpl/test_text.py tests/refimpl/cli",
    ),
)

REGISTRY = (
    Fault(
        "GB means GiB",
        "refimpl/names/budgets.py",
        '"gb": 10**9',
        '"gb": 1 << 30',
        "tests/refimpl/fit tests/refimpl/names tests/refimpl/planner/test_largest.py",
    ),
    Fault(
        "the largest batch is not compared with one more",
        "refimpl/planner/largest.py",
        "while too_large - best > 1:",
        "while too_large - best > 2:",
        "tests/refimpl/fit tests/refimpl/names tests/refimpl/planner/test_largest.py",
    ),
    Fault(
        "the least budget is one step of the search too large",
        "refimpl/fit/least_budget.py",
        "while enough - too_small > 1:",
        "while enough - too_small > 2:",
        "tests/refimpl/fit tests/refimpl/cli/test_plan.py",
    ),
    Fault(
        "of the setups that would fit the slowest is offered",
        "refimpl/fit/least_budget.py",
        "cheapest = min(found",
        "cheapest = max(found",
        "tests/refimpl/fit tests/refimpl/names tests/refimpl/cli",
    ),
)

CLI = (
    Fault(
        "a plan that does not fit ends with status 0",
        "refimpl/cli/plan.py",
        "    return DOES_NOT_FIT\n",
        "    return DONE\n",
        "tests/refimpl/cli",
    ),
    Fault(
        "an interrupt ends with status 0",
        "refimpl/cli/__init__.py",
        'status, says = INTERRUPTED, "interrupted"',
        'status, says = DONE, "interrupted"',
        "tests/refimpl/cli/test_command.py",
    ),
    Fault(
        "the JSON document leaves out what would fit",
        "refimpl/cli/plan.py",
        '"cheapest": cheapest}',
        '"cheapest": None}',
        "tests/refimpl/cli",
    ),
)

REPRODUCE = (
    Fault(
        "the link of AccUDNN's four claims ignores that the workers also compute",
        "refimpl/studies/reproduce/accudnn/figures.py",
        "reduce_seconds = seconds * (workers / scaling - 1)",
        "reduce_seconds = seconds * workers / scaling",
        "tests/refimpl/studies/reproduce/accudnn",
    ),
    Fault(
        "a constant changes, and the page still says the old one",
        "refimpl/accudnn/tuner.py",
        "FACTOR = 1.12 ",
        "FACTOR = 1.2 ",
        "tests/test_figures.py",
        slow=True,
    ),
    Fault(
        "a figure that is far too small is shown as met",
        "refimpl/studies/reproduce/published.py",
        "abs(self.deviation) <= CLOSE",
        "self.deviation <= CLOSE",
        "tests/refimpl/studies/reproduce",
    ),
    Fault(
        "a published peak of SuperNeurons is another",
        "refimpl/studies/reproduce/superneurons/published.py",
        '"MiB", "P", TEXT, CLOSE_MIB),\n    "offload"',
        '"MiB", "P", TEXT, EXACTLY),\n    "offload"',
        "tests/refimpl/studies/reproduce/superneurons",
    ),
    Fault(
        "a fixed cost a call leaves out what a bias costs",
        "refimpl/studies/reproduce/superneurons/fixed_cost.py",
        '"conv.forward": 2, "conv.backward_filter": 2,',
        '"conv.forward": 1, "conv.backward_filter": 1,',
        "tests/refimpl/studies/reproduce/superneurons",
    ),
    Fault(
        "a median of the summary keeps signs",
        "refimpl/studies/reproduce/evaluation.py",
        "        abs(figure.deviation)\n",
        "        figure.deviation\n",
        "tests/refimpl/studies/reproduce",
    ),
)
PARALLEL = (
    Fault(
        "the last gradients are never reduced",
        "refimpl/network/data_parallel.py",
        "    if bucket:\n        yield bucket",
        "    if bucket and full is None:\n        yield bucket",
        "tests/refimpl/network/test_data_parallel.py",
    ),
    Fault(
        "an all-reduce runs on the stream of the kernels",
        "refimpl/planner/mover.py",
        "self.streams.network if call.collective else COMPUTE",
        "COMPUTE",
        "tests/refimpl/network/test_data_parallel.py",
        slow=True,
    ),
    Fault(
        "each process adds its own gradient first",
        "refimpl/backend/communicators.py",
        "total = rows[0]\n                for other in rows[1:]:",
        "total = rows[rank].copy()\n                for other in (*rows[:rank], *rows[rank + 1 :]):",
        "tests/refimpl/backend/test_communicators.py",
        slow=True,
    ),
    Fault(
        "a rank looks at its own loss alone",
        "refimpl/backend/trainer.py",
        "if not np.isfinite(self._losses).all():",
        "if not np.isfinite(self._losses[self.communicator.rank]):",
        "tests/refimpl/backend/test_communicators.py",
    ),
    Fault(
        "the first rank does not say which rank failed",
        "refimpl/backend/errors.py",
        'super().__init__(f"rank {rank}: {why}")',
        "super().__init__(why)",
        "tests/refimpl/backend/test_communicators.py",
    ),
    Fault(
        "what an ONNX file computes from the number of images is taken for a constant",
        "refimpl/network/imported/constants.py",
        "IMAGES = (1_000_003, 2_000_006)",
        "IMAGES = (1_000_003, 1_000_003)",
        "tests/refimpl/network/test_onnx.py -k number_of_images",
    ),
    Fault(
        "a call is offered every algorithm, whichever it is given",
        "refimpl/machine/model.py",
        "one = tuple(choice for choice in whole.choices if choice.algorithm == algorithm)",
        "one = whole.choices",
        "tests/refimpl/cli/test_run.py -k calibration",
        slow=True,
    ),
    Fault(
        "a resumed run takes the algorithms that are the fastest here",
        "refimpl/cli/run.py",
        "path = options.like or options.resume",
        "path = options.like",
        "tests/refimpl/cli/test_run.py -k calibration",
        slow=True,
    ),
    Fault(
        "a pipe that is given as a file is waited for",
        "refimpl/text.py",
        'waits_not = getattr(os, "O_NONBLOCK", 0)',
        "waits_not = 0",
        "tests/refimpl/test_damaged_files.py -k no_file_is_refused",
    ),
    Fault(
        "a name out of a file is printed with what a terminal obeys",
        "refimpl/cli/terminal.py",
        "return super().render_str(harmless(text), **how)",
        "return super().render_str(text, **how)",
        "tests/refimpl/test_damaged_files.py -k terminal_obeys",
    ),
    Fault(
        "an error in a module of one's own does not say where it is",
        "refimpl/network/imported/own_code.py",
        "return any(not set(INSTALLED) & set(below.parts) for below in inside)",
        "return False",
        "tests/refimpl/cli/test_own_module.py -k own_line",
    ),
)
FAULTS = (
    *KERNELS,
    *NETWORK,
    *MEMORY,
    *MACHINE,
    *PLANNER,
    *PAPERS,
    *BACKEND,
    *REPORT,
    *REGISTRY,
    *REPRODUCE,
    *CLI,
    *PARALLEL,
)


# -- planting ----------------------------------------------------------------------------------------------------------

#: A plugin of pytest: hypothesis tells the first example that fails and looks for no smaller one, however slow it is.
NO_SHRINKING = """
from hypothesis import HealthCheck, Phase, settings

def pytest_collection():
    phases = Phase.explicit, Phase.generate
    settings.register_profile("first", settings.default, phases=phases, suppress_health_check=[*HealthCheck])
    settings.load_profile("first")
"""


@dataclass
class Outcome:
    """What became of a fault in one tree."""

    state: str  #: "caught", or why not
    by: str = ""  #: the test that failed
    options: tuple[str, ...] = ()  #: of pytest, that it ran with
    seconds: float = 0.0

    @property
    def cell(self) -> str:
        return f"`{short(self.by)}`" if self.state == "caught" else f"**{self.state}**"


class Tree:
    """A copy of a project's files, in which one fault is planted at a time.

    Args:
        root: the project.
        place: the copy's folder; the one above has what all copies share: compiled kernels and the plugin.
        before: the test that caught each fault the last time, by the fault's words.
    """

    def __init__(self, root: Path, place: Path, before: dict[str, str]) -> None:
        self.place, self.before = place, before
        path = os.pathsep.join((str(place), str(place.parent)))
        self.environment = os.environ | {"PYTHONPATH": path, "REFIMPL_CACHE": str(place.parent / "cache")}
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
            elif (root / name).exists():
                shutil.copy2(root / name, place / name)
        files = (path for package in PACKAGES for path in (place / package).rglob("*"))
        self.sources = {path: path.read_text("utf-8") for path in files if path.suffix in (".py", ".c", ".h")}

    def find(self, fault: Fault) -> tuple[Path, str] | None:
        """Where the fault goes, and the file's text with it: the file named, or the only other one that has `old`."""
        named = self.place / fault.file
        for old, new in ((fault.old, fault.new), *fault.or_else):
            there = [path for path, text in self.sources.items() if text.count(old) == 1]
            if named in there or len(there) == 1:
                path = named if named in there else there[0]
                return path, self.sources[path].replace(old, new)
        return None

    def plant(self, fault: Fault) -> Outcome:
        """Plant a fault, run its tests until one fails, and take it out again."""
        found = self.find(fault)
        if found is None:
            return Outcome("not planted: its text is not there once")
        path, spoilt = found
        began = time.monotonic()
        words = fault.tests.split()
        tests = [word for word in words if word.startswith("tests/") and self.has(word)]
        options = [word for word in words if not word.startswith("tests/")]
        state, by = "none of its tests is there", ""
        path.write_text(spoilt, "utf-8")
        try:
            if first := self.caught_before(fault, tests):
                state, by = self.test([first, *options])
            if state != "caught" and tests:
                state, by = self.test([*tests, *options, *([] if fault.slow else ["-m", "not slow"])])
        finally:
            path.write_text(self.sources[path], "utf-8")
        return Outcome(state, by, tuple(options), time.monotonic() - began)

    def has(self, test: str) -> bool:
        return (self.place / test.partition("::")[0]).exists()

    def caught_before(self, fault: Fault, tests: list[str]) -> str | None:
        """The test that the table names, if its file is still among those of the fault."""
        stem, _, name = self.before.get(fault.what, "").partition("::")
        named = [self.place / test.partition("::")[0] for test in tests]
        files = {file for path in named for file in ([path] if path.is_file() else path.rglob("test_*.py"))}
        found = [file for file in files if file.stem == stem]
        return f"{found[0].relative_to(self.place)}::{name}" if len(found) == 1 and name else None

    def run(self, arguments: list[str]) -> tuple[int | None, list[str]]:
        """Pytest's exit status, None if it took too long, and the names of the tests that failed."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
        command += ["-p", "no_shrinking"]
        try:
            done = subprocess.run(
                command, cwd=self.place, env=self.environment, capture_output=True, text=True, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired:
            return None, []
        return done.returncode, re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)

    def test(self, arguments: list[str]) -> tuple[str, str]:
        """Run tests until one fails: "caught" and its name, or what happened instead."""
        status, failed = self.run(["-x", *arguments])
        if status is None:
            return f"no test failed within {PATIENCE} s", ""
        if status == 1 and failed:
            return "caught", failed[0]
        return ("not caught" if status == 0 else f"pytest ended with {status}"), ""

    def confirm(self, outcomes: list[Outcome]) -> None:
        """Without any fault, the tests that failed pass.  A fault whose test fails without it, too, is not caught."""
        caught = [one for one in outcomes if one.state == "caught"]
        for options in {one.options for one in caught}:
            alike = [one for one in caught if one.options == options]
            status, failed = self.run([*sorted({one.by for one in alike}), *options])
            for one in alike:
                if status not in (0, 1):
                    one.state = f"not caught: without the fault, pytest ended with {status}"
                elif one.by in failed:
                    one.state = "not caught: without the fault, too, the test fails"


def outcomes_in(root: Path, folder: Path, faults: list[Fault], workers: int, before: dict[str, str]) -> list[Outcome]:
    """What becomes of each fault in a tree, several side by side."""
    (folder / "no_shrinking.py").write_text(NO_SHRINKING, "utf-8")
    with suppress(OSError):  # an entry that another process replaces meanwhile is compiled again
        shutil.copytree(cache_directory() or "", folder / "cache", ignore=shutil.ignore_patterns("new-*"))
    trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    for number in range(workers):
        trees.put(Tree(root, folder / str(number), before))

    def with_tree(work: Callable[[Tree], Any]) -> Any:
        tree = trees.get()
        try:
            return work(tree)
        finally:
            trees.put(tree)

    def planted(fault: Fault) -> Outcome:
        one: Outcome = with_tree(lambda tree: tree.plant(fault))
        print(f"{fault.room}: {fault.what}: {one.state} {short(one.by)} ({one.seconds:.0f} s)", flush=True)
        return one

    with ThreadPoolExecutor(workers) as pool:
        outcomes = list(pool.map(planted, faults))
        parts = [outcomes[i::workers] for i in range(workers)]
        list(pool.map(lambda part: with_tree(lambda tree: tree.confirm(part)), parts))
    return outcomes


# -- the table ---------------------------------------------------------------------------------------------------------


def short(test: str) -> str:
    """A test's name without its folder and its parameters."""
    return test.partition("[")[0].rpartition("/")[2].replace(".py::", "::")


def suite(root: Path) -> str:
    """The name of a tree's suite in the table: of another tree, the commit that is checked out there."""
    if root == ROOT:
        return "this suite"
    done = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return f"the suite at {done.stdout.strip() or root.name}"


def written() -> dict[str, dict[str, str]]:
    """The table as it is: for each suite the cell of each fault."""
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    titles = [title.removeprefix("caught by (").removesuffix(")") for title in head[2:]]
    return {title: {row[1]: row[i] for row in rows if row[i]} for i, title in enumerate(titles, 2)}


def table(columns: dict[str, dict[str, str]]) -> Iterator[str]:
    """The page, line by line."""
    yield "# Planted faults"
    yield ""
    yield "Written by `make faults`; a column of another tree by `make faults AGAINST=TREE`, and kept until that is run"
    yield "again. Each row is one fault, planted alone in a copy of the tree, and the first test that failed."
    yield "`tests/planted_faults.py` says what was replaced by what."
    yield ""
    for title, cells in columns.items():
        planted = [cells[fault.what] for fault in FAULTS if fault.what in cells]
        caught = sum(cell.startswith("`") for cell in planted)
        yield f"- {title}: {caught} of {len(planted)} caught"
    yield ""
    yield "| room | fault | " + " | ".join(f"caught by ({title})" for title in columns) + " |"
    yield "| --- " * (2 + len(columns)) + "|"
    for fault in FAULTS:
        if any(cells := [column.get(fault.what, "") for column in columns.values()]):
            yield f"| {fault.room} | {fault.what} | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="faults whose room, file or words have it")
    parser.add_argument("--new", action="store_true", help="faults that the table does not have yet")
    parser.add_argument("--against", type=Path, metavar="TREE", help="plant them in this tree too, for its own tests")
    parser.add_argument("--write", action="store_true", help=f"write the table into {TABLE.relative_to(ROOT)}")
    parser.add_argument("--check", action="store_true", help="only say which faults could not be planted")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N", help="copies side by side")
    options = parser.parse_args()
    columns, missed = written(), []
    known = columns[suite(ROOT)] if options.new else {}
    chosen = [fault for fault in FAULTS if options.only in f"{fault.room} {fault.file} {fault.what}"]
    chosen = [fault for fault in chosen if fault.what not in known]
    for root in [ROOT, *([options.against.resolve()] if options.against else [])]:
        cells = columns.setdefault(suite(root), {})
        with tempfile.TemporaryDirectory(prefix="refimpl-faults-") as folder:
            if options.check:
                tree = Tree(root, Path(folder) / "0", {})
                missed += [f"{fault.file}: {fault.what}" for fault in chosen if tree.find(fault) is None]
                continue
            before = {what: cell.strip("`") for what, cell in cells.items()}
            outcomes = outcomes_in(root, Path(folder), chosen, options.workers, before)
        missed += [fault.what for fault, one in zip(chosen, outcomes, strict=True) if one.state != "caught"]
        cells |= {fault.what: one.cell for fault, one in zip(chosen, outcomes, strict=True)}
    if options.write:
        TABLE.write_text("\n".join(table(columns)) + "\n", "utf-8")
    print(f"{len(chosen)} faults" + "".join(f"\n  not {'planted' if options.check else 'caught'}: {w}" for w in missed))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
