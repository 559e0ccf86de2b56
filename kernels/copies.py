"""Copies between the device and the host; and the names of `numba.cuda` for where there is no device."""

from typing import Any

import numpy as np


def copy(given: Any, to: Any, stream: Any) -> None:
    """A copy on a stream; one of the two is a device array of Numba's, or on the CPU both are NumPy's."""
    if hasattr(to, "copy_to_device"):
        to.copy_to_device(given, stream=stream)
    elif hasattr(given, "copy_to_host"):
        given.copy_to_host(to, stream=stream)
    else:
        np.copyto(to, given)


class NoGpu:
    """Memory is NumPy's, and all work is done when its call returns: streams and events have nothing to do."""

    def device_array(self, shape, dtype):
        return np.zeros(shape, dtype)

    pinned_array = device_array

    class stream:
        def record(self, stream):
            pass

        wait = record

        def synchronize(self):
            pass

    event = stream
