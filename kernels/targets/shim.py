"""The one place where Numba's CUDA target is imported.

`numba.cuda` inside Numba is deprecated; the package numba-cuda takes its name over when it is installed, and a
successor with another name is on its way.  Everything here says `from kernels.targets.shim import cuda`, so a move is
one line long.  Importing it needs no GPU and no driver.
"""

from numba import cuda
from numba.cuda.codegen import CUDACodeLibrary as CodeLibrary  # PTX and machine code of a kernel
from numba.cuda.codegen import JITCUDACodegen as Codegen  # what makes them
from numba.cuda.cudadrv.driver import driver as numba_driver  # it looks for a driver when it is imported
from numba.cuda.dispatcher import _Kernel as NumbaKernel  # a kernel compiled for one signature, before it is loaded

__all__ = ["CodeLibrary", "Codegen", "NumbaKernel", "cuda", "numba_driver"]
