"""Imported by generated modules: their arguments, memory on the stack, and the checks of checked mode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

from kernels.checks.arguments import contiguous_strides

# The report of checked mode: who is running (thread, block, and epoch: one more than the barriers that the block has
# passed), and what a failed check writes down before it raises (see `checked`).
KIND, SITE, INDEX_FOUND, SIZE, THREAD, OTHER_THREAD, EPOCH, BLOCK_X, BLOCK_Y, BLOCK_Z = range(10)
REPORT_LENGTH = 10
INDEX, AGREE, READS_WRITTEN, WRITES_WRITTEN, WRITES_READ = range(1, 6)

# What checked mode remembers of an element of a shared array: who touched it last, and in which epoch.  Of an epoch's
# readers two are enough: one of them is not the thread that comes to write.
SHADOW = np.dtype([(name, np.int64) for name in ("write_epoch", "writer", "read_epoch", "reader", "other_reader")])
NO_THREAD = -1

inside = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  #: for what generated code calls and Python does not


@intrinsic(prefer_literal=True)
def array_at(typing_context: Any, address: Any, shape: Any, dtype: Any) -> Any:
    """The array of this shape, a tuple, that is at an address."""
    array_type = types.Array(dtype.dtype, len(shape), "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        element = context.get_data_type(array_type.dtype)
        data, lengths = builder.inttoptr(arguments[0], ir.PointerType(element)), []
        for kind, length in zip(shape, cgutils.unpack_tuple(builder, arguments[1]), strict=True):
            lengths.append(context.cast(builder, length, kind, types.intp))
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(element))
        steps = [itemsize]
        for length in reversed(lengths[1:]):
            steps.insert(0, builder.mul(steps[0], length))
        array = context.make_array(array_type)(context, builder)
        arrayobj.populate_array(array, data, lengths, steps, itemsize, meminfo=None)  # no reference count
        return array._getvalue()

    return array_type(address, shape, dtype), generate


@intrinsic
def float_in(typing_context: Any, number: Any) -> Any:
    """The float32 whose bits are a number's lower 32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.trunc(arguments[0], ir.IntType(32)), ir.FloatType())

    return types.float32(types.int64), generate


@intrinsic(prefer_literal=True)
def stack(typing_context: Any, shape: Any, dtype: Any) -> Any:
    """An array of this shape (a tuple of literals) on the stack.

    LLVM knows such memory: it cannot alias an argument, and a small array under constant loops becomes registers.
    """
    array_type = types.Array(dtype.dtype, len(shape), "C")

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        return _on_stack(context, builder, array_type, shape)._getvalue()

    return array_type(shape, dtype), generate


@intrinsic(prefer_literal=True)
def filled(typing_context: Any, shape: Any, dtype: Any, value: Any) -> Any:
    """An array on the stack with every element set to the value; elements of several fields are set to zero.

    As np.full and np.zeros, which Numba would compile for every kind of array.
    """
    array_type = types.Array(dtype.dtype, len(shape), "C")

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        array = _on_stack(context, builder, array_type, shape)
        with cgutils.for_range(builder, array.nitems) as loop:
            element = builder.gep(array.data, [loop.index])
            if isinstance(array_type.dtype, types.Record):
                builder.store(ir.Constant(element.type.pointee, None), element)
            else:
                cast = context.cast(builder, arguments[2], value, array_type.dtype)
                context.pack_value(builder, array_type.dtype, cast, element)
        return array._getvalue()

    return array_type(shape, dtype, value), generate


