"""Seams: the same calls with the same results, in steps that hold less at a time."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from contextlib import suppress
from copy import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.backend.script import written_out
from refimpl.combined import text
from refimpl.names.largest_batch import least_conceivable
from refimpl.names.least_budget import remedies
from refimpl.names.networks import build
from refimpl.names.presets import NEIGHBOURS, PRESETS, setup
from refimpl.network import Builder, Network, NetworkError
from refimpl.network.conventions import PYTORCH, VDNNPP
from refimpl.network.seams import with_seams
from refimpl.planner import DoesNotFit, Program, Setup, SetupError, plan
from refimpl.report.json import plan_json
from refimpl.report.page.document import document as page_document
from refimpl.report.tables import steps_table
from refimpl.slots.setup import BASELINE
from refimpl.studies.challenge.entry import EntryError, proved_plan
from refimpl.studies.grid.rows import GridPoint, fingerprint, row
from refimpl.studies.optimum.bound import lower_bound, single_step_bytes
from refimpl.studies.optimum.exhaustive import exhaustive
from refimpl.studies.program_file import ProgramFileError, document, read
from refimpl.vdnn import VDNN_ALL
from tests.matrix import some
from tests.messages import raises_naming
from tests.refimpl.backend.running import MACHINE, differing, plain_training, trained
from tests.refimpl.drawn_networks import KINDS, OF_PAIRS, networks
from tests.refimpl.modules import instructions_of, least_bytes
from tests.refimpl.test_executor import cases, compare, learnt

SEAMS = {"seams": "yes"}


# -- where a step is cut -----------------------------------------------------------------------------------------------


def flow(network: Network) -> dict[Any, Any]:
    """Call → the calls that wrote or changed last what it reads, and what it changes; tensor → the last such call."""
    last: dict[Any, Any] = {}
    found: dict[Any, Any] = {}
    for step in network.steps:
        for call in step.calls:
            found[call] = [last.get(tensor) for tensor in (*call.reads, *call.updates)]
            last |= dict.fromkeys((*call.updates, *call.writes), call)
    return found | last


def overwritten_unread(network: Network) -> list[Any]:
    """Pairs of a call and a later one that overwrites or changes what the first reads, in the order of the first."""
    readers: dict[Any, list[Any]] = {}
    found = []
    for step in network.steps:
        for call in step.calls:
            found += [(reader, call) for x in (*call.updates, *call.writes) for reader in readers.pop(x, ())]
            for x in call.reads:
                readers.setdefault(x, []).append(call)
    return found


#: Of every kind, and often such that a ReLU is part of its convolution: then its calls are no longer in one order only.
ANY = st.one_of(
    networks(layers=15, kinds=(*KINDS, *OF_PAIRS)),
    networks(kinds=("conv", "relu", "conv_transpose", "join"), conventions=VDNNPP),
)


@given(ANY)
@settings(max_examples=40)
def test_every_call_reads_what_it_read(network: Network) -> None:
    reads_what_it_read(network)


@pytest.mark.parametrize("name", ["tiny-gpt", "tiny-resnet", "tiny-vgg:vdnnpp"])
def test_so_it_does_where_weights_learn_in_other_ways(name: str) -> None:
    network = build(name, batch=2)
    for made in (network.trained_by("adamw"), network.trained_by(frozen=("*.b",))):
        reads_what_it_read(made)
    if ":" not in name:  # gradients that stay until the end
        reads_what_it_read(network.trained_by("adamw", clip=1.0))
        reads_what_it_read(network.data_parallel(2, bucket_bytes=1000))


def reads_what_it_read(network: Network) -> None:
    cut = with_seams(network)
    assert flow(cut) == flow(network)
    assert {*overwritten_unread(cut)} == {*overwritten_unread(network)}
    assert [step.number for step in cut.steps] == [*range(1, len(cut.steps) + 1)]
    assert cut.steps[: cut.depth] == network.steps[: network.depth]
    assert least_conceivable(cut) <= least_conceivable(network)
    assert Counter(call for step in cut.steps for call in step.calls) == Counter(
        call for step in network.steps for call in step.calls
    )
    for layer in network.layers:
        parts = [step for step in cut.steps if step.layer is layer and not step.forward]
        assert [(step.part, step.parts) for step in parts] == [(n, len(parts)) for n in range(1, len(parts) + 1)]
        for one, other in pairwise(parts):  # a map goes, and another one comes
            assert {*one.uses} - {*other.uses} and {*other.uses} - {*one.uses}


@pytest.mark.parametrize("suffix", ["", ":vdnnpp", ":superneurons"])
def test_a_convolution_releases_x_before_dx_comes(suffix: str) -> None:
    """Also where, as in vDNN++, the gradients of weights have blocks, and their calls come last in the whole step."""
    network = with_seams(build(f"alexnet{suffix}", batch=2))
    conv = [layer for layer in network.layers if layer.kind == "conv"][1]
    *_, first, second = (step for step in network.steps if step.layer is conv and not step.forward)
    assert conv.x in first.reads and conv.x not in second.uses
    made = {tensor for tensor in second.writes if tensor.kind == "gradient map"}
    assert made and made.isdisjoint(first.uses)
    assert first.title == f"{conv.name} backward, part {first.part} of {first.parts}"
    assert str(second).endswith(f"({conv.name} backward, part {second.parts} of {second.parts})")


def test_a_fused_relu_is_a_part_of_its_own() -> None:
    b = Builder("fused", (2, 2, 4, 4), dataclasses.replace(VDNNPP, holds_outputs=False))
    b.conv(2, 3, pad=1)
    conv = b.conv(2, 3, pad=1)
    b.relu()
    b.fc(2)
    b.softmax()
    network = with_seams(b.build())
    conv = next(layer for layer in network.layers if layer.name == conv.name)
    parts = [step for step in network.steps if step.layer is conv and not step.forward]
    functions = [[call.function for call in part.calls] for part in parts]
    one_each = ("relu.backward", "conv.backward_filter", "conv.backward_data")
    assert all(one in part for one, part in zip(one_each, functions, strict=True))


def test_what_is_made_of_a_network_with_seams_is_made_of_the_whole_one() -> None:
    network = build("lenet", batch=2)
    cut = with_seams(network)
    assert cut.whole is network and with_seams(cut) is cut and with_seams(network) is cut
    for made in (cut.inference(), cut.data_parallel(2), cut.trained_by("adamw")):
        assert made.whole is None and all(step.parts == 1 for step in made.steps)
    assert setup("baseline").cut(cut) is network and setup("baseline", SEAMS).cut(network) is cut


# -- plans -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", some([*PRESETS, *NEIGHBOURS], "baseline", "vdnn-dyn", "superneurons", "accudnn", "combined")
)
def test_without_the_switch_no_step_is_cut(name: str) -> None:
    """A preset's program is of the network's own steps, instruction for instruction, whatever network it is given."""
    wanted = setup(name, {"effort": "5", "seams": "no"} if name == "combined" else None)
    assert wanted.seams is False
    network = build("tiny-vgg", batch=4)
    program = plan(network, wanted, MACHINE, 1 << 24)
    assert program.network is network and program.setup.seams is False
    again = plan(with_seams(network), wanted, MACHINE, 1 << 24)
    assert again.network is network and instructions_of(again) == instructions_of(program)
    assert again.listing() == program.listing()


@given(cases())
@settings(max_examples=25)
def test_the_executor_and_the_planner_do_the_same(case: tuple[Network, Setup, list[int]]) -> None:
    network, wanted, budgets = case
    for nbytes in budgets:
        compare(network, dataclasses.replace(wanted, seams=True), nbytes)


@pytest.mark.slow
@given(cases())
@settings(max_examples=6)
def test_bits_of_drawn_networks(case: tuple[Network, Setup, list[int]]) -> None:
    network, wanted, budgets = case
    wanted, expected = dataclasses.replace(wanted, seams=True), learnt(network, BASELINE, 1 << 20)
    for nbytes in budgets:
        with suppress(DoesNotFit):
            assert learnt(network, wanted, nbytes) == expected
            plan(network, wanted, MACHINE, nbytes).verify()


#: Preset → a network with the conventions that it was published for.
NETWORKS = {
    "vdnn-all": "tiny-vgg", "vdnn-dyn": "lenet", "vdnnpp-all": "tiny-vgg:vdnnpp", "vdnnpp-dyn": "lenet:vdnnpp",
    "superneurons": "tiny-resnet:superneurons", "superneurons-recompute": "tiny-resnet:superneurons",
    "accudnn": "tiny-resnet", "combined": "tiny-vgg", "rotor": "lenet", "dtr": "tiny-resnet", "save-on-cpu": "lenet",
}  # fmt: skip


@pytest.mark.parametrize(
    "preset", some(NETWORKS, "vdnn-all", "vdnnpp-all", "superneurons", "accudnn", "combined", "dtr")
)
def test_training_comes_to_the_same_bits(preset: str) -> None:
    network = build(NETWORKS[preset], batch=4)
    whole = plan(network, setup("baseline"), MACHINE, 1 << 40)
    same = MACHINE.with_algorithms(whole.algorithms)
    effort = {"effort": "5"} if preset == "combined" else {}
    wanted = setup(preset, SEAMS | effort)
    if preset == "combined":  # whose frugal candidates cut every step
        wanted = wanted.frugal
    program = plan(network, wanted, same, max(least_bytes(network, wanted, same), whole.peak_bytes * 7 // 10))
    program.verify()
    assert program.setup.seams and any(step.parts > 1 for step in program.network.steps)
    _, state = trained(program, 2)
    assert differing(state, plain_training(whole, 2)) == []


def chain() -> Network:
    """Two convolutions of one size: the backward step of the second holds three maps of it, and a part two."""
    b = Builder("chain", (8, 16, 16, 16))
    b.conv(16, 3, pad=1)
    b.conv(16, 3, pad=1)
    b.pool(2)
    b.conv(16, 3, pad=1)
    b.fc(2)
    b.softmax()
    return b.build()


@pytest.mark.parametrize("preset", ["vdnn-all", "vdnnpp-all", "superneurons", "accudnn"])
def test_the_least_budget_is_that_of_the_parts(preset: str) -> None:
    network = chain()
    wanted, cut = setup(preset), setup(preset, SEAMS)
    whole, parts = (least_bytes(network, one, MACHINE, 512) for one in (wanted, cut))
    one_map = network.layers[0].y.nbytes
    assert parts <= whole - one_map // 2, (parts, whole)
    plan(network, cut, MACHINE, parts).verify()


def test_combined_trains_in_less_than_a_whole_step_needs() -> None:
    network = chain()
    program = plan(network, setup("combined").frugal, MACHINE, least_conceivable(network) - 1)
    program.verify()
    assert program.setup.seams and program.network.whole is network
    with raises_naming(DoesNotFit, "combined, seams=no"):
        plan(network, setup("combined", {"seams": "no"}).frugal, MACHINE, least_conceivable(network) - 1)


def test_the_bound_of_the_parts_holds_for_plans_with_seams_alone() -> None:
    pytest.importorskip("highspy")
    network = chain()
    cut, budget = with_seams(network), least_conceivable(network) - 1
    assert single_step_bytes(cut, MACHINE) < single_step_bytes(network, MACHINE)
    assert lower_bound(network, MACHINE, budget) is None
    bound = lower_bound(cut, MACHINE, budget)
    program = plan(network, setup("combined", SEAMS | {"effort": "20"}), MACHINE, budget)
    assert bound and bound.seconds <= program.planned_seconds
    found = exhaustive(cut, MACHINE, budget, most=1)
    assert found.program is None or found.program.network is cut


# -- what is shown, and kept -------------------------------------------------------------------------------------------


def some_program() -> Program:
    return plan(build("tiny-vgg", batch=4), setup("vdnn-all", SEAMS), MACHINE, 1 << 24)


def test_every_report_says_which_part() -> None:
    program = some_program()
    part = "conv1_2 backward, part 2 of 2"
    assert part in program.listing() and part in program.listing("conv1_2")
    whole = plan(program.network, VDNN_ALL, MACHINE, 1 << 24)
    assert part in written_out(program, "") and ", part " not in written_out(whole, "") + whole.listing()
    timeline = program.simulate()
    steps = [step for step in plan_json(program, timeline)["steps"] if step["part"]]
    assert [step["part"] for step in steps if step["layer"] == "conv1_2"] == ["1 of 2", "2 of 2"]
    assert "conv1_2  b2" in steps_table(program, timeline).text()
    page = page_document(program, timeline)["steps"]
    names = [f"{layer}{of}" for layer, of in zip(page["layer"], page["part"], strict=True)][program.network.depth :]
    assert "conv1_2, part 2 of 2" in names and len({*names}) == len(names)


def test_a_row_says_at_which_part_it_does_not_fit() -> None:
    point = GridPoint("tiny-vgg", "vdnn-all, seams=yes", "titan-x", "7.2MiB", 64)
    assert row(point)["fits"] is False and "conv1_2 backward, part 2 of 2" in row(point)["why"]


def test_other_setups_that_would_fit_have_seams_too() -> None:
    network = chain()
    budget = least_conceivable(network) - 1  # and so no whole step of it fits
    found = remedies(network, setup("baseline", SEAMS), MACHINE, budget)
    assert found.cheapest and "--set seams=yes fits" in str(found)
    assert remedies(network, setup("baseline"), MACHINE, budget).cheapest is None


def test_a_program_in_a_file_is_the_same_program() -> None:
    program = some_program()
    found = json.loads(json.dumps(document(program)))
    again = read(found, build("tiny-vgg", batch=4), MACHINE)
    again.verify()
    assert fingerprint(again) == fingerprint(program) and again.setup.seams
    assert again.simulate().seconds == program.planned_seconds
    for wrong in (False, None, 1, "yes"):
        with raises_naming(ProgramFileError, "another network"):
            read(found | {"seams": wrong}, build("tiny-vgg", batch=4), MACHINE)
    whole = document(plan(program.network, VDNN_ALL, MACHINE, 1 << 24))
    assert "seams" not in whole
    with raises_naming(ProgramFileError, "another network"):
        read(whole | {"seams": True}, build("tiny-vgg", batch=4), MACHINE)


def test_fates_in_a_file_say_it(tmp_path: Path) -> None:
    (tmp_path / "fates").write_text(text(some_program()))
    again = setup("baseline", {"fates": str(tmp_path / "fates")})
    assert again.seams and "seams=yes" in (tmp_path / "fates").read_text()


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_network_as_autograd_runs_it_has_none() -> None:
    network = copy(build("tiny-vgg", batch=2))
    network.conventions = PYTORCH
    with raises_naming(NetworkError, "tiny-vgg", "autograd", "seams=yes"):
        plan(network, setup("vdnn-all", SEAMS), MACHINE, 1 << 24)
    with raises_naming(ProgramFileError, "another network"):
        read(document(some_program()), network, MACHINE)
    with raises_naming(SetupError, "autograd", "seams=no"):  # whatever kernels were planned for
        some_program().decisions()


def test_combined_takes_this_switch_and_no_slot() -> None:
    assert setup("combined", SEAMS) == setup("combined") and setup("combined", {"seams": "no"}).seams is False
    with raises_naming(SetupError, "every slot itself"):
        setup("combined", SEAMS | {"join": "yes"})
    with raises_naming(SetupError, "seams", "yes, no"):
        setup("vdnn-all", {"seams": "sometimes"})


def test_the_challenge_is_of_whole_steps() -> None:
    with raises_naming(EntryError, "whole", "seams=yes"):
        proved_plan(chain(), setup("vdnn-all", SEAMS), MACHINE, 1 << 24, 60.0)
    network = chain()
    with raises_naming(DoesNotFit, "combined"):  # which cuts them elsewhere
        proved_plan(network, setup("combined effort=5"), MACHINE, least_conceivable(network) - 1, 60.0)
