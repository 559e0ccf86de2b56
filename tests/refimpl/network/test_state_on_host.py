"""States of the optimiser that are on the host between iterations: `:state-on-host`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.copies import NoGpu
from refimpl.backend import CopiesLate, Trainer
from refimpl.backend.run_errors import NotFinite
from refimpl.executor import Executor
from refimpl.names.largest_batch import least_conceivable
from refimpl.names.machines import named
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.network import Builder, Network
from refimpl.network.seams import with_seams
from refimpl.planner import CopyIn, CopyOut, Program, Record, Setup, SetupError, Wait, plan
from refimpl.planner.instructions import COMPUTE, Instruction
from refimpl.planner.verify import Unsafe
from refimpl.report.figures import memory_curve
from refimpl.report.memory_pictures import memory_picture
from refimpl.slots.errors import PinnedDoesNotFit
from refimpl.slots.setup import BASELINE
from tests.matrix import diagonal
from tests.messages import raises_naming
from tests.refimpl.backend.running import MACHINE, dense_network, differing, plain_training, trained, trainer
from tests.refimpl.modules import least_bytes, least_plan
from tests.refimpl.network.test_lean import drawn
from tests.refimpl.plainly import draw_batch

WAYS: list[dict[str, object]] = [{}, {"optimiser": "adamw"}, {"clip": 0.1}, {"frozen": ("right.*",)}]


def dense(**way: object) -> tuple[Network, Network]:
    """A small network that learns in some way, and the same with its states on the host."""
    plain = dense_network().trained_by(**way)  # type: ignore[arg-type]
    return plain, plain.leaner("state-on-host")


def program(policy: str = "vdnn-all") -> Program:
    return plan(dense()[1], setup(policy), MACHINE, 1 << 20)


@pytest.mark.parametrize("way", WAYS)
def test_only_the_step_that_updates_a_state_uses_it(way: dict[str, object]) -> None:
    plain, network = dense(**way)
    states = {tensor.name for tensor in plain.resident if tensor.kind == "momentum"}
    assert {tensor.name for tensor in network.on_host} == states
    assert states == {tensor.name for tensor in network.managed} - {tensor.name for tensor in plain.managed}
    assert not states & {tensor.name for tensor in network.resident}
    for layer, _, parameter in network.parameters():
        for state in parameter.states.values():
            step = network.steps[-1] if "clip" in way else layer.backward
            assert [one for one in network.steps if state in one.uses] == [step] and state in step.states
    assert not {*network.inference().managed} & {*network.on_host}


@pytest.mark.parametrize(
    ("way", "policy"), diagonal(WAYS, ["vdnn-all", "superneurons", "superneurons-recompute, seams=yes", "baseline"])
)
def test_every_way_to_learn_comes_to_the_plain_bits(way: dict[str, object], policy: str) -> None:
    plain, network = dense(**way)
    made = plan(network, setup(policy), MACHINE, least_bytes(network, setup(policy), MACHINE))
    assert not made.verify().warnings
    _, state = trained(made, 3, order=CopiesLate(), poison=True)
    wanted = plain_training(plan(plain, BASELINE, MACHINE, 1 << 20), 3)
    assert differing(state, wanted) == [] and any(wanted[state.name].any() for state in network.on_host)


@pytest.mark.slow
@given(drawn(), st.booleans())
@settings(max_examples=8)
def test_bits_of_drawn_networks(case: tuple[Network, Network, Setup], alone: bool) -> None:
    """Alone and with other words."""
    plain, others, wanted = case
    network = (plain if alone else others).leaner("state-on-host")
    with suppress(PinnedDoesNotFit):
        made = least_plan(network, wanted, MACHINE)
        made.verify()
        _, state = trained(made, 2, order=CopiesLate(), poison=True)
        assert differing(state, plain_training(made, 2)) == []


def test_it_is_saved_and_resumed_from_the_host_and_evaluated_between(tmp_path: Path) -> None:
    plain, network = dense()
    made = plan(network, setup("vdnn-all"), MACHINE, 1 << 20)
    file = tmp_path / "state.npz"
    with trainer(made, poison=True) as one:
        one.step(*draw_batch(network, 0))
        one.save(file)
    with Trainer(made, poison=True) as other:
        assert all(not other.state()[state.name].any() for state in network.on_host)  # first values: 0
        other.restore(file)
        found = other.evaluate(*draw_batch(network, 0))
        other.step(*draw_batch(network, 1))
        state = other.state()
    assert np.isfinite(found.loss)
    assert differing(state, plain_training(plan(plain, BASELINE, MACHINE, 1 << 20), 2)) == []


def test_an_iteration_that_diverges_leaves_the_states_as_they_were() -> None:
    network = dense()[1]
    with trainer(plan(network, setup("vdnn-all"), MACHINE, 1 << 20)) as made:
        images, labels = draw_batch(network)
        made.step(images, labels)
        before = made.state()
        with pytest.raises(NotFinite):
            made.step(np.full_like(images, 3e38), labels)
        assert differing(made.state(), before) == []


# -- what verify proves ------------------------------------------------------------------------------------------------


def without(made: Program, gone: list[Instruction]) -> Program:
    return replace(made, instructions=[it for it in made.instructions if it not in gone])


def of_states(made: Program, kind: type[CopyIn] | type[CopyOut]) -> list[Instruction]:
    return [it for it in made.instructions if isinstance(it, kind) and it.tensor in made.network.on_host]


@pytest.mark.parametrize("policy", ["baseline", "vdnn-all", "superneurons"])
def test_each_copy_of_a_state_is_needed(policy: str) -> None:
    made = program(policy)
    for copy in of_states(made, CopyOut):
        with raises_naming(Unsafe, "rule 3", f"the host's copy of {copy.tensor}", "before training"):  # type: ignore[union-attr]
            without(made, [copy]).verify()
    for copy in of_states(made, CopyIn):
        with raises_naming(Unsafe, "rule 3", f"what {copy.tensor} holds is nothing"):  # type: ignore[union-attr]
            without(made, [copy]).verify()


def test_the_next_iterations_copy_in_waits_for_the_last_copy_out() -> None:
    b = Builder("single", (2, 1, 4, 4))
    b.fc(3, bias=False)
    b.softmax()
    made = plan(b.build().leaner("state-on-host"), BASELINE, MACHINE, 1 << 20)
    joins = made.instructions[-1]
    computed = [it.event for it in made.instructions if isinstance(it, Record) and it.stream == COMPUTE]
    assert isinstance(joins, Wait) and made.streams[joins.stream] == "in" and joins.event not in computed
    made.instructions[-1] = replace(joins, event=computed[-1])  # after all kernels, and not after the copy out
    copies = "copy in of momentum of fc1.w", "copy out of momentum of fc1.w", "in does not wait for out"
    with raises_naming(Unsafe, "rule 1", "of the second iteration", "bytes 0 to 192", *copies):  # its pinned buffer's
        made.verify()


def test_a_states_buffer_is_nobody_elses() -> None:
    made = plan(build("lenet:state-on-host", 2), setup("vdnn-all"), MACHINE, 1 << 24)
    state = made.network.on_host[0]
    for it in made.instructions:
        if isinstance(it, CopyOut) and it.tensor.kind == "map":
            there = [replace(it, pinned_address=made.pinned[state]) if one is it else one for one in made.instructions]
            with raises_naming(Unsafe, "rule 2", str(it.tensor), "are not its to write"):
                replace(made, instructions=there).verify()
            return
    raise AssertionError("nothing is offloaded")


# -- what is counted, shown, refused -----------------------------------------------------------------------------------


def test_pinned_memory_counts_the_states_and_device_memory_does_not() -> None:
    names = "lenet", "lenet:state-on-host"
    plain, network = (plan(build(name, 2), BASELINE, named("titan-x"), 1 << 24) for name in names)
    states = sum(state.nbytes for state in network.network.on_host)
    assert plain.network.resident_bytes - network.network.resident_bytes == states
    assert network.pinned_bytes - plain.pinned_bytes >= states
    assert network.counts.offloaded_bytes == network.counts.on_demand_bytes == states
    assert network.peak_bytes < plain.peak_bytes


@pytest.mark.slow
def test_combined_needs_no_more_than_the_largest_step() -> None:
    """Its blocks have fixed addresses, which two plans must agree on: so must they on when a state's bytes are free."""
    network = build("gpt2:state-on-host", 8)
    least = least_conceivable(with_seams(network))
    plan(network, setup("combined", {"seams": "yes"}).frugal, named("v100"), least + (1 << 20)).verify()


def test_pictures_have_a_colour_for_states() -> None:
    assert memory_curve(program()).by_kind["momentum"].any()
    assert "momentum" in [text.get_text() for text in memory_picture(program()).legends[0].get_texts()]


def test_the_executor_refuses_it_in_one_line() -> None:
    with raises_naming(SetupError, "executor", "on the device", ":state-on-host"):
        Executor(build("lenet:state-on-host", 2), BASELINE, 1 << 24, NoGpu())
