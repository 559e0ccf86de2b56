"""Step 2: a kernel's body cut at its barriers, each piece in a loop over the block's threads.

A barrier says: every thread has come this far before any goes on.  On one core that is a loop: run the first piece
for all threads, then the next.

    acc = 0                          for thread: acc = 0; acc_of[thread] = acc
    while k0 < K:                    while k0 < K:
        s[t] = x[k0 + t]                 for thread: s[t] = x[k0 + t]
        cuda.syncthreads()
        acc += s[0]                      for thread: acc = acc_of[thread]; acc += s[0]; acc_of[thread] = acc
        k0 += 256                        k0 += 256

A variable is *uniform* if all threads of the block have the same value for it (k0); it exists once.  The others are
*varying* (t, acc).  A varying one that lives across a cut is kept in an array with an element a thread, unless it is
so simple (t) that it is computed again.  Control flow around a barrier must be uniform.

In checked mode nothing is taken on trust: every variable is varying, nothing is computed again, and a condition
around a barrier is evaluated by every thread and compared.  A barrier also begins a new epoch: the edges of control
flow around one are cuts too, but no barriers, and what happens on both sides of them may be a race (see `checked`).
"""

from __future__ import annotations

import ast
import copy
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernels.targets.cpu.processor import lanes
from kernels.targets.cpu.vocabulary import (
    AXES,
    Array,
    Lowered,
    Site,
    UnsupportedKernel,
    dotted,
    expression,
    has_barrier,
    parse,
    stored,
)
from kernels.targets.declare import Dim3

THREAD_INDICES = {f"threadIdx_{axis}" for axis in AXES}
THREAD_X = {"threadIdx_x", *(f"np.{kind}(threadIdx_x)" for kind in ("uint32", "int32", "int64"))}
PURE = {"min", "max", "abs", "int", "float", "bool"}  #: calls that depend on nothing but their arguments


def names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def is_pure(value: ast.AST, lowered: Lowered) -> bool:
    """Follows from the variables in it alone: it reads no array, and calls casts, min, max and pure helpers only."""
    for node in ast.walk(value):
        if isinstance(node, ast.Subscript):
            return False
        if isinstance(node, ast.Call):
            called = dotted(node.func)
            is_cast = called.startswith("np.") or lowered.constants.get(called, "").startswith("np.")
            helper = lowered.helpers.get(called)
            if called not in PURE and not is_cast and not (helper and not helper.local and _all_pure(helper)):
                return False
    return True


def _all_pure(helper: Lowered) -> bool:
    return all(is_pure(s, helper) for s in helper.body)


@dataclass
class CodePiece:
    """Statements that every thread runs without meeting a barrier, and the loop they are put in."""

    statements: list[ast.stmt]
    loop: list[ast.stmt]  #: the loop's statements as in the block; filled in at the end
    needs: set[str] = field(default_factory=set)  #: varying names read before they are certainly set
    sets: set[str] = field(default_factory=set)  #: varying names certainly set


@dataclass
class CutBody:
    statements: list[ast.stmt]
    kept: list[str]  #: varying variables with an element a thread
    private: set[str]  #: local arrays that live inside one piece: one for all threads
    conditions: int  #: conditions that every thread evaluates (checked mode)


def thread_loop(block: Dim3, body: list[ast.stmt], checked: bool, working: str = "") -> list[ast.stmt]:
    """A loop over the block's threads, x innermost (neighbours in memory); in checked mode in a given order.

    `working`: the number of threads, of a block of one dimension, that do anything, if not all.
    """
    x, y, z = block
    if checked:
        number = {"x": f"_thread % {x}", "y": f"_thread // {x} % {y}", "z": f"_thread // {x * y}"}
        used = {name for s in body for name in names(s)}
        head = f"""
            for _turn in range({x * y * z}):
                _thread = _order[_turn]
                _report[THREAD] = _thread"""
        for axis in AXES:
            if f"threadIdx_{axis}" in used:
                head += f"\n                threadIdx_{axis} = {number[axis]}"
        loop = parse(head)
        loop[0].body += body  # type: ignore[attr-defined]
        return loop
    thread = "threadIdx_x" if y == z == 1 else f"threadIdx_y * {x} + threadIdx_x"
    thread = thread if z == 1 else f"(threadIdx_z * {y} + threadIdx_y) * {x} + threadIdx_x"
    if "_thread" in {name for s in body for name in names(s)}:
        body = [*parse(f"_thread = {thread}"), *body]
    for axis, n in zip(AXES, block, strict=True):
        if n > 1 or axis == "x":
            loop = parse(f"for threadIdx_{axis} in range({working or n}): pass")
            loop[0].body = body  # type: ignore[attr-defined]
            body = loop
        elif f"threadIdx_{axis}" in {name for s in body for name in names(s)}:
            body = [*parse(f"threadIdx_{axis} = 0"), *body]
    return body


