"""Six faults of Numba CUDA programs: `python -m kernels.targets.emulated docs/six_faults.py race` makes one of them."""

import sys

import numpy as np
from numba import cuda


@cuda.jit
def bound(x):
    i = cuda.grid(1)
    if i <= x.size:
        x[i] = 2


@cuda.jit
def race(x):
    i = cuda.grid(1)
    x[i % 8] += 1


@cuda.jit
def barrier(x):
    i = cuda.threadIdx.x
    if i < 10:
        cuda.syncthreads()
        x[i] = 1


@cuda.jit
def shared(x):
    part = cuda.shared.array(64, np.float32)
    i = cuda.threadIdx.x
    part[i] = x[i]
    x[i] = part[63 - i]


@cuda.jit
def unset(x):
    total = cuda.local.array(4, np.float32)
    total[0] = 1
    x[cuda.grid(1)] = total[cuda.threadIdx.x % 4]


@cuda.jit
def double(x):
    x[cuda.grid(1)] *= 2


def event(x):
    kernels, copies = cuda.stream(), cuda.stream()
    double[1, 64, kernels](x)
    x.copy_to_host(cuda.pinned_array(64, np.float32), stream=copies)


if __name__ == "__main__":
    x = cuda.to_device(np.ones(64, np.float32))
    made = globals()[sys.argv[1]]
    if made is event:
        event(x)
    else:
        made[2 if made is bound else 1, 64](x)
    cuda.synchronize()
