"""Shared by the backends' tests: programs of small networks, and the values that their training must give."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from refimpl import vdnnpp
from refimpl.backend import Trainer
from refimpl.machine import Machine
from refimpl.network import Builder, Call, Network
from refimpl.planner import Launch, Program, ToStore, plan
from refimpl.studies.reproduce import measured
from tests.refimpl.modules import DropSome, OffloadSome, PrefetchAhead, least_plan, machine, setup
from tests.refimpl.plainly import ADAMW, SETTINGS, draw_batch, new_state, run_plainly

Arrays = dict[str, np.ndarray]

MACHINE = machine()


def small_network(batch: int = 3, classes: int = 4) -> Network:
    """A fork, a join, a concat, and every kind of layer that holds a state or draws numbers."""
    b = Builder("small", (batch, 2, 6, 6))
    b.conv(4, 3, pad=1, name="first")
    trunk = b.relu()
    left = b.batchnorm(name="normal")
    right = b.conv(4, 1, bias=False, after=trunk, name="right")
    both = b.join(left, right)
    b.concat(both, trunk)
    b.lrn(3)
    b.pool(2)
    b.dropout(0.3)
    b.fc(8, name="hidden")
    b.relu()
    b.fc(classes, name="last")
    b.softmax()
    return b.build()


def dense_network(batch: int = 3) -> Network:
    """A fork and a join without convolutions: half as many kernels to translate for the emulated GPU."""
    b = Builder("dense", (batch, 2, 6, 6))
    b.fc(8, name="first")
    trunk = b.relu()
    right = b.fc(8, bias=False, after=trunk, name="right")
    b.join(trunk, right)
    b.relu()
    b.dropout(0.3)
    b.fc(4, name="last")
    b.softmax()
    return b.build()


def small_program(network: Network | None = None, on: Machine = MACHINE, **modules: Any) -> Program:
    """Maps are offloaded, fetched, dropped and rebuilt, in as little memory as possible."""
    given = {"offload": OffloadSome(0.7), "prefetch": PrefetchAhead(2), "recompute": DropSome(0.4)} | modules
    return least_plan(network or small_network(), setup(**given), on)


def storing_program() -> Program:
    """The host's threads compress some maps, others are dropped; few kernels, as of `dense_network`."""
    moving: dict[str, Any] = {"offload": OffloadSome(), "prefetch": PrefetchAhead(1), "recompute": DropSome(0.6)}
    keeps_up = dataclasses.replace(MACHINE, host_rate=1e12)  # a plan compresses every map that it can
    program = least_plan(dense_network(), setup(pinned=vdnnpp.Compressed(), **moving), keeps_up)
    assert any(isinstance(i, Launch) and i.rebuild for i in program.instructions)
    assert any(isinstance(i, ToStore) for i in program.instructions)
    return program


def chosen(program: Program) -> Callable[[Call], str]:
    """The algorithm that a program runs a call with."""
    algorithms = {
        instruction.call: instruction.choice.algorithm
        for instruction in program.instructions
        if isinstance(instruction, Launch) and instruction.choice is not None
    }
    return lambda call: algorithms[call]


def plain_training(program: Program, iterations: int, seed: int = 0) -> Arrays:
    """Every resident tensor after a number of iterations on drawn batches, run without any planning."""
    state = new_state(program.network, seed)
    settings = settings_of(program.network)
    for i in range(iterations):
        images, labels = draw_batch(program.network, seed + i)
        run_plainly(program.network, state, images, labels, {**settings, "iteration": i}, chosen(program))
    return state


def settings_of(network: Network) -> dict[str, float]:
    """What the calls of the network's optimiser take."""
    return SETTINGS if network.learning.optimiser == "sgd" else ADAMW


def trainer(program: Program, seed: int = 0, **given: Any) -> Trainer:
    """One that starts where `plain_training` does."""
    settings: dict[str, Any] = {k: v for k, v in settings_of(program.network).items() if k != "iteration"}
    if "beta1" in settings:
        settings["betas"] = settings.pop("beta1"), settings.pop("beta2")
    made = Trainer(program, **(settings | given))
    drawn = new_state(program.network, seed)
    made.load_state({name: drawn[name] for name in made.state()})
    return made


def trained(program: Program, iterations: int, seed: int = 0, **given: Any) -> tuple[list[float], Arrays]:
    """Losses and final state of a run."""
    with trainer(program, seed, **given) as made:
        losses = [made.step(*draw_batch(program.network, seed + i)) for i in range(iterations)]
        return losses, made.state()


def held(program: Program) -> Program:
    """The same algorithms, call by call, with nothing dropped or moved."""
    same = measured.everything_held(measured.SameAlgorithms.as_in(program))
    return plan(program.network, same, MACHINE, 1 << 32)


def differing(state: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the tensors that are not equal to the last bit."""
    return [name for name in state if state[name].tobytes() != other[name].tobytes()]


def comes_to_the_plain_bits(network: Network, iterations: int = 2) -> None:
    """Training in as little memory as possible, by a program that is safe, comes to what a plain run comes to."""
    program = small_program(network)
    program.verify()
    losses, state = trained(program, iterations)
    assert differing(state, plain_training(program, iterations)) == [] and len({*losses}) == iterations
