"""A small program to spoil, tools to spoil one with, and ways to spoil any, one instruction at a time."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from refimpl.machine import HOST, PEER
from refimpl.memory.tiers import pinned_size
from refimpl.network import Builder, Network, Tensor
from refimpl.planner import CopyIn, CopyOut, Instruction, Launch, Program, plan
from refimpl.planner.instructions import FromStore, ToStore
from refimpl.planner.verify import Unsafe
from refimpl.vdnnpp import Compressed
from tests.messages import raises_naming
from tests.refimpl.modules import OffloadSome, PooledPinned, PrefetchAhead, machine, setup

# -- a program ---------------------------------------------------------------------------------------------------------


def small_network() -> Network:
    """conv1 and relu1 share a map; relu2 has one of its own with conv2, pool1 reads it."""
    b = Builder("small", (2, 3, 8, 8))
    b.conv(4, 3, pad=1)
    b.relu()
    b.conv(4, 3, pad=1)
    b.relu()
    b.pool(2)
    b.fc(3)
    b.softmax()
    return b.build()


def small_program(**modules: object) -> Program:
    return plan(small_network(), setup(**modules), machine(), 1 << 26)


#: Modules that make maps leave and return.
MOVING = {"offload": OffloadSome(), "prefetch": PrefetchAhead(1), "pinned": PooledPinned()}
#: And be compressed meanwhile, early enough for others to get their buffers.
COMPRESSING = MOVING | {"pinned": Compressed(lag=0), "join": True}


def find(program: Program, op: str, name: str = "", last: bool = False, rebuild: bool | None = None) -> int:
    """The index of the first instruction (or the last) of a kind; `name`: its tensor, or its launch's function."""
    found = []
    for index, it in enumerate(program.instructions):
        called = it.call.function if isinstance(it, Launch) else getattr(getattr(it, "tensor", None), "name", "")
        if it.op == op and name in ("", called) and (rebuild is None or getattr(it, "rebuild", False) == rebuild):
            found.append(index)
    return found[-1 if last else 0]


Kind = TypeVar("Kind", bound=Instruction)


def at(program: Program, index: int, kind: type[Kind]) -> Kind:
    """The instruction at `index`, which is of this kind."""
    found = program.instructions[index]
    assert isinstance(found, kind)
    return found


def tensor(program: Program, name: str) -> Tensor:
    everything = (*program.network.managed, *program.network.resident)
    return next(tensor for tensor in everything if tensor.name == name)


def refused(program: Program, *parts: object) -> Unsafe:
    """What `verify` raises: one line that has these names and numbers."""
    with raises_naming(Unsafe, *parts) as caught:
        program.verify()
    return caught.value


def more_pinned(program: Program, nbytes: int) -> tuple[Program, int]:
    """The program with more pinned memory, and where that begins."""
    start = pinned_size(program.pinned_bytes)
    return dataclasses.replace(program, pinned_bytes=start + nbytes), start


# -- tools -------------------------------------------------------------------------------------------------------------


def with_instructions(program: Program, instructions: Sequence[Instruction]) -> Program:
    return dataclasses.replace(program, instructions=list(instructions))


def without(program: Program, index: int) -> Program:
    """The program without one instruction."""
    return with_instructions(program, [*program.instructions[:index], *program.instructions[index + 1 :]])


def inserted(program: Program, index: int, *new: Instruction) -> Program:
    """The program with new instructions in front of the one at `index`."""
    return with_instructions(program, [*program.instructions[:index], *new, *program.instructions[index:]])


def changed(program: Program, index: int, **fields: Any) -> Program:
    """The program with some fields of one instruction changed."""
    instructions = list(program.instructions)
    instructions[index] = dataclasses.replace(instructions[index], **fields)
    return with_instructions(program, instructions)


def moved(program: Program, index: int, to: int) -> Program:
    """The program with one instruction elsewhere."""
    instructions = list(program.instructions)
    instructions.insert(to, instructions.pop(index))
    return with_instructions(program, instructions)


# -- ways: each yields what was done, and the program that comes of it -------------------------------------------------

Mutant = tuple[str, Program]


def removals(program: Program, drawn: random.Random) -> Iterator[Mutant]:
    """Without each wait, record, copy, launch and work of the host's threads in turn."""
    for index, it in enumerate(program.instructions):
        if it.op not in ("allocate", "free"):
            yield f"{it.op} removed", without(program, index)


def tiers(program: Program) -> list[str]:
    """Those of the program, and one that it may not have."""
    return sorted({HOST, PEER, *program.tier_bytes})


MOVES = (CopyOut, CopyIn, ToStore, FromStore)

# -- any field of anything ---------------------------------------------------------------------------------------------


def anything(program: Program, drawn: random.Random) -> Mutant:
    """One change of the program, drawn out of all that are possible: mostly one field of one instruction."""
    kinds = (_field, _field, _field, _field, _order, _removed, _doubled, _everywhere)
    return drawn.choice(kinds)(program, drawn)


def _number(value: int, drawn: random.Random, others: Sequence[int]) -> int:
    """Another number: near, far, or out of the same field of another instruction."""
    near = [value + step for step in (1, -1, 4, -4, 512, -512)]
    return drawn.choice([*near, 0, -1, 1 << 31, 1 << 63, *(drawn.choice(others) for _ in range(12))])


