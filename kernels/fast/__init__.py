"""Fast kernels: one file a family, each with plain functions over arrays, on a GPU or on the CPU.

    gemm         a ladder of matrix products            fc           fully connected layers on it
    conv         convolution, one file an algorithm     pool         maximum and average
    batchnorm    layernorm    lrn    dropout    relu    softmax      sgd    the optimiser's step
    concat       join (and fork)    upsample            elementwise  fill, copy, axpy
    drop_path    channel_shuffle    permute_channels    take    pad    prepend
    embedding    position    of tokens
    activation   what the smooth activations share, a file each; functions: their exp, erf, tanh and sigmoid

`cpu` has what only a processor wants.
"""
