"""Conventions that need less memory: under each word a network learns the same bits, and its plans are safe.

A new word is a row of `CASES`.  What it does to its layers is tested in a file of its own (`test_positions.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.backend import CopiesLate
from refimpl.backend.script import written_out
from refimpl.names.largest_batch import least_conceivable
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.network import Builder, Network, NetworkError, lean
from refimpl.network.seams import with_seams
from refimpl.parallel.communicators import in_threads
from refimpl.planner import DoesNotFit, Setup, SetupError, plan
from refimpl.slots.baseline import NoCache, NoOffload, NoPrefetch
from refimpl.slots.setup import BASELINE
from refimpl.studies.program_file import ProgramFileError, document, read
from refimpl.text import RefimplError
from tests.matrix import diagonal, some
from tests.messages import raises_naming
from tests.refimpl.backend import ranks
from tests.refimpl.backend.running import MACHINE, differing, plain_training, trained
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import LastUsed, least_bytes
from tests.refimpl.modules import setup as of_modules
from tests.refimpl.test_executor import KINDS, MODULES, budget, compare, learnt


def ended(b: Builder) -> Network:
    b.global_pool()
    b.fc(2)
    b.softmax()
    return b.build()


def pooled(mode: str = "max", window: int = 2) -> Network:
    """Two convolutions and a pooling: its largest maps are what the pooling reads."""
    b = Builder("pooled", (4, 4, 24, 24))
    b.conv(4, 3, pad=1)
    b.relu()
    b.pool(window, mode=mode)
    b.conv(4, 3, pad=1)
    return ended(b)


def deep() -> Network:
    """A convolution's maps are the largest; most weights are of the layers after it."""
    b = Builder("deep", (4, 4, 24, 24))
    b.conv(4, 3, pad=1)
    b.relu()
    b.conv(4, 3, pad=1)
    b.global_pool()
    b.fc(64)
    b.fc(64)
    b.fc(64)
    b.softmax()
    return b.build()


def branched() -> Network:
    """Two ReLUs whose maps are put side by side, which no backward needs."""
    b = Builder("branched", (4, 1, 24, 24))
    x = b.conv(4, 3, pad=1)
    y = b.relu(after=b.conv(2, 3, pad=1, after=x))
    b.concat(y, b.relu(after=b.conv(2, 3, pad=1, after=x)))
    b.conv(2, 3, pad=1)
    return ended(b)


def joined() -> Network:
    """A bottleneck: its largest maps are the two that are added, one of them normalised."""
    b = Builder("joined", (4, 4, 24, 24))
    x = b.conv(8, 3, pad=1)
    b.conv(2, 1)
    b.relu()
    b.conv(8, 1)
    b.join(x, b.batchnorm())
    b.relu()
    b.global_pool()
    b.dropout()
    b.fc(2)
    b.softmax()
    return b.build()


def talk() -> Network:
    """A language model whose largest map is its logits."""
    b = Builder("talk", (4, 16), dtype="int32")
    table = b.embedding(64, 8)
    b.conv(8, 1)
    b.gelu()
    b.share(table, b.conv(64, 1, bias=False))
    b.pixel_softmax()
    return b.build()


def unlearning() -> Network:
    b = Builder("unlearning", (2, 4, 4, 4))
    b.global_pool()
    b.softmax()
    return b.build()


@dataclass(frozen=True)
class Case:
    """What the tests of one word have of their own."""

    network: Callable[[], Network]  #: a small one that has it, and needs less, steps cut
    named: str  #: one in the zoo that has it
    lacking: tuple[Callable[[], Network], ...]  #: networks that it is refused for
    drawn: tuple[str, ...] = ()  #: kinds of layers that drawn networks have more of
    ranks: bool = True  #: whether several can train together
    catalogue: str = "own"  #: the kernels with which the bits are those without the word: all, or the plain ones
    floor: bool = True  #: whether the largest step needs less, or only less waits for backward
    by_hand: bool = True  #: whether the executor can train it
    reason: str = ""  #: in listings, of tensors that the word has made
    function: str = ""  #: of `kernels`, in listings and scripts: the word's own


