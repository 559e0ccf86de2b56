"""Each PTX instruction that is translated, against a table of results.

A row is an instruction on registers a, b and c, their types and values, and the result.  The PTX around it loads the
values from one array and stores the result in another; it is translated, compiled and run like any kernel's.
"""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest

from kernels.targets.emulated import UnsupportedPtx, c_compiler
from kernels.targets.emulated.ptx import BITS
from kernels.targets.emulated.translate import translate

pytestmark = pytest.mark.emulated

NAN, INF = math.nan, math.inf
LEAST = 2.0**-149  #: the smallest float32 above 0

#: instruction, type of the result, [(type, value) of a, b, c], result
ROWS: list[tuple[str, str, list[tuple[str, float]], float]] = [
    ("add.s32 d, a, b", "s32", [("s32", 2**31 - 1), ("s32", 1)], -(2**31)),
    ("add.s64 d, a, b", "s64", [("s64", 2**40), ("s64", -1)], 2**40 - 1),
    ("add.s16 d, a, b", "s16", [("s16", 32767), ("s16", 1)], -32768),
    ("sub.s32 d, a, b", "s32", [("s32", -5), ("s32", 3)], -8),
    ("sub.u64 d, a, b", "u64", [("u64", 0), ("u64", 1)], 2**64 - 1),
    ("mul.lo.s32 d, a, b", "s32", [("s32", 65536), ("s32", 65537)], 65536),
    ("mul.lo.s64 d, a, b", "s64", [("s64", -3), ("s64", 7)], -21),
    ("mul.lo.s16 d, a, b", "s16", [("s16", -300), ("s16", 300)], -24464),
    ("mul.hi.u32 d, a, b", "u32", [("u32", 2**32 - 1), ("u32", 2**32 - 1)], 2**32 - 2),
    ("mul.hi.s32 d, a, b", "s32", [("s32", -1), ("s32", 1)], -1),
    ("mul.hi.u64 d, a, b", "u64", [("u64", 2**63), ("u64", 4)], 2),
    ("mul.hi.s64 d, a, b", "s64", [("s64", -(2**62)), ("s64", 8)], -2),
    ("mul.wide.s32 d, a, b", "s64", [("s32", -(2**31)), ("s32", 4)], -(2**33)),
    ("mul.wide.u32 d, a, b", "u64", [("u32", 2**32 - 1), ("u32", 2)], 2**33 - 2),
    ("mul.wide.s16 d, a, b", "s32", [("s16", -300), ("s16", 300)], -90000),
    ("mad.lo.s32 d, a, b, c", "s32", [("s32", 3), ("s32", -4), ("s32", 5)], -7),
    ("mad.lo.s64 d, a, b, c", "s64", [("s64", 2**33), ("s64", 2), ("s64", -1)], 2**34 - 1),
    ("mad.wide.u32 d, a, b, c", "u64", [("u32", 2**32 - 1), ("u32", 2), ("u64", 3)], 2**33 + 1),
    ("div.s32 d, a, b", "s32", [("s32", -7), ("s32", 2)], -3),
    ("div.u32 d, a, b", "u32", [("u32", 2**32 - 1), ("u32", 2)], 2**31 - 1),
    ("div.s64 d, a, b", "s64", [("s64", -(2**63)), ("s64", -1)], -(2**63)),
    ("rem.s32 d, a, b", "s32", [("s32", -7), ("s32", 2)], -1),
    ("rem.u64 d, a, b", "u64", [("u64", 2**63 + 1), ("u64", 2)], 1),
    ("min.s32 d, a, b", "s32", [("s32", -1), ("s32", 1)], -1),
    ("min.u32 d, a, b", "u32", [("u32", 2**32 - 1), ("u32", 1)], 1),
    ("max.s64 d, a, b", "s64", [("s64", -1), ("s64", 1)], 1),
    ("max.u64 d, a, b", "u64", [("u64", 2**64 - 1), ("u64", 1)], 2**64 - 1),
    ("neg.s32 d, a", "s32", [("s32", 5)], -5),
    ("abs.s32 d, a", "s32", [("s32", -5)], 5),
    ("not.b32 d, a", "u32", [("u32", 0)], 2**32 - 1),
    ("and.b32 d, a, b", "u32", [("u32", 12), ("u32", 10)], 8),
    ("or.b64 d, a, b", "u64", [("u64", 2**40), ("u64", 1)], 2**40 + 1),
    ("xor.b32 d, a, b", "u32", [("u32", 12), ("u32", 10)], 6),
    ("shl.b32 d, a, b", "u32", [("u32", 3), ("u32", 31)], 2**31),
    ("shl.b32 d, a, b", "u32", [("u32", 3), ("u32", 32)], 0),
    ("shl.b64 d, a, b", "u64", [("u64", 3), ("u32", 40)], 3 << 40),
    ("shr.u32 d, a, b", "u32", [("u32", 2**31), ("u32", 31)], 1),
    ("shr.u32 d, a, b", "u32", [("u32", 2**31), ("u32", 40)], 0),
    ("shr.s32 d, a, b", "s32", [("s32", -8), ("u32", 1)], -4),
    ("shr.s64 d, a, b", "s64", [("s64", -8), ("u32", 99)], -1),
    ("popc.b32 d, a", "u32", [("u32", 0xF0F0)], 8),
    ("popc.b64 d, a", "u32", [("u64", 2**40 + 1)], 2),
    ("clz.b32 d, a", "u32", [("u32", 1)], 31),
    ("clz.b64 d, a", "u32", [("u64", 0)], 64),
    ("brev.b32 d, a", "u32", [("u32", 1)], 2**31),
    ("bfe.u32 d, a, b, c", "u32", [("u32", 0xABCD), ("u32", 4), ("u32", 8)], 0xBC),
    ("bfi.b32 d, a, b, 4, 8", "u32", [("u32", 0xFF), ("u32", 0)], 0xFF0),
    ("bfi.b64 d, a, b, 5, 59", "u64", [("u64", 2**60 + 3), ("u64", 2**64 - 1)], 127),
    ("bfi.b64 d, a, b, 40, 8", "u64", [("u64", 0x1FF), ("u64", 1)], (0xFF << 40) + 1),
    ("prmt.b32 d, a, b, 0x3715", "u32", [("u32", 0x33221100), ("u32", 0x77665544)], 0x33771155),
    ("shf.l.wrap.b32 d, a, b, c", "u32", [("u32", 0x80000000), ("u32", 1), ("u32", 1)], 3),
    ("shf.r.wrap.b32 d, a, b, c", "u32", [("u32", 2), ("u32", 1), ("u32", 1)], 2**31 + 1),
    ("lop3.b32 d, a, b, c, 0x96", "u32", [("u32", 12), ("u32", 10), ("u32", 7)], 12 ^ 10 ^ 7),
    ("cvt.s64.s32 d, a", "s64", [("s32", -5)], -5),
    ("cvt.u64.u32 d, a", "u64", [("u32", 2**32 - 1)], 2**32 - 1),
    ("cvt.u32.u64 d, a", "u32", [("u64", 2**32 + 7)], 7),
    ("cvt.s32.s8 d, a", "s32", [("s32", 0xFF)], -1),
    ("cvt.u16.u32 d, a", "u16", [("u32", 65537)], 1),
    ("cvt.rn.f32.s32 d, a", "f32", [("s32", 2**24 + 1)], 2.0**24),
    ("cvt.rn.f32.u32 d, a", "f32", [("u32", 2**32 - 1)], 2.0**32),
    ("cvt.rn.f32.s64 d, a", "f32", [("s64", -3)], -3.0),
    ("cvt.rn.f64.s32 d, a", "f64", [("s32", -3)], -3.0),
    ("cvt.f64.f32 d, a", "f64", [("f32", 0.5)], 0.5),
    ("cvt.rn.f32.f64 d, a", "f32", [("f64", 1 + 2.0**-40)], 1.0),
    ("cvt.rzi.s32.f32 d, a", "s32", [("f32", -2.7)], -2),
    ("cvt.rni.s32.f32 d, a", "s32", [("f32", 2.5)], 2),
    ("cvt.rmi.s32.f32 d, a", "s32", [("f32", -2.1)], -3),
    ("cvt.rpi.s32.f32 d, a", "s32", [("f32", 2.1)], 3),
    ("cvt.rzi.s32.f32 d, a", "s32", [("f32", 1e20)], 2**31 - 1),
    ("cvt.rzi.u32.f32 d, a", "u32", [("f32", -1.0)], 0),
    ("cvt.rzi.s32.f32 d, a", "s32", [("f32", NAN)], 0),
    ("cvt.rmi.f32.f32 d, a", "f32", [("f32", -0.5)], -1.0),
    ("cvt.sat.f32.f32 d, a", "f32", [("f32", 1.5)], 1.0),
    ("cvt.sat.f32.f32 d, a", "f32", [("f32", NAN)], 0.0),
    ("add.f32 d, a, b", "f32", [("f32", 0.1), ("f32", 0.2)], float(np.float32(0.1) + np.float32(0.2))),
    ("add.rz.f32 d, a, b", "f32", [("f32", 1.0), ("f32", -(2.0**-30))], 1 - 2.0**-24),
    ("sub.rn.f32 d, a, b", "f32", [("f32", 1.0), ("f32", 3.0)], -2.0),
    ("mul.f32 d, a, b", "f32", [("f32", 1e30), ("f32", 1e30)], INF),
    ("mul.ftz.f32 d, a, b", "f32", [("f32", LEAST), ("f32", 1.0)], 0.0),
    (
        "fma.rn.f32 d, a, b, c",
        "f32",
        [("f32", 1 + 2.0**-23), ("f32", 1 + 2.0**-23), ("f32", -1.0)],
        2.0**-22 + 2.0**-46,
    ),
    ("fma.rm.f32 d, a, b, c", "f32", [("f32", 1.0), ("f32", 1.0), ("f32", -(2.0**-30))], 1 - 2.0**-24),
    ("div.rn.f32 d, a, b", "f32", [("f32", 1.0), ("f32", 3.0)], float(np.float32(1) / np.float32(3))),
    ("rcp.rn.f32 d, a", "f32", [("f32", 4.0)], 0.25),
    ("sqrt.rn.f32 d, a", "f32", [("f32", 2.0)], float(np.sqrt(np.float32(2)))),
    ("neg.f32 d, a", "f32", [("f32", 1.5)], -1.5),
    ("abs.f32 d, a", "f32", [("f32", -1.5)], 1.5),
    ("min.f32 d, a, b", "f32", [("f32", NAN), ("f32", 2.0)], 2.0),
    ("max.f32 d, a, b", "f32", [("f32", -0.0), ("f32", 0.0)], 0.0),
    ("copysign.f32 d, a, b", "f32", [("f32", -1.0), ("f32", 2.0)], -2.0),
    ("ex2.approx.ftz.f32 d, a", "f32", [("f32", 3.0)], 8.0),
    ("lg2.approx.ftz.f32 d, a", "f32", [("f32", 8.0)], 3.0),
    ("rsqrt.approx.f32 d, a", "f32", [("f32", 4.0)], 0.5),
    ("div.full.f32 d, a, b", "f32", [("f32", 1.0), ("f32", 4.0)], 0.25),
    ("add.f64 d, a, b", "f64", [("f64", 0.1), ("f64", 0.2)], 0.1 + 0.2),
    ("fma.rn.f64 d, a, b, c", "f64", [("f64", 3.0), ("f64", 2.0), ("f64", 1.0)], 7.0),
    ("min.f64 d, a, b", "f64", [("f64", NAN), ("f64", 2.0)], 2.0),
    ("sqrt.rn.f64 d, a", "f64", [("f64", 2.0)], math.sqrt(2)),
    ("rcp.approx.ftz.f64 d, a", "f64", [("f64", 3.0)], 0.33333325386047363),  # its low word is 0
    ("mov.b32 d, a", "u32", [("f32", 1.0)], 0x3F800000),
    ("mov.b64 d, {a, b}", "u64", [("u32", 1), ("u32", 2)], 2**33 + 1),
    ("selp.s32 d, a, b, yes", "s32", [("s32", 1), ("s32", 2)], 1),
]

