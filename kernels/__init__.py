"""Every layer of a network as plain Numba CUDA kernels, float32, NCHW, on a GPU or on the CPU.

Here every operation is as one would first write it: a kernel a pass, under Numba's own `@cuda.jit`.  Arrays keep their
axes, `x[n, c, h, w]`; loops run over `range`; a thread computes one element of the result, or one row or channel where
that is a sum.  A file has its formula, its kernels, and below them the functions that launch them.  The kernels need
Numba and NumPy alone: copy them into a file of yours, with those of `index`, and launch them there,

    conv_forward[(y.size + 255) // 256, 256](x, w, y, (1, 1), (0, 0))

on a GPU, or without one in Numba's simulator (NUMBA_ENABLE_CUDASIM=1).  Functions run where their arrays are.

    conv, grouped (and with dilation)     pool, pool_to (a given size), pool_position (kept as positions)     concat
    fc, relu, relu_sign (kept as bits), lrn, batchnorm, softmax, dropout     join (and fork)     sgd, adamw, clip
    layernorm, rmsnorm, attention, scores and mix (its probabilities as a map)    embedding, position, rotary, prepend
    mul, scale, upsample, drop_path, take, pad, channel_shuffle, permute_channels   mean_loss, pixel_softmax, pieces
    gelu, silu, hardswish, sigmoid, hardsigmoid, tanh, leaky_relu, elementwise (fill, copy, axpy)
    run: launching one    index: of elements, larger of two    copies: device and host    rungs: plain or fast

    fast         many of the same functions with the kernels that a GPU wants; in fast/cpu those of a processor
    checks       arguments, shapes, and the reference in NumPy
    targets      declaring, compiling and launching, on the CPU, on a GPU and on an emulated one

Outputs are given, never allocated; nothing uses floating-point atomics, so results are the same to the last bit from
run to run.  This package knows nothing of `refimpl`.
"""

#: Tells this package from those that other projects install under the same name.
PROJECT = "refimpl"
