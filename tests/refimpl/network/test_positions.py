"""Max pooling by position: backward reads a byte an output in place of x and y, and learns the same bits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.backend import CopiesLate
from refimpl.backend.script import written_out
from refimpl.names.largest_batch import least_conceivable
from refimpl.names.networks import build
from refimpl.names.presets import PRESETS, setup
from refimpl.network import Builder, Network, NetworkError
from refimpl.network.conventions import VDNN
from refimpl.network.seams import with_seams
from refimpl.parallel.communicators import in_threads
from refimpl.planner import Program, SetupError, plan
from refimpl.studies.program_file import ProgramFileError, document, read
from refimpl.text import RefimplError
from tests.messages import raises_naming
from tests.refimpl.backend import ranks
from tests.refimpl.backend.running import MACHINE, differing, plain_training, trained
from tests.refimpl.drawn_networks import CONVENTIONS, networks
from tests.refimpl.modules import least_bytes
from tests.refimpl.modules import setup as of_modules
from tests.refimpl.test_executor import KINDS, MODULES, bits, budget, compare


def pooled(mode: str = "max", window: int = 2) -> Network:
    b = Builder("pooled", (4, 4, 24, 24))
    b.conv(4, 3, pad=1)
    b.relu()
    b.pool(window, mode=mode)
    b.conv(4, 3, pad=1)
    b.global_pool()
    b.fc(2)
    b.softmax()
    return b.build()


# -- which tensors, which calls ----------------------------------------------------------------------------------------


def test_backward_reads_positions_and_dy_alone() -> None:
    network = pooled().leaner("positions")
    layer = network.layer("pool1")
    positions = layer.kept["positions"]
    assert network.name == "pooled:positions" and positions in network.managed
    assert positions.nbytes == layer.y.nbytes // 4
    assert layer.forward.writes == (layer.y, positions)
    (call,) = layer.backward.calls
    assert call.reads == (positions, call.arguments["dy"]) and layer.x not in call.operands
    assert network.layer("pool2").backward.calls[0].function == "pool.backward"  # an average: as it is
    assert positions not in network.inference().managed
    other = network.trained_by("adamw", frozen=("conv1.*",))
    assert other.conventions.lean == ("positions",) and not other.layer("pool1").kept  # nothing is learnt below it
    assert (
        network.leaner("positions") is network
        and network.leaner("lean").name == network.name
        and not pooled().layer("pool1").kept
    )


def test_a_name_takes_the_suffix_after_any_other() -> None:
    for name in ("lenet", "tiny-vgg:vdnnpp", "tiny-unet", "tiny-inception:superneurons"):
        network = build(f"{name}:positions", 2)
        assert network.name == f"{name}:positions" and network.batch == 2
        assert any(layer.kept for layer in network.layers if layer.kind == "pool")
    made = build("lenet", 2).leaner("positions").conventions
    from refimpl.network.small import lenet

    assert lenet(2, made).name == "lenet:positions" and made == replace(VDNN, lean=("positions",))


def test_what_has_no_positions_is_one_line() -> None:
    for network in (pooled("average"), pooled(window=12), build("tiny-gpt", 2)):
        with raises_naming(NetworkError, network.name, "no max pooling", ":positions"):
            network.leaner("positions")
    with raises_naming(NetworkError, "2 ranks", "call leaner before data_parallel"):
        pooled().data_parallel(2).leaner("positions")
    with raises_naming(SetupError, "pooled:positions", "PyTorch", ":positions"):
        plan(pooled().leaner("positions"), setup("vdnn-all"), MACHINE, 1 << 24).decisions()
    with raises_naming(RefimplError, "lenett"):
        build("lenett:positions")


# -- plans and bits ----------------------------------------------------------------------------------------------------

#: Preset → a network with the conventions that it was published for.
NETWORKS = {"vdnnpp": "tiny-vgg:vdnnpp", "superneurons": "tiny-inception:superneurons", "accudnn": "tiny-inception"}


@pytest.mark.parametrize("preset", [*PRESETS, "vdnn-all, seams=yes", "combined, seams=yes"])
def test_training_comes_to_the_bits_of_the_plain_network(preset: str) -> None:
    name = next((name for start, name in NETWORKS.items() if preset.startswith(start)), "lenet")
    usual, network = build(name, 4), build(f"{name}:positions", 4)
    whole = plan(usual, setup("baseline"), MACHINE, 1 << 40)
    same = MACHINE.with_algorithms(whole.algorithms)
    wanted = setup(preset, {"effort": "20"} if preset.startswith("combined") else None)
    program = plan(network, wanted, same, max(least_bytes(network, wanted, same), whole.peak_bytes * 6 // 10))
    program.verify()
    _, state = trained(program, 2, order=CopiesLate(), poison=True)
    assert differing(state, plain_training(whole, 2)) == []


#: Networks whose max poolings are by position; and modules of any kind.
BY_POSITION = st.sampled_from([replace(one, lean=("positions",)) for one in CONVENTIONS]).flatmap(
    lambda conventions: networks(kinds=(*KINDS, "pool", "pool"), conventions=conventions)
)


@given(BY_POSITION, MODULES, st.floats(0.15, 0.5))
@settings(max_examples=40)
def test_the_executor_and_the_planner_do_the_same(network: Network, modules: dict[str, object], share: float) -> None:
    compare(network, of_modules(**modules), budget(network, share))


@pytest.mark.slow
@given(BY_POSITION, MODULES, st.floats(0.15, 0.5))
@settings(max_examples=15)
def test_bits_of_drawn_networks(network: Network, modules: dict[str, object], share: float) -> None:
    bits(network, of_modules(**modules), [budget(network, share), budget(network, 2 * share)])


@pytest.mark.slow
def test_two_ranks_learn_what_they_learn_without() -> None:
    learnt = {
        rank["learnt"]
        for name in ("lenet", "lenet:positions")
        for rank in in_threads(2, lambda one: ranks.trained(one, "vdnn-all", 30_000, 1, name))  # noqa: B023
    }
    assert len(learnt) == 1


@pytest.mark.slow
@pytest.mark.emulated
def test_the_emulated_gpu_comes_to_the_same_bits() -> None:
    whole = plan(pooled(), setup("baseline"), MACHINE, 1 << 24)
    same = MACHINE.with_algorithms(whole.algorithms)
    made = plan(pooled().leaner("positions"), setup("vdnn-all"), same, 1 << 24)
    state, expected = (trained(one, 1, backend="emulated")[1] for one in (made, whole))
    assert differing(state, expected) == []


def test_less_is_needed_where_steps_are_cut() -> None:
    network = pooled()
    cut, positions = with_seams(network), with_seams(network.leaner("positions"))
    assert least_conceivable(positions) < least_conceivable(cut)
    wanted = setup("combined", {"seams": "yes"}).frugal
    plan(positions, wanted, MACHINE, least_conceivable(cut) - 1).verify()


# -- what is shown, and kept -------------------------------------------------------------------------------------------


def program() -> Program:
    return plan(build("lenet:positions", 4), setup("vdnn-all"), MACHINE, 1 << 24)


def test_the_listing_says_why_and_the_script_calls_the_kernel() -> None:
    listing = " ".join(program().listing().split())
    assert "a max pooling's positions, in place of its x and y · 2 maps" in listing
    assert "pool_position.backward" in listing and "pool_position.backward(" in written_out(program(), "")


def test_a_program_in_a_file_is_for_this_network() -> None:
    found = json.loads(json.dumps(document(program())))
    read(found, build("lenet:positions", 4), MACHINE).verify()
    with raises_naming(ProgramFileError, "another network"):
        read(found, build("lenet", 4), MACHINE)
