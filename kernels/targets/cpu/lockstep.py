"""Element-wise kernels on a CPU: a block's threads in lockstep, so that its elements are touched in their order.

A thread of an element-wise kernel has four elements that are 256 apart: it reads all four, then writes all four.
Thread by thread, a CPU would jump between four places, and LLVM would make no vectors of it.  Such a kernel has no
barrier, and what one thread writes no other one touches: any order of the threads gives the same bits.  So the short
loops are joined, and go around the loop over threads:

    for thread:                                      for j in range(4):
        for j in range(4):                               for thread:
            value[j] = x[i + j * 256]        becomes         value = x[i + j * 256]
        for j in range(4):                                   y[i + j * 256] = f(value)
            y[i + j * 256] = f(value[j])

The inner loop is over neighbours.  The cutter of `barriers` turns the loops over: it is given a mark at the end of
each short loop, as if there were a barrier.  A launch in place, where y is x, has code of its own, with one name for
the array (`rename`): where two names may mean one array, LLVM's vectors wait for a test that fails.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from kernels.targets.cpu.vocabulary import Lowered, dotted, expression, lower_kernel, parse, stored
from kernels.targets.declare import Dim3, Kernel

MOST = 8  #: turns of a short loop
LOOPS = (ast.For, ast.While, ast.Return, ast.Break, ast.Continue)


def put_in_lockstep(lowered: Lowered, block: Dim3) -> bool:
    """Join and mark the short loops of an element-wise kernel; False, and nothing is changed, for any other kernel."""
    if block[1:] != (1, 1) or lowered.has_barriers or lowered.shared:
        return False
    body, loops = _joined(copy.deepcopy(lowered.body), lowered)
    lengths = {(_turns(loop, lowered),) for loop in loops}
    known = {id(n) for loop in loops for n in ast.walk(loop)}
    others = any(isinstance(n, LOOPS) and id(n) not in known for s in body for n in ast.walk(s))
    if not loops or others or any({array.shape} != lengths for array in lowered.local.values()):
        return False
    for name in list(lowered.local):
        if all(_is_scalar(name, s, loops) for s in body):
            del lowered.local[name]
            for loop in loops:
                loop.body = [_Scalar(name).visit(s) for s in loop.body]
    for loop in loops:
        _widen(loop)
        loop.body += parse("yield 0")
    lowered.body = body
    return True


def same_arrays(kernel: Kernel, begins: Mapping[str, str]) -> dict[str, str]:
    """The arrays of a launch in place, each with the name of the array that is written and begins at the same place.

    `begins`: for each array, the first one that begins there.
    """
    if not begins or not put_in_lockstep(lower_kernel(kernel), kernel.block):
        return {}
    written = {dotted(n.value) for s in lower_kernel(kernel).body for n in ast.walk(s) if _is_store(n)}
    targets = {begins[name]: name for name in begins if name in written}
    return {name: targets[place] for name, place in begins.items() if targets.get(place, name) != name}


def rename(lowered: Lowered, same: Mapping[str, str]) -> None:
    """One name for an array that a launch is given twice."""
    for node in (n for s in lowered.body for n in ast.walk(s)):
        if isinstance(node, ast.Name):
            node.id = same.get(node.id, node.id)


def _joined(statements: Sequence[ast.stmt], lowered: Lowered) -> tuple[list[ast.stmt], list[ast.For]]:
    """The statements with neighbouring short loops made one, and these loops."""
    out: list[ast.stmt] = []
    loops: list[ast.For] = []
    for s in statements:
        before = next((loop for loop in loops if out and loop is out[-1]), None)
        loop: ast.For | None = None
        more: list[ast.stmt] = []
        match s:
            case ast.For() if _is_short(s, lowered):
                loop, more = s, s.body
            case ast.If(test, [ast.For() as inner], []) if before is not None and _is_short(inner, lowered):
                more = [ast.If(test, inner.body, [])]
                loop = ast.For(inner.target, inner.iter, more, [])
            case ast.If():
                (s.body, first), (s.orelse, second) = _joined(s.body, lowered), _joined(s.orelse, lowered)
                loops += [*first, *second]
        if before is not None and loop is not None and _can_join(before, loop, lowered):
            before.body += more
        else:
            out.append(s)
            loops += [s] if s is loop else []
    return out, loops


def _can_join(one: ast.For, other: ast.For, lowered: Lowered) -> bool:
    """Whether both turn alike, on the same elements, and no turn of the second needs a later one of the first.

    `other`: its body is what would be added to the first one's.
    """
    alike = all(ast.dump(a) == ast.dump(b) for a, b in ((one.target, other.target), (one.iter, other.iter)))
    if not alike or _reads_first(other.body) & stored(one.body):
        return False
    return len(_steps(one, lowered) | _steps(other, lowered)) == 1


def _reads_first(body: Sequence[ast.stmt]) -> set[str]:
    """The variables that a loop's body reads before it has set them."""
    found: set[str] = set()
    own: set[str] = set()
    for s in body:
        found |= {n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - own
        own |= stored([s]) if isinstance(s, ast.Assign) else set()
    return found


def _steps(loop: ast.For, lowered: Lowered) -> set[str]:
    """How far an array's element is from that of the turn before, as text; "?" where that is not plain to see."""
    turn = ast.unparse(loop.target)
    steps, seen = set(), 0
    values = {
        s.targets[0].id: s.value for s in loop.body if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
    }
    for n in (n for s in loop.body for n in ast.walk(s)):
        name = dotted(n.value) if isinstance(n, ast.Subscript) else ""
        if name in lowered.local:
            seen += 1
            steps |= set() if ast.unparse(n.slice) == turn else {"?"}  # type: ignore[attr-defined]
        elif name in lowered.parameters:
            seen += 1
            index = n.slice  # type: ignore[attr-defined]
            index = values.get(index.id, index) if isinstance(index, ast.Name) else index
            match index.args[0] if isinstance(index, ast.Call) and dotted(index.func).startswith("np.") else index:
                case ast.BinOp(first, ast.Add(), ast.BinOp(ast.Name(name), ast.Mult(), step)) if name == turn:
                    steps |= {"?"} if turn in _names(first) | _names(step) else {ast.unparse(step)}
                case _:
                    steps |= {"?"}
    arrays = {*lowered.local, *(name for name in lowered.parameters if name in _subscripted(lowered))}
    whole = sum(isinstance(n, ast.Name) and n.id in arrays for s in loop.body for n in ast.walk(s)) > seen
    return steps | ({"?"} if whole else set())


def _turns(loop: ast.For, lowered: Lowered) -> int:
    """How often a loop over a short constant range turns; 0 for any other loop."""
    match loop.iter:
        case ast.Call(ast.Name("range"), [ast.Constant(int(count))]):
            pass
        case ast.Call(ast.Name("range"), [ast.Name(name)]) if lowered.constants.get(name, "").isdecimal():
            count = int(lowered.constants[name])
        case _:
            return 0
    return count if 1 < count <= MOST else 0


def _is_short(loop: ast.For, lowered: Lowered) -> bool:
    """Whether a loop is short, and each turn has an element of its own of every array that it writes."""
    inside = [n for s in loop.body for n in ast.walk(s)]
    if not isinstance(loop.target, ast.Name) or not _turns(loop, lowered) or any(isinstance(n, LOOPS) for n in inside):
        return False
    follow = {loop.target.id}  # the loop's variable, and what is computed from it
    for s in loop.body:
        if isinstance(s, ast.Assign) and _names(s.value) & follow:
            follow |= stored([s])
    written = [n for n in inside if _is_store(n)]
    return bool(written) and all(_names(n.slice) & follow for n in written)


def _is_scalar(name: str, s: ast.stmt, loops: Sequence[ast.For]) -> bool:
    """Whether a statement uses a local array in short loops alone, each turn its own element, which it stores first."""
    if name not in _names(s):
        return True
    if isinstance(s, ast.If):
        return name not in _names(s.test) and all(_is_scalar(name, part, loops) for part in [*s.body, *s.orelse])
    if s not in loops:
        return False
    assert isinstance(s, ast.For) and isinstance(s.target, ast.Name)
    uses = [n for n in ast.walk(s) if isinstance(n, ast.Subscript) and dotted(n.value) == name]
    whole = sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(s)) > len(uses)
    first = next(each for each in s.body if name in _names(each))
    if isinstance(first, ast.If):  # the ragged last tile: one branch has it all
        stores = len([each for each in s.body if name in _names(each)]) == 1 and _first_stores(name, first.body)
    else:
        stores = _first_stores(name, [first])
    return stores and not whole and all(ast.unparse(n.slice) == s.target.id for n in uses)


def _first_stores(name: str, statements: Sequence[ast.stmt]) -> bool:
    first = next((s for s in statements if name in _names(s)), None)
    return isinstance(first, ast.Assign) and name not in _names(first.value)


class _Scalar(ast.NodeTransformer):
    """`value[j]` becomes `value`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return ast.Name(self.name, node.ctx) if dotted(node.value) == self.name else node


def _subscripted(lowered: Lowered) -> set[str]:
    return {dotted(n.value) for s in lowered.body for n in ast.walk(s) if isinstance(n, ast.Subscript)}


def _is_store(node: ast.AST) -> TypeGuard[ast.Subscript]:
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)


def _widen(loop: ast.For) -> None:
    """`e = np.uint32(i)`, which is an index and nothing else, becomes 64 bits: see `source._WideIndices`."""
    indices = [n.slice.id for n in ast.walk(loop) if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Name)]
    read = [n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    for s in loop.body:
        match s:
            case ast.Assign([ast.Name(name)], ast.Call(function)) if ast.unparse(function) == "np.uint32":
                if indices.count(name) == read.count(name):
                    s.value.func = expression("np.uint64")  # type: ignore[attr-defined]


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
