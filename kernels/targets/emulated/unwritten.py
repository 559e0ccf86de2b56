"""Reads of a local array that the thread has not written: found by following the bits that nothing has written.

Numba fills a local array with zeros, so its PTX does not show that an element is read before it is written; a CUDA C++
kernel has any number there.  For the emulated GPU `filled` has each local array filled with the bits of a register that
the compiler knows nothing of, `SOURCE`, at the line that makes the array.  Where every element is written before it is
read, the compiler removes all of it, and the PTX is what it was.  Otherwise the translator follows these bits: a
register or a byte of local memory that can have some has a shadow (`Shadows`), a number that has a 1 for each bit that
nothing has written.  Moves, shifts and `and` are exact, so that a compiler may copy and pack such bits; other
arithmetic makes all bits of its result unwritten.  It is an error when one reaches memory that others see, an address,
a branch, another function or another thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from kernels.targets.emulated.ptx import BITS, C_TYPES, Function, Instruction, PtxModule, c_name

SOURCE = "%envreg31"  #: a special register that no program uses

ARRAY = re.compile(
    r'^ *%"[^"]+" = bitcast (?P<type>\[.*\])\* (?P<array>%"_cudapy_lmem[^"]*") to .*?(?P<line>, !dbg !\d+)?$',
    flags=re.M,
)
FILL = """
  {name}.word" = call i32 asm "mov.u32 $0, {source};", "=r"()
  {name}.byte" = trunc i32 {name}.word" to i8
  {name}.at" = bitcast {type}* {array} to i8*
  call void @"llvm.memset.p0i8.i64"(i8* {name}.at", i8 {name}.byte", i64 {size}, i1 false){line}"""
SIZE = "ptrtoint ({type}* getelementptr ({type}, {type}* null, i32 1) to i64)"
DECLARED = 'declare void @"llvm.memset.p0i8.i64"(i8*, i8, i64, i1)\n\n'


def filled(module: str) -> str:
    """An LLVM module of Numba's, with bits of `SOURCE` in each local array from the line that makes it."""
    count = 0

    def fill(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        size, line = SIZE.format(type=found["type"]), found["line"] or ""
        name = f'%"unwritten.{count}'
        return found[0] + FILL.format(
            name=name, source=SOURCE, type=found["type"], array=found["array"], size=size, line=line
        )

    text = ARRAY.sub(fill, module)
    if count and not re.search(r'^declare void @"?llvm\.memset\.p0i8\.i64', text, flags=re.M):
        text = re.sub(r"^define ", f"{DECLARED}define ", text, count=1, flags=re.M)
    return text


# --- Which registers can have bits that nothing has written ----------------------------------------------------------


def is_local(i: Instruction) -> bool:
    """An access to local memory, or one whose address says where it is."""
    return i.op[0] in ("ld", "ldu", "st", "atom", "red") and not {"global", "shared", "param"} & set(i.op)


def tracked(module: PtxModule) -> dict[str, set[str]]:
    """The registers of each function that can have unwritten bits; no functions if there are no such bits."""
    found: dict[str, set[str]] = {name: set() for name in module.functions}
    in_memory, changed = False, True
    while changed:
        changed = False
        for name, function in module.functions.items():
            own = found[name]
            for i in function.body:
                if not isinstance(i, Instruction) or i.is_warp_operation or i.op[0] in ("call", "atom"):
                    continue
                if i.op[0] == "st":
                    if is_local(i) and not in_memory and own & set(i.read):
                        in_memory = changed = True
                    continue
                loads = i.op[0] in ("ld", "ldu")
                has_some = in_memory and is_local(i) if loads else SOURCE in i.operands or own & set(i.read)
                if has_some and not own >= set(i.written):
                    own |= set(i.written)
                    changed = True
    return found if any(found.values()) else {}


# --- Their shadows, instruction by instruction -----------------------------------------------------------------------

#: Instructions that move bits do to a number's shadow what they do to the number: how many of their operands are
#: numbers, while the others say which bits or how far; and the C expression.
MOVERS = {
    "shl": (1, "shl_{t}({0}, {1})"), "shr": (1, "shr_{t}({0}, {1})"), "brev": (1, "brev_{t}({0})"),
    "bfe": (1, "bfe_{t}({0}, {1}, {2})"), "bfi": (2, "bfi_{t}({0}, {1}, {2}, {3})"),
    "prmt": (2, "prmt({0}, {1}, {2})"), "shf.l.wrap": (2, "shf_l({0}, {1}, {2})"),
    "shf.r.wrap": (2, "shf_r({0}, {1}, {2})"),
}  # fmt: skip


def unsigned(kind: str) -> str:
    """The type of a shadow: u32 for f32."""
    return kind if kind == "pred" else f"u{BITS[kind]}"


class Shadows:
    """The C that keeps the shadows of one function's registers.

    Args:
        function: the function.
        followed: its registers that have shadows; None if nothing has any.
        value: an operand and a type → the C expression that reads it.
        site: notes an instruction for a finding, and gives its number.
    """

    def __init__(
        self, function: Function, followed: set[str] | None, value: Callable[[str, str], str],
        site: Callable[[Instruction], int],
    ) -> None:  # fmt: skip
        self._registers, self._followed = function.registers, followed or set()
        self._value, self._site, self._memory_has_some = value, site, followed is not None

    def of(self, registers: Iterable[str]) -> list[tuple[str, str]]:
        """C type and name of the shadows that these registers have."""
        return [
            (C_TYPES[unsigned(self._registers[r])], f"u_{c_name(r)}")
            for r in dict.fromkeys(registers)
            if r in self._followed
        ]

    def bits(self, operand: str, kind: str) -> str:
        """The shadow of an operand that is read as a type."""
        c = C_TYPES[unsigned(kind)]
        if operand == SOURCE:
            return f"({c})~0ull"
        name = operand.lstrip("!")
        return f"({c})u_{c_name(name)}" if name in self._followed else f"({c})0"

    def put(self, register: str, bits: str, kind: str) -> str:
        """The statement that gives a register the shadow of a number of a type; a sign's is extended."""
        if register not in self._followed:
            return ""
        return f"u_{c_name(register)} = ({C_TYPES[kind if kind[0] == 's' else unsigned(kind)]})({bits});"

    def clear(self, registers: Iterable[str]) -> str:
        """Every bit of these registers is written."""
        return " ".join(f"{name} = 0;" for _, name in self.of(registers))

    def refuse(self, i: Instruction, operands: Iterable[str], what: str) -> str:
        """An error if there are unwritten bits in these operands of an instruction."""
        names = self.of(name for text in operands for name in re.findall(r"%\w+", text))
        test = " || ".join(name for _, name in names)
        return f'if (UNLIKELY({test})) not_written(C, T, "{what}", {self._site(i)});' if names else ""

    # -- instructions that access memory: `q` is where, in C --------------------------------------------------------

    def loaded(self, i: Instruction, registers: list[str], kind: str) -> str:
        """After a load."""
        if not (self._memory_has_some and is_local(i)):
            return self.clear(registers)
        puts = "".join(self.put(register, f"u ? u[{n}] : 0", kind) for n, register in enumerate(registers))
        return f"{{ {C_TYPES[unsigned(kind)]} *u = SHADOW_OF(q); {puts} }}" if puts else ""

    def stored(self, i: Instruction, registers: list[str], kind: str) -> str:
        """Before a store."""
        what = "an argument or a result" if "param" in i.op else "a number that is written to memory"
        refused = self.refuse(i, registers, what)
        if not (self._memory_has_some and is_local(i)):
            return refused
        puts = " ".join(f"u[{n}] = {self.bits(register, kind)};" for n, register in enumerate(registers))
        return f"{{ {C_TYPES[unsigned(kind)]} *u = SHADOW_OF(q); if (u) {{ {puts} }} else {{ {refused} }} }}"

    def updated(self, i: Instruction, kind: str) -> str:
        """Before an atomic operation."""
        what = "an atomic operation"
        refused = self.refuse(i, i.operands[1 + (i.op[0] == "atom") :], what)
        if self._memory_has_some and is_local(i):
            test = f"{C_TYPES[unsigned(kind)]} *u = SHADOW_OF(q); if (UNLIKELY(u && *u))"
            refused += f' {{ {test} not_written(C, T, "{what}", {self._site(i)}); }}'
        return f"{refused} {self.clear(i.written)}"

    # -- other instructions ----------------------------------------------------------------------------------------

    def computed(self, i: Instruction) -> str:
        """Before an instruction that computes: the shadow of its result."""
        if not self._followed & set(i.written) or i.op[0] in ("ld", "ldu", "atom"):
            return ""
        to, given, kind, key = i.operands[0], i.operands[1:], i.op[-1], ".".join(i.op[:-1])
        if SOURCE not in given and not self._followed & set(i.read):
            return self.clear(i.written)
        whole = unsigned(kind)
        if i.op[0] in ("mov", "cvta"):
            return self._moved(to, given[0], kind)
        if i.op[0] == "cvt" and "f" not in (kind[0], i.op[-2][0]):
            return self.put(to, f"({C_TYPES[kind]}){self.bits(given[0], kind)}", i.op[-2])
        if i.op[0] == "selp":
            chosen = f"{c_name(given[2])} ? {self.bits(given[0], kind)} : {self.bits(given[1], kind)}"
            return self.put(to, f"{self.bits(given[2], 'pred')} ? ~0ull : {chosen}", whole)
        if key in ("and", "or"):  # a 0 or a 1 that is written decides
            a, b = (
                f"{'!' if key == 'or' and kind == 'pred' else '~' * (key == 'or')}({self._value(o, whole)})"
                for o in given
            )
            u, v = (self.bits(o, kind) for o in given)
            return self.put(to, f"({u} & {v}) | ({u} & {b}) | ({v} & {a})", whole)
        if key in ("xor", "not", "lop3"):
            return self.put(to, " | ".join(self.bits(o, kind) for o in given[:3]), whole)
        if key in MOVERS:
            count, template = MOVERS[key]
            typed = kind if kind in C_TYPES and kind[0] == "s" else whole
            how = [self._value(o, "u32") for o in given[count:]]
            moved = template.format(
                *(self.bits(o, typed) for o in given[:count]), *how, t=typed if key[:2] == "sh" else kind
            )
            unknown = " | ".join(["0", *(self.bits(o, "u32") for o in given[count:])])
            return self.put(to, f"{unknown} ? ~0ull : {moved}", typed)
        some = " || ".join(name for _, name in self.of(i.read))
        return " ".join(f"{name} = {some} ? ({c})~0ull : 0;" for c, name in self.of(i.written))

    def _moved(self, to: str, given: str, kind: str) -> str:
        c, whole = C_TYPES[unsigned(kind)], unsigned(kind)
        parts = [part.strip() for part in (given if given.startswith("{") else to).strip("{}").split(",")]
        part = f"u{BITS[kind] // len(parts)}"
        if given.startswith("{"):
            terms = [f"({c}){self.bits(p, part)} << {BITS[part] * n}" for n, p in enumerate(parts)]
            return self.put(to, " | ".join(terms), whole)
        if to.startswith("{"):
            return " ".join(
                self.put(p, f"{self.bits(given, kind)} >> {BITS[part] * n}", part) for n, p in enumerate(parts)
            )
        return self.put(to, self.bits(given, kind), whole)
