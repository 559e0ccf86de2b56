"""A program written out: the same instructions in the same order, and the same bits where it runs."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.rungs import function_of
from refimpl.backend import RunError, Trainer
from refimpl.backend.no_waits import no_waits
from refimpl.backend.orders import awaited
from refimpl.backend.schedules import Schedule
from refimpl.backend.script import WIDTH, written_out
from refimpl.memory import ALLOCATORS
from refimpl.memory.tiers import Tier
from refimpl.names import presets
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.network import Builder, Network, Setting, Tensor
from refimpl.planner import (
    Allocate,
    Copy,
    CopyIn,
    CopyOut,
    DoesNotFit,
    Free,
    FromStore,
    Launch,
    Program,
    Record,
    ToStore,
    Wait,
    plan,
)
from tests.messages import raises_naming
from tests.refimpl.backend.running import MACHINE, dense_network, differing
from tests.refimpl.backend.test_several import several
from tests.refimpl.modules import DropSome, OffloadSome, PrefetchAhead, least_plan, setup
from tests.refimpl.plainly import SETTINGS, draw_batch

ROOT = Path(__file__).parents[3]
LEARNING: dict[str, Any] = {name: SETTINGS[name] for name in ("seed", "rate", "momentum", "decay")}
STEPS = 2


def keeping_up(on: Any) -> Any:
    """The machine, whose host is so fast that a plan compresses every map that it can."""
    return dataclasses.replace(on, host_rate=1e12)


def wanted(preset: str) -> Any:
    return presets.setup({"combined": "combined effort=20"}.get(preset, preset), {})


H100 = keeping_up(machine("h100").with_catalogue("own"))
PLAIN = machine("h100").with_catalogue("plain")


# -- what is written ---------------------------------------------------------------------------------------------------
#
# A script is executed with stand-ins for the GPU and the kernels, which note what they are asked to do.


class Array:
    """A part of a memory.  A script that lets go of one in device memory frees it."""

    def __init__(self, memory: Memory, start: int, nbytes: int) -> None:
        self.memory, self.start, self.nbytes = memory, start, nbytes
        self.shape: tuple[int, ...] = ()

    def view(self, dtype: Any) -> Array:
        return self

    def reshape(self, shape: tuple[int, ...]) -> Array:
        self.shape = shape
        self.memory.note("allocate", self.start, self.nbytes)
        return self

    def __getitem__(self, part: slice) -> int:
        """Some of a workspace."""
        return self.start

    def copy_to_host(self, to: Array, stream: int) -> None:
        self.memory.note("copy out", self.start, to.start, self.nbytes, stream)

    def copy_to_device(self, given: Any, stream: int | None = None) -> None:
        if stream is not None:  # else it is a table of constants
            self.memory.note("copy in", self.start, given.start, self.nbytes, stream)

    def __del__(self) -> None:
        self.memory.note("free", self.start)


class Memory:
    """The arena, or pinned memory; with a log it notes down what is done with its arrays."""

    def __init__(self) -> None:
        self.log: list[Any] | None = None

    def note(self, *what: Any) -> None:
        if self.log is not None:
            self.log.append(what)

    def __getitem__(self, part: slice) -> Array:
        return Array(self, part.start, part.stop - part.start)

    def __setitem__(self, index: int, value: int) -> None:
        """The number that the host's thread counts with."""


def shown(value: Any) -> Any:
    """An argument of a call: of an array its address."""
    if isinstance(value, tuple):
        return tuple(map(shown, value))
    return value.start if isinstance(value, Array) else value


def noted_call(function: str, *given: Any, **named: Any) -> tuple[Any, ...]:
    """A call as it is noted down: every argument by name, those that were left out too."""
    bound = inspect.signature(function_of(function, "fast")).bind(*given, **named)
    bound.apply_defaults()
    return function, {name: shown(value) for name, value in bound.arguments.items()}


