"""Every layer of a convolutional network as plain Numba CUDA kernels, float32, NCHW, on a GPU or on the CPU.

One file a family, each with plain functions over arrays: NumPy arrays run on the CPU, device arrays on the GPU.

    gemm         a ladder of matrix products            fc           fully connected layers on it
    conv         convolution, one file an algorithm     pool         maximum and average
    batchnorm    layernorm    lrn    dropout    relu    softmax      sgd    the optimiser's step
    concat       join (and fork)    upsample            elementwise  fill, copy, axpy
    drop_path    channel_shuffle    permute_channels    take    pad    prepend
    embedding    position    of tokens
    activation   what the smooth activations share, a file each; functions: their exp, erf, tanh and sigmoid

    reference    the same in plain NumPy: the oracle    declare, launch   declaring, launching and binding kernels
    arguments    checks, one clear error each           targets           what compiles and runs them

Outputs are given, never allocated; nothing uses floating-point atomics, so results are the same to the last bit from
run to run.  This package knows nothing of `refimpl`.
"""

#: Tells this package from those that other projects install under the same name.
PROJECT = "refimpl"
