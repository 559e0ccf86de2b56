"""A program written out: a Python script with its launches, copies, records and waits, a line each, in its order.

The script needs `kernels` and nothing of `refimpl`; of a program for plain kernels it has these, and needs NumPy and
Numba alone.  It is for reading from top to bottom, and runs on a GPU or on the
emulated one, where it gives the same bits as the CUDA back end.  (The back end binds once what the script looks up
in every iteration.)  A name is bound where its tensor is allocated and deleted where its bytes are freed.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import json
import keyword
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from math import prod
from string import Template
from typing import Any

from kernels.rungs import function_of, module_of
from refimpl.backend.bound_program import refuse_foreign, rung_of
from refimpl.backend.host_thread import host_stream
from refimpl.backend.no_waits import Use, no_waits, uses
from refimpl.backend.orders import awaited
from refimpl.backend.plain_launches import PlainLaunches, Shaped
from refimpl.backend.run_errors import RunError
from refimpl.backend.schedules import SHAPES, Schedule
from refimpl.backend.script_text import (
    ABOUT,
    AT_HOME,
    CUDA,
    FILL,
    FILL_AT_HOME,
    HEAD,
    HOST_THREAD,
    PLAIN_CUDA,
    PLAIN_WITHOUT_GPU,
    READ,
    READ_AT_HOME,
    START,
    TABLE,
    TRAIN,
    WITHOUT_GPU,
)
from refimpl.network import Setting, Step, Tensor
from refimpl.network.initial_state import constants, first_values
from refimpl.planner import (
    Allocate,
    Copy,
    CopyIn,
    CopyOut,
    Free,
    HostCopy,
    Instruction,
    Launch,
    Program,
    Record,
    Wait,
    Work,
)
from refimpl.planner.instructions import COMPUTE, DEVICE
from refimpl.planner.listing import FUTURE
from refimpl.text import harmless, size

WIDTH = 120  #: columns
HEADING = 100
INDENT = "    "

#: A setting of a call → its name in the script; the others are in the dictionary LEARNING.
SETTINGS = {"seed": "SEED", "iteration": "iteration"}


def written_out(program: Program, command: str, schedule: Schedule | None = None, **learning: float) -> str:
    """A program as a stand-alone script.  `RunError`: this program cannot be written as one.

    Args:
        program: planned with our own algorithms, and offloading to the host's memory alone.
        command: what the script says it was written by.
        schedule: of the rate; None: it stays.
        learning: the seed, and what the optimiser takes; the trainer's, where they are not given.
    """
    refuse_foreign(program)
    if program.tier_bytes:
        tiers = ", ".join(program.tier_bytes)
        raise RunError(f"a script offloads to the host's memory alone, and this program uses the {tiers} tier as well")
    if rung_of(program) == "plain" and any(isinstance(i, HostCopy) for i in program.instructions):
        raise RunError("a script with plain kernels has no thread on the host: leave out --kernels plain")
    if program.setup.allocator.driver_calls:
        raise RunError("a script has one arena, and this program calls the driver for every allocation")
    given = {"seed": 0, **program.network.learning.rule.defaults, **learning}
    return _Writer(program, int(given["seed"])).text(command, given, schedule)


def identifier(name: str) -> str:
    """A tensor's or a stream's name as Python can have it."""
    found = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return f"layer_{found}" if not found or found[0].isdigit() else found


class _Writer:
    """One program, and the names of what is in it."""

    def __init__(self, program: Program, seed: int) -> None:
        self.program, self.network = program, program.network
        launches = [i for i in program.instructions if isinstance(i, Launch)]
        self.plain: PlainLaunches | None = None
        if rung_of(program) == "plain":
            self.plain = PlainLaunches(dict.fromkeys(i.call for i in launches), seed)
        self.host = host_stream(program)
        self.codec = next((i.codec for i in program.instructions if isinstance(i, HostCopy)), None)
        self.host_thread = ""  # without a codec its thread has no work
        if codec := self.codec:
            self.host_thread = Template(HOST_THREAD).substitute(packed=codec.packed, functions=codec.written_out)
        self.streams = [f"{name}_stream" if name in ("out", "in") else name for name in program.streams]
        self.tables = dict(constants(self.network))
        self.families = {i.call.family for i in launches}
        fields = TABLE + HOST_THREAD + self.host_thread + AT_HOME * bool(self.network.on_host)
        used = re.findall(r"\w+", ABOUT + HEAD + fields + START + TRAIN)
        self._taken = {*used, *self.families, *self.streams, *dir(builtins), *keyword.kwlist}
        if self.plain:
            self._taken |= {"math", *self.plain.sources.functions, *self.plain.sources.constants}
        self._names: dict[Any, str] = {}
        for tensor, name in self._of_the_batch():
            reserved = name in ("images", "labels", "losses")
            made = self._names.setdefault(tensor, name) if reserved else self._named(tensor, name)
            self._names[tensor, program.pinned[tensor]] = f"{made}_pinned"
        self.awaited = awaited(program)
        self.step_of_call = {call: step for step in self.network.steps for call in step.calls}
        self._look_forwards()
        self._look_backwards()
        self.no_wait = no_waits(program)

    def _of_the_batch(self) -> Iterator[tuple[Tensor, str]]:
        """The inputs, and every loss with its labels, and what they are called."""
        network = self.network
        for x in network.inputs:
            yield x, "images" if x is network.input else x.name
        for one in network.outputs:
            of = f"{one.layer.name}_" * (len(network.outputs) > 1)
            yield from ((one.labels, f"{of}labels"), (one.losses, f"{of}losses"))

    def _look_forwards(self) -> None:
        """For each line, what it needs to know of those before it."""
        self.by_step: list[list[tuple[int, Instruction]]] = [[] for _ in range(len(self.network.steps) + 1)]
        self.moment: dict[int, str] = {}  #: position of a record → its name: what is done then
        self.work: dict[int, Any] = {}  #: position of a record → the work before it, or of a wait → that after it
        self.number: dict[int, int] = {}  #: position of a record of the host's thread → 1, 2, …
        self.workspaces: dict[Launch, Tensor] = {}
        before: dict[int, Any] = {}  # by stream
        spaces: dict[int, Tensor] = {}  # by address
        seen: Counter[str] = Counter()
        for position, i in enumerate(self.program.instructions):
            self.by_step[i.step].append((position, i))
            if isinstance(i, Allocate) and i.tensor.kind == "workspace":
                spaces[i.address] = i.tensor
            elif isinstance(i, Launch) and i.workspace is not None:
                self.workspaces[i] = spaces[i.workspace[0]]
            if isinstance(i, Work):
                before[i.stream] = i
            elif isinstance(i, Record):
                self.work[position] = before[i.stream]
                said = self._done(before[i.stream])
                seen[said] += 1
                self.moment[position] = f"{said} ({seen[said]})" if seen[said] > 1 else said
                if i.stream == self.host:
                    self.number[position] = len(self.number) + 1

    def _look_backwards(self) -> None:
        """For each line, what it needs to know of those after it."""
        self.reader: dict[CopyIn, Step] = {}  #: the step that reads what is copied in
        after: dict[int, Any] = {}  # by stream
        reads: dict[Tensor, Launch] = {}
        for position, i in reversed(list(enumerate(self.program.instructions))):
            if isinstance(i, Launch):
                reads |= dict.fromkeys((*i.call.reads, *i.call.updates), i)
            elif isinstance(i, CopyIn) and i.tensor in reads:
                self.reader[i] = self.step_of_call[reads[i.tensor].call]
            if isinstance(i, Work):
                after[i.stream] = i
            elif isinstance(i, Wait):
                self.work[position] = after.get(i.stream)

    # -- names ---------------------------------------------------------------------------------------------------------

    def name(self, tensor: Tensor) -> str:
        """`conv1_out`, `d_conv1`, `conv1_w`, `d_conv1_w`, `conv1_w_momentum`, `conv1_workspace`"""
        if tensor.kind == "map":
            return self._named(tensor, f"{tensor.name}_out")
        kind, _, owner = tensor.name.rpartition(" of ")
        if tensor.kind == "workspace":
            return self._named(tensor.name, f"{owner}_{kind}")  # each of a layer's steps has a tensor of its own
        return self._named(tensor, f"{owner}_{kind}" if tensor.kind == "momentum" else tensor.name)

    def buffer(self, tensor: Tensor, address: int) -> str:
        """A place in pinned memory: `conv1_pinned`."""
        name = self.name(tensor) if tensor in self.network.on_host else tensor.name
        return self._named((tensor, address), f"{name}_pinned")

    def _named(self, key: Any, wanted: str) -> str:
        if key not in self._names:
            made = wanted = identifier(wanted)
            number = 1
            while made in self._taken:
                number += 1
                made = f"{wanted}_{number}"
            self._taken.add(made)
            self._names[key] = made
        return self._names[key]

    def _done(self, work: Any) -> str:
        """The end of a piece of work: `conv1 forward`, `conv1 copied out`."""
        if not isinstance(work, Launch):
            done = {"copy out": "copied out", "copy in": "copied in"}.get(work.op, f"{work.op}ed")
            tensor = work.tensor
            return f"{'images' if tensor is self.network.input else tensor} {done}"
        step = self.step_of_call[work.call]
        said = step.title + " again" * work.rebuild
        return said if work.call is step.calls[-1] else f"{said}: {work.call.function}"

    # -- the whole -----------------------------------------------------------------------------------------------------

    def text(self, command: str, learning: Mapping[str, float], schedule: Schedule | None) -> str:
        """The script."""
        program, threads = self.program, self.codec is not None
        firsts = {tensor: (first, spread) for tensor, first, spread in first_values(self.network)}
        streams = [name for number, name in enumerate(self.streams) if number != self.host]
        movers = " and ".join(f"`{name}`" for name in streams[1:])
        without = PLAIN_WITHOUT_GPU if self.plain else WITHOUT_GPU
        about = Template(ABOUT).substitute(movers=movers, command=" ".join(command.split()), without_gpu=without)
        imports = ["import argparse", "import hashlib", "import sys", "from collections import defaultdict"]
        imports += ["from concurrent.futures import ThreadPoolExecutor"] * threads
        imports += ["from math import prod, sqrt"]
        if (schedule and schedule.shape == "cosine") or (self.plain and self.plain.sources.needs_math):
            imports.insert(2, "import math")
        title = f"{self.network.name}, batch {self.network.batch}, under {program.setup.name}"
        fields = {
            "title": docstring(f"{title}: one iteration of training written out.", WIDTH - 3),
            "about": docstring(about, WIDTH),
            "imports": "\n".join(imports) + "\n",
            **self._cuda(len(streams)),
            **self._learning(learning, schedule),
            "arena": f"{program.arena_bytes:_}",
            "arena_size": size(program.arena_bytes),
            "pinned": f"{program.pinned_bytes:_}",
            "pinned_size": size(program.pinned_bytes),
            "streams": ", ".join(streams),
            "host_thread": self.host_thread,
            "table": TABLE if self.tables else "",
            "at_home": AT_HOME if self.network.on_host else "",
            "fill": FILL_AT_HOME if self.network.on_host else FILL,
            "read": READ_AT_HOME if self.network.on_host else READ,
            "residents": "\n".join(self._residents(firsts)),
            "buffers": "\n".join([*self._buffers(), *self._tables()]),
            "finish": f"{INDENT * 2}while pieces:\n{INDENT * 3}pieces.pop(0).result()\n" * threads,
        }
        steps = "\n".join(line for number in range(len(self.network.steps) + 1) for line in self._step(number))
        return harmless(Template(HEAD).substitute(fields) + steps + Template(START + TRAIN).substitute(fields))

    def _cuda(self, streams: int) -> dict[str, str]:
        """The imports and the names of what makes streams and events; the source of plain kernels."""
        if self.plain:
            return {
                "cuda": PLAIN_CUDA, "kernels": f"\n\n# -- Kernels\n\n\n{self.plain.sources.text()}\n\n",
                "default_stream": "Each waits for the default stream, which `train_step` does not use.",
                "made": ", ".join(["cuda.stream()"] * streams), "event": "cuda.event",
            }  # fmt: skip
        threads = self.codec is not None
        driver = "from cuda.bindings import driver\n" * threads
        targets = "emulated, gpu" if threads else "gpu"
        modules = sorted(module_of(family, "fast").rpartition(".") for family in self.families)
        families = "\n".join(
            f"from {package} import {', '.join(name for _, _, name in them)}"
            for package, them in groupby(modules, lambda parts: parts[0])
        )
        return {
            "cuda": Template(CUDA).substitute(driver=driver, families=families, targets=targets), "kernels": "",
            "default_stream": "(Each of Numba's `cuda.stream()` waits for the default stream, and it for them.)",
            "made": ", ".join(["gpu.stream()"] * streams), "event": "gpu.CudaEvent",
        }  # fmt: skip

    def _learning(self, learning: Mapping[str, float], schedule: Schedule | None) -> dict[str, Any]:
        """The optimiser's numbers, the names of what it keeps, and the schedule of its rate."""
        numbers = {name: value for name, value in learning.items() if name != "seed"}
        states = self.network.learning.rule.states
        fields = {
            "seed": learning["seed"], "learning": json.dumps(numbers), "schedule": "", "scheduled": "",
            "states": ", ".join(f'f"{state} of {{name}}"' for state in states),
            "kept": " and ".join(f"its {state}" for state in states),
        }  # fmt: skip
        if schedule and schedule != Schedule():
            function = SHAPES[schedule.shape][0]
            arguments = ", ".join(f"{name}={value!r}" for name, value in schedule.arguments.items())
            fields["schedule"] = f'RATE = LEARNING["rate"]\n\n\n{inspect.getsource(function)}\n\n'
            fields["scheduled"] = f'{INDENT * 2}LEARNING["rate"] = {schedule.shape}(iteration, RATE, {arguments})\n'
        return fields

    def _residents(self, firsts: Mapping[Tensor, tuple[float, float]]) -> Iterator[str]:
        """A line for each resident tensor; a weight has its gradient and the optimiser's states beside it."""
        at = self.program.resident
        together = {p.weight: p.tensors for *_, p in self.network.parameters() if {*p.tensors} <= {*at}}
        predictions = {output.predictions for output in self.network.outputs}
        shown = predictions | {tensor for kept in together.values() for tensor in kept[1:]}
        for tensor in (tensor for tensor in at if tensor not in shown):
            first, spread = firsts.get(tensor, (0.0, 0.0))
            more = [f"first={first!r}"] * bool(first)
            if spread:
                count = prod(tensor.shape[1:])
                more = [f"spread=sqrt({round(spread**2 * count)} / {count})"]
            if tensor in self.tables:
                given = [f"{at[tensor]:#x}", *map(str, self.tables[tensor])]
                yield from packed(f"{self.name(tensor)} = table", given, indent="")
            elif tensor in firsts:
                alike = together.get(tensor, (tensor,))
                given = [quoted(tensor.name), repr(tensor.shape), *(f"{at[one]:#x}" for one in alike), *more]
                yield from packed(f"{', '.join(map(self.name, alike))} = kept", given, indent="")
            else:
                yield from packed(f"{self.name(tensor)} = at", self._place(tensor, at[tensor]), indent="")

    def _place(self, tensor: Tensor, address: int) -> list[str]:
        """The arguments of `at`."""
        dtype = [] if tensor.dtype == "float32" else [f"dtype=np.{tensor.dtype}"]
        return [f"{address:#x}", *map(str, tensor.shape), *dtype]

    def _buffers(self) -> Iterator[str]:
        """A line for each tensor's place in pinned memory, by address."""
        used = {(i.pinned_address, i.tensor) for i in self.program.instructions if isinstance(i, Copy | HostCopy)}
        end, last = 0, ""
        for address, tensor in sorted(used, key=lambda place: (place[0], place[1].name)):
            name = self.buffer(tensor, address)
            comment = f"takes turns with {last}" if address < end else ""
            if tensor in self.network.on_host:
                given = [quoted(tensor.name), f"{address:#x}", *map(str, tensor.shape)]
                yield from packed(f"{name} = at_home", given, indent="")
                continue
            yield from packed(f"{name} = at", [*self._place(tensor, address), "of=pinned"], comment, "")
            if address + tensor.nbytes > end:
                end, last = address + tensor.nbytes, name

    def _tables(self) -> Iterator[str]:
        """The buffers of the inputs and losses in pinned memory, by the names that they have in data files."""
        network, at = self.network, self.program.pinned
        losses = [(one.layer.name, one) for one in network.outputs]
        if len(losses) == 1:
            losses = [("targets" if network.output.loss.target == "number" else "labels", network.output)]
        given = {"images" if x is network.input else x.name: x for x in network.inputs}
        given |= {name: one.labels for name, one in losses}
        yield from ("", "# -- The batch, and its results")
        yield from table("GIVEN", {name: self.buffer(x, at[x]) for name, x in given.items()})
        classes = {name: (one.classes, one.ignore_index) for name, one in losses if one.loss.target != "number"}
        yield from table(
            "CLASSES", {name: repr(pair) for name, pair in classes.items()}, "how many, and the label that is ignored"
        )
        pairs = {name: f"({self.buffer(one.losses, at[one.losses])}, {one.layer.weight!r})" for name, one in losses}
        yield from table("LOSSES", pairs, "each with its weight in their sum")

    # -- a step --------------------------------------------------------------------------------------------------------

    def _step(self, number: int) -> Iterator[str]:
        if number == 0:
            heading = "The batch"
        else:
            step, row = self.network.steps[number - 1], self.program.rows[number - 1]
            peak = " at the peak" if row is self.program.peak else ""
            heading = f"Step {number}: {step.title}, {size(row.live_bytes)} live{peak}"
        yield f"{INDENT}# -- {' '.join(heading.split())} ".ljust(HEADING, "-")
        if number == 0 and self.codec:
            yield f"{INDENT}counter[0] = 0"
        for is_free, group in groupby(self.by_step[number], lambda numbered: isinstance(numbered[1], Free)):
            if is_free:
                freed: Any = [i for _, i in group]
                names = [self.name(i.tensor) for i in freed]
                lines = [line.rstrip(",") for line in filled(names, f"{INDENT}del ")]
                yield from commented(lines, f"frees {size(sum(i.nbytes for i in freed))}", INDENT)
            else:
                for position, instruction in group:
                    yield from self._line(position, instruction)

    def _line(self, position: int, i: Any) -> Iterable[str]:
        """The line of one instruction, or its lines where it is long."""
        if isinstance(i, Allocate):
            fate = self.program.fates.get(i.tensor)
            stays = fate is None or fate.name == "keep" or i.tensor is self.network.input or i.step > self.network.depth
            future = "" if fate is None or stays else f", to be {FUTURE[fate.name]}"
            return packed(f"{self.name(i.tensor)} = at", self._place(i.tensor, i.address), size(i.nbytes) + future)
        if isinstance(i, Launch):
            return self._launch(i, self.no_wait.get(position, ""))
        if isinstance(i, Copy):
            to = "host" if isinstance(i, CopyOut) else "device"
            given = [self.buffer(i.tensor, i.pinned_address), f"stream={self.streams[i.stream]}"]
            why = "; ".join(filter(None, (self._why(i), self.no_wait.get(position))))
            return packed(f"{self.name(i.tensor)}.copy_to_{to}", given, why)
        if isinstance(i, HostCopy):
            given = [i.op, quoted(i.tensor.name), self.buffer(i.tensor, i.pinned_address)]
            return packed("on_host", given, f"{size(i.nbytes)}, about {size(i.planned)} {i.codec.packed}")
        record = position if isinstance(i, Record) else self.awaited[position]
        moment, event = self.moment[record], f"event[{quoted(self.moment[record])}]"
        if isinstance(i, Record):
            if i.stream == self.host:
                return packed("on_host", ["count", str(self.number[position])], moment)
            return packed(f"{event}.record", [self.streams[i.stream]])
        reason = self._reason(i, self.work[record], self.work[position])
        if i.stream == self.host:
            given = [f"{event}.synchronize"]
            needless = self.codec is None or record in self.number  # the thread works in order
            return () if needless else packed("on_host", given, reason)
        if record in self.number:
            given = [self.streams[i.stream], str(self.number[record])]
            return packed("hold", given, f"{moment}: {reason}")
        return packed(f"{event}.wait", [self.streams[i.stream]], reason)

    def _why(self, i: Copy) -> str:
        """Why a tensor is copied."""
        if isinstance(i, CopyIn):
            step = self.reader.get(i)
            return f"{i.why}: for {step.title}" if step else i.why
        fate = self.program.fates.get(i.tensor)
        return f"{i.why}, {fate.module}: {fate.reason}" if fate and fate.name == i.why else i.why

    def _reason(self, wait: Wait, awaited: Any, then: Any) -> str:
        """Why a stream waits: what its next work, `then`, does with the bytes that the awaited work used."""
        if then is None or then.step != wait.step:
            last = wait.step == len(self.network.steps)
            setup = self.program.setup
            if setup.join or setup.barrier or then is None:
                if wait.stream == COMPUTE:
                    return f"join: the next {'iteration' if last else 'layer'} starts after this"
                return f"join: copies of the next {'iteration' if last else 'layer'} start after this"
        what = then.call.function if isinstance(then, Launch) else "the copy"
        if then.stream == self.host:
            what = "the thread"
        found = ""
        for used in uses(awaited):
            for use in uses(then):
                if used.clashes(use):
                    name = self._called(use, then)
                    if used.writes and not use.writes:
                        return f"{what} reads {name}"
                    before = self._called(used, awaited)
                    found = f"{what} writes {name}" + f" over {before}" * (name != before)
        return found or "join: results are copied out after this"

    def _called(self, use: Use, work: Any) -> str:
        """The name of the bytes that a piece of work uses."""
        tensor = self.workspaces[work] if use.tensor is None else use.tensor
        return self.name(tensor) if use.memory == DEVICE else self.buffer(tensor, use.start)

    def _launch(self, i: Launch, no_wait: str) -> Iterable[str]:
        step = self.step_of_call[i.call]
        again = f"{step.layer} again: its output was dropped" if i.rebuild else ""
        why = "; ".join(filter(None, (again, no_wait)))
        if self.plain:
            for launch in self.plain.of[i.call]:
                of = f"{launch.kernel}[{launch.grid}, {launch.block}, {self.streams[i.stream]}]"
                yield from packed(of, list(map(self._plain_argument, launch.arguments)), why)
                why = ""
        else:
            yield from packed(i.call.function, self._arguments(i), why)

    def _plain_argument(self, value: Shaped | str) -> str:
        if isinstance(value, str):
            return value
        return self.name(value.tensor) + (f".reshape({value.shape})" if value.shape else "")

    def _arguments(self, i: Launch) -> list[str]:
        """The arguments of a call to a function of `kernels`."""
        given = dict(i.call.arguments)
        if i.choice is not None:
            given["algorithm"] = i.choice.algorithm
        said: list[str] = []
        by_name = False
        for name, parameter in parameters_of(i.call.function).items():
            value = given.get(name, parameter.default)
            if isinstance(value, Setting) and value.name not in SETTINGS:
                decays = isinstance(given.get("decay"), Setting)
                numbers = "**LEARNING" if decays else '**LEARNING | {"decay": 0.0}'
                said += [numbers] * (numbers not in said)
            elif not by_name and parameter.kind is parameter.POSITIONAL_OR_KEYWORD and is_tensors(value):
                said.append(self._value(value))
                continue
            elif value != parameter.default or (name == "algorithm" and name in given):
                said.append(f"{name}={self._value(value)}")
            by_name = True
        if i.workspace is not None:
            buffer, count = self.workspaces[i], i.workspace[1] // 4
            part = "" if count == prod(buffer.shape) else f"[:{count}]"
            said.append(f"workspace={self.name(buffer)}{part}")
        return [*said, f"stream={self.streams[i.stream]}"]

    def _value(self, value: Any) -> str:
        if isinstance(value, Tensor):
            return self.name(value)
        if isinstance(value, tuple) and is_tensors(value):
            return f"({', '.join(map(self.name, value))}{',' * (len(value) == 1)})"
        if isinstance(value, str):
            return quoted(value)
        return SETTINGS[value.name] if isinstance(value, Setting) else repr(value)


