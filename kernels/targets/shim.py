"""The one place where Numba's CUDA target is imported.

`numba.cuda` inside Numba is deprecated; the package numba-cuda takes its name over when it is installed, and a
successor with another name is on its way.  Everything here says `from kernels.targets.shim import cuda`, so a move is
one line long.  Importing it needs no GPU and no driver.  What is not public is in `kernels.targets.private`.
"""

from numba import cuda

__all__ = ["cuda"]