#: comparison, type, a, b → whether it holds
COMPARED: list[tuple[str, str, float, float, bool]] = [
    ("lt", "s32", -1, 1, True), ("lt", "u32", 2**32 - 1, 1, False), ("le", "s64", 3, 3, True),
    ("gt", "s32", 3, 3, False), ("ge", "u64", 3, 3, True), ("eq", "s32", 3, 3, True), ("ne", "s32", 3, 3, False),
    ("lo", "u32", 1, 2, True), ("hs", "u32", 1, 2, False), ("lt", "f32", NAN, 1.0, False),
    ("ltu", "f32", NAN, 1.0, True), ("ne", "f32", NAN, 1.0, False), ("neu", "f32", NAN, 1.0, True),
    ("num", "f32", NAN, 1.0, False), ("nan", "f32", NAN, 1.0, True), ("eq", "f64", 1.0, 1.0, True),
    ("geu", "f64", NAN, 1.0, True),
]  # fmt: skip

REGISTER = {16: "b16", 32: "b32", 64: "b64"}
NUMPY = {"f32": np.float32, "f64": np.float64} | {f"{s}{n}": np.dtype(f"{'i' if s == 's' else 'u'}{n // 8}").type
                                                 for s in "su" for n in (16, 32, 64)}  # fmt: skip


