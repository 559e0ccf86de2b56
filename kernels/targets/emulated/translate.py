"""PTX to C: one C function for each PTX function, one statement for each instruction.

A PTX register is a local variable in C and a label is a label, so the C compiler keeps registers in registers.  A
thread of the kernel runs until it has to wait for others: at a barrier the registers that are still needed are saved in
the thread's state and the function returns the barrier's number; `block.h` calls it again when all threads are there,
and it continues after the barrier.  No form of PTX is guessed: an instruction that is in none of the tables is
`Unsupported`.
"""

from __future__ import annotations

import re

from kernels.targets.emulated.ptx import (
    BITS,
    C_TYPES,
    Function,
    Instruction,
    PtxModule,
    UnsupportedPtx,
    aligned,
    c_name,
    live_at_stops,
    parse,
)
from kernels.targets.emulated.unwritten import SOURCE, Shadows, tracked

SPECIAL = {
    f"%{name}.{axis}": f"{c}.{axis}"
    for name, c in (("tid", "T->tid"), ("ctaid", "C->ctaid"), ("ntid", "C->block"), ("nctaid", "C->grid"))
    for axis in "xyz"
} | {"%laneid": "(T->linear & 31)", "%warpid": "(T->linear >> 5)", "WARP_SZ": "32", SOURCE: "~0u"}
SPECIAL["%dynamic_smem_size"] = "C->launch->dynamic_shared_bytes"
COMPARISONS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
WARP_KINDS = {
    "shfl.sync.idx": "SHFL_IDX", "shfl.sync.up": "SHFL_UP", "shfl.sync.down": "SHFL_DOWN",
    "shfl.sync.bfly": "SHFL_BFLY", "vote.sync.all": "VOTE_ALL", "vote.sync.any": "VOTE_ANY",
    "vote.sync.uni": "VOTE_UNI", "vote.sync.ballot": "VOTE_BALLOT", "match.any.sync": "MATCH_ANY",
    "bar.warp.sync": "WARP_BARRIER",
}  # fmt: skip

#: Integer instructions: opcode without its type → operands read as unsigned ("u") or as their type says ("t"), and
#: the C expression; {t} is the type.
INTEGER = {
    "add": ("u", "{0} + {1}"), "sub": ("u", "{0} - {1}"), "neg": ("u", "0 - {0}"), "not": ("u", "~{0}"),
    "mul.lo": ("u", "{0} * {1}"), "mad.lo": ("u", "{0} * {1} + {2}"), "mul.hi": ("t", "mulhi_{t}({0}, {1})"),
    "and": ("u", "{0} & {1}"), "or": ("u", "{0} | {1}"), "xor": ("u", "{0} ^ {1}"),
    "min": ("t", "min_{t}({0}, {1})"), "max": ("t", "max_{t}({0}, {1})"), "abs": ("t", "{0} < 0 ? 0 - {0} : {0}"),
    "div": ("t", "div_{t}(C, T, {0}, {1}, {site})"), "rem": ("t", "rem_{t}(C, T, {0}, {1}, {site})"),
    "popc": ("u", "__builtin_popcountll({0})"), "clz": ("u", "clz_{t}({0})"), "brev": ("u", "brev_{t}({0})"),
    "bfe": ("u", "bfe_{t}({0}, {1}, {2})"), "bfi": ("u", "bfi_{t}({0}, {1}, {2}, {3})"),
    "prmt": ("u", "prmt({0}, {1}, {2})"), "shf.l.wrap": ("u", "shf_l({0}, {1}, {2})"),
    "shf.r.wrap": ("u", "shf_r({0}, {1}, {2})"), "lop3": ("u", "lop3({0}, {1}, {2}, {3})"),
}  # fmt: skip
SHIFTS = ("shl", "shr")  #: their second operand has 32 bits, whatever the first has
ONLY = {
    "brev": ("b32",), "bfe": ("u32",), "bfi": ("b32", "b64"), "clz": ("b32", "b64"), "abs": ("s16", "s32", "s64"),
}  # fmt: skip
#: Sums of several words, which take or leave the thread's carry: opcode → the C of the sum, in words twice as wide.
CARRIED = {
    "add": "{0} + {1} + {carry}", "sub": "{0} - {1} - {carry}", "mad.lo": "({w})({c})({0} * {1}) + {2} + {carry}",
    "mad.hi": "({0} * {1} >> {bits}) + {2} + {carry}",
}  # fmt: skip

