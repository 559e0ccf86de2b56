"""vDNN++'s codec, zero-value compression (§4): a bit a number says which are zero, and the others are packed.

A map after a ReLU is full of zeros.  Packed, it is a mask of 32 bits for every 32 numbers, and the numbers that are
not zero, one after another.  *Zero* is told by the bits: -0.0 and not-a-number are restored exactly, to the bit,
whatever the map holds; one without zeros grows by a 32nd.

Several workers have a part of the map each, and pack it into a part of the store as large: there a worker writes from
the left, and what it does not fill is never touched, so the operating system gives no memory for it.  What a worker
takes is counted in slots, eighths of its part, as the authors of vDNN++ do.

The inner loops are in `packing_words`, compiled by Numba when the first map is packed; they run without Python's lock
beside whatever else runs.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refimpl.slots.planner_only import Codec
from refimpl.text import RefimplError

if TYPE_CHECKING:
    import numpy as np

WORKERS = SLOTS = 8
WORD = 32  #: numbers that share a mask

#: The codec in NumPy, for a program that is written out as a script.
WRITTEN_OUT = '''def compress(name, buffer):
    """Keep a bit for every number, whether it is zero, and the numbers that are not.  (By the bits: -0.0 is not.)"""
    numbers = buffer.reshape(-1).view(np.uint32)
    store[name] = np.packbits(numbers != 0), numbers[numbers != 0]


def decompress(name, buffer):
    """The map as it was, to the bit."""
    numbers = buffer.reshape(-1).view(np.uint32)
    bits, others = store[name]
    numbers[:] = 0
    numbers[np.unpackbits(bits, count=numbers.size).astype(bool)] = others
'''


def packed_limit(nbytes: int) -> int:
    """The most bytes that a map of `nbytes` takes when it is packed: all its numbers, and a bit each."""
    return nbytes + 4 * -(-nbytes // (4 * WORD))


@cache
def words() -> Any:
    """The module `packing_words`, compiled by Numba once for all processes."""
    from kernels.targets.cpu.build import load_source

    return load_source(Path(__file__).with_name("packing_words.py"))


def thread_count() -> int:
    """Threads that pack: as many as run kernels on a CPU, no more than workers."""
    from kernels.targets.cpu.threads import thread_count as cpu_threads

    return min(WORKERS, cpu_threads())


@cache
def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="packing")


def side_by_side(work: Callable[[int, int], Any], size: int) -> list[Any]:
    """`work(first, last)` for every worker's eighth of 0..size, by the threads; what each returned."""
    cuts = [worker * size // WORKERS for worker in range(WORKERS + 1)]
    return list(threads().map(work, cuts[:-1], cuts[1:]))


class PackingError(RefimplError, ValueError):
    """A map or its place in the store does not have the bytes that packing needs."""


class Packed:
    """The place of one packed map in the store.

    `pack` and `unpack` take the map's bytes, which are float32 numbers.  Numbers after the last full word are kept as
    they are.  The compiled loops check no index, so the arrays are checked here.

    Args:
        store: the bytes of the store from the map's place on, at least `packed_limit(nbytes)` of them.
        nbytes: of the map.
    """

    def __init__(self, store: np.ndarray, nbytes: int) -> None:
        import numpy as np

        limit = packed_limit(nbytes)
        if store.size < limit:
            raise PackingError(f"packing {nbytes} bytes can take {limit} bytes of the store; it has {store.size} there")
        count, self._rest = divmod(nbytes // 4, WORD)
        self._words = words()
        place = store[:limit].view(np.uint32)
        self._numbers = nbytes // 4
        self._masks, self._packed = place[:count], place[count : count + self._numbers]
        self.density = 1.0  #: of the map packed last: the share of numbers that are not zero
        self._cuts = [worker * count // WORKERS for worker in range(WORKERS + 1)]

    def pack(self, given: np.ndarray) -> int:
        """Pack a map; the bytes that it takes, in whole slots, masks included."""
        numbers = self._words_of(given)
        full = self._numbers - self._rest
        self._packed[full:] = numbers[full:]
        pack = self._words.pack_words
        counts = self._each(lambda first, last: int(pack(numbers, self._masks, self._packed, first, last)))
        self.density = (sum(counts) + self._rest) / max(self._numbers, 1)
        taken = 0
        for count, first, last in zip(counts, self._cuts, self._cuts[1:], strict=False):
            slot = -(-(last - first) * WORD // SLOTS)
            taken += -(-count // slot) * slot if slot else 0
        return 4 * (taken + self._rest + len(self._masks))

    def unpack(self, given: np.ndarray) -> None:
        """Fill a map with what was packed."""
        numbers = self._words_of(given)
        full = self._numbers - self._rest
        numbers[full:] = self._packed[full:]
        self._each(lambda first, last: self._words.unpack_words(self._masks, self._packed, numbers, first, last))

    def _words_of(self, given: np.ndarray) -> np.ndarray:
        """The map's bytes as words."""
        import numpy as np

        if given.nbytes != 4 * self._numbers:
            raise PackingError(f"a map of {given.nbytes} bytes cannot use a place made for {4 * self._numbers}")
        return given.view(np.uint32)

    def _each(self, work: Callable[[int, int], Any]) -> list[Any]:
        """Every worker's part; small maps are not worth a thread."""
        if self._numbers < 1 << 14:
            return [work(first, last) for first, last in zip(self._cuts, self._cuts[1:], strict=False)]
        return side_by_side(work, len(self._masks))


class ZeroValue(Codec):
    """Zero-value compression."""

    packs, unpacks, packed = "compress", "decompress", "compressed"
    written_out = WRITTEN_OUT

    def room(self, nbytes: int) -> int:
        return packed_limit(nbytes)

    def place(self, store: np.ndarray, nbytes: int) -> Packed:
        return Packed(store, nbytes)


ZERO_VALUE = ZeroValue()
