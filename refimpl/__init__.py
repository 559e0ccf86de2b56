"""Training networks that do not fit the GPU's memory: the reference implementation's command, bench and demo.

So far the ground floor is built: the kernels (package `kernels`) and the command that lists, measures and shows them.
"""

__version__ = "0.1.0"
