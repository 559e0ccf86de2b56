"""PTX text read into functions, instructions and labels, and which registers are live where a thread stops.

PTX is the assembly language that Numba's compiler writes for a GPU.  A function has typed registers, instructions with
operands (the first is what is written), and labels; a predicate (`@%p1`) makes an instruction conditional.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

BITS = {
    "pred": 1, "s8": 8, "u8": 8, "b8": 8, "s16": 16, "u16": 16, "b16": 16, "s32": 32, "u32": 32, "b32": 32, "f32": 32,
    "s64": 64, "u64": 64, "b64": 64, "f64": 64,
}  # fmt: skip
C_TYPES = {
    "pred": "uint8_t", "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t", "u16": "uint16_t",
    "s16": "int16_t", "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t", "b64": "uint64_t", "u64": "uint64_t",
    "s64": "int64_t", "f32": "float", "f64": "double",
}  # fmt: skip
RED_ZONE = 256  #: bytes between two shared arrays, which nothing may touch

#: Instructions that write no register: every operand is read.
WRITE_NOTHING = {"st", "red", "bra", "bar", "barrier", "ret", "exit", "membar", "fence", "trap", "call"}
#: Instructions that all threads of a warp execute together.
WARP_OPERATIONS = ("shfl.sync", "vote.sync", "match.any", "bar.warp")


class UnsupportedPtx(NotImplementedError):
    """PTX that the emulated GPU does not know; the message names it."""


@dataclass
class Instruction:
    text: str
    predicate: str | None  #: "%p1" or "!%p1"
    op: list[str]  #: the opcode's parts: ["ld", "global", "f32"]
    operands: list[str]
    line: str  #: "file:line" of its source; "" where the PTX does not say
    written: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    @property
    def is_warp_operation(self) -> bool:
        return ".".join(self.op[:2]) in WARP_OPERATIONS

    @property
    def is_barrier(self) -> bool:
        return self.op[0] in ("bar", "barrier") and not self.is_warp_operation

    @property
    def stops(self) -> bool:
        """A thread waits here for others."""
        return self.is_barrier or self.is_warp_operation


@dataclass
class Variable:
    """A shared array, or a function's local memory."""

    name: str
    offset: int
    nbytes: int


@dataclass
class Function:
    name: str
    is_entry: bool
    parameters: list[tuple[str, int, int]]  #: name, offset and bytes of each
    results: list[tuple[str, int, int]]
    registers: dict[str, str]  #: name → type
    body: list[Instruction | str]  #: a string is a label, or a brace
    local: Variable | None
    max_threads: int


@dataclass
class PtxModule:
    functions: dict[str, Function]
    shared: dict[str, Variable]
    shared_bytes: int  #: without red zones: what a GPU would give to a block
    dynamic: set[str]  #: names of the array whose size a launch gives
    tables: dict[str, tuple[int, str]]  #: arrays of constants: name → alignment, and bytes as "8, 93, 141"
    local_bytes: int

    @property
    def shared_total(self) -> int:
        """Bytes with red zones."""
        return max((v.offset + v.nbytes for v in self.shared.values()), default=0) + RED_ZONE


def c_name(name: str) -> str:
    """A register's, label's or function's name in C."""
    return name.replace("%", "").replace("$", "_")


def operands(text: str) -> list[str]:
    """Operands are separated by commas, but not those within brackets."""
    found, depth, current = [], 0, ""
    for character in text:
        depth += (character in "{[(") - (character in "}])")
        if character == "," and depth == 0:
            found.append(current.strip())
            current = ""
        else:
            current += character
    return [*found, current.strip()] if current.strip() else found


def aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def parse(ptx: str) -> PtxModule:
    """Every function of a PTX module."""
    text = re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", ptx, flags=re.S))
    files = {number: "/".join(path.split("/")[-2:]) for number, path in re.findall(r'\.file\s+(\d+)\s+"([^"]*)"', text)}
    shared, shared_bytes, dynamic = _shared(text)
    functions: dict[str, Function] = {}
    local_bytes = 0
    pattern = r"\.(entry|func)\s*(?:\(([^)]*)\))?\s*([\w$]+)\s*\(([^)]*)\)([^{;]*)\{(.*?)\n\}"
    for kind, results, name, parameters, directives, body in re.findall(pattern, text, re.S):
        function = _function(kind == "entry", results, name, parameters, directives, body, files)
        if function.local is not None:
            function.local.offset = aligned(local_bytes, 16)
            local_bytes = function.local.offset + function.local.nbytes
        functions[name] = function
    constants = re.findall(r"\.(?:global|const)\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[\d+\]\s*=\s*\{([^}]*)\}", text)
    tables = {name: (int(alignment), values) for alignment, name, values in constants}
    for alignment, kind, name in re.findall(r"\.global\s+\.align\s+(\d+)\s+\.(\w+)\s+([\w$]+);", text):
        if text.count(name) > 1:  # MLIR's code of an error, which no kernel without an error writes
            tables[name] = int(alignment), ", ".join("0" * (BITS[kind] // 8))
    return PtxModule(functions, shared, shared_bytes, dynamic, tables, local_bytes)


def _shared(text: str) -> tuple[dict[str, Variable], int, set[str]]:
    shared: dict[str, Variable] = {}
    offset, declared = RED_ZONE, 0
    dynamic: set[str] = set()
    for alignment, kind, name, count in re.findall(r"\.shared\s+\.align\s+(\d+)\s+\.(\w+)\s+([\w$]+)(\[\d*\])?;", text):
        if kind == "b8" and count in ("", "[]"):  # MLIR's has no brackets
            dynamic.add(name)
            continue
        nbytes = BITS[kind] // 8 * int(count.strip("[]") or 1)  # an array of one element may have no brackets, either
        offset = aligned(offset, max(16, int(alignment)))
        shared[name] = Variable(name, offset, nbytes)
        offset += nbytes + RED_ZONE
        declared = aligned(declared, int(alignment)) + nbytes
    return shared, declared, dynamic


def _layout(text: str) -> list[tuple[str, int, int]]:
    """Parameters as `.param .u64 name` or `.param .align 8 .b8 name[16]`."""
    found, offset = [], 0
    for alignment, kind, name, count in re.findall(
        r"\.(?:param|reg)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$%]+)(?:\[(\d+)\])?", text
    ):
        nbytes = BITS[kind] // 8 * int(count or 1)
        offset = aligned(offset, int(alignment or BITS[kind] // 8))
        found.append((name, offset, nbytes))
        offset += nbytes
    return found


def _function(
    is_entry: bool, results: str, name: str, parameters: str, directives: str, text: str, files: dict[str, str]
) -> Function:
    registers: dict[str, str] = {}
    found = re.findall(r"\.reg\s+\.(\w+)\s+([^;]+);", text)
    declared = [(kind, register) for kind, names in found for register in operands(names)]
    # Those of assembly that was written by hand have any name; the compiler's begin with %.
    if own := {register for _, register in declared if not register.startswith("%")}:
        text = re.sub(rf"(?<![\w%$.])({'|'.join(own)})\b", r"%own_\1", text)
    for kind, register in declared:
        prefix, _, count = (f"%own_{register}" if register in own else register).rstrip(">").partition("<")
        registers |= dict.fromkeys([f"{prefix}{i}" for i in range(int(count))] if count else [prefix], kind)
    depot = re.search(r"\.local\s+\.align\s+\d+\s+\.b8\s+([\w$]+)\[(\d+)\]\s*;", text)
    threads = re.search(r"\.maxntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", directives)
    made = Function(
        name, is_entry, _layout(parameters), _layout(results), registers, [],
        Variable(depot[1], 0, int(depot[2])) if depot else None,
        int(threads[1]) * int(threads[2] or 1) * int(threads[3] or 1) if threads else 0,
    )  # fmt: skip
    made.body = _body(text, registers, files)
    return made


def _body(text: str, registers: dict[str, str], files: dict[str, str]) -> list[Instruction | str]:
    body: list[Instruction | str] = []
    line = ""
    text = re.sub(r"\.(reg|local|shared|pragma)\s+[^;]*;", "", text)
    text = re.sub(r"^([ \t]*(?:\.loc\b[^\n]*|[{}][ \t]*))$", r"\1;", text, flags=re.M)  # they end without a semicolon
    for raw in re.split(r";|(?<=:)\s*\n", text):
        rest = " ".join(raw.split())
        while label := re.match(r"([$\w]+):\s*(.*)$", rest):
            body.append(label[1])
            rest = label[2]
        if rest in ("{", "}"):
            body.append(rest)
        elif rest.startswith(".loc"):
            _, file, number, *_ = rest.replace(",", " ").split()
            line = f"{files.get(file, '?')}:{number}" if number != "0" else line
        elif rest:
            predicate = None
            if found := re.match(r"@(!?%\w+)\s+(.*)$", rest):
                predicate, rest = found[1], found[2]
            opcode, _, after = rest.partition(" ")
            instruction = Instruction(rest, predicate, opcode.lstrip(".").split("."), operands(after), line)
            _note_registers(instruction, registers)
            body.append(instruction)
    return body


def _note_registers(instruction: Instruction, registers: dict[str, str]) -> None:
    def named(text: str) -> list[str]:
        return [name for name in re.findall(r"%\w+", text) if name in registers]

    first = 0 if instruction.op[0] in WRITE_NOTHING and instruction.op[:2] != ["bar", "red"] else 1
    instruction.written = [name for text in instruction.operands[:first] for name in named(text)]
    instruction.read = [name for text in instruction.operands[first:] for name in named(text)]
    instruction.read += named(instruction.predicate or "")


def live_at_stops(function: Function) -> dict[int, list[str]]:
    """Position of an instruction where a thread stops → the registers that are read after it.

    The usual backward dataflow: what is live before an instruction is what it reads, and what is live after it
    without what it writes.  Sets of registers are the bits of an integer.
    """
    body, names = function.body, list(function.registers)
    number = {name: i for i, name in enumerate(names)}
    place = {item: position for position, item in enumerate(body) if isinstance(item, str)}

    def bits(registers: list[str]) -> int:
        return sum(1 << number[name] for name in set(registers))

    read, kept, after = [0] * len(body), [-1] * len(body), [[i + 1] for i in range(len(body))]
    for position, item in enumerate(body):
        if isinstance(item, Instruction):
            read[position] = bits(item.read)
            kept[position] = -1 if item.predicate else ~bits(item.written)
            if item.op[0] == "bra":
                after[position] = [place[item.operands[0]], *after[position][: bool(item.predicate)]]
            elif item.op[0] in ("ret", "exit", "trap"):
                after[position] = after[position][: bool(item.predicate)]
    live = [0] * (len(body) + 1)  # before each instruction
    live_after = [0] * len(body)
    changed = True
    while changed:
        changed = False
        for position in reversed(range(len(body))):
            live_after[position] = 0
            for next_one in after[position]:
                live_after[position] |= live[next_one]
            before = read[position] | live_after[position] & kept[position]
            if before != live[position]:
                live[position], changed = before, True
    return {
        position: [name for i, name in enumerate(names) if live_after[position] >> i & 1]
        for position, item in enumerate(body)
        if isinstance(item, Instruction) and item.stops
    }
