"""Gradient descent with momentum and weight decay: v = momentum · v + (dw + decay · w), then w = w - rate · v.

Rungs:
    kernels.fast.sgd    four elements a thread
"""

from numba import cuda

from kernels.run import flat, run, size


@cuda.jit
def sgd_update(w, dw, v, rate, momentum, decay):
    """One thread a weight."""
    i = cuda.grid(1)
    if i < w.size:
        v[i] = momentum * v[i] + (dw[i] + decay * w[i])
        w[i] -= rate * v[i]


# --- Launching it ----------------------------------------------------------------------------------------------------


def update(w, dw, momentum_buffer, *, rate, momentum=0.0, decay=0.0, stream=None):
    arrays = flat(w), flat(dw), flat(momentum_buffer)
    run(sgd_update, size(w), *arrays, float(rate), float(momentum), float(decay), stream=stream)
