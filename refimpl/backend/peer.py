"""The peer tier on CUDA: memory of a second GPU, which copies reach over the PCIe switch or NVLink.

A copy to it or from it is given to a stream of the first GPU, as a copy to the host is.  Where the two GPUs cannot
reach each other the driver takes the copy through the host: slower, and right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda.bindings import driver

from refimpl.backend.cuda_host import checked
from refimpl.backend.run_errors import DeviceFailed


class PeerMemory:
    """An arena on another GPU than the one in use."""

    def __init__(self, nbytes: int) -> None:
        count, own = ask(driver.cuDeviceGetCount()), ask(driver.cuCtxGetDevice())
        others = [number for number in range(count) if number != int(own)]
        if not others:
            raise DeviceFailed(
                "the peer tier is memory of a second GPU, and there is one GPU here; leave the tier out of --tiers, or "
                "run on the CPU"
            )
        self._own = ask(driver.cuCtxGetCurrent())
        self._device = ask(driver.cuDeviceGet(others[0]))
        self._context = ask(driver.cuDevicePrimaryCtxRetain(self._device))
        if ask(driver.cuDeviceCanAccessPeer(own, self._device)):
            driver.cuCtxEnablePeerAccess(self._context, 0)  # refused where it is enabled already
        try:
            self._pointer = self._there(lambda: ask(driver.cuMemAlloc(nbytes)))
        except DeviceFailed:
            driver.cuDevicePrimaryCtxRelease(self._device)
            raise

    def copying(self, address: int, pointer: int, nbytes: int, out: bool) -> Callable[[Any], None]:
        """A function of a stream's handle that copies between `pointer`, on the GPU in use, and `address` here."""
        ends = [(int(self._pointer) + address, self._context), (pointer, self._own)]
        to, given = ends if out else ends[::-1]
        return lambda handle: checked(driver.cuMemcpyPeerAsync(*to, *given, nbytes, handle), "a copy of its peer's")

    def close(self) -> None:
        self._there(lambda: driver.cuMemFree(self._pointer))
        driver.cuDevicePrimaryCtxRelease(self._device)

    def _there(self, act: Callable[[], Any]) -> Any:
        """Run `act` with the other GPU as the current one."""
        ask(driver.cuCtxPushCurrent(self._context))
        try:
            return act()
        finally:
            driver.cuCtxPopCurrent()


def ask(result: tuple[Any, ...]) -> Any:
    """The answer of a call of the driver."""
    checked(result, "a call for its peer's memory")
    return result[1] if len(result) > 1 else None