#: Instructions on f32 and on f64.
F32 = {
    "add": "{0} + {1}", "add.rn": "{0} + {1}", "sub": "{0} - {1}", "sub.rn": "{0} - {1}", "mul": "{0} * {1}",
    "add.rz": "add_rz({0}, {1})", "mul.rn": "{0} * {1}",
    "fma.rn": "__builtin_fmaf({0}, {1}, {2})", "fma.rm": "fma_rm({0}, {1}, {2})",
    "div.rn": "{0} / {1}", "rcp.rn": "1.0f / {0}", "sqrt.rn": "__builtin_sqrtf({0})", "neg": "-{0}",
    "abs": "__builtin_fabsf({0})", "min": "fmin_ptx({0}, {1})", "max": "fmax_ptx({0}, {1})",
    "copysign": "__builtin_copysignf({1}, {0})", "ex2.approx": "exp2f({0})", "lg2.approx": "log2f({0})",
    "sin.approx": "sinf({0})", "cos.approx": "cosf({0})", "tanh.approx": "tanhf({0})",
    "rcp.approx": "1.0f / {0}", "rsqrt.approx": "1.0f / __builtin_sqrtf({0})", "sqrt.approx": "__builtin_sqrtf({0})",
    "div.approx": "{0} / {1}", "div.full": "{0} / {1}",
}  # fmt: skip
F64 = {
    "add": "{0} + {1}", "add.rn": "{0} + {1}", "sub": "{0} - {1}", "sub.rn": "{0} - {1}", "mul": "{0} * {1}",
    "mul.rn": "{0} * {1}", "fma.rn": "__builtin_fma({0}, {1}, {2})", "div.rn": "{0} / {1}", "rcp.rn": "1.0 / {0}",
    "rcp.approx": "u2d(d2u(1.0 / {0}) & ~0xffffffffull)",
    "sqrt.rn": "__builtin_sqrt({0})", "neg": "-{0}", "abs": "__builtin_fabs({0})", "min": "dmin_ptx({0}, {1})",
    "max": "dmax_ptx({0}, {1})", "copysign": "__builtin_copysign({1}, {0})",
}  # fmt: skip
ROUNDED = {"rni": "rint", "rmi": "floor", "rzi": "trunc", "rpi": "ceil"}
ATOMIC = {
    "add": "old + {0}", "exch": "{0}", "and": "old & {0}", "or": "old | {0}", "xor": "old ^ {0}",
    "min": "old < {0} ? old : {0}", "max": "old > {0} ? old : {0}", "cas": "old == {0} ? {1} : old",
    "inc": "old >= {0} ? 0 : old + 1", "dec": "old == 0 || old > {0} ? {0} : old - 1",
}  # fmt: skip

DEEPEST = 128  #: calls of recursive functions within each other


