"""The inner loops of `packing`, for every 32 numbers of a map: a mask, and the numbers that are not zero.

`packing.words()` compiles this module once and keeps it with the compiled kernels.  An import compiles it each time.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

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