def quoted(text: str) -> str:
    """A string as Python reads it."""
    return json.dumps(text, ensure_ascii=False)


def docstring(text: str, width: int) -> str:
    """A text inside of a docstring, in lines; a path is never broken."""
    lines = textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False)
    return lines.replace("\\", "\\\\").replace('"', '\\"')


@functools.cache
def parameters_of(function: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function of `kernels`, by name and in order."""
    return inspect.signature(function_of(function, "fast")).parameters


def is_tensors(value: Any) -> bool:
    """Whether a call's argument is a tensor, or several."""
    return isinstance(value, Tensor) or (isinstance(value, tuple) and bool(value) and isinstance(value[0], Tensor))


def packed(function: str, arguments: list[str], comment: str = "", indent: str = INDENT) -> Iterator[str]:
    """A call on as many lines as it needs, and its comment."""
    lines = [f"{indent}{function}({', '.join(arguments)})"]
    if len(lines[0]) > WIDTH:
        lines = [f"{indent}{function}(", *filled(arguments, indent + INDENT), f"{indent})"]
    return commented(lines, comment, indent)


def table(name: str, values: Mapping[str, str], comment: str = "") -> Iterator[str]:
    """A dictionary on as many lines as it needs."""
    entries = [f"{quoted(key)}: {value}" for key, value in values.items()]
    lines = [f"{name} = {{{', '.join(entries)}}}"]
    if len(lines[0]) > WIDTH:
        lines = [f"{name} = {{", *filled(entries, INDENT), "}"]
    return commented(lines, comment, "")


def filled(parts: list[str], indent: str) -> Iterator[str]:
    """Parts with commas between them, as many on a line as fit."""
    line = indent
    for part in parts:
        if line != indent and len(line) + len(part) + 1 > WIDTH:
            yield line.rstrip()
            line = indent
        line += f"{part}, "
    yield line.rstrip(" ,")


def commented(lines: list[str], comment: str, indent: str) -> Iterator[str]:
    """A comment at the end of the last line if there is room, else before the first."""
    comment = " ".join(comment.split())
    whole = f"{lines[-1]}  # {comment}"
    if comment and len(whole) > WIDTH:
        yield from textwrap.wrap(comment, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
    yield from lines[:-1]
    yield whole if comment and len(whole) <= WIDTH else lines[-1]