class Translator:
    """One function of a module."""

    def __init__(
        self,
        module: PtxModule,
        function: Function,
        sites: list[Instruction],
        followed: set[str] | None,
        drop_stop: int | None,
    ) -> None:
        self._module, self._function, self._sites = module, function, sites
        self._registers = function.registers
        self._memory: dict[str, str] = {}  #: name of a parameter → C expression of its address
        for name, offset, _ in function.parameters:
            self._memory[name] = f"(C->parameters + {offset})" if function.is_entry else c_name(name)
        self._memory |= {name: c_name(name) for name, _, _ in function.results}
        if drop_stop is not None:
            stops = [item for item in function.body if isinstance(item, Instruction) and item.stops]
            function.body.remove(stops[drop_stop])
        self.live = live_at_stops(function)
        self._stop = {position: number for number, position in enumerate(self.live, 1)}
        self._label = {item: position for position, item in enumerate(function.body) if isinstance(item, str)}
        self._is_recursive = function.name in recursive(module)
        self.shadows = Shadows(function, followed, self.value, self._site)

    # -- operands --------------------------------------------------------------------------------------------------

    def value(self, operand: str, kind: str) -> str:
        """An operand, read as a type."""
        bits = BITS[kind]
        suffix = "ull" if bits == 64 else "u"
        if operand in self._registers:
            return self._register(operand, kind)
        if operand.startswith("!") and kind == "pred":
            return f"!{c_name(operand[1:])}"
        if operand in SPECIAL:
            return SPECIAL[operand]
        if found := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", operand):
            return f"u2f(0x{found[1]}u)" if kind == "f32" else f"0x{found[1]}u"
        if found := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", operand):
            return f"u2d(0x{found[1]}ull)" if kind == "f64" else f"0x{found[1]}ull"
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", operand):
            number = int(operand.rstrip("U"), 0) & ((1 << bits) - 1)
            return str(number) if kind == "pred" else f"({C_TYPES[kind]})0x{number:x}{suffix}"
        if operand in self._module.shared:
            return f"{self._module.shared[operand].offset}{suffix}"
        if operand in self._module.dynamic:
            return f"{self._module.shared_total}{suffix}"
        if operand in self._module.tables:
            return f"(uint64_t){c_name(operand)}"
        if self._function.local is not None and operand == self._function.local.name:
            own = self._function.local
            deeper = f" + {aligned(own.nbytes, 16)} * (S->progress.depth - 1)" if self._is_recursive else ""
            return f"(uint64_t)(S->local + {own.offset}{deeper})"
        raise UnsupportedPtx(f"operand {operand} as {kind}")

    def _register(self, name: str, kind: str) -> str:
        own, c = self._registers[name], c_name(name)
        if kind == "pred" or own == kind:
            return c
        if kind in ("f32", "f64"):
            return f"u2{'f' if kind == 'f32' else 'd'}({c})"
        if own in ("f32", "f64"):
            c = f"{'f' if own == 'f32' else 'd'}2u({c})"
        return f"({C_TYPES[kind]}){c}"

    def put(self, register: str, expression: str, kind: str) -> str:
        """The statement that writes an expression of a type to a register."""
        own, c = self._registers[register], c_name(register)
        if own in ("f32", "f64") and kind != own:
            return f"{c} = u2{'f' if own == 'f32' else 'd'}({expression});"
        if kind in ("f32", "f64") and own != kind:
            return f"{c} = {'f' if kind == 'f32' else 'd'}2u({expression});"
        return f"{c} = ({C_TYPES[own]})({expression});"

    def _address(self, operand: str) -> tuple[str, int]:
        """Base and offset of `[base+offset]`."""
        found = re.fullmatch(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]", operand)
        if not found:
            raise UnsupportedPtx(f"address {operand}")
        return found[1], int(found[2] or 0)

    def _site(self, instruction: Instruction) -> int:
        self._sites.append(instruction)
        return len(self._sites) - 1

    # -- instructions ----------------------------------------------------------------------------------------------

    def statement(self, position: int) -> str:
        """The C of one item of the body."""
        item = self._function.body[position]
        if isinstance(item, str):
            return item if item in "{}" else f"L_{c_name(item)}: ;"
        code = self._unconditional(position, item)
        if item.predicate:
            negated = item.predicate.startswith("!")
            refused = self.shadows.refuse(item, [item.predicate], "a branch")
            return f"{refused} if ({'!' * negated}{c_name(item.predicate.lstrip('!'))}) {{ {code} }}"
        return code

    def _unconditional(self, position: int, i: Instruction) -> str:
        """An instruction's C, whatever its predicate."""
        if i.is_warp_operation:
            return self._warp_operation(position, i)
        if i.is_barrier:
            if i.op[1:] not in (["sync"], ["sync", "aligned"]) or i.operands != ["0"]:
                raise UnsupportedPtx(i.text)
            return self._wait_here(position, "")
        return self.shadows.computed(i) + self._by_opcode(position, i)

    def _by_opcode(self, position: int, i: Instruction) -> str:
        match i.op[0]:
            case "bra":
                return self._jump(position, i)
            case "ret":
                return self._return
            case "exit":
                return "return 0;"
            case "trap":
                return f'fail(C, T, "a trap", {self._site(i)}, "");'
            case "membar" | "fence":
                return ";"
            case "param":
                return self._declare(i)
            case "call":
                return self._call(i)
            case "ld" | "ldu" | "st":
                return self._memory_access(i)
            case "atom" | "red":
                return self._atomic(i)
            case "mov" | "cvta":
                return self._move(i)
            case "setp":
                return self._compare(i)
            case "selp":
                return self._select(i)
            case "cvt":
                return self._convert(i)
        kind = i.op[-1]
        if kind == "pred":
            return self._logic(i)
        return self._floating(i, kind) if kind in ("f32", "f64") else self._integer(i, kind)

    def _jump(self, position: int, i: Instruction) -> str:
        """A jump backwards is a turn of a loop, and counted."""
        step = f"STEP({self._site(i)}); " if self._label[i.operands[0]] <= position else ""
        return f"{step}goto L_{c_name(i.operands[0])};"

    @property
    def _return(self) -> str:
        return f"{'S->progress.depth--; ' * self._is_recursive}return 0;"

    def _wait_here(self, position: int, before: str) -> str:
        """Save what is needed later, and return; the switch at the function's start continues at R…"""
        if not self._function.is_entry:
            raise UnsupportedPtx("a barrier or a warp operation in a function that is called, not inlined")
        saved = " ".join(f"S->{name} = {name};" for _, name in self._kept(self.live[position]))
        number = self._stop[position]
        instruction = self._function.body[position]
        assert isinstance(instruction, Instruction)
        code = -number if instruction.is_warp_operation else number
        return f"{before}{saved} return {code}; R{number}: ;"

    def _warp_operation(self, position: int, i: Instruction) -> str:
        kind = WARP_KINDS.get(".".join(i.op[:3]))
        if kind is None or i.op[-1] not in ("b32", "pred", "sync"):
            raise UnsupportedPtx(i.text)
        if kind == "WARP_BARRIER":
            value, b, c, mask = "0", "0", "0", i.operands[0]
        elif kind.startswith("SHFL"):
            value, b, c = (self.value(o, "u32") for o in i.operands[1:4])
            mask = i.operands[4]
        else:
            value = self.value(i.operands[1], "u32" if kind == "MATCH_ANY" else "pred")
            b, c, mask = "0", "0", i.operands[2]
        given = f"{kind}, {self._site(i)}, {self.value(mask, 'u32')}, {value}, {b}, {c}"
        refused = self.shadows.refuse(i, [*i.operands[1:]] or i.operands, "what other threads are given")
        code = self._wait_here(position, f"{refused} S->warp = (WarpStop){{{given}}}; ")
        if kind != "WARP_BARRIER":
            result, _, flag = i.operands[0].partition("|")
            code += " " + self.put(result, "S->warp.result", "pred" if i.op[-1] == "pred" else "u32")
            code += f" {c_name(flag)} = S->warp.flag;" if flag else ""
            code += self.shadows.clear(i.written)
        return code

    def _declare(self, i: Instruction) -> str:
        """`.param .b64 param0;` before a call: memory for an argument or a result."""
        found = re.fullmatch(r"param (?:\.align \d+ )?\.(\w+) ([\w$]+)(?:\[(\d+)\])?", i.text.lstrip("."))
        if not found:
            raise UnsupportedPtx(i.text)
        self._memory[found[2]] = c_name(found[2])
        return f"char {c_name(found[2])}[{BITS[found[1]] // 8 * int(found[3] or 1)}];"

    def _call(self, i: Instruction) -> str:
        lists = [[name.strip() for name in o.strip("()").split(",") if name.strip()] for o in i.operands]
        called = next((o for o in i.operands if o in self._module.functions), None)
        if called is None:
            raise UnsupportedPtx(f"a call of a function that is not in the module: {i.text}")
        memory = [c_name(name) for names in lists if names != [called] for name in names]
        return f"{c_name(called)}({', '.join(['C', 'S', 'T', *memory])});"

    def _move(self, i: Instruction) -> str:
        kind, to, given = i.op[-1], i.operands[0], i.operands[1]
        if given.startswith("{") or to.startswith("{"):
            return self._pack(i, kind, to, given)
        return self.put(to, self.value(given, kind), kind)

    def _pack(self, i: Instruction, kind: str, to: str, given: str) -> str:
        """`mov.b64 %rd1, {%r1, %r2}` and back."""
        parts = [part.strip() for part in (given if given.startswith("{") else to).strip("{}").split(",")]
        bits = BITS[kind] // len(parts)
        if kind not in ("b32", "b64") or bits not in (16, 32):
            raise UnsupportedPtx(i.text)
        if given.startswith("{"):
            terms = [f"({C_TYPES[kind]}){self.value(p, f'u{bits}')} << {bits * n}" for n, p in enumerate(parts)]
            return self.put(to, " | ".join(terms), kind)
        whole = f"{{ {C_TYPES[kind]} whole = {self.value(given, kind)}; "
        return whole + " ".join(self.put(p, f"whole >> {bits * n}", f"u{bits}") for n, p in enumerate(parts)) + " }"

    def _compare(self, i: Instruction) -> str:
        kind, comparison = i.op[-1], i.op[1]
        modifiers = [part for part in i.op[2:-1] if part != "ftz"]
        a, b = (self.value(o, kind) for o in i.operands[1:3])
        unordered = f"__builtin_isunordered({a}, {b})"
        if kind not in ("f32", "f64"):
            test = f"{a} {COMPARISONS[comparison]} {b}"
        elif comparison in ("nan", "num"):
            test = ("" if comparison == "nan" else "!") + unordered
        elif comparison == "ne":  # false for NaN, unlike C's
            test = f"__builtin_islessgreater({a}, {b})"
        elif comparison in COMPARISONS:
            test = f"{a} {COMPARISONS[comparison]} {b}"
        elif comparison.removesuffix("u") in COMPARISONS:
            test = f"({a} {COMPARISONS[comparison[:-1]]} {b}) || {unordered}"
        else:
            raise UnsupportedPtx(i.text)
        first, _, second = i.operands[0].partition("|")
        results = [(first, f"({test})"), *([(second, f"!({test})")] if second else [])]
        if modifiers:
            sign = {"and": "&", "or": "|", "xor": "^"}[modifiers[0]]
            other = self.value(i.operands[3], "pred")
            results = [(name, f"{expression} {sign} {other}") for name, expression in results]
        computed = " ".join(f"uint8_t is_{n} = {expression};" for n, (_, expression) in enumerate(results))
        return f"{{ {computed} {' '.join(f'{c_name(name)} = is_{n};' for n, (name, _) in enumerate(results))} }}"

    def _select(self, i: Instruction) -> str:
        kind, (to, a, b, test) = i.op[-1], i.operands
        return self.put(to, f"{c_name(test)} ? {self.value(a, kind)} : {self.value(b, kind)}", kind)

    def _logic(self, i: Instruction) -> str:
        """Between predicates."""
        values = [self.value(o, "pred") for o in i.operands[1:]]
        signs = {"and": "&", "or": "|", "xor": "^"}
        if i.op[0] == "not":
            return f"{c_name(i.operands[0])} = !{values[0]};"
        if i.op[0] not in signs:
            raise UnsupportedPtx(i.text)
        return f"{c_name(i.operands[0])} = {values[0]} {signs[i.op[0]]} {values[1]};"

    def _integer(self, i: Instruction, kind: str) -> str:
        key, to, given = ".".join(i.op[:-1]), i.operands[0], i.operands[1:]
        unsigned = f"u{BITS[kind]}"
        if key in SHIFTS:
            typed = kind if kind[0] == "s" else unsigned
            return self.put(to, f"{key}_{typed}({self.value(given[0], typed)}, {self.value(given[1], 'u32')})", kind)
        if key in ("mul.wide", "mad.wide") and BITS[kind] < 64:
            wide = f"{kind[0]}{2 * BITS[kind]}"
            product = " * ".join(f"({C_TYPES[wide]}){self.value(o, kind)}" for o in given[:2])
            added = f" + {self.value(given[2], wide)}" if key == "mad.wide" else ""
            return self.put(to, product + added, wide)
        if "cc" in i.op or i.op[0] in ("addc", "subc", "madc"):
            return self._carried(i, kind)
        how, template = INTEGER.get(key, ("", ""))
        if not template or kind not in ONLY.get(key, BITS) or BITS[kind] < 16:
            raise UnsupportedPtx(i.text)
        read_as = kind if how == "t" else unsigned
        values = [self.value(o, read_as) for o in given]
        site = self._site(i) if "{site}" in template else -1
        return self.put(to, template.format(*values, t=kind, site=site), "u32" if key in ("popc", "clz") else kind)

    def _carried(self, i: Instruction, kind: str) -> str:
        """`add.cc`, `madc.hi` and so on."""
        takes, bits = i.op[0] in ("addc", "subc", "madc"), BITS[kind]
        parts = [i.op[0][: 3 if takes else None], *(part for part in i.op[1:-1] if part != "cc")]
        template = CARRIED.get(".".join(parts))
        if template is None or bits < 32 or (kind[0] == "s" and "hi" in parts):
            raise UnsupportedPtx(i.text)
        wide, c = {32: "uint64_t", 64: "unsigned __int128"}[bits], C_TYPES[f"u{bits}"]
        values = [f"({wide}){self.value(o, f'u{bits}')}" for o in i.operands[1:]]
        summed = f"{wide} sum = {template.format(*values, c=c, w=wide, bits=bits, carry='carry' if takes else 0)};"
        leaves = f" carry = sum >> {bits} & 1;" if "cc" in i.op else ""
        return f"{{ {summed} {self.put(i.operands[0], 'sum', f'u{bits}')}{leaves} }}"

    def _floating(self, i: Instruction, kind: str) -> str:
        table, flushes = (F32, "ftz" in i.op) if kind == "f32" else (F64, False)
        parts = [part for part in i.op[:-1] if part not in ("ftz", "sat")]
        template = table.get(".".join(parts))
        if template is None:
            raise UnsupportedPtx(i.text)
        values = [self.value(o, kind) for o in i.operands[1:]]
        expression = template.format(*([f"flush({v})" for v in values] if flushes else values))
        expression = f"flush({expression})" if flushes else expression
        return self.put(i.operands[0], f"saturate({expression})" if "sat" in i.op else expression, kind)

    def _convert(self, i: Instruction) -> str:
        modifiers, to, given = [m for m in i.op[1:-2] if m != "ftz"], i.op[-2], i.op[-1]
        value = self.value(i.operands[1], given)
        floats = ("f32", "f64")
        mode = modifiers[0] if modifiers else ""
        if to not in BITS or given not in BITS or len(modifiers) > 1:
            raise UnsupportedPtx(i.text)
        to_float, from_float = to in floats, given in floats
        if (not to_float and not from_float and not mode) or (to_float and mode in ("rn", "") and given != to):
            expression = f"({C_TYPES[to]}){value}"
        elif to == given and mode in ROUNDED:
            expression = f"__builtin_{ROUNDED[mode]}{'f' if to == 'f32' else ''}({value})"
        elif to == given == "f32" and mode == "sat":
            expression = f"saturate({value})"
        elif not to_float and from_float and mode in ROUNDED and BITS[to] >= 16:
            expression = f"to_{to}(__builtin_{ROUNDED[mode]}({value}))"
        else:
            raise UnsupportedPtx(i.text)
        return self.put(i.operands[0], expression, to)

    # -- memory ----------------------------------------------------------------------------------------------------

    def _place(self, i: Instruction, operand: str, space: str, nbytes: int, alignment: int, how: str) -> str:
        """The C pointer to what an instruction reads or writes, checked."""
        base, offset = self._address(operand)
        if space == "param":
            return f"({self._memory[base]} + {offset})"
        address = f"({self.value(base, 'u64')} + (uint64_t){offset}ll)"
        given = f"C, T, {'S->local, ' if space in ('local', 'generic') else ''}{address}"
        return f"{space}({given}, {nbytes}, {alignment}, {self._site(i)}, {how})"

    def _memory_access(self, i: Instruction) -> str:
        parts = [part for part in i.op[1:-1] if part not in ("volatile", "relaxed", "weak", "nc", "gpu", "sys", "cta")]
        spaces = [part for part in parts if part in ("global", "shared", "local", "param")]
        widths = [part for part in parts if part in ("v2", "v4")]
        kind, loads = i.op[-1], i.op[0] != "st"
        if len(spaces) + len(widths) != len(parts):
            raise UnsupportedPtx(i.text)
        count = int(widths[0][1]) if widths else 1
        where, what = (i.operands[1], i.operands[0]) if loads else (i.operands[0], i.operands[1])
        registers = [register.strip() for register in what.strip("{}").split(",")]
        nbytes = BITS[kind] // 8 * count
        space = spaces[0] if spaces else "generic"
        how = ("PEEK" if "volatile" in i.op else "READ") if loads else "WRITE"
        pointer = self._place(i, where, space, nbytes, nbytes, how)
        refused = self.shadows.refuse(i, [where], "an address")
        stored = "" if loads else self.shadows.stored(i, registers, kind)
        loaded = self.shadows.loaded(i, registers, kind) if loads else ""
        moved = [
            self.put(register, f"q[{n}]", kind) if loads else f"q[{n}] = {self.value(register, kind)};"
            for n, register in enumerate(registers)
        ]
        code = " ".join([stored, *moved, loaded])
        return f"{refused}{{ {C_TYPES[kind]} *q = ({C_TYPES[kind]} *){pointer}; {code} }}"

    def _atomic(self, i: Instruction) -> str:
        ignored = ("relaxed", "acquire", "release", "acq_rel", "gpu", "sys", "cta")
        parts = [part for part in i.op[1:-1] if part not in ignored]
        spaces = [part for part in parts if part in ("global", "shared")]
        names = [part for part in parts if part in ATOMIC]
        kind, returns = i.op[-1], i.op[0] == "atom"
        if len(parts) != len(spaces) + len(names) or len(names) != 1:
            raise UnsupportedPtx(i.text)
        where, *given = i.operands[returns:]
        values = [self.value(o, kind) for o in given]
        nbytes = BITS[kind] // 8
        pointer = self._place(i, where, spaces[0] if spaces else "generic", nbytes, nbytes, "UPDATE")
        result = self.put(i.operands[0], "old", kind) if returns and i.operands[0] != "_" else ""
        address, refused = self.shadows.refuse(i, [where], "an address"), self.shadows.updated(i, kind)
        c, new = C_TYPES[kind], ATOMIC[names[0]].format(*values)
        return f"{address}{{ {c} *q = ({c} *){pointer}; {refused} {c} old = *q; *q = {new}; {result} }}"

    # -- the function ----------------------------------------------------------------------------------------------

    def source(self) -> str:
        """The C function."""
        function = self._function
        statements = [f"  {self.statement(position)}" for position in range(len(function.body))]
        used = {r for item in function.body if isinstance(item, Instruction) for r in (*item.written, *item.read)}
        declared = [
            f"  {C_TYPES[kind]} " + ", ".join(f"{c_name(r)} = 0" for r in names) + ";"
            for kind in sorted(set(self._registers.values()))
            if (names := [r for r, own in self._registers.items() if own == kind and r in used])
        ]
        declared += [f"  {kind} {name} = 0;" for kind, name in self.shadows.of(self._registers)]
        declared += ["  uint32_t carry = 0;"] * any("cc" in i.op for i in function.body if isinstance(i, Instruction))
        cases = [
            f"  case {-number if self._is_warp(position) else number}: "
            + " ".join(f"{name} = S->{name};" for _, name in self._kept(self.live[position]))
            + f" goto R{number};"
            for position, number in self._stop.items()
        ]
        switch = ["  switch (S->pc) {", *cases, "  default: ;", "  }"] if cases else []
        instructions = [item for item in function.body if isinstance(item, Instruction)]
        if self._is_recursive:
            first = next((each for each in instructions if each.line), instructions[0])
            switch.append(f"  call_deeper(C, T, &S->progress, {self._site(first)});")
        return "\n".join([f"{self.head()} {{", *declared, *switch, *statements, f"  {self._return}", "}"])

    def _is_warp(self, position: int) -> bool:
        item = self._function.body[position]
        return isinstance(item, Instruction) and item.is_warp_operation

    def head(self) -> str:
        memory = [*self._function.results, *self._function.parameters] if not self._function.is_entry else []
        name = "thread" if self._function.is_entry else c_name(self._function.name)
        given = "".join(f", char *{c_name(parameter)}" for parameter, _, _ in memory)
        return f"static int {name}(Context *restrict C, struct State *restrict S, const Thread *restrict T{given})"

    @property
    def stops(self) -> list[Instruction]:
        return [item for position in self._stop if isinstance(item := self._function.body[position], Instruction)]

    @property
    def saved(self) -> list[tuple[str, str]]:
        """Registers of the thread's state: C type and name."""
        return self._kept(sorted({r for registers in self.live.values() for r in registers}))

    def _kept(self, registers: list[str]) -> list[tuple[str, str]]:
        """Registers and their shadows."""
        return [(C_TYPES[self._registers[r]], c_name(r)) for r in registers] + self.shadows.of(registers)