def cut(lowered: Lowered, block: Dim3, checked: bool = False, lockstep: bool = False) -> CutBody:
    """The body in pieces; `lockstep`: of an element-wise kernel, whose marks stand for no barriers (see `lockstep`)."""
    return _Cutter(lowered, block, checked, lockstep).run()


def _in_rows(array: Array) -> bool:
    """Whether the rows of a local array are vector registers."""
    return len(array.shape) > 1 and array.shape[-1] == lanes() and array.dtype == "float32"


class _Place(ast.If):
    """Holds a piece's loop until everything is cut."""


class _Unwrap(ast.NodeTransformer):
    def visit__Place(self, node: _Place) -> list[ast.stmt]:
        return node.body


class _ByThread(ast.NodeTransformer):
    """`value[j]` becomes `_value_of[j, _thread]`, which is beside the next thread's."""

    def __init__(self, local: dict[str, Array]) -> None:
        self.local = local

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if (name := dotted(node.value)) in self.local:
            node.value = ast.Name(f"_{name}_of", ast.Load())
            node.slice = ast.Tuple([node.slice, ast.Name("_thread", ast.Load())], ast.Load())
        return node


class _Cutter:
    def __init__(self, lowered: Lowered, block: Dim3, checked: bool, lockstep: bool) -> None:
        self.lowered, self.block, self.checked, self.lockstep = lowered, block, checked, lockstep
        self.local = lowered.local
        self.varying = THREAD_INDICES | set(self.local)
        self.pieces: list[CodePiece] = []
        self.conditions = 0
        if checked:
            self.varying |= stored(lowered.body)
        else:
            self._spread(lowered.body)
        self.simple = {} if checked else self._simple()

    # ---- which variables differ between threads --------------------------------------------------------------------

    def is_uniform(self, statement: ast.stmt) -> bool:
        """Assignments that give every thread the same value, also under `if`: they can be made once for the block."""
        if isinstance(statement, ast.If):
            plain = all(self.is_uniform(s) for s in [*statement.body, *statement.orelse])
        else:
            plain = isinstance(statement, (ast.Assign, ast.AugAssign))
        return plain and not names(statement) & self.varying and is_pure(statement, self.lowered)

    def _spread(self, body: Sequence[ast.stmt]) -> None:
        """Every variable that depends on a varying one is varying: repeated until nothing changes."""

        def walk(statements: Sequence[ast.stmt], inside_piece: bool) -> None:
            for s in statements:
                if not inside_piece and self.is_uniform(s):
                    continue
                if isinstance(s, (ast.For, ast.While, ast.If)):
                    inside = inside_piece or not has_barrier(s)
                    if inside and isinstance(s, ast.For):
                        self.varying |= stored([s.target])
                    walk([*s.body, *s.orelse], inside)
                else:
                    self.varying |= stored([s])

        before = -1
        while before != len(self.varying):
            before = len(self.varying)
            walk(body, False)

    def _simple(self) -> dict[str, ast.stmt]:
        """Varying variables that are set once, at top level, from the thread's index and things that never change."""
        times = Counter(
            n.id
            for s in self.lowered.body
            for n in ast.walk(s)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        )
        found: dict[str, ast.stmt] = {}
        fixed = {name for name in self.lowered.parameters if not times[name]} | THREAD_INDICES
        for s in self.lowered.body:
            if not isinstance(s, ast.Assign) or not isinstance(s.targets[0], ast.Name) or len(s.targets) > 1:
                continue
            name, used = s.targets[0].id, names(s.value) & (self.varying | set(times))
            if times[name] == 1 and used <= fixed | set(found) and is_pure(s.value, self.lowered):
                if name in self.varying:
                    found[name] = s
                else:
                    fixed.add(name)
        return found

    # ---- cutting ---------------------------------------------------------------------------------------------------

    def run(self) -> CutBody:
        statements = self._cut(self.lowered.body)
        for piece in self.pieces:
            piece.needs, piece.sets = self._live_in(piece.statements, set(THREAD_INDICES) | set(self.local))
        kept = set().union(*(piece.needs for piece in self.pieces)) - set(self.simple)
        private = set() if self.checked or self.lockstep else {name for name in self.local if self._is_private(name)}
        for piece in self.pieces:
            if working := "" if self.checked else self._working(piece):
                piece.statements = piece.statements[0].body  # type: ignore[attr-defined]
            piece.loop[:] = thread_loop(self.block, self._around(piece, kept, private), self.checked, working)
        body = _Unwrap().visit(ast.Module(statements, [])).body
        return CutBody(body, sorted(kept), private, self.conditions)

    def _working(self, piece: CodePiece) -> str:
        """How many threads do anything in a piece that is `if t < half: …` or `if t == 0: …`, t being a thread's index.

        "" for any other piece: all of them may.
        """
        match piece.statements:
            case [ast.If(ast.Compare(ast.Name(t), [ast.Lt() | ast.Eq() as operator], [bound]), _, [])]:
                index = self.simple.get(t)
                is_index = isinstance(index, ast.Assign) and ast.unparse(index.value) in THREAD_X
                uniform = not names(bound) & self.varying and is_pure(bound, self.lowered)
                if not is_index or not uniform or self.block[1:] != (1, 1):
                    return ""
                if isinstance(operator, ast.Lt):
                    return f"min({self.block[0]}, np.int64({ast.unparse(bound)}))"
                return "1" if ast.unparse(bound) == "0" else ""
        return ""

    def _cut(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        open_piece: list[ast.stmt] = []

        def close() -> None:
            if open_piece:
                out.append(self._piece(list(open_piece)))
                open_piece.clear()

        for s in statements:
            if not self.checked and self.is_uniform(s):
                if stored([s]) & {name for p in open_piece for name in names(p)}:
                    close()
                out.append(s)
            elif not has_barrier(s):
                open_piece.append(s)
            else:
                close()
                if not isinstance(s, ast.Expr):
                    out += self._control(s)
                elif self.checked:  # the barrier itself: closing the piece was all its work, but for the next epoch
                    out += parse("_report[EPOCH] += 1")
        close()
        return out

    def _piece(self, statements: list[ast.stmt]) -> ast.stmt:
        place = _Place(ast.Constant(True), [], [])  # the loop is filled in when all pieces are known
        self.pieces.append(CodePiece(statements, place.body))
        return place

    def _control(self, s: ast.stmt) -> list[ast.stmt]:
        """`if`, `while` or `for` around a barrier: the same for all threads, so it is placed around their loops."""
        s = copy.copy(s)
        before: list[ast.stmt] = []
        if isinstance(s, ast.For):
            if not (isinstance(s.iter, ast.Call) and dotted(s.iter.func) == "range" and isinstance(s.target, ast.Name)):
                raise self._refusal(s, "a loop around a barrier must go over a range")
            s.iter = ast.Call(s.iter.func, [self._agreed(bound, s, before) for bound in s.iter.args], [])
            body = list(s.body)
            if s.target.id in self.varying:
                body = [ast.Assign([s.target], ast.Name(f"_{s.target.id}", ast.Load()), lineno=s.lineno), *body]
                s.target = ast.Name(f"_{s.target.id}", ast.Store())
            s.body = self._cut(body)
            return [*before, s]
        if isinstance(s, ast.While):
            test = self._agreed(s.test, s, before)
            body = self._cut(s.body)
            if before:  # evaluated by every thread, each time round
                s.test = ast.Constant(True)
                s.body = [*before, ast.If(ast.UnaryOp(ast.Not(), test), [ast.Break()], []), *body]
                return [s]
            s.body = body
            return [s]
        if isinstance(s, ast.If):
            s.test = self._agreed(s.test, s, before)
            s.body, s.orelse = self._cut(s.body), self._cut(s.orelse)
            return [*before, s]
        raise self._refusal(s, "a barrier can be inside `if`, `while` and `for` only")

    def _agreed(self, value: ast.expr, s: ast.stmt, before: list[ast.stmt]) -> ast.expr:
        """The expression itself where it is uniform; in checked mode the value that all threads turn out to have."""
        if not self.checked:
            if names(value) & self.varying or not is_pure(value, self.lowered):
                raise self._refusal(
                    s,
                    f"barrier under `{ast.unparse(value)}`, which may differ between threads; "
                    "checked mode tells which threads",
                )
            return value
        name = f"_condition{self.conditions}"
        self.conditions += 1
        before.append(self._piece(parse(f"{name}[_thread] = {ast.unparse(value)}")))
        self.lowered.sites.append(Site(s.lineno, ast.unparse(value)))
        return expression(f"_agree({name}, np.int64({len(self.lowered.sites) - 1}), _report)")

    def _refusal(self, s: ast.stmt, why: str) -> UnsupportedKernel:
        return UnsupportedKernel(f"{self.lowered.file}:{s.lineno}: {self.lowered.name}: {why}")

    # ---- what lives across a cut -----------------------------------------------------------------------------------

    def _live_in(self, statements: Sequence[ast.stmt], given: set[str]) -> tuple[set[str], set[str]]:
        """(varying names read before they are certainly set, names certainly set) of statements in order."""
        needs: set[str] = set()

        def read(node: ast.AST) -> None:
            needs.update((names(node) & self.varying) - given)

        for s in statements:
            if isinstance(s, ast.Assign):
                read(s.value)
                for target in s.targets:
                    needs |= (names(target) - stored([target])) & self.varying - given  # a[i] = … reads i
                    given = given | stored([target])
            elif isinstance(s, (ast.For, ast.While)):
                read(s.iter if isinstance(s, ast.For) else s.test)
                looped = given | (names(s.target) if isinstance(s, ast.For) else set())
                needs |= self._live_in(s.body, looped)[0]
            elif isinstance(s, ast.If):
                read(s.test)
                (then_needs, then_sets), (else_needs, else_sets) = (
                    self._live_in(s.body, given),
                    self._live_in(s.orelse, given),
                )
                needs |= then_needs | else_needs
                given = then_sets & else_sets
            else:
                read(s)
        return needs, given

    def _is_private(self, array: str) -> bool:
        """Used in one piece only, which first stores into it unconditionally: nothing of it lives across a cut."""
        using = [piece for piece in self.pieces if any(array in names(s) for s in piece.statements)]
        return len(using) == 1 and self._stores_first(using[0].statements, array)

    def _stores_first(self, statements: Sequence[ast.stmt], array: str) -> bool:
        """Whether the first statement that uses the array stores into it, without reading it."""
        first, *later = [s for s in statements if array in names(s)]
        if isinstance(first, (ast.For, ast.While)):
            return self._stores_first(first.body, array)
        if isinstance(first, ast.If):
            branches = [b for b in (first.body, first.orelse) if any(array in names(s) for s in b)]
            skipped = len(branches) == 1 and later  # where the condition fails, they read what was there before
            return (
                array not in names(first.test) and not skipped and all(self._stores_first(b, array) for b in branches)
            )
        match first:
            case ast.Expr(ast.Call(ast.Name("_move"), [ast.Name(to), *others])) if to == array:  # see `source._Rows`
                return not any(array in names(other) for other in others)
        targets = first.targets if isinstance(first, ast.Assign) else []
        reads = array in names(first.value) if isinstance(first, ast.Assign) else True
        return not reads and any(isinstance(t, ast.Subscript) and dotted(t.value) == array for t in targets)

    def _changes(self, statements: Sequence[ast.stmt], array: str) -> bool:
        """Stores into the array, or hands it to a helper that might."""
        elements = {id(n.value) for s in statements for n in ast.walk(s) if isinstance(n, ast.Subscript)}
        for s in statements:
            for n in ast.walk(s):
                if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) and dotted(n.value) == array:
                    return True
                if isinstance(n, ast.Name) and n.id == array and id(n) not in elements:
                    return True
        return False

    def _around(self, piece: CodePiece, kept: set[str], private: set[str]) -> list[ast.stmt]:
        """The piece with what one thread takes up before it and puts away after it."""
        sets = stored(piece.statements)
        keeps = sets & kept
        loads = (piece.needs | (keeps - piece.sets)) & kept
        used = set().union(*(names(s) for s in piece.statements))
        arrays = [self.local[name] for name in sorted((used & set(self.local)) - private)]
        head = self._again(piece, sets)
        head += [s for name in sorted(loads) for s in parse(f"{name} = _{name}_of[_thread]")]
        tail = [s for name in sorted(keeps) for s in parse(f"_{name}_of[_thread] = {name}")]
        if self.checked:
            head += [s for array in arrays for s in parse(f"{array.name} = _{array.name}_of[_thread]")]
            return [*head, *piece.statements, *tail]
        if self.lockstep:
            return [*head, *(_ByThread(self.local).visit(s) for s in piece.statements), *tail]
        before, after = self._taken_up(arrays, piece.statements)
        match piece.statements:
            case [ast.If(test, body, [])] if all(_in_rows(array) for array in arrays):  # threads that rest copy nothing
                return [*head, ast.If(test, [*before, *body, *after], []), *tail]
        return [*head, *before, *piece.statements, *tail, *after]

    def _taken_up(
        self, arrays: Sequence[Array], statements: Sequence[ast.stmt]
    ) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """What copies these arrays of a thread before the statements, and what copies the changed ones back."""
        before: list[ast.stmt] = []
        after: list[ast.stmt] = []
        for array in arrays:
            before += parse(f"{array.name} = _stack({array.shape}, np.{array.dtype})")
            # Outside of an `if` around all, but for rows of vectors: inside of it, full tiles take 8 % longer.
            before += self._copy(array, "{mine} = {kept}")
            if self._changes(statements, array.name):
                after += self._copy(array, "{kept} = {mine}")
        return before, after

    def _copy(self, array: Array, statement: str) -> list[ast.stmt]:
        """A loop an axis: LLVM unrolls them and keeps the array in registers, which it does not do after a memcpy."""
        *rows, columns = array.shape
        if _in_rows(array):
            kept = f"_{array.name}_of"
            to, origin, at = (
                (array.name, kept, f"0, _thread * {array.size}")
                if statement.startswith("{mine}")
                else (kept, array.name, f"_thread * {array.size}, 0")
            )
            return parse(f"_move({to}, {origin}, {at}, {math.prod(rows)}, {columns})")
        indices = [f"_{axis}" for axis in "ijkl"[: len(array.shape)]]
        mine, kept = (f"{array.name}[{', '.join(indices)}]", f"_{array.name}_of[{', '.join(['_thread', *indices])}]")
        body = parse(statement.format(mine=mine, kept=kept))
        for index, length in reversed(list(zip(indices, array.shape, strict=True))):
            loop = parse(f"for {index} in range({length}): pass")
            loop[0].body = body  # type: ignore[attr-defined]
            body = loop
        return body

    def _again(self, piece: CodePiece, sets: set[str]) -> list[ast.stmt]:
        """The simple variables that the piece needs, computed again, in their order."""
        wanted = set(piece.needs)
        out: list[ast.stmt] = []
        for name, s in reversed(self.simple.items()):
            if name in wanted and name not in sets:
                out.insert(0, copy.deepcopy(s))
                wanted |= names(s) & set(self.simple)
        return out
