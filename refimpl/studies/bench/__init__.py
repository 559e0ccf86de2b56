"""Kernels beside their rivals (NumPy, PyTorch), and how long planning takes: `refimpl bench`."""