@intrinsic(prefer_literal=True)
def outer(typing_context: Any, total: Any, a: Any, b: Any, rows: Any, columns: Any) -> Any:
    """total[i, j] += a[i] * b[j] for local arrays, a row of `total` and all of `b` as one vector each.

    Which loops become vectors is then not left to LLVM, and every product is fused with its sum.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        height, width = rows.literal_value, columns.literal_value
        whole, scalars, row = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:3], arguments[:3], strict=True)
        )
        pitch, *_ = cgutils.unpack_tuple(builder, whole.strides)
        pitch = builder.sdiv(pitch, whole.itemsize)
        vector = ir.VectorType(row.data.type.pointee, width)
        name = f"llvm.fmuladd.v{width}{vector.element.intrinsic_name}"
        multiply_add = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)

        right = builder.load(builder.bitcast(row.data, vector.as_pointer()), align=4)
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), width), None)
        for i in range(height):
            scalar = builder.load(cgutils.gep_inbounds(builder, scalars.data, i))
            first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
            left = builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), lanes)
            start = builder.gep(whole.data, [builder.mul(pitch, ir.Constant(pitch.type, i))], inbounds=True)
            to = builder.bitcast(start, vector.as_pointer())
            builder.store(builder.call(multiply_add, [left, right, builder.load(to, align=4)]), to, align=4)
        return context.get_dummy_value()

    return types.none(total, a, b, rows, columns), generate


@intrinsic(prefer_literal=True)
def lanewise(
    typing_context: Any, total: Any, a: Any, b: Any, total_first: Any, a_first: Any, b_first: Any, columns: Any
) -> Any:
    """total[i, j] += a[k, j] * b[l, j] for a row of each of three local arrays, every row as one vector."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width, vectors = columns.literal_value, []
        for kind, value, first in zip(signature.args[:3], arguments[:3], arguments[3:6], strict=True):
            data = context.make_array(kind)(context, builder, value).data
            vector = ir.VectorType(data.type.pointee, width)
            vectors.append(builder.bitcast(builder.gep(data, [first], inbounds=True), vector.as_pointer()))
        name = f"llvm.fmuladd.v{width}{vector.element.intrinsic_name}"
        multiply_add = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
        to, *factors = vectors
        terms = [builder.load(pointer, align=4) for pointer in (*factors, to)]
        builder.store(builder.call(multiply_add, terms), to, align=4)
        return context.get_dummy_value()

    return types.none(total, a, b, types.intp, types.intp, types.intp, columns), generate


@intrinsic(prefer_literal=True)
def folded(typing_context: Any, a: Any, first: Any, columns: Any) -> Any:
    """a[first + j] += a[first + columns + j] in a local array, both halves as a vector each."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width = columns.literal_value
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        lower = builder.gep(data, [arguments[1]], inbounds=True)
        vector = ir.VectorType(data.type.pointee, width).as_pointer()
        halves = [builder.bitcast(each, vector) for each in (lower, cgutils.gep_inbounds(builder, lower, width))]
        total = builder.fadd(*(builder.load(half, align=4) for half in halves))
        builder.store(total, halves[0], align=4)
        return context.get_dummy_value()

    return types.none(a, types.intp, columns), generate


@intrinsic(prefer_literal=True)
def move(typing_context: Any, to: Any, origin: Any, to_first: Any, origin_first: Any, rows: Any, columns: Any) -> Any:
    """Rows of one array to another, each as one vector: a memcpy would keep the array out of the registers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (target, source) = (
            context.make_array(kind)(context, builder, value).data
            for kind, value in zip(signature.args[:2], arguments[:2], strict=True)
        )
        target, source = (
            builder.gep(data, [first], inbounds=True)
            for data, first in zip((target, source), arguments[2:4], strict=True)
        )
        vector = ir.VectorType(source.type.pointee, columns.literal_value).as_pointer()
        for i in range(0, rows.literal_value * columns.literal_value, columns.literal_value):
            value = builder.load(builder.bitcast(cgutils.gep_inbounds(builder, source, i), vector), align=4)
            builder.store(value, builder.bitcast(cgutils.gep_inbounds(builder, target, i), vector), align=4)
        return context.get_dummy_value()

    return types.none(to, origin, types.intp, types.intp, rows, columns), generate


def _on_stack(context: Any, builder: Any, array_type: types.Array, shape: Any) -> Any:
    dimensions = [length.literal_value for length in shape]
    element, length = context.get_data_type(array_type.dtype), math.prod(dimensions)
    with builder.goto_entry_block():  # cgutils.alloca_once would fill it with zeros too, in minutes of compilation
        memory = builder.alloca(ir.ArrayType(element, length))
    memory.align = 64
    data = builder.bitcast(memory, ir.PointerType(element))
    itemsize = context.get_abi_sizeof(element)
    strides = [itemsize * stride for stride in contiguous_strides(tuple(dimensions))]
    lengths, strides, (itemsize,) = (
        [context.get_constant(types.intp, value) for value in values] for values in (dimensions, strides, [itemsize])
    )
    array = context.make_array(array_type)(context, builder)
    arrayobj.populate_array(array, data, lengths, strides, itemsize, meminfo=None)  # without a reference count
    return array