def _field(program: Program, drawn: random.Random) -> Mutant:
    """One field of one instruction; the kind of instruction is drawn first, since some are rare."""
    op = drawn.choice(sorted({it.op for it in program.instructions}))
    same = [(index, it) for index, it in enumerate(program.instructions) if it.op == op]
    index, it = drawn.choice(same)
    name = drawn.choice([field.name for field in dataclasses.fields(it) if field.name not in ("why", "step")])
    value: Any = getattr(it, name)
    others = [getattr(other, name) for _, other in same]
    if isinstance(value, bool):
        value = not value
    elif isinstance(value, int):
        limits = range(len(program.streams)) if name == "stream" else others
        value = _number(value, drawn, limits)
    elif name == "addresses" and value:
        value = drawn.choice((_one_address, _two_swapped, _other_count))(value, drawn, others)
    elif name == "choice" and isinstance(it, Launch):
        value = _choice(program, it, drawn)
    elif name == "tier":
        value = drawn.choice(tiers(program))
    elif name == "workspace":
        address, nbytes = value or drawn.choice([w for w in others if w] or [(0, 512)])
        value = drawn.choice([None, (_number(address, drawn, [0]), nbytes), (address, _number(nbytes, drawn, [0]))])
    else:  # a tensor or a call
        value = drawn.choice(others)
    return f"{op}: {name}", changed(program, index, **{name: value})


def _one_address(value: tuple[int, ...], drawn: random.Random, others: Sequence[Any]) -> tuple[int, ...]:
    at = drawn.randrange(len(value))
    everywhere = [address for addresses in others for address in addresses]
    return (*value[:at], _number(value[at], drawn, everywhere), *value[at + 1 :])


def _two_swapped(value: tuple[int, ...], drawn: random.Random, others: Sequence[Any]) -> tuple[int, ...]:
    return tuple(drawn.sample(value, len(value)))


def _other_count(value: tuple[int, ...], drawn: random.Random, others: Sequence[Any]) -> tuple[int, ...]:
    return drawn.choice((value[1:], (*value, value[0])))


def _choice(program: Program, it: Launch, drawn: random.Random) -> Any:
    if it.choice is None or not it.call.choosable or drawn.random() < 0.2:
        given = [other.choice for other in program.instructions if isinstance(other, Launch) and other.choice]
        return drawn.choice([None, *given])
    offered = drawn.choice(program.machine.choices(it.call))
    smaller = drawn.choice([0, it.choice.workspace_bytes // 2, it.choice.workspace_bytes - 4, 1 << 40, -4])
    mixed = dataclasses.replace(offered, workspace_bytes=drawn.choice([smaller, it.choice.workspace_bytes]))
    return drawn.choice([offered, mixed])


def _order(program: Program, drawn: random.Random) -> Mutant:
    last = len(program.instructions) - 1
    index = drawn.randint(0, last)
    far = drawn.choice([1, 1, 2, 4, 16, last])
    return "moved", moved(program, index, min(max(index + drawn.choice((-far, far)), 0), last))


def _removed(program: Program, drawn: random.Random) -> Mutant:
    index = drawn.randrange(len(program.instructions))
    return f"{program.instructions[index].op}: removed", without(program, index)


def _doubled(program: Program, drawn: random.Random) -> Mutant:
    moves = [index for index, it in enumerate(program.instructions) if isinstance(it, MOVES)]
    index = drawn.choice([drawn.randrange(len(program.instructions)), *drawn.sample(moves, min(len(moves), 1))])
    it = program.instructions[index]
    to = drawn.choice([index + 1, drawn.randint(0, len(program.instructions))])
    if isinstance(it, MOVES) and drawn.random() < 0.5:  # the same map to another place, or from there
        name = drawn.choice([name for name in ("pinned_address", "store_address", "address") if hasattr(it, name)])
        others = [getattr(i, name) for i in program.instructions if isinstance(i, type(it))]
        fields: dict[str, Any] = {name: _number(getattr(it, name), drawn, others)}
        it = dataclasses.replace(it, **fields)
    return f"{it.op}: doubled", inserted(program, to, it)


def _everywhere(program: Program, drawn: random.Random) -> Mutant:
    """A number replaced in all its places: the result may well be right."""
    what = drawn.choice(("address", "pinned_address", "store_address", "event", "stream", "choice"))
    if what == "choice" and any(isinstance(it, Launch) and it.choice for it in program.instructions):
        launches = [it for it in program.instructions if isinstance(it, Launch) and it.choice is not None]
        call = drawn.choice(launches).call
        choice = drawn.choice(program.machine.choices(call))

        def other(it: Instruction) -> Instruction:
            return dataclasses.replace(it, choice=choice) if isinstance(it, Launch) and it.call is call else it

        return "choice everywhere", with_instructions(program, [other(it) for it in program.instructions])
    what = "address" if what == "choice" else what
    values = {getattr(it, what) for it in program.instructions if hasattr(it, what)}
    values |= set(program.resident.values()) if what == "address" else set()
    old = drawn.choice(sorted(values or {0}))
    new = _number(old, drawn, [*sorted(values), program.arena_bytes] if what != "stream" else [0, 1, 2, 3])

    def number(value: int) -> int:
        return {old: new}.get(value, value)

    def moved_to(it: Instruction) -> Instruction:
        fields: dict[str, Any] = {what: number(getattr(it, what))} if hasattr(it, what) else {}
        if what == "address" and isinstance(it, Launch):
            space = it.workspace and (number(it.workspace[0]), it.workspace[1])
            fields = {"addresses": tuple(map(number, it.addresses)), "workspace": space}
        return dataclasses.replace(it, **fields)

    mutant = with_instructions(program, [moved_to(it) for it in program.instructions])
    if what == "address":
        resident = {tensor: number(address) for tensor, address in program.resident.items()}
        mutant = dataclasses.replace(mutant, resident=resident)
    if what == "pinned_address":
        mutant = dataclasses.replace(mutant, pinned={t: number(address) for t, address in program.pinned.items()})
    return f"{what} everywhere", mutant