CASES = {
    "positions": Case(
        pooled,
        "lenet",
        (lambda: pooled("average"), lambda: pooled(window=12), lambda: build("tiny-gpt", 2)),
        ("pool", "pool"),
        reason="a max pooling's positions, in place of its x and y · 2 maps",
        function="pool_position.backward",
    ),
    "signs": Case(
        branched,
        "tiny-inception",
        (joined, lambda: build("tiny-vgg", 2), lambda: build("tiny-gpt", 2)),
        ("relu", "concat", "join"),
        floor=False,
        reason="the signs of a ReLU, in place of its map",
        function="relu_sign.backward",
    ),
    "in-place": Case(
        joined,
        "tiny-resnet",
        (pooled, lambda: build("tiny-vgg", 2)),
        ("join", "join", "drop_path"),
    ),
    "gradients": Case(
        deep,
        "lenet",
        (lambda: build("lenet:vdnnpp"), lambda: build("lenet").trained_by(clip=1.0)),
        ranks=False,
        reason="free d(fc3.w) 784 KiB",
    ),
    "pieces": Case(
        talk,
        "tiny-gpt",
        (lambda: build("tiny-gpt", 1), lambda: build("tiny-unet", 2), lambda: build("lenet", 2)),
        catalogue="plain",
        reason="piece of head 64 KiB",
        function="pieces.learn",
    ),
    "state-on-host": Case(
        deep,
        "lenet",
        (unlearning,),
        by_hand=False,
        reason="841.3 KiB of the optimiser's states are on the host between iterations",
        function="sgd.update",
    ),
}
WORDS = pytest.mark.parametrize("word", lean.WORDS)
#: Preset → networks with the conventions that it was published for; the first one that can have a word is tried.
NETWORKS = {
    "vdnnpp": ("tiny-vgg:vdnnpp", "tiny-resnet:vdnnpp", "tiny-vgg", "tiny-inception", "tiny-gpt"),
    "superneurons": ("tiny-inception:superneurons", "tiny-resnet:superneurons", "tiny-gpt"),
    "accudnn": ("tiny-inception", "tiny-resnet", "tiny-gpt"),
    "": ("lenet", "tiny-resnet", "tiny-inception", "tiny-gpt"),
}


def test_each_word_is_tested() -> None:
    assert [*CASES] == [*lean.WORDS]


# -- names, and refusals -----------------------------------------------------------------------------------------------


@WORDS
def test_a_name_takes_the_word_after_any_other(word: str) -> None:
    name = CASES[word].named
    network = build(f"{name}:{word}", 2)
    assert network.name == f"{name}:{word}" and network.batch == 2 and network.conventions.lean == (word,)
    assert network.leaner(word) is network and not build(name, 2).conventions.lean
    assert network.leaner("lean").name == build(f"{name}:lean", 2).name
    assert f":{word}" in build(f"{name}:lean", 2).name


def test_a_slip_in_a_word_is_one_line() -> None:
    with raises_naming(NetworkError, "'vgg16:sings'", "did you mean vgg16:signs?"):
        build("vgg16:sings")
    assert build("lenet:superneurons", 2).name == "lenet:superneurons"


@WORDS
def test_what_lacks_it_is_one_line(word: str) -> None:
    for network in (made() for made in CASES[word].lacking):
        with raises_naming(NetworkError, network.name, f"no {lean.module(word).LACKS}", f":{word}"):
            network.leaner(word)
        assert f":{word}" not in network.leaner("lean").name
    with raises_naming(NetworkError, "2 ranks", "call leaner before data_parallel"):
        CASES[word].network().data_parallel(2).leaner(word)
    with raises_naming(SetupError, f":{word}", "PyTorch"):
        plan(CASES[word].network().leaner(word), setup("vdnn-all"), MACHINE, 1 << 24).decisions()
    with raises_naming(RefimplError, "lenett"):
        build(f"lenett:{word}")


# -- plans and bits ----------------------------------------------------------------------------------------------------


def network_for(preset: str, word: str) -> str:
    """The name of a network with the conventions of a preset that can have a word."""
    names = next(names for start, names in NETWORKS.items() if preset.startswith(start))
    return next(one for one in names if word == lean.ALL or lean.module(word).applies(build(one, 4)))


#: A preset of each paper, and those that do what no other one does.
POLICIES = (
    "vdnn-all",
    "vdnnpp-all",
    "superneurons-recompute",
    "superneurons",
    "accudnn",
    "baseline",
    "combined, seams=yes",
)


