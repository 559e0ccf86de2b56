"""A program written out: the same instructions in the same order, and the same bits where it runs."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

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
from refimpl.network import Builder, Network
from refimpl.planner import (
    Allocate,
    Copy,
    DoesNotFit,
    Launch,
    Program,
    Record,
    ToStore,
    Wait,
    plan,
)
from tests.matrix import more
from tests.messages import raises_naming
from tests.refimpl.backend.running import MACHINE, dense_network, differing, storing_program
from tests.refimpl.backend.test_several import several
from tests.refimpl.modules import OffloadSome, PrefetchAhead, least_plan, setup
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
# Its statements are compared with the program's instructions; the bits of its training are compared below.


def statements(text: str) -> Iterator[tuple[object, ...]]:
    """What `train_step` does, one thing after another."""
    (step,) = (one for one in ast.parse(text).body if getattr(one, "name", "") == "train_step")
    for one in step.body:  # type: ignore[attr-defined]
        match one:
            case ast.Assign(value=ast.Call(func=ast.Name("at"), args=[ast.Constant(address), *_])):
                yield "allocate", address
            case ast.Delete(targets):
                yield from [("free",)] * len(targets)
            case ast.Expr(ast.Call(ast.Attribute(_, "copy_to_host" | "copy_to_device" as how), _, [keyword])):
                yield "copy out" if how == "copy_to_host" else "copy in", ast.unparse(keyword.value)
            case ast.Expr(ast.Call(ast.Attribute(ast.Subscript(), "record" | "wait" as how), [stream])):
                yield how, ast.unparse(stream)
            case ast.Expr(ast.Call(ast.Name("on_host"), [ast.Name("count"), *_])):
                yield "record", "host"
            case ast.Expr(ast.Call(ast.Name("on_host"), [ast.Name(work), *_])):
                yield (work,)
            case ast.Expr(ast.Call(ast.Name("on_host"), [_])):
                yield "wait", "host"
            case ast.Expr(ast.Call(ast.Name("hold"), [stream, _])):
                yield "wait", ast.unparse(stream)
            case ast.Expr(ast.Call(ast.Attribute() as function)):
                yield (ast.unparse(function),)


def meant(program: Program) -> Iterator[tuple[object, ...]]:
    """The same of a program; the thread's waits for its own records are left out."""
    before = awaited(program)
    streams = [f"{name}_stream" if name in ("out", "in") else name for name in program.streams]
    compresses = any(isinstance(i, ToStore) for i in program.instructions)
    for position, i in enumerate(program.instructions):
        if isinstance(i, Allocate):
            yield "allocate", i.address
        elif isinstance(i, Launch):
            yield (i.call.function,)
        elif isinstance(i, Copy | Record):
            yield i.op, streams[i.stream]
        elif isinstance(i, Wait):
            own = getattr(program.instructions[before[position]], "stream", None) == i.stream
            if streams[i.stream] != "host" or (compresses and not own):
                yield "wait", streams[i.stream]
        else:
            yield (i.op,)


def check(program: Program) -> str:
    """The script of a program, which does what the program says; its lines are short."""
    text = written_out(program, "a test", **LEARNING)
    assert [*statements(text)] == [*meant(program)]
    lines = text[text.index("def train_step") :].splitlines()
    waits = [i for i, line in enumerate(lines) if re.search(r"\.wait\(|hold\(|\.synchronize\)", line)]
    assert all("# " in lines[i] or lines[i - 1].lstrip().startswith("# ") for i in waits), "a wait without a reason"
    assert max(map(len, text.splitlines())) <= WIDTH
    return text


