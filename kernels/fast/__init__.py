"""Fast kernels: one file a family, each with plain functions over arrays, on a GPU or on the CPU.

    gemm         a ladder of matrix products            fc           fully connected layers on it
    conv         convolution, one file an algorithm     pool         maximum and average
    batchnorm    layernorm    lrn    dropout    relu    softmax      pixel_softmax    attention
    concat       join (and fork)    mul    sgd          elementwise  fill, copy, axpy
    activation   what the smooth activations share, a file each; functions: their exp, erf, tanh and sigmoid

Any other family has its plain kernels alone (`kernels.rungs`).  `cpu` has what only a processor wants.
"""