class Launch(ctypes.Structure):
    """As in abi.h."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("kernel", ctypes.c_char_p),
        ("parameters", ctypes.c_void_p), ("arrays", ctypes.c_void_p), ("array_count", ctypes.c_int),
        ("dynamic", ctypes.c_uint), ("seed", ctypes.c_uint64), ("finding", ctypes.c_char_p),
        ("most_steps", ctypes.c_uint64), ("interrupted", ctypes.c_void_p),
    )  # fmt: skip


class Array(ctypes.Structure):
    _fields_ = (
        ("lo", ctypes.c_uint64), ("hi", ctypes.c_uint64), ("name", ctypes.c_char_p), ("touched", ctypes.c_uint * 2),
    )  # fmt: skip


class Info(ctypes.Structure):
    _fields_ = (
        ("numbers", ctypes.c_uint * 4), ("sizes", ctypes.c_void_p),
        ("launch", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Launch))),
    )  # fmt: skip


def run(ptx: str, given: np.ndarray, results: np.ndarray) -> str:
    """One thread of an entry `f(given, results)`; what the checks found."""
    library = ctypes.CDLL(str(c_compiler.kernel("test", translate(ptx, "f"), races=False)))
    info = Info.in_dll(library, "emulated_kernel")
    arrays = (Array * 2)(
        *(
            Array(a.ctypes.data, a.ctypes.data + a.nbytes, name)
            for a, name in ((given, b"given"), (results, b"results"))
        )
    )
    parameters = (ctypes.c_uint64 * 2)(given.ctypes.data, results.ctypes.data)
    finding = ctypes.create_string_buffer(2048)
    one = (ctypes.c_uint32 * 3)(1, 1, 1)
    launch = Launch(one, one, b"f", ctypes.addressof(parameters), ctypes.addressof(arrays), 2, 0, 0)
    launch.finding = ctypes.cast(finding, ctypes.c_char_p)
    failed = info.launch(ctypes.byref(launch))
    return finding.value.decode() if failed else ""


def module(body: list[str]) -> str:
    declared = "".join(f"\t.reg .{kind} %{kind}_<160>;\n" for kind in ("pred", "b16", "b32", "b64", "f32", "f64"))
    start = "\tld.param.u64 \t%b64_0, [f_param_0];\n\tld.param.u64 \t%b64_1, [f_param_1];\n"
    lines = "".join(f"\t{line};\n" for line in body)
    head = ".visible .entry f(\n.param .u64 f_param_0,\n.param .u64 f_param_1\n)\n"
    return f"{head}{{\n{declared}{start}{lines}\tret;\n\n}}\n"


def register(kind: str, number: int) -> str:
    return f"%{kind if kind[0] == 'f' else REGISTER[BITS[kind]]}_{number}"


def pieces(kinds: list[str], numbers: list[float]) -> np.ndarray:
    """Values, each in 8 bytes of its own."""
    room = np.zeros((len(kinds), 8), np.uint8)
    for row, kind, number in zip(room, kinds, numbers, strict=True):
        value = np.array(number if kind[0] == "f" else int(number)).astype(NUMPY[kind])
        row[: value.nbytes] = np.frombuffer(value.tobytes(), np.uint8)
    return room.reshape(-1)


def test_every_instruction_gives_its_result() -> None:
    """All in one kernel: it is compiled once."""
    body: list[str] = ["setp.eq.u64 %pred_1, 0, 0"]
    kinds: list[str] = []
    numbers: list[float] = []
    for row, (text, result, given, _) in enumerate(ROWS):
        names = {"yes": "%pred_1", "d": register(result, 4 + row)}
        for place, (letter, (kind, number)) in enumerate(zip("abc", given, strict=False)):
            names[letter] = register(kind, 150 + place)
            body.append(f"ld.global.{kind} {names[letter]}, [%b64_0+{8 * len(kinds)}]")
            kinds.append(kind)
            numbers.append(number)
        opcode, _, rest = text.partition(" ")
        for letter, name in names.items():
            rest = _replaced(rest, letter, name)
        body += [f"{opcode} {rest}", f"st.global.{result} [%b64_1+{8 * row}], {names['d']}"]
    results = np.zeros(8 * len(ROWS), np.uint8)
    assert run(module(body), pieces(kinds, numbers), results) == ""
    wrong = []
    for row, (text, kind, given, expected) in enumerate(ROWS):
        found = results[8 * row : 8 * row + BITS[kind] // 8].view(NUMPY[kind])[0]
        same = found == NUMPY[kind](expected) and np.signbit(found) == np.signbit(NUMPY[kind](expected))
        if not same:
            wrong.append(f"{text} of {[number for _, number in given]} is {found}, and should be {expected}")
    assert wrong == []


def _replaced(text: str, letter: str, name: str) -> str:
    import re

    return re.sub(rf"(?<![\w%]){letter}(?!\w)", name, text)


def test_every_comparison_holds_when_it_should() -> None:
    body: list[str] = []
    kinds: list[str] = []
    numbers: list[float] = []
    for row, (comparison, kind, a, b, _) in enumerate(COMPARED):
        names = register(kind, 150), register(kind, 151)
        for name, number in zip(names, (a, b), strict=True):
            body.append(f"ld.global.{kind} {name}, [%b64_0+{8 * len(kinds)}]")
            kinds.append(kind)
            numbers.append(number)
        body.append(f"setp.{comparison}.{kind} %pred_{row}, {names[0]}, {names[1]}")
        body.append(f"selp.u32 %b32_{row}, 1, 0, %pred_{row}")
        body.append(f"st.global.u32 [%b64_1+{8 * row}], %b32_{row}")
    results = np.zeros(8 * len(COMPARED), np.uint8)
    assert run(module(body), pieces(kinds, numbers), results) == ""
    assert [bool(value) for value in results[::8]] == [holds for *_, holds in COMPARED]


ATOMIC: list[tuple[str, str, float, list[float], float]] = [
    ("add", "u32", 5, [3], 8), ("add", "f32", 0.5, [0.25], 0.75), ("add", "u64", 2**40, [1], 2**40 + 1),
    ("add", "f64", 0.5, [0.25], 0.75), ("min", "s32", -3, [2], -3), ("max", "u32", 3, [2], 3),
    ("and", "b32", 12, [10], 8), ("or", "b32", 12, [10], 14), ("xor", "b32", 12, [10], 6), ("exch", "b32", 1, [2], 2),
    ("cas", "b32", 5, [5, 9], 9), ("cas", "b32", 6, [5, 9], 6), ("inc", "u32", 3, [3], 0), ("dec", "u32", 0, [7], 7),
]  # fmt: skip


def test_atomic_operations_return_the_old_value_and_store_the_new() -> None:
    plain = {"b32": "u32", "b64": "u64"}
    body: list[str] = []
    kinds: list[str] = []
    numbers: list[float] = []
    for row, (name, kind, old, given, _) in enumerate(ATOMIC):
        typed = plain.get(kind, kind)
        body += [f"ld.global.{typed} {register(typed, 150)}, [%b64_0+{8 * len(kinds)}]"]
        body += [f"st.global.{typed} [%b64_1+{16 * row}], {register(typed, 150)}"]
        kinds.append(typed)
        numbers.append(old)
        operands = []
        for place, number in enumerate(given):
            operands.append(register(typed, 151 + place))
            body.append(f"ld.global.{typed} {operands[-1]}, [%b64_0+{8 * len(kinds)}]")
            kinds.append(typed)
            numbers.append(number)
        body.append(f"atom.global.{name}.{kind} {register(typed, 155)}, [%b64_1+{16 * row}], {', '.join(operands)}")
        body.append(f"st.global.{typed} [%b64_1+{16 * row + 8}], {register(typed, 155)}")
    results = np.zeros(16 * len(ATOMIC), np.uint8)
    assert run(module(body), pieces(kinds, numbers), results) == ""
    for row, (name, kind, old, given, new) in enumerate(ATOMIC):
        kind = plain.get(kind, kind)
        stored, returned = (
            results[16 * row + at : 16 * row + at + BITS[kind] // 8].view(NUMPY[kind])[0] for at in (0, 8)
        )
        assert (stored, returned) == (new, old), (name, kind, given)


CALLED = """
.func  (.param .b32 func_retval0) twice(
.param .b32 twice_param_0
)
{
\t.local .align 4 .b8 \t__local_depot1[8];
\t.reg .b64 \t%SP;
\t.reg .b64 \t%SPL;
\t.reg .f32 \t%f<4>;
\tmov.u64 \t%SPL, __local_depot1;
\tld.param.f32 \t%f1, [twice_param_0];
\tst.local.f32 \t[%SPL+4], %f1;
\tld.local.f32 \t%f2, [%SPL+4];
\tadd.f32 \t%f3, %f1, %f2;
\tst.param.f32 \t[func_retval0+0], %f3;
\tret;

}
"""


def test_a_function_is_called_with_arguments_and_a_result() -> None:
    body = [
        "ld.global.f32 %f32_1, [%b64_0]",
        "{ \n\t.param .b32 param0", "st.param.f32 [param0+0], %f32_1", ".param .b32 retval0",
        "call.uni (retval0), twice, (param0)", "ld.param.f32 %f32_2, [retval0+0]",
        "}\n\tst.global.f32 [%b64_1], %f32_2",
    ]  # fmt: skip
    given, results = np.array([1.25], np.float32), np.zeros(1, np.float32)
    assert run(CALLED + module(body), given, results) == ""
    assert results[0] == 2.5


def test_a_carry_is_added_by_the_next_instruction() -> None:
    """Sums, differences and products of two words, of 32 and of 64 bits."""
    a, b = 0xFFFFFFFF_00000001_FFFFFFFF_FFFFFFFE, 0x00000001_FFFFFFFF_00000000_00000003
    for bits in (32, 64):
        body, size, low = [], bits // 8, (1 << bits) - 1
        for n, place in enumerate(("[%b64_0]", f"[%b64_0+{size}]", f"[%b64_0+{2 * size}]", f"[%b64_0+{3 * size}]")):
            body.append(f"ld.global.u{bits} %b{bits}_{n + 4}, {place}")
        x, y, u, v = (f"%b{bits}_{n}" for n in (4, 5, 6, 7))
        ways = [("add.cc", f"{x}, {u}", "addc", f"{y}, {v}"), ("sub.cc", f"{x}, {u}", "subc", f"{y}, {v}"),
                ("mad.lo.cc", f"{x}, {u}, {y}", "madc.hi", f"{x}, {u}, {v}")]  # fmt: skip
        for n, (first, given, then, more) in enumerate(ways):
            body += [f"{first}.u{bits} %b{bits}_8, {given}", f"{then}.u{bits} %b{bits}_9, {more}"]
            body += [f"st.global.u{bits} [%b64_1+{(2 * n + k) * size}], %b{bits}_{8 + k}" for k in range(2)]
        numbers, results = (
            np.array([a & low, a >> 96 & low, b & low, b >> 64 & low], f"u{size}"),
            np.zeros(6, f"u{size}"),
        )
        assert run(module(body), numbers, results) == ""
        i, j, k, m = (int(number) for number in numbers)
        wide = [(i | j << bits) + (k | m << bits), (i | j << bits) - (k | m << bits), i * k + (j | m << bits)]
        assert results.tolist() == [one >> bits * word & low for one in wide for word in range(2)]


def test_an_array_of_constants_is_read_within_its_bytes() -> None:
    """Such as the digits of 2/π that reduce a large angle, in the code of math.sin and math.cos."""
    table = ".global .align 4 .b8 digits[8] = {1, 0, 0, 0, 2, 1, 0, 0};\n"
    for place, finding, result in ((4, "", 258), (8, "a read of 4 bytes outside of every array", 0)):
        body = [
            "mov.u64 %b64_3, digits",
            f"ld.global.nc.u32 %b32_1, [%b64_3+{place}]",
            "st.global.u32 [%b64_1], %b32_1",
        ]
        results = np.zeros(1, np.uint32)
        assert finding in run(table + module(body), results.copy(), results)
        assert results[0] == result


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tex.2d.v4.f32.s32 {%f32_1}, [%b64_0]", "tex.2d"),
        ("mad.hi.cc.s32 %b32_1, %b32_2, %b32_3, 0", "mad.hi.cc.s32"),
        ("bar.sync 1", "bar.sync 1"),
        ("mov.u32 %b32_1, %clock", "%clock"),
        ("ld.const.f32 %f32_1, [%b64_0]", "ld.const"),
        ("call.uni vprintf", "vprintf"),
        ("shfl.sync.idx.b64 %b64_3, %b64_4, 0, 31, -1", "shfl"),
        ("ld.global.u32 %b32_1, [%b64_0-%b64_1]", r"address \[%b64_0-%b64_1\]"),
        ("mov.b32 %b32_1, {%b16_0, %b16_1, %b16_2, %b16_3}", "mov.b32"),
        ("setp.between.f32 %pred_1, %f32_1, %f32_2", "setp.between.f32"),
        ("nand.pred %pred_1, %pred_2, %pred_3", "nand.pred"),
        ("dp4a.s32.s32 %b32_1, %b32_2, %b32_3, %b32_4", "dp4a.s32.s32"),
        ("sin.f32 %f32_1, %f32_2", "sin.f32"),
        ("cvt.rn.rp.f32.s32 %f32_1, %b32_2", "cvt.rn.rp.f32.s32"),
        ("cvt.rna.tf32.f32 %b32_1, %f32_2", "cvt.rna.tf32.f32|tf32"),
        ("atom.global.add.min.u32 %b32_1, [%b64_0], %b32_2", "atom.global.add.min.u32"),
        ("ld.global.v8.u32 {%b32_1}, [%b64_0]", "ld.global.v8.u32"),
    ],
)
def test_what_is_not_known_is_named(line: str, says: str) -> None:
    with pytest.raises(UnsupportedPtx, match=says):
        translate(module([line]), "f")


def test_a_division_by_zero_is_found() -> None:
    zeros = np.zeros(2, np.int64)
    body = ["ld.global.s32 %b32_1, [%b64_0]", "div.s32 %b32_2, %b32_1, %b32_1", "st.global.s32 [%b64_1], %b32_2"]
    assert "a division by zero" in run(module(body), zeros, zeros.copy())
