"""What compiles kernels and runs them: a kernel's file needs none of it, and its reader neither.

cpu           the same source, compiled for the processor
gpu           views, launches, streams and events on a GPU
emulated      a GPU that this process pretends to have: it runs the PTX
compiled      kernels as Numba compiles them for a GPU, kept on disk
machine_code  what a GPU would execute, read without one
collector     Python's garbage collector, paused
"""

__all__ = ["cpu", "emulated", "gpu", "launch", "machine_code", "shim"]