@pytest.mark.parametrize(("word", "preset"), diagonal([*lean.WORDS, lean.ALL], POLICIES))
def test_training_comes_to_the_bits_of_the_plain_network(word: str, preset: str) -> None:
    name = network_for(preset, word)
    usual, network = build(name, 4), build(f"{name}:{word}", 4)
    machine = MACHINE.with_catalogue(CASES[word].catalogue if word in CASES else "own")
    whole = plan(usual, setup("baseline"), machine, 1 << 40)
    same = machine.with_algorithms(whole.algorithms)
    wanted = setup(preset, {"effort": "10"} if preset.startswith("combined") else None)
    program = plan(network, wanted, same, max(least_bytes(network, wanted, same), whole.peak_bytes * 6 // 10))
    program.verify()
    _, state = trained(program, 2, order=CopiesLate(), poison=True)
    expected = trained(whole, 2)[1] if machine.catalogue == "plain" else plain_training(whole, 2)
    assert differing(state, expected) == []


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Network, Network, Setup]:
    """A network of any kinds, the same with some of the words that it can have, and any setup."""
    kinds = (*KINDS, *draw(st.sampled_from([case.drawn for case in CASES.values()])))
    modules = draw(MODULES)
    if isinstance(modules["offload"], NoOffload) and isinstance(modules["cache"], NoCache | LastUsed):
        modules["prefetch"] = NoPrefetch()  # a prefetch needs maps that leave
    network = draw(networks(kinds=kinds))
    frozen = st.sampled_from([(), *((f"{layer.name}.*",) for layer in network.layers[:-2] if layer.own)])
    network = network.trained_by(draw(st.sampled_from(("sgd", "adamw"))), frozen=draw(frozen))
    having = [word for word, case in CASES.items() if case.by_hand and lean.module(word).applies(network)]
    words = draw(st.sampled_from([[word] for word in having] + [having]))
    return network, network.leaner(*words), of_modules(**modules)


@given(drawn(), st.floats(0.15, 0.5))
@settings(max_examples=30)
def test_the_executor_and_the_planner_do_the_same(case: tuple[Network, Network, Setup], share: float) -> None:
    _, network, wanted = case
    compare(network, wanted, budget(network, share))


@pytest.mark.slow
@given(drawn(), st.floats(0.15, 0.5))
@settings(max_examples=8)
def test_bits_of_drawn_networks(case: tuple[Network, Network, Setup], share: float) -> None:
    plain, network, wanted = case
    expected_losses, expected = learnt(plain, BASELINE, 1 << 20)
    for nbytes in (budget(network, share), budget(network, 2 * share)):
        with suppress(DoesNotFit):
            losses, state = learnt(network, wanted, nbytes)
            assert losses == expected_losses and state.items() <= expected.items()
            plan(network, wanted, MACHINE, nbytes).verify()


@pytest.mark.slow
@pytest.mark.parametrize("word", some([word for word, case in CASES.items() if case.ranks], "positions", "pieces"))
def test_two_ranks_learn_what_they_learn_without(word: str) -> None:
    name, kernels = CASES[word].named, CASES[word].catalogue
    learnt = {
        rank["learnt"]
        for one in (name, f"{name}:{word}")
        for rank in in_threads(2, lambda rank: ranks.trained(rank, "vdnn-all", 30_000, 1, one, catalogue=kernels))  # noqa: B023
    }
    assert len(learnt) == 1


@pytest.mark.slow
@pytest.mark.emulated
@WORDS
def test_the_emulated_gpu_comes_to_the_same_bits(word: str) -> None:
    network, machine = CASES[word].network(), MACHINE.with_catalogue(CASES[word].catalogue)
    whole = plan(network, setup("baseline"), machine, 1 << 24)
    same = machine.with_algorithms(whole.algorithms)
    made = plan(network.leaner(word), setup("vdnn-all"), same, 1 << 24)
    state, expected = (trained(one, 1, backend="emulated")[1] for one in (made, whole))
    assert differing(state, expected) == []


@pytest.mark.parametrize("word", [word for word, case in CASES.items() if case.floor])
def test_less_is_needed_where_steps_are_cut(word: str) -> None:
    network = CASES[word].network()
    cut, leaner = with_seams(network), with_seams(network.leaner(word))
    assert least_conceivable(leaner) < least_conceivable(cut)
    wanted = setup("combined", {"seams": "yes"}).frugal
    plan(leaner, wanted, MACHINE, least_conceivable(cut) - 1).verify()


# -- what is shown, and kept -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [word for word, case in CASES.items() if case.function or case.reason])
def test_the_listing_says_why_and_the_script_calls_the_kernel(word: str) -> None:
    case = CASES[word]
    program = plan(build(f"{case.named}:{word}", 4), setup("vdnn-all"), MACHINE, 1 << 24)
    listing = " ".join(program.listing().split())
    assert case.reason in listing and case.function in listing and case.function in written_out(program, "")


@WORDS
def test_a_program_in_a_file_is_for_this_network(word: str) -> None:
    name = CASES[word].named
    program = plan(build(f"{name}:{word}", 4), setup("vdnn-all"), MACHINE, 1 << 24)
    found = json.loads(json.dumps(document(program)))
    read(found, build(f"{name}:{word}", 4), MACHINE).verify()
    with raises_naming(ProgramFileError, "another network"):
        read(found, build(name, 4), MACHINE)
