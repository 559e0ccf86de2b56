"""Adam with decoupled weight decay, PyTorch's rule and names, t = iteration + 1:

    exp_avg    = beta1 · exp_avg + (1 - beta1) · dw
    exp_avg_sq = beta2 · exp_avg_sq + (1 - beta2) · dw²
    w          = (1 - rate · decay) · w - rate / (1 - beta1ᵗ) · exp_avg / (√exp_avg_sq / √(1 - beta2ᵗ) + epsilon)

Both averages start as zeros; the powers correct for that.  What is the same for all weights is computed on the host.
"""

import math

from numba import cuda

from kernels.run import flat, run, size


@cuda.jit
def adamw_average(dw, exp_avg, exp_avg_sq, share1, share2):
    """One thread a weight: both averages; share1 = 1 - beta1, share2 = 1 - beta2."""
    i = cuda.grid(1)
    if i < dw.size:
        exp_avg[i] += share1 * (dw[i] - exp_avg[i])
        exp_avg_sq[i] += share2 * (dw[i] * dw[i] - exp_avg_sq[i])


@cuda.jit
def adamw_update(w, exp_avg, exp_avg_sq, kept, step, correction, epsilon):
    """One thread a weight: `kept` is the share that its decay leaves, `step` and `correction` have the powers."""
    i = cuda.grid(1)
    if i < w.size:
        w[i] = kept * w[i] - step * (exp_avg[i] / (math.sqrt(exp_avg_sq[i]) * correction + epsilon))


# --- Launching them --------------------------------------------------------------------------------------------------


def update(
    w, dw, exp_avg, exp_avg_sq, *, iteration, rate, beta1=0.9, beta2=0.999, epsilon=1e-8, decay=0.0, stream=None
):
    averages = flat(exp_avg), flat(exp_avg_sq)
    run(adamw_average, size(dw), flat(dw), *averages, 1 - beta1, 1 - beta2, stream=stream)
    step, correction = rate / (1 - beta1 ** (iteration + 1)), 1 / math.sqrt(1 - beta2 ** (iteration + 1))
    numbers = 1 - rate * decay, step, correction, epsilon
    run(adamw_update, size(w), flat(w), *averages, *map(float, numbers), stream=stream)