def recursive(module: PtxModule) -> set[str]:
    """The functions that call themselves, at once or by way of others."""
    called = {
        name: {operand for item in function.body if isinstance(item, Instruction) and item.op[0] == "call"
               for operand in item.operands if operand in module.functions}
        for name, function in module.functions.items()
    }  # fmt: skip
    found = set()
    for name in called:
        reached: list[str] = [*called[name]]
        for other in reached:  # which grows meanwhile
            reached += [each for each in called[other] if each not in reached]
        if name in reached:
            found.add(name)
    return found


def c_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def translate(ptx: str, entry: str, drop_stop: int | None = None) -> str:
    """The C source of a kernel.

    Args:
        ptx: the module's text.
        entry: the name of the kernel's entry in it.
        drop_stop: leave this barrier or warp operation out, to see whether it is noticed; None: none.
    """
    module = parse(ptx)
    for name in recursive(module):
        if (own := module.functions[name].local) is not None:  # one for each call that has not ended
            own.offset = aligned(module.local_bytes, 16)
            module.local_bytes = own.offset + DEEPEST * aligned(own.nbytes, 16)
    if entry not in module.functions:
        raise UnsupportedPtx(f"there is no entry {entry}")
    sites: list[Instruction] = []
    called = [f for f in module.functions.values() if not f.is_entry]
    followed = tracked(module)
    functions = [Translator(module, f, sites, followed.get(f.name), None) for f in called]
    kernel = Translator(module, module.functions[entry], sites, followed.get(entry), drop_stop)
    sources = [each.source() for each in [*functions, kernel]]
    barriers = [len(sites) + n for n in range(len(kernel.stops))]
    sites += kernel.stops
    parameters = module.functions[entry].parameters
    shared = [f'{{{v.offset}, {v.nbytes}, "shared array {n}"}}' for n, v in enumerate(module.shared.values(), 1)]
    constants = module.tables.items()
    lines = {
        "SITES": len(sites), "SHARED_TOTAL": module.shared_total, "SHARED_BYTES": module.shared_bytes,
        "SHARED_ARRAYS": len(shared), "TABLES": len(constants), "DYNAMIC_SHARED": 48 * 1024 if module.dynamic else 0,
        "LOCAL_BYTES": module.local_bytes, "SHADOWS": int(bool(followed)), "DEEPEST": DEEPEST,
        "WARPS": int(any(stop.is_warp_operation for stop in kernel.stops)),
        "PARAMETERS": len(parameters), "PARAMETER_BYTES": max((o + n for _, o, n in parameters), default=0),
        "MAX_THREADS": module.functions[entry].max_threads,
    }  # fmt: skip
    state = [f"  {kind} {name};" for kind, name in kernel.saved]
    tables = {
        "const char *const site_text[]": [c_string(site.text) for site in sites],
        "const char *const site_line[]": [c_string(site.line) for site in sites],
        "const int barrier_site[]": ["0", *map(str, barriers)],
        "const struct { unsigned offset, bytes; const char *name; } shared_arrays[]": shared,
        "const unsigned parameter_sizes[]": [str(nbytes) for _, _, nbytes in parameters],
        **{
            f"const unsigned char {c_name(name)}[] __attribute__((aligned({n})))": [each]
            for name, (n, each) in constants
        },
        "const struct { const unsigned char *lo; unsigned bytes; } tables[]": [
            f"{{{c_name(name)}, sizeof {c_name(name)}}}" for name in module.tables
        ],
    }
    warp = ["  WarpStop warp;"] if lines["WARPS"] else []
    return "\n".join([
        *(f"#define {name} {value}" for name, value in lines.items()),
        *(f"static {table} = {{{', '.join(values or ['0'])}}};" for table, values in tables.items()),
        '#include "kernel.h"',
        "struct State {", "  int pc;", "  char *local;", *warp, *state, "  Progress progress;", "};",
        *(f"{each.head()};" for each in functions),
        *sources,
        '#include "block.h"', "",
    ])  # fmt: skip
