"""What the plain and the fast kernels share: checks of arguments, a convolution's shape, the reference in NumPy.

arguments    one clear error a wrong argument
conv_shape   sizes of a convolution, checked
reference    every layer in plain NumPy: the oracle
"""
