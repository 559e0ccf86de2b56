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

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

WORKERS = SLOTS = 8
WORD = 32  #: numbers that share a mask
SPARSE = 12  #: non-zeros of a word up to which it is quicker to go from one to the next than through all 32

Word = np.uint32
Index = np.uint64


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
    """Pack the words first..last, from the place of the first number on; how many numbers are not zero."""
    k = first * Index(WORD)
    for word in range(first, last):
        base = word * Index(WORD)
        mask = Word(0)
        for b in range(WORD):
            mask |= Word(numbers[base + Index(b)] != 0) << Word(b)
        masks[word] = mask
        count = ones(mask)
        if count == WORD:
            for b in range(WORD):
                packed[k + Index(b)] = numbers[base + Index(b)]
            k += Index(WORD)
        elif count > SPARSE:
            for b in range(WORD):
                number = numbers[base + Index(b)]
                packed[k] = number  # a zero is overwritten by what comes next
                k += Index(number != 0)
        else:
            while mask:
                packed[k] = numbers[base + Index(trailing_zeros(mask))]
                k += Index(1)
                mask &= mask - Word(1)
    return k - first * Index(WORD)


@njit("void(uint32[::1], uint32[::1], uint32[::1], uint64, uint64)", nogil=True, cache=True)
def unpack_words(masks, packed, numbers, first, last):  # type: ignore[no-untyped-def]
    """The numbers of the words first..last as they were."""
    k = first * Index(WORD)
    for word in range(first, last):
        base = word * Index(WORD)
        mask = masks[word]
        count = ones(mask)
        if count == WORD:
            for b in range(WORD):
                numbers[base + Index(b)] = packed[k + Index(b)]
            k += Index(WORD)
        elif count > SPARSE:
            for b in range(WORD):
                bit = mask & Word(1)
                numbers[base + Index(b)] = packed[k] & (Word(0) - bit)
                k += Index(bit)
                mask >>= Word(1)
        else:
            for b in range(WORD):
                numbers[base + Index(b)] = Word(0)
            while mask:
                numbers[base + Index(trailing_zeros(mask))] = packed[k]
                k += Index(1)
                mask &= mask - Word(1)


@cache
def threads() -> ThreadPoolExecutor:
    """The workers' threads: as many as there are cores, no more than workers."""
    return ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1), thread_name_prefix="packing")


class Packed:
    """The place of one packed map in the store: `store` is its bytes, as many as `packed_limit` says.

    `pack` and `unpack` take the map's bytes.  Numbers behind the last full word are kept as they are.
    """

    def __init__(self, store: np.ndarray, nbytes: int) -> None:
        words, self._rest = divmod(nbytes // 4, WORD)
        given = store[: packed_limit(nbytes)].view(Word)
        self._numbers = nbytes // 4
        self._masks, self._packed = given[:words], given[words : words + self._numbers]
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
        parts = list(zip(self._cuts, self._cuts[1:], strict=False))
        if self._numbers < 1 << 14:
            return [work(first, last) for first, last in parts]
        return list(threads().map(lambda part: work(*part), parts))


def packed_limit(nbytes: int) -> int:
    """Bytes that a packed map takes at most: all its numbers, and a bit each (`planner.program.compressed_limit`)."""
    return nbytes + 4 * -(-nbytes // (4 * WORD))
