"""A launch's blocks shared out over threads, without Python's global lock.

Every thread has a share of the blocks: the same part of every launch.  So it works on the same images in every layer,
and what it reads is in its own core's cache.  (Cores of one processor need not share a cache: a line that the other
core wrote can take 400 ns.)  It takes its share in chunks, and when that is done, chunks of the others' shares.

    a launch     rows of LINE numbers: WORK and SHARES; then one row a share: TAKEN, OFFERED, DONE
    a mailbox    a helper's row, one number: IDLE, ASLEEP, BUSY, or the address of the launch that it is offered
    its work     RUN, the address of the kernel's compiled loop over blocks; BLOCKS; COLUMNS; and what that loop reads

The blocks in order are a matrix of COLUMNS columns, and a share has some of the columns: all blocks in a row, unless
`launch` is told otherwise.

`threads` has this module compiled once and kept with the compiled kernels.
"""

import platform
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.targets.cpu.runtime import array_at, inside

LINE = 16  #: int64 of a row, 128 bytes: what processors move between cores at once, so no two threads write to one
CHUNKS = 16  #: of a share: more even out unequal blocks, fewer cost less
IDLE, ASLEEP, BUSY = 0, 1, 2  #: an address is more than these
WORK, SHARES = 0, 1
TAKEN, OFFERED, DONE = 0, 1, 2
RUN, BLOCKS, COLUMNS = 0, 1, 2


# -- memory that several threads write ---------------------------------------------------------------------------------


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return cgutils.gep(builder, array.data, arguments[1])


@intrinsic
def pause(context: Any) -> Any:
    """Leave the core's units to its other thread for some cycles, where there is an instruction for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if platform.machine() in ("x86_64", "AMD64"):
            function = builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), ir.FunctionType(ir.VoidType(), []))
            builder.call(function, [])
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def look(context: Any, numbers: Any, place: Any) -> Any:
    """numbers[place], read from memory each time, and before all that this thread reads after it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_pointer(context, builder, signature, arguments), "acquire", 8)

    return types.int64(numbers, types.int64), generate


@intrinsic
def put(context: Any, numbers: Any, place: Any, value: Any) -> Any:
    """numbers[place] = value, after all that this thread has written before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[2], _pointer(context, builder, signature, arguments), "release", 8)
        return context.get_dummy_value()

    return types.none(numbers, types.int64, types.int64), generate


@intrinsic
def take(context: Any, numbers: Any, place: Any, amount: Any) -> Any:
    """numbers[place], which goes up by `amount`: no two threads get the same."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(context, builder, signature, arguments), arguments[2], "monotonic")

    return types.int64(numbers, types.int64, types.int64), generate


@intrinsic
def swap(context: Any, numbers: Any, place: Any, old: Any, new: Any) -> Any:
    """Whether numbers[place] was `old`: it is `new` then."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments)
        found = builder.cmpxchg(pointer, arguments[2], arguments[3], "acq_rel", "acquire")
        return builder.extract_value(found, 1)

    return types.boolean(numbers, types.int64, types.int64, types.int64), generate


@intrinsic
def address_of(context: Any, numbers: Any) -> Any:
    """Where an array's first element is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(array.data, ir.IntType(64))

    return types.int64(numbers), generate


@intrinsic
def run_chunk(context: Any, work: Any, first: Any, end: Any) -> Any:
    """Blocks from `first` to before `end`, by the function that the work names."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        number = ir.IntType(64)
        function = builder.inttoptr(
            builder.load(cgutils.gep(builder, array.data, RUN)),
            ir.FunctionType(ir.VoidType(), [number] * 3).as_pointer(),
        )
        builder.call(function, [builder.ptrtoint(array.data, number), *arguments[1:]])
        return context.get_dummy_value()

    return types.none(work, types.int64, types.int64), generate


# -- a launch ----------------------------------------------------------------------------------------------------------


@njit("void(int64[::1])", nogil=True, cache=True)
def run_alone(work: np.ndarray) -> None:
    """All blocks on this thread, one after another."""
    run_chunk(work, 0, work[BLOCKS])


@inside
def run_share(launch: np.ndarray, own: int) -> None:
    """The blocks of this thread's own share, then what is left of the others'."""
    work, shares = array_at(launch[WORK], (COLUMNS + 1,), np.int64), launch[SHARES]
    columns = work[COLUMNS]
    rows = work[BLOCKS] // columns
    for turn in range(shares):
        share = (own + turn) % shares
        start = share * columns // shares
        width = (share + 1) * columns // shares - start
        chunk, taken = max(1, rows * width // CHUNKS), LINE * (1 + share) + TAKEN
        while look(launch, taken) < rows * width:
            first = take(launch, taken, chunk)
            end = min(first + chunk, rows * width)
            while first < end:
                row, column = first // width, first % width
                count = min(width - column, end - first)
                block = row * columns + start + column
                run_chunk(work, block, block + count)
                first += count


@njit("boolean(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def offer(mailboxes: np.ndarray, launch: np.ndarray, work: np.ndarray, shares: int) -> bool:
    """Offer a share each to the helpers that have nothing to do; whether one of them has to be woken."""
    launch[WORK] = address_of(work)
    launch[SHARES] = shares
    sleepers = False
    for helper in range(shares - 1):
        place, row = LINE * helper, LINE * (2 + helper)
        for state in (IDLE, ASLEEP):
            if launch[row + OFFERED] == 0:
                launch[row + OFFERED] = 1 + state  # before the helper can write to this row
                if not swap(mailboxes, place, state, address_of(launch)):
                    launch[row + OFFERED] = 0
        sleepers = sleepers or launch[row + OFFERED] == 1 + ASLEEP
    return sleepers


@njit("boolean(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def finish(mailboxes: np.ndarray, launch: np.ndarray, looks: int) -> bool:
    """Run share 0, and then wait for the helpers that have begun; False if one has not ended within some looks."""
    run_share(launch, 0)
    for helper in range(launch[SHARES] - 1):
        row = LINE * (2 + helper)
        if launch[row + OFFERED] != 0 and swap(mailboxes, LINE * helper, address_of(launch), IDLE):
            launch[row + OFFERED] = 0  # it had not begun
        looked = 0
        while launch[row + OFFERED] != 0 and look(launch, row + DONE) == 0:
            looked += 1
            if looked == looks:
                return False
            pause()
    return True


@njit("void(int64[::1], int64, int64)", nogil=True, cache=True)
def serve(mailboxes: np.ndarray, helper: int, looks: int) -> None:
    """A helper's work: the shares that it is offered, until none has come within some looks; ASLEEP then."""
    place, looked = LINE * helper, 0
    while looked < looks or not swap(mailboxes, place, IDLE, ASLEEP):
        pause()
        offered = look(mailboxes, place)
        looked += 1
        if offered > BUSY and swap(mailboxes, place, offered, BUSY):
            launch = array_at(offered, (LINE * (3 + helper),), np.int64)
            run_share(launch, 1 + helper)
            put(launch, LINE * (2 + helper) + DONE, 1)  # from here on the launch may be gone
            put(mailboxes, place, IDLE)
            looked = 0