@intrinsic
def at(typing_context: Any, indices: Any, array: Any, site: Any, report: Any) -> Any:
    """`indices` of an element of the array, each of them checked.

    Of several sites that belong together, the axes' in their order and the race's, `site` is the first.
    """
    return _checked(indices, array, site, report)


@intrinsic
def read(typing_context: Any, indices: Any, array: Any, shadow: Any, site: Any, report: Any) -> Any:
    """As `at`, for an element that this thread reads; no shadow: the array is not shared."""
    return _checked(indices, array, shadow, site, report, note=_note_read)


@intrinsic
def write(typing_context: Any, indices: Any, array: Any, shadow: Any, site: Any, report: Any) -> Any:
    """As `at`, for an element that this thread writes; no shadow: the array is not shared."""
    return _checked(indices, array, shadow, site, report, note=_note_write)


def _checked(*kinds: Any, note: Any = None) -> Any:
    """What Numba needs to know of `at`, `read` and `write`: one step for it, where Python would take many."""
    indices, array, *shadow, _, report = kinds
    watched = shadow not in ([], [types.none])
    if watched and len(indices) != array.ndim:
        return None

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        lengths = cgutils.unpack_tuple(builder, context.make_array(array)(context, builder, arguments[1]).shape)
        wide, element = [], context.get_constant(types.int64, 0)
        here, checks = arguments[-2], types.int64(*[types.int64] * 3, report)
        for index, kind, length in zip(cgutils.unpack_tuple(builder, arguments[0]), indices, lengths, strict=False):
            index = context.cast(builder, index, kind, types.int64)
            context.compile_internal(builder, _inside, checks, [index, length, here, arguments[-1]])
            wide.append(index)
            element = builder.add(builder.mul(element, length), index)
            here = builder.add(here, context.get_constant(types.int64, 1))
        if watched:
            notes = types.none(types.int64, *shadow, types.int64, report)
            context.compile_internal(builder, note, notes, [element, arguments[2], here, arguments[-1]])
        return context.make_tuple(builder, found, wide)

    found = types.UniTuple(types.int64, len(indices))
    return found(indices, array, *shadow, types.int64, report), generate


def _inside(index, size, site, report):  # type: ignore[no-untyped-def]
    """Nothing, if `index` is one of 0 … size - 1; otherwise the report says where, and the run ends."""
    if index < 0 or index >= size:
        report[KIND] = INDEX
        report[SITE] = site
        report[INDEX_FOUND] = index
        report[SIZE] = size
        raise IndexError("index out of range")
    return index


@inside
def agree(values, site, report):  # type: ignore[no-untyped-def]
    """The value that all threads of the block have; otherwise the report names two that differ, and the run ends."""
    for thread in range(1, values.size):
        if values[thread] != values[0]:
            report[KIND] = AGREE
            report[SITE] = site
            report[THREAD] = 0
            report[OTHER_THREAD] = thread
            raise RuntimeError("threads disagree")
    return values[0]


def _note_read(place, shadow, site, report):  # type: ignore[no-untyped-def]
    """This thread reads there; a race if another one wrote there in this epoch."""
    element, thread, epoch = shadow[place], report[THREAD], report[EPOCH]
    if element.write_epoch == epoch and element.writer != thread:
        race(READS_WRITTEN, element.writer, site, report)
    if element.read_epoch != epoch:
        element.read_epoch = epoch
        element.reader = thread
        element.other_reader = NO_THREAD
    elif element.reader != thread:
        element.other_reader = thread


def _note_write(place, shadow, site, report):  # type: ignore[no-untyped-def]
    """This thread writes there; a race if another one read or wrote there in this epoch."""
    element, thread, epoch = shadow[place], report[THREAD], report[EPOCH]
    if element.write_epoch == epoch and element.writer != thread:
        race(WRITES_WRITTEN, element.writer, site, report)
    if element.read_epoch == epoch and element.reader != thread:
        race(WRITES_READ, element.reader, site, report)
    if element.read_epoch == epoch and element.other_reader != NO_THREAD:
        race(WRITES_READ, element.other_reader, site, report)
    element.write_epoch = epoch
    element.writer = thread


@inside
def race(kind, other, site, report):  # type: ignore[no-untyped-def]
    report[KIND] = kind
    report[SITE] = site
    report[OTHER_THREAD] = other
    raise RuntimeError("race")
