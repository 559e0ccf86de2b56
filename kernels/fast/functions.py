"""exp, erf, tanh and the sigmoid for kernels, in float32, by polynomials.

A CPU computes sixteen of them at a time, where its library's functions are called one by one; a GPU takes a few
instructions more than for its own approximations, fewer than it waits for the number from memory.  So both compute the
same bits.

| function | how | its error |
|---|---|---|
| exp, of a number that is not positive | 2ⁿ eʳ, r at most ln 2 / 2, eʳ by a polynomial (Cephes) | 2e-7 of it |
| sigmoid | 1 / (1 + exp(-abs x)), and its mirror image | 3e-7 of it |
| tanh | a quotient of two polynomials (Eigen) | 4e-7 of it |
| erf | a quotient of two polynomials (Eigen) | 4e-7 of it |

Below -87.3 exp is 0, where a float32 would have fewer digits.  Not-a-number stays not-a-number.
"""

from __future__ import annotations

import math

import numpy as np

from kernels.targets.launch import device

ZERO, ONE = np.float32(0), np.float32(1)

EXP_END = np.float32(-87.3)
LOG2_E = np.float32(1 / math.log(2))
#: Added to a number between -127 and 0 it leaves in the lowest bits the number, rounded, plus 127: an exponent.
ROUNDING = np.float32(1.5 * 2**23 + 127)
#: ln 2 in two parts: a few bits, whose product with n is exact, and the rest.
LN_2, LN_2_REST = np.float32(0.693359375), np.float32(-2.12194440e-4)
R2, R3, R4, R5, R6, R7 = (
    np.float32(c)
    for c in (
        5.0000001201e-01, 1.6666665459e-01, 4.1665795894e-02, 8.3334519073e-03, 1.3981999507e-03, 1.9875691500e-04,
    )
)  # fmt: skip

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


@device
def exp(x: float) -> float:
    """Of a number that is not positive."""
    shifted = x * LOG2_E + ROUNDING
    n = shifted - ROUNDING
    r = x - n * LN_2 - n * LN_2_REST
    grown = ONE + r + r * r * (R2 + r * (R3 + r * (R4 + r * (R5 + r * (R6 + r * R7)))))
    power = np.int32(np.float32(shifted).view(np.int32) << 23).view(np.float32)  # the bits of 2ⁿ
    return ZERO if x < EXP_END else grown * power


@device
def sigmoid(x: float) -> float:
    e = exp(-abs(x))
    share = ONE / (ONE + e)
    return e * share if x < ZERO else share


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
