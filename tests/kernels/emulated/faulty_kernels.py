"""Kernels with a fault each, one of each way to be wrong, and what the emulated GPU should say of them.

Unless it says otherwise, a kernel is given x and y of 256 numbers each and n = 250, in a launch of 4 blocks of 64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.targets.shim import cuda

Function = Callable[..., None]


@dataclass(frozen=True)
class Fault:
    kernel: Function
    says: str
    grid: Any
    block: Any
    shape: Any
    n: int


FAULTS: list[Fault] = []


def fault(says: str, grid: Any = 4, block: Any = 64, shape: Any = 256, n: int = 250) -> Callable[[Function], Function]:
    def note(kernel: Function) -> Function:
        FAULTS.append(Fault(kernel, says, grid, block, shape, n))
        return kernel

    return note


# -- outside of an array -----------------------------------------------------------------------------------------------


@fault("outside of every array", n=256, grid=5)
def one_thread_too_many(x: Any, y: Any, n: int) -> None:
    i = cuda.grid(1)
    if i <= n:
        y[i] = x[i]


@fault("outside of every array", n=256)
def neighbour_to_the_left_as_unsigned(x: Any, y: Any, n: int) -> None:
    i = np.uint32(cuda.grid(1))
    y[i] = x[np.uint32(i - np.uint32(1))]


@fault("outside of every array", grid=1, block=1)
def far_away(x: Any, y: Any, n: int) -> None:
    y[np.int64(n) << 20] = x[0]


# -- shared and local memory -------------------------------------------------------------------------------------------


@fault("outside of the array", grid=1)
def shared_write_past_the_end(x: Any, y: Any, n: int) -> None:
    s = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    s[t + 1] = x[t]
    cuda.syncthreads()
    y[t] = s[t + 1]


@fault("outside of the array", grid=1, block=7)
def shared_bytes_past_the_end(x: Any, y: Any, n: int) -> None:
    s = cuda.shared.array(6, np.uint8)
    t = cuda.threadIdx.x
    s[t] = t
    cuda.syncthreads()
    y[t] = s[t]


@fault("no thread of the block has written", grid=1)
def halo_not_loaded(x: Any, y: Any, n: int) -> None:
    s = cuda.shared.array(66, np.float32)
    t = cuda.threadIdx.x
    s[t + 1] = x[t]
    cuda.syncthreads()
    y[t] = s[t] + s[t + 2]


@fault("local arrays", grid=1, block=32)
def local_array_too_short(x: Any, y: Any, n: int) -> None:
    a = cuda.local.array(8, np.float32)
    for k in range(8):
        a[k] = x[k]
    y[cuda.threadIdx.x] = a[np.uint32(n) % np.uint32(9) + np.uint32(1)]


# -- barriers ----------------------------------------------------------------------------------------------------------


@fault("barrier that not all threads", grid=1)
def barrier_in_a_branch(x: Any, y: Any, n: int) -> None:
    t = cuda.threadIdx.x
    if t < n % 64:
        cuda.syncthreads()
    y[t] = x[t]


@fault("barrier that not all threads")
def return_before_a_barrier(x: Any, y: Any, n: int) -> None:
    i = cuda.grid(1)
    if i >= n:
        return
    cuda.syncthreads()
    y[i] = x[i]


@fault("barrier that not all threads", grid=1)
def two_barriers_for_one(x: Any, y: Any, n: int) -> None:
    t = cuda.threadIdx.x
    if t < 32:
        y[t] = x[t]
        cuda.syncthreads()
        y[t] += x[t + 1]
    else:
        y[t] = x[t]
        cuda.syncthreads()
        y[t] += x[t - 1]


# -- races within a block ----------------------------------------------------------------------------------------------


@fault("race", grid=1)
def no_barrier_before_the_next_tile(x: Any, y: Any, n: int) -> None:
    s = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    total = np.float32(0)
    for k in range(2):
        s[t] = x[64 * k + t]
        cuda.syncthreads()
        total += s[63 - t]
    y[t] = total


@fault("race", grid=1)
def reduction_without_barriers(x: Any, y: Any, n: int) -> None:
    s = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        step //= 2
    if t == 0:
        y[0] = s[0]


@fault("race", grid=1, block=(8, 8))
def transposed_in_place(x: Any, y: Any, n: int) -> None:
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    x[i * 8 + j] = x[j * 8 + i]


# -- races between blocks ----------------------------------------------------------------------------------------------


@fault("race")
def block_number_forgotten(x: Any, y: Any, n: int) -> None:
    y[cuda.threadIdx.x] = x[cuda.grid(1)]


@fault("race")
def histogram_without_atomics(x: Any, y: Any, n: int) -> None:
    i = cuda.grid(1)
    y[i % 16] += np.float32(1)


@fault("race")
def blocks_that_wait_by_a_flag(x: Any, y: Any, n: int) -> None:
    i = cuda.grid(1)
    if cuda.blockIdx.x == 0:
        y[i] = x[i]
    elif cuda.threadIdx.x == 0:
        y[i] = y[0]


@fault("race", block=1)
def atomic_and_plain(x: Any, y: Any, n: int) -> None:
    if cuda.blockIdx.x == 0:
        y[0] = x[0]
    else:
        cuda.atomic.add(y, 0, x[1])


# -- warps, and numbers ------------------------------------------------------------------------------------------------


@fault("not all threads of its mask", grid=1)
def shuffle_in_a_branch(x: Any, y: Any, n: int) -> None:
    t = cuda.threadIdx.x
    if t % 2 == 0:
        y[t] = cuda.shfl_sync(0xFFFFFFFF, x[t], 0)


@fault("does not take part", grid=1, block=32)
def shuffle_from_outside_of_the_mask(x: Any, y: Any, n: int) -> None:
    t = cuda.threadIdx.x
    if t < 16:
        y[t] = cuda.shfl_sync(0x0000FFFF, x[t], 20)


@fault("no GPU takes", block=2048)
def too_many_threads(x: Any, y: Any, n: int) -> None:
    y[cuda.grid(1) % 256] = x[0]
