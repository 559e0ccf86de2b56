"""Products of maps: y = x g, where the gate g has x's shape or one number a map, (images, channels, 1, 1).

    forward     y = x g
    backward    dx = dy g, in place, and dg = dy x: with one number a map its sum over the map

A gate of one number a map is what squeeze-and-excitation blocks learn (Hu, Shen, Sun, 2018).  Its gradient has a block
of 128 threads a map, 3 n operations and 12 n bytes for n elements: thread t sums elements t, t + 128, … of its map;
then the block adds the threads' sums in a tree.  All else is as in `kernels.mul`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import mul
from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast import elementwise
from kernels.fast.activation import start
from kernels.fast.elementwise import size
from kernels.targets.launch import Floats, kernel, launch
from kernels.targets.shim import cuda

THREADS = 128  #: of a map
ZERO = np.float32(0)


@kernel(block=THREADS)
def mul_gate_backward(x: Floats, gate: Floats, dx: Floats, dgate: Floats, area: int) -> None:
    """dgate, one number a map, is the sum of dx x; and then dx = dx gate in place.  One block a map."""
    sums = cuda.shared.array(THREADS, np.float32)
    factor = cuda.shared.array(1, np.float32)
    t = np.int64(cuda.threadIdx.x)
    first = np.int64(cuda.blockIdx.x) * area
    sums[np.uint32(t)] = ZERO
    if t == 0:
        factor[0] = gate[np.uint32(cuda.blockIdx.x)]
    cuda.syncthreads()
    for done in range(0, area, THREADS):
        if t < area - done:
            i = np.uint32(first + done + t)
            given = dx[i]
            sums[np.uint32(t)] += given * x[i]
            dx[i] = given * factor[0]
        cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            sums[np.uint32(t)] += sums[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        dgate[np.uint32(cuda.blockIdx.x)] = sums[0]


def forward(x: Any, gate: Any, y: Any, *, stream: Any = None) -> None:
    """y = x gate."""
    check("mul.forward", x=x, gate=gate, y=y)
    check_shape("mul.forward", "y", y, x.shape)
    is_whole("mul.forward", x, gate)
    mul.forward(x, gate, y, stream=stream)


def backward(x: Any, gate: Any, dy: Any, dx: Any, dgate: Any, *, stream: Any = None) -> None:
    """dx = dy gate and dgate = dy x, over a map its sum if the gate has one number; dx may be dy."""
    check("mul.backward", x=x, gate=gate, dy=dy, dx=dx, dgate=dgate)
    check_shape("mul.backward", "dy", dy, x.shape)
    check_shape("mul.backward", "dx", dx, x.shape)
    check_shape("mul.backward", "dgate", dgate, gate.shape)
    if is_whole("mul.backward", x, gate):
        mul.backward(x, gate, dy, dx, dgate, stream=stream)
        return
    if start(dx) != start(dy):
        elementwise.copy(dy, dx, stream=stream)
    launch(mul_gate_backward, size(gate), x, gate, dx, dgate, size(x) // size(gate), stream=stream)


def is_whole(where: str, x: Any, gate: Any) -> bool:
    """Whether the gate has x's shape; if not it has one number a map."""
    if tuple(gate.shape) == tuple(x.shape):
        return True
    if len(x.shape) < 2 or tuple(gate.shape[:2]) != tuple(x.shape[:2]) or size(gate) != x.shape[0] * x.shape[1]:
        one = (*x.shape[:2], *(1 for _ in x.shape[2:]))
        raise KernelError(f"{where}: gate has shape {tuple(gate.shape)}; give {tuple(x.shape)} or {one}")
    return False