def executed(text: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `train_step` asks the GPU for, one thing after another."""
    log: list[Any] = []
    records = 0

    class Event:
        def record(self, stream: int) -> None:
            nonlocal records
            self.number, records = records, records + 1
            log.append(("record", stream))

        def wait(self, stream: int) -> None:
            log.append(("wait", stream, self.number))

        def synchronize(self) -> None:
            log.append(("wait", host, self.number))

    class Family:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getattr__(self, function: str) -> Any:
            return lambda *given, **named: log.append(noted_call(f"{self.name}.{function}", *given, **named))

    numbers = iter(range(9))
    kernels, shim, targets = (ModuleType(name) for name in ("kernels.fast", "kernels.targets.shim", "kernels.targets"))
    vars(kernels)["__getattr__"] = Family
    vars(targets)["emulated"] = None  # what calls it is replaced below
    vars(targets)["gpu"] = SimpleNamespace(why_not_at_all=lambda: None, stream=lambda: next(numbers), CudaEvent=Event)
    arena = Memory()
    vars(shim)["cuda"] = SimpleNamespace(
        device_array=lambda *_: arena, pinned_array=lambda *_: Memory(), current_context=None
    )
    script: dict[str, Any] = {"__name__": "script"}
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "kernels.fast", kernels)
        patched.setitem(sys.modules, "kernels.targets.shim", shim)
        patched.setitem(sys.modules, "kernels.targets", targets)
        exec(compile(text, "script.py", "exec"), script)
    host = next(numbers)
    counted: dict[int, int] = {}

    def count(number: int) -> None:
        nonlocal records
        counted[number], records = records, records + 1
        log.append(("record", host))

    script["compress"] = lambda name, buffer: log.append(("compress", name, buffer.start, buffer.nbytes))
    script["decompress"] = lambda name, buffer: log.append(("decompress", name, buffer.start, buffer.nbytes))
    script["count"] = count
    script["on_host"] = lambda work, *given: work(*given)
    script["hold"] = lambda stream, number: log.append(("wait", stream, counted[number]))
    arena.log = log
    script["train_step"](0)
    arena.log = None
    return log


def calls_of(program: Program) -> Iterator[Any]:
    """The same of a program."""
    before = awaited(program)
    records = [position for position, i in enumerate(program.instructions) if isinstance(i, Record)]
    settings = {**LEARNING, "iteration": 0}
    compresses = any(isinstance(i, ToStore) for i in program.instructions)
    for position, i in enumerate(program.instructions):
        if isinstance(i, Allocate):
            yield "allocate", i.address, i.tensor.nbytes
        elif isinstance(i, Free):
            yield "free", i.address
        elif isinstance(i, Launch):
            at = dict(zip(i.call.operands, i.addresses, strict=True))
            given = {name: meant_argument(value, at, settings) for name, value in i.call.arguments.items()}
            if i.choice is not None:
                given["algorithm"] = i.choice.algorithm
            if i.workspace is not None:
                given["workspace"] = i.workspace[0]
            yield noted_call(i.call.function, **given, stream=i.stream)
        elif isinstance(i, (CopyOut, CopyIn)):
            yield i.op, i.address, i.pinned_address, i.nbytes, i.stream
        elif isinstance(i, (ToStore, FromStore)):
            yield i.op, i.tensor.name, i.pinned_address, i.nbytes
        elif isinstance(i, Record):
            yield "record", i.stream
        else:
            awaits = program.instructions[before[position]]
            on_host = program.streams[i.stream] == "host"
            if not on_host or (compresses and getattr(awaits, "stream", None) != i.stream):
                yield "wait", i.stream, records.index(before[position])


def meant_argument(value: Any, at: dict[Tensor, int], settings: dict[str, Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(meant_argument(one, at, settings) for one in value)
    if isinstance(value, Tensor):
        return at[value]
    return settings[value.name] if isinstance(value, Setting) else value


def check(program: Program, monkeypatch: pytest.MonkeyPatch) -> str:
    """The script of a program, which does what the program says; its lines are short."""
    text = written_out(program, "a test", **LEARNING)
    assert executed(text, monkeypatch) == list(calls_of(program))
    lines = text[text.index("def train_step") :].splitlines()
    waits = [i for i, line in enumerate(lines) if re.search(r"\.wait\(|hold\(|\.synchronize\)", line)]
    assert all("# " in lines[i] or lines[i - 1].lstrip().startswith("# ") for i in waits), "a wait without a reason"
    assert max(map(len, text.splitlines())) <= WIDTH
    return text


def test_lenet_under_vdnn_is_short_and_needs_nothing_of_refimpl(monkeypatch: pytest.MonkeyPatch) -> None:
    text = check(plan(build("lenet", 32), wanted("vdnn-all"), H100, 1 << 30), monkeypatch)
    assert text.count("\n") <= 275
    modules = {name for node in ast.walk(ast.parse(text)) for name in imported(node)}
    assert modules <= sys.stdlib_module_names | {"numpy", "kernels"}
    assert 'event["relu1 forward"].wait(memory)  # the copy reads conv1_out\n' in text
    assert 'event["conv1 copied out"].wait(compute)  # join: the next layer starts after this\n' in text
    assert 'event["pool1 forward"].wait(memory)  # join: copies of the next layer start after this\n' in text
    assert "conv.forward(images, conv1_w, conv1_b, conv1_out, pad=(2, 2), " in text  # tensors by position
    assert "# prefetch: for conv2 backward; no wait: implied by the join of step 6\n" in text
    assert "losses_pinned, stream=memory)  # result; no wait: implied by the join of step 12\n" in text


def test_a_script_with_plain_kernels_needs_numba_and_numpy_alone() -> None:
    program = plan(build("lenet", 32), wanted("vdnn-all"), PLAIN, 1 << 30)
    assert not any(isinstance(i, Allocate) and i.tensor.kind == "workspace" for i in program.instructions)
    text = written_out(program, "a test")
    modules = {name for node in ast.walk(ast.parse(text)) for name in imported(node)}
    assert modules <= sys.stdlib_module_names | {"numpy", "numba"}
    assert "    conv_forward[1568, 256, compute](images, conv1_w, conv1_out, (1, 1), (2, 2))\n" in text
    assert '        fc3_b, d_fc3_b, fc3_b_momentum, np.float32(LEARNING["rate"]), np.float32(LEARNING["mom' in text
    assert " 1073741824, np.float32(1.3333333730697632), (0, 0), 9," in text and "(iteration, 0)\n" in text
    assert max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.slow
def test_a_script_with_plain_kernels_trains_in_numbas_simulator(tmp_path: Path) -> None:
    """In a process of its own, which finds nothing of this project."""
    b = Builder("two", (2, 1, 4, 4))
    b.conv(2, 3, pad=1)
    b.relu()
    b.pool(2)
    b.fc(3)
    b.softmax()
    program = least_plan(b.build(), setup(offload=OffloadSome(), prefetch=PrefetchAhead()), PLAIN)
    (tmp_path / "two.py").write_text(written_out(program, "a test", **LEARNING), encoding="utf-8")
    batches = [draw_batch(program.network, seed) for seed in range(STEPS)]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-I", "two.py", "data.npz", "--steps", str(STEPS)]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    with Trainer(program, **LEARNING) as trainer:
        losses = [trainer.step(*batch) for batch in batches]
    assert [float(line.split()[-1]) for line in ran.stdout.splitlines()] == pytest.approx(losses, rel=1e-5)


def imported(node: ast.AST) -> list[str]:
    """The packages that a line imports from."""
    if isinstance(node, ast.ImportFrom):
        return [str(node.module).partition(".")[0]]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", ["tiny-inception", "tiny-vgg:vdnnpp", pytest.param("resnet50", marks=pytest.mark.campaign)]
)
def test_a_script_does_what_the_program_says_under_every_preset(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, text = build(network, 16), ""
    for preset in presets.PRESETS:
        program = plan(made, wanted(preset), H100, 16 << 30)
        with suppress(DoesNotFit):  # less, so that more is moved; to search for a plan of a deep network takes long
            program = (
                program if len(made.layers) > 50 else plan(made, wanted(preset), H100, program.peak_bytes * 7 // 10)
            )
        text += check(program, monkeypatch)
    assert "on_host(compress, " in text
    for comment in (r"takes turns with \w+", r"the thread reads \w+", r"(the copy|[\w.]+) writes \w+ over \w+"):
        assert re.search(f"  # {comment}\n", text)


@pytest.mark.parametrize("preset", ["vdnnpp-conv", "superneurons-offload"])
def test_a_script_says_where_no_wait_is_needed_and_the_program_is_ordered_there(preset: str) -> None:
    """Of each such line, the step that it names has a wait on the line's stream, and nothing waits just before it."""
    program = least_plan(build("tiny-resnet", 16), wanted(preset), H100, 0.3)
    found = no_waits(program)
    assert found
    for position, why in found.items():
        stream = program.instructions[position].stream  # type: ignore[union-attr]
        before = [i for i in program.instructions[:position] if getattr(i, "stream", None) == stream]
        if "same stream" not in why:
            step = int(why.rpartition(" ")[2])
            assert any(isinstance(i, Wait) and i.step == step for i in before), why
        assert isinstance(program.instructions[position], Copy | Launch)


@pytest.mark.parametrize(("given", "warmup"), [("cosine:9:0.01", 2), ("step:3:0.5", 0), ("constant", 0)])
def test_a_script_has_its_own_schedule(given: str, warmup: int) -> None:
    """The line that sets the rate, executed with the script's own function, gives the schedule's rates."""
    schedule = Schedule.parse(given, warmup)
    text = written_out(small_plan(), "a test", schedule=schedule, **LEARNING)
    found = re.search(r'^ +LEARNING\["rate"\] = (.*)$', text, re.MULTILINE)
    if schedule == Schedule():
        assert found is None and "RATE" not in text
        return
    assert found is not None
    needed = {"import math", schedule.shape}  # a statement, or the name of a function
    tree = ast.parse(text)
    tree.body = [one for one in tree.body if ast.unparse(one) in needed or getattr(one, "name", "") in needed]
    script: dict[str, Any] = {"RATE": LEARNING["rate"]}
    exec(compile(tree, "script.py", "exec"), script)
    for iteration in range(9):
        script["iteration"] = iteration
        assert eval(found[1], script) == schedule.rate(LEARNING["rate"], iteration)


@cache
def small_plan() -> Program:
    return plan(dense_network(), wanted("baseline"), H100, 1 << 30)


def test_what_a_script_cannot_do_is_refused() -> None:
    network, superneurons = build("lenet", 32), wanted("superneurons")
    with raises_naming(RunError, "titan-x", "cudnn4"):
        written_out(plan(network, superneurons, machine("titan-x"), 1 << 30), "a test")
    calls = superneurons.replace(allocator=ALLOCATORS["driver-calls"])
    with raises_naming(RunError, "driver"):
        written_out(plan(network, calls, H100, 1 << 30), "a test")
    tiers = H100.with_tiers([Tier("host", 1 << 20), Tier("peer", 1 << 30)])
    with raises_naming(RunError, "peer"):
        written_out(plan(network, wanted("superneurons-offload"), tiers, 1 << 30), "a test")
    with raises_naming(RunError, "thread", "--kernels plain"):
        written_out(plan(network, wanted("vdnnpp-all"), keeping_up(PLAIN), 1 << 30), "a test")
    with raises_naming(RunError, "fast kernels"):
        Trainer(plan(network, superneurons, PLAIN, 1 << 30), kernels="fast")


# -- its results ------------------------------------------------------------------------------------------------------


def by_the_back_end(
    program: Program, tmp_path: Path, learning: Mapping[str, Any] = LEARNING, schedule: Schedule | None = None
) -> tuple[dict[str, np.ndarray], list[float], dict[str, np.ndarray]]:
    """What is learnt from, by its name in a data file; the losses, the state at the end, and a checkpoint of it."""
    network, flat = program.network, dict(learning)
    if "beta1" in flat:
        flat["betas"] = flat.pop("beta1"), flat.pop("beta2")
    batches = [draw_batch(network, seed) for seed in range(STEPS)]
    with Trainer(program, "emulated", **flat, schedule=schedule) as made:
        losses = [made.step(*batch) for batch in batches]
        made.save(tmp_path / "checkpoint.npz")
        state = made.state()
    names = ["images", *map(str, network.inputs[1:]), *(one.layer.name for one in network.outputs)]
    if len(network.outputs) == 1:
        names[-1] = "targets" if network.output.loss.target == "number" else "labels"
    each = [[*as_tuple(images), *as_tuple(labels)] for images, labels in batches]
    return {name: np.concatenate(parts) for name, *parts in zip(names, *each, strict=True)}, losses, state


def as_tuple(given: Any) -> tuple[Any, ...]:
    return given if isinstance(given, tuple) else (given,)


@pytest.mark.slow
@pytest.mark.emulated
def test_a_script_runs_by_itself_and_comes_to_the_same_bits(tmp_path: Path) -> None:
    """A process of its own, as a reader starts it: what it prints, and what it saves."""
    b = Builder("two", (4, 1, 4, 4))
    b.fc(6)
    b.relu()
    b.fc(3)
    b.softmax()
    program = least_plan(b.build(), setup(offload=OffloadSome(), prefetch=PrefetchAhead()), MACHINE)
    data, losses, state = by_the_back_end(program, tmp_path)
    np.savez(tmp_path / "data.npz", **data)  # type: ignore[arg-type]
    (tmp_path / "two.py").write_text(written_out(program, "a test", **LEARNING), encoding="utf-8")
    command = [sys.executable, "-m", "kernels.targets.emulated", "two.py", "data.npz", "--save", "end.npz"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [*command, "--steps", str(STEPS)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0 and ran.stderr == "", ran.stderr
    assert ran.stdout.splitlines() == [f"iteration {i}: loss {loss!r}" for i, loss in enumerate(losses)]
    with np.load(tmp_path / "end.npz") as saved:
        assert saved.keys() == state.keys() and differing(state, saved) == []


def same_bits(
    program: Program, tmp_path: Path, learning: Mapping[str, Any] = LEARNING, schedule: Schedule | None = None
) -> None:
    """In this process, which has compiled the kernels already."""
    from kernels.targets import emulated

    data, losses, state = by_the_back_end(program, tmp_path, learning, schedule)
    path = tmp_path / "script.py"
    path.write_text(written_out(program, "a test", schedule, **learning), encoding="utf-8")
    ran = runpy.run_path(str(path))
    ran["start"](None)
    assert list(ran["train"](data, STEPS)) == losses
    assert differing(state, {name: array.copy_to_host() for name, (array, _, _) in ran["state"].items()}) == []
    ran["start"](None)
    with np.load(tmp_path / "checkpoint.npz") as checkpoint:
        ran["start"](checkpoint)
    assert differing(state, {name: array.copy_to_host() for name, (array, _, _) in ran["state"].items()}) == []
    for name, pinned in ran["GIVEN"].items():
        with raises_naming(SystemExit, name, pinned.shape[1:]):
            next(ran["train"](data | {name: data[name][:2]}, 1))
        if name in ran["CLASSES"]:
            with raises_naming(SystemExit, name, 0, ran["CLASSES"][name][0] - 1):
                next(ran["train"](data | {name: data[name] + ran["CLASSES"][name][0]}, 1))
    assert emulated.findings() == []


@pytest.mark.emulated
def test_the_same_bits_where_maps_are_stored_and_dropped_and_layers_fork(tmp_path: Path) -> None:
    pinned = wanted("vdnnpp-all").pinned
    moving: dict[str, Any] = {"offload": OffloadSome(), "prefetch": PrefetchAhead(1), "recompute": DropSome(0.6)}
    program = least_plan(dense_network(), setup(pinned=pinned, **moving), keeping_up(MACHINE))
    assert any(isinstance(i, Launch) and i.rebuild for i in program.instructions)
    assert any(isinstance(i, ToStore) for i in program.instructions)
    same_bits(program, tmp_path)


def test_several_inputs_and_losses_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    check(least_plan(several(), wanted("superneurons"), H100, 0.3), monkeypatch)


def alike() -> Network:
    """Layers whose names are one identifier, words of Python and of the script, and no identifier at all."""
    b = Builder("alike", (3, 2, 4, 4))
    for name in ("a.b", "a-b", "a_b", "train", "lambda", "1", "--"):
        b.conv(2, 1, name=name)
    b.fc(3, name="memory")
    b.softmax()
    return b.build()


def test_names_of_layers_that_are_one_identifier_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    text = check(least_plan(alike(), wanted("superneurons"), H100, 0.5), monkeypatch)
    assert {"a_b_w", "a_b_w_2", "a_b_w_3"} <= set(re.findall(r"\w+", text))


@pytest.mark.emulated
@pytest.mark.slow
def test_the_same_bits_with_several_inputs_and_losses(tmp_path: Path) -> None:
    same_bits(least_plan(several(), wanted("superneurons"), H100, 0.3), tmp_path)


@pytest.mark.emulated
@pytest.mark.slow
def test_the_same_bits_with_adamw_clipping_and_a_schedule(tmp_path: Path) -> None:
    network = dense_network().trained_by("adamw", clip=0.5, decay_on="weights", frozen=["first.w"])
    program = least_plan(network, setup(offload=OffloadSome(), prefetch=PrefetchAhead(1)), MACHINE)
    numbers = {"seed": 3, "rate": 0.05, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-6, "decay": 0.1}
    schedule = Schedule.parse("cosine:4:0.01", warmup=1)
    same_bits(program, tmp_path, numbers, schedule)
