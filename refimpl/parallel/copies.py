"""Many small copies in one call: of a few numbers, Python takes longer to begin a copy than the copy takes.

`communicators` has this module compiled once, and kept with the compiled kernels.  An import compiles it each time.
"""

from numba import njit, types

memcpy = types.ExternalFunction("memcpy", types.uintp(types.uintp, types.uintp, types.uintp))


@njit("void(uintp[:, ::1])", nogil=True, cache=True)
def copy_all(copies):  # type: ignore[no-untyped-def]
    """Each row is a copy: the address that is read, the one that is written, and the bytes."""
    for number in range(len(copies)):
        memcpy(copies[number, 1], copies[number, 0], copies[number, 2])
