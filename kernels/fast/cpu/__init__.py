"""Kernels for processors alone: `kernels.fast` asks for one when it is chosen."""
