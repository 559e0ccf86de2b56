"""Zero-value compression of maps on the host: a bit a number says which are zero, and the others lie packed.

A map behind a ReLU is full of zeros.  Packed, it is a mask of 32 bits for every 32 numbers, and the numbers that are
not zero, one behind another.  *Zero* is told by the bits: -0.0 and not-a-number come back as they were, to the bit,
whatever the map holds; one without zeros grows by a 32nd.

Several workers have a part of the map each, and pack it into a part of the store as large: there a worker writes from
the left, and what it does not fill is never touched, so the operating system gives no memory for it.  What a worker
takes is counted in slots, eighths of its part, as the authors of vDNN++ do.

The inner loops are compiled by Numba, and run without Python's lock beside whatever else runs.  Importing this module
imports Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from kernels.cpu.threads import thread_count as cpu_threads

WORKERS = SLOTS = 8
WORD = 32  #: numbers that share a mask
#: Non-zeros of a word up to which it is quicker to go from one to the next than through all 32.
SPARSE_PACK, SPARSE_UNPACK = 16, 20
AT_ONCE = 4  #: of them are packed before the next look at whether any is left; WORD is a multiple of it

Word = np.uint32
Index = np.uint64
LAST = np.uint32(1 << (WORD - 1))  #: the bit of a word's last number


@intrinsic
def nonzeros(context: Any, numbers: Any, first: Any) -> Any:
    """The mask of the 32 numbers from `first` on: all are compared with 0 at once, in vector registers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        vector = ir.VectorType(ir.IntType(32), WORD)
        place = builder.bitcast(builder.gep(array.data, [arguments[1]]), vector.as_pointer())
        loaded = builder.load(place, align=4)
        return builder.bitcast(builder.icmp_unsigned("!=", loaded, ir.Constant(vector, [0] * WORD)), ir.IntType(32))

    return types.uint32(numbers, types.uint64), generate


@intrinsic
def trailing_zeros(context: Any, word: Any) -> Any:
    """How many bits are 0 before the first 1; the word is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint32(types.uint32), generate


@intrinsic
def ones(context: Any, word: Any) -> Any:
    """How many bits are 1."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint32(types.uint32), generate


@njit("uint64(uint32[::1], uint32[::1], uint32[::1], uint64, uint64)", nogil=True, cache=True)
def pack_words(numbers, masks, packed, first, last):  # type: ignore[no-untyped-def]
    """Pack the words first..last, from the place of the first number on; how many numbers are not zero.

    A word's numbers may be followed by rubbish, no further than its own place reaches; the next word overwrites it.
    """
    k = first * Index(WORD)
    for word in range(first, last):
        base = word * Index(WORD)
        mask = nonzeros(numbers, base)
        masks[word] = mask
        count = Index(ones(mask))
        to = k
        if count == WORD:
            for b in range(WORD):
                packed[to + Index(b)] = numbers[base + Index(b)]
        elif count > SPARSE_PACK:
            for b in range(WORD):
                packed[to] = numbers[base + Index(b)]  # a zero is overwritten by what comes next
                to += Index((mask >> Word(b)) & Word(1))
        else:
            while mask:  # whose end the processor guesses wrong now and then: the fewer the turns, the better
                for _ in range(AT_ONCE):
                    packed[to] = numbers[base + Index(trailing_zeros(mask | LAST))]
                    to += Index(1)
                    mask &= mask - Word(1)
        k += count
    return k - first * Index(WORD)


@njit("void(uint32[::1], uint32[::1], uint32[::1], uint64, uint64)", nogil=True, cache=True)
def unpack_words(masks, packed, numbers, first, last):  # type: ignore[no-untyped-def]
    """The numbers of the words first..last as they were."""
    k = first * Index(WORD)
    for word in range(first, last):
        base = word * Index(WORD)
        mask = masks[word]
        count = Index(ones(mask))
        given = k
        if count == WORD:
            for b in range(WORD):
                numbers[base + Index(b)] = packed[given + Index(b)]
        elif count > SPARSE_UNPACK:
            for b in range(WORD):
                bit = (mask >> Word(b)) & Word(1)
                numbers[base + Index(b)] = packed[given] & (Word(0) - bit)
                given += Index(bit)
        else:
            for b in range(WORD):
                numbers[base + Index(b)] = Word(0)
            while mask:
                numbers[base + Index(trailing_zeros(mask))] = packed[given]
                given += Index(1)
                mask &= mask - Word(1)
        k += count


def thread_count() -> int:
    """Threads that pack: as many as run kernels on a CPU, no more than workers."""
    return min(WORKERS, cpu_threads())


@cache
def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="packing")


def side_by_side(work: Callable[[int, int], Any], size: int) -> list[Any]:
    """`work(first, last)` for every worker's eighth of 0..size, by the threads; what each returned."""
    cuts = [worker * size // WORKERS for worker in range(WORKERS + 1)]
    return list(threads().map(work, cuts[:-1], cuts[1:]))


class Packed:
    """The place of one packed map in the store: `store` is its bytes, as many as `packed_limit` says.

    `pack` and `unpack` take the map's bytes, float32 numbers.  Numbers behind the last full word are kept as they are.
    """

    def __init__(self, store: np.ndarray, nbytes: int) -> None:
        words, self._rest = divmod(nbytes // 4, WORD)
        place = store[: packed_limit(nbytes)].view(Word)
        self._numbers = nbytes // 4
        self._masks, self._packed = place[:words], place[words : words + self._numbers]
        self.density = 1.0  #: of the map packed last: the share of numbers that are not zero
        self._cuts = [worker * words // WORKERS for worker in range(WORKERS + 1)]

    def pack(self, given: np.ndarray) -> int:
        """Pack a map; the bytes that it takes, in whole slots, masks included."""
        numbers = given.view(Word)
        full = self._numbers - self._rest
        self._packed[full:] = numbers[full:]
        counts = self._each(lambda first, last: int(pack_words(numbers, self._masks, self._packed, first, last)))
        self.density = (sum(counts) + self._rest) / max(self._numbers, 1)
        taken = 0
        for count, first, last in zip(counts, self._cuts, self._cuts[1:], strict=False):
            slot = -(-(last - first) * WORD // SLOTS)
            taken += -(-count // slot) * slot if slot else 0
        return 4 * (taken + self._rest + len(self._masks))

    def unpack(self, given: np.ndarray) -> None:
        """Fill a map with what was packed."""
        numbers = given.view(Word)
        full = self._numbers - self._rest
        numbers[full:] = self._packed[full:]
        self._each(lambda first, last: unpack_words(self._masks, self._packed, numbers, first, last))

    def _each(self, work: Callable[[int, int], Any]) -> list[Any]:
        """Every worker's part; small maps are not worth a thread."""
        if self._numbers < 1 << 14:
            return [work(first, last) for first, last in zip(self._cuts, self._cuts[1:], strict=False)]
        return side_by_side(work, len(self._masks))


def packed_limit(nbytes: int) -> int:
    """Bytes that a packed map takes at most: all its numbers and a bit each; a program reserves as much, rounded up."""
    return nbytes + 4 * -(-nbytes // (4 * WORD))