def test_lenet_under_vdnn_is_short_and_needs_nothing_of_refimpl() -> None:
    text = check(plan(build("lenet", 32), wanted("vdnn-all"), H100, 1 << 30))
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
@pytest.mark.parametrize("by_position", [more(False), True])
def test_a_script_with_plain_kernels_trains_in_numbas_simulator(tmp_path: Path, by_position: bool) -> None:
    """In a process of its own, which finds nothing of this project."""
    b = Builder("two", (2, 1, 4, 4))
    b.conv(2, 3, pad=1)
    b.relu()
    b.pool(2)
    b.fc(3)
    b.softmax()
    network = b.build().leaner("positions") if by_position else b.build()
    program = least_plan(network, setup(offload=OffloadSome(), prefetch=PrefetchAhead()), PLAIN)
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
    "network", [more("tiny-inception"), "lenet:vdnnpp", pytest.param("resnet50", marks=pytest.mark.campaign)]
)
def test_a_script_does_what_the_program_says_under_every_preset(network: str) -> None:
    made, text = build(network, 16), ""
    for preset in presets.PRESETS:
        program = plan(made, wanted(preset), H100, 16 << 30)
        with suppress(DoesNotFit):  # less, so that more is moved; to search for a plan of a deep network takes long
            program = (
                program if len(made.layers) > 50 else plan(made, wanted(preset), H100, program.peak_bytes * 7 // 10)
            )
        text += check(program)
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
    same_bits(storing_program(), tmp_path)


def test_several_inputs_and_losses_are_written_out() -> None:
    check(least_plan(several(), wanted("superneurons"), H100, 0.3))


def alike() -> Network:
    """Layers whose names are one identifier, words of Python and of the script, and no identifier at all."""
    b = Builder("alike", (3, 2, 4, 4))
    for name in ("a.b", "a-b", "a_b", "train", "lambda", "1", "--"):
        b.conv(2, 1, name=name)
    b.fc(3, name="memory")
    b.softmax()
    return b.build()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_names_python_parses_the_script(seed: int) -> None:
    """NUL, escapes, quotes, line ends, half a surrogate: of a network, its layers, a setup and a command."""
    random = Random(seed)

    def drawn(most: int) -> str:
        return "".join(random.choices("ab\0\x1b\x9b\r\n\"'\\\u2028\u202e\udcff${}# -é", k=random.randrange(1, most)))

    b = Builder(drawn(400), (2, 1, 4, 4))
    b.conv(2, 3, pad=1, name=f"c{drawn(200)}")
    b.fc(3, name=f"f{drawn(20)}")
    b.softmax()
    made = dataclasses.replace(presets.setup("vdnn-all"), name=drawn(200))
    text = written_out(plan(b.build(), made, H100, 1 << 26), f"refimpl export {drawn(400)}")
    text.encode()
    assert text.replace("\n", "").isprintable() and ast.get_docstring(ast.parse(text))


def test_names_of_layers_that_are_one_identifier_stay_apart() -> None:
    text = check(least_plan(alike(), wanted("superneurons"), H100, 0.5))
    assert {"a_b_w", "a_b_w_2", "a_b_w_3"} <= set(re.findall(r"\w+", text))


@pytest.mark.emulated
@pytest.mark.slow
def test_the_same_bits_with_several_inputs_and_losses_adamw_clipping_and_a_schedule(tmp_path: Path) -> None:
    b = Builder("dense and several", (3, 2, 2, 2))
    other = b.add_input("other", (3, 1, 2, 2))
    b.join(b.fc(6, name="first", after=b.input), b.fc(6, after=other))
    trunk = b.relu()
    b.fc(4)
    b.mean_squared_error(name="numbers", weight=0.25)
    b.softmax(name="early", weight=0.3, after=b.fc(4, after=trunk))
    b.softmax(name="main", after=b.fc(4, after=trunk))
    network = b.build().trained_by("adamw", clip=0.5, decay_on="weights", frozen=["first.w"])
    program = least_plan(network, setup(offload=OffloadSome(), prefetch=PrefetchAhead(1)), MACHINE)
    numbers = {"seed": 3, "rate": 0.05, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-6, "decay": 0.1}
    schedule = Schedule.parse("cosine:4:0.01", warmup=1)
    same_bits(program, tmp_path, numbers, schedule)
