"""The Gaussian error linear unit: y = x Φ(x), Φ(x) = (1 + erf(x / √2)) / 2, and its gradient dx = dy (Φ(x) + x φ(x)).

With approximate="tanh" Φ(x) is (1 + tanh u) / 2, u = √(2/π) (x + 0.044715 x³), as the first networks had it (Hendrycks
and Gimpel, "Gaussian Error Linear Units", 2016).

Both may work in place (y is x, dx is dy).  The gradient needs x, so a network keeps its input.

erf and tanh are quotients of two polynomials, as in the Eigen library, and φ is a power of one: a CPU computes sixteen
of them at a time, where its library's functions are called one by one.  Their errors are below 1e-6.

The gradient's kernel works in place alone, as networks use it.  One with an array more, which may be the same one, a
compiler cannot prove free of conflicts: it would compute element by element, and took 8 times as long on a CPU.

Launch: as in `kernels.elementwise`, 256 threads a block, four elements a thread.  Forward moves 8 n bytes, backward
12 n; an element takes about 30 operations forward and 40 backward.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels import elementwise
from kernels.arguments import FlatView, KernelError, check, check_shape, flat
from kernels.elementwise import BLOCK, PER_THREAD, TILE, size, tiles
from kernels.launch import Floats, Kernel, device, kernel, launch
from kernels.shim import cuda

ZERO, HALF, ONE, SIXTEEN, SIXTEENTH = (np.float32(number) for number in (0, 0.5, 1, 16, 1 / 16))
ROOT_HALF = np.float32(math.sqrt(0.5))
DENSITY = np.float32(1 / math.sqrt(2 * math.pi))
SLOPE, CUBIC = np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715)
CUBIC_SLOPE = np.float32(3 * 0.044715)

#: Coefficients of x, x³, … above, and of 1, x², … below; beyond these ends erf and tanh are ±1.
ERF_END, TANH_END = np.float32(4), np.float32(7.9)
E1, E3, E5, E7, E9, E11, E13 = (
    np.float32(c)
    for c in (
        -1.60960333262415e-02, -2.95459980854025e-03, -7.34990630326855e-04, -5.69250639462346e-05,
        -2.10102402082508e-06, 2.77068142495902e-08, -2.72614225801306e-10,
    )
)  # fmt: skip
F0, F2, F4, F6, F8 = (
    np.float32(c)
    for c in (
        -1.42647390514189e-02, -7.37332916720468e-03, -1.68282697438203e-03, -2.13374055278905e-04,
        -1.45660718464996e-05,
    )
)  # fmt: skip
T1, T3, T5, T7, T9, T11, T13 = (
    np.float32(c)
    for c in (
        4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05, 5.12229709037114e-08,
        -8.60467152213735e-11, 2.00018790482477e-13, -2.76076847742355e-16,
    )
)  # fmt: skip
U0, U2, U4, U6 = (
    np.float32(c)
    for c in (4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06)
)  # fmt: skip
X0, X1, X2, X3, X4, X5, X6, X7 = (np.float32(math.exp(-0.5) / math.factorial(k)) for k in range(8))


@device
def erf(x: float) -> float:
    s = x * x
    above = x * (E1 + s * (E3 + s * (E5 + s * (E7 + s * (E9 + s * (E11 + s * E13))))))
    value = above / (F0 + s * (F2 + s * (F4 + s * (F6 + s * F8))))
    return ONE if x > ERF_END else -ONE if x < -ERF_END else value


@device
def tanh(x: float) -> float:
    s = x * x
    above = x * (T1 + s * (T3 + s * (T5 + s * (T7 + s * (T9 + s * (T11 + s * T13))))))
    value = above / (U0 + s * (U2 + s * (U4 + s * U6)))
    return ONE if x > TANH_END else -ONE if x < -TANH_END else value


@device
def density(x: float) -> float:
    """φ(x) = exp(-x² / 2) / √(2π): the sixteenth power of a power series around 1/2."""
    u = HALF * x * x
    w = HALF - u * SIXTEENTH
    e = X0 + w * (X1 + w * (X2 + w * (X3 + w * (X4 + w * (X5 + w * (X6 + w * X7))))))
    e *= e
    e *= e
    e *= e
    return ZERO if u > SIXTEEN else DENSITY * e * e


@device
def exact(x: float) -> float:
    return HALF * x * (ONE + erf(x * ROOT_HALF))


@device
def exact_slope(x: float) -> float:
    return HALF * (ONE + erf(x * ROOT_HALF)) + x * density(x)


@device
def by_tanh(x: float) -> float:
    return HALF * x * (ONE + tanh(SLOPE * (x + CUBIC * x * x * x)))


@device
def slope_by_tanh(x: float) -> float:
    t = tanh(SLOPE * (x + CUBIC * x * x * x))
    return HALF * (ONE + t) + HALF * x * (ONE - t * t) * SLOPE * (ONE + CUBIC_SLOPE * x * x)


def forward_kernel(name: str, value_of: Any) -> Kernel:
    @kernel(block=BLOCK, name=name)
    def gelu_forward(x: Floats, y: Floats, n: int) -> None:
        """y = gelu(x), four elements a thread."""
        value = cuda.local.array(PER_THREAD, np.float32)
        tile = cuda.blockIdx.x * TILE
        i = tile + cuda.threadIdx.x
        if tile + TILE <= n:
            for j in range(PER_THREAD):
                value[j] = x[np.uint32(i + j * BLOCK)]
            for j in range(PER_THREAD):
                y[np.uint32(i + j * BLOCK)] = value_of(value[j])
        else:
            for j in range(PER_THREAD):
                e = np.uint32(i + j * BLOCK)
                if i + j * BLOCK < n:
                    y[e] = value_of(x[e])

    return gelu_forward


def backward_kernel(name: str, slope_of: Any) -> Kernel:
    @kernel(block=BLOCK, name=name)
    def gelu_backward(x: Floats, dx: Floats, n: int) -> None:
        """dx = dx gelu'(x) in place, four elements a thread."""
        at = cuda.local.array(PER_THREAD, np.float32)
        value = cuda.local.array(PER_THREAD, np.float32)
        tile = cuda.blockIdx.x * TILE
        i = tile + cuda.threadIdx.x
        if tile + TILE <= n:
            for j in range(PER_THREAD):
                at[j] = x[np.uint32(i + j * BLOCK)]
                value[j] = dx[np.uint32(i + j * BLOCK)]
            for j in range(PER_THREAD):
                dx[np.uint32(i + j * BLOCK)] = value[j] * slope_of(at[j])
        else:
            for j in range(PER_THREAD):
                e = np.uint32(i + j * BLOCK)
                if i + j * BLOCK < n:
                    dx[e] *= slope_of(x[e])

    return gelu_backward


