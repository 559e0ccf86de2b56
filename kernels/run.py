"""Launching a plain kernel: enough blocks for the threads that are wanted, then Numba's own brackets.

    run(relu_forward, x.size, x, y, stream=compute)     is     relu_forward[blocks, 256, compute](x, y)

That is so for Numba's device arrays, and for all arrays in Numba's simulator.  NumPy arrays, and the views that a
finished program is bound to, go to this project's own compilers (`kernels.targets.launch`), imported when first needed.
"""

import math

import numpy as np
from numba import config

#: Threads of a block, by the number of directions that the threads are counted in.
BLOCKS = {1: (256,), 2: (32, 8), 3: (32, 8, 1)}


def run(kernel, threads, *args, stream=None):
    """Run a kernel with at least these threads, one number for each direction."""
    wanted = (threads,) if isinstance(threads, int) else tuple(threads)
    block = BLOCKS[len(wanted)]
    grid = tuple(-(-number // size) for number, size in zip(wanted, block, strict=True))
    if config.ENABLE_CUDASIM or any(hasattr(arg, "copy_to_host") for arg in args):  # as Numba's device arrays have
        numbers = [np.float32(arg) if isinstance(arg, float) else arg for arg in args]  # Numba would make doubles
        kernel[grid, block, stream or 0](*numbers)
    else:
        from kernels.targets.launch import launch, of_plain

        launch(of_plain(kernel, args, block), grid, *args, stream=stream)


def size(array):
    """Elements of an array, wherever it is."""
    return math.prod(array.shape)


def shaped(array, shape):
    """All elements of an array in this shape, without a copy; one length may be -1."""
    if hasattr(array, "reshape"):
        return array.reshape(shape)
    from kernels.checks.arguments import shaped as view

    return view(array, shape)


def flat(array):
    """All elements of an array in one dimension, without a copy."""
    return shaped(array, (size(array),))


def maps(array):
    """An array as (images, channels, positions), without a copy."""
    return shaped(array, (*array.shape[:2], -1))