#: `approximate` → kernel.
FORWARD = {"none": forward_kernel("gelu_forward", exact), "tanh": forward_kernel("gelu_tanh_forward", by_tanh)}
BACKWARD = {
    "none": backward_kernel("gelu_backward", exact_slope), "tanh": backward_kernel("gelu_tanh_backward", slope_by_tanh),
}  # fmt: skip


def forward(x: Any, y: Any, *, approximate: str = "none", stream: Any = None) -> None:
    """y = gelu(x), or its tanh formula; y may be x."""
    check_formula("gelu.forward", approximate)
    check("gelu.forward", x=x, y=y)
    check_shape("gelu.forward", "y", y, x.shape)
    launch(FORWARD[approximate], tiles(size(x)), x, y, size(x), stream=stream)


def backward(x: Any, dy: Any, dx: Any, *, approximate: str = "none", stream: Any = None) -> None:
    """dx = dy gelu'(x); dx may be dy, and otherwise is a copy of it first."""
    check_formula("gelu.backward", approximate)
    check("gelu.backward", x=x, dy=dy, dx=dx)
    check_shape("gelu.backward", "dy", dy, x.shape)
    check_shape("gelu.backward", "dx", dx, x.shape)
    if start(dx) != start(dy):
        elementwise.copy(dy, dx, stream=stream)
    launch(BACKWARD[approximate], tiles(size(x)), x, dx, size(x), stream=stream)


def check_formula(where: str, approximate: str) -> None:
    """There is such a formula."""
    if approximate not in FORWARD:
        raise KernelError(f"{where}: approximate is {approximate!r}; give one of {', '.join(FORWARD)}")


def start(array: Any) -> int:
    """Where an array begins in memory."""
    view = flat(array)
    return view.pointer if isinstance(view, FlatView) else int(view.__array_interface__["data"][0])
