"""A language model's logits in pieces: `:pieces`."""

from __future__ import annotations

import numpy as np
import pytest

from refimpl.backend import CopiesLate
from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.network import Builder, Conventions, Network
from refimpl.network.accounting import summary
from refimpl.network.conventions import VDNN
from refimpl.network.lean.logits import TOKENS
from refimpl.planner import Program, plan
from tests.refimpl.backend.running import MACHINE, differing, trained, trainer
from tests.refimpl.drawn_networks import CONVENTIONS
from tests.refimpl.plainly import draw_batch
from tests.refimpl.test_executor import budget, compare

PLAIN = MACHINE.with_catalogue("plain")


def talk(
    conventions: Conventions = VDNN, tokens: int = TOKENS + 70, bias: bool = True, shared: bool = True, windows: int = 2
) -> Network:
    """Two pieces a window, the second one shorter; two losses, one of which is of other logits."""
    b = Builder("talk", (windows, tokens), conventions, dtype="int32")
    table = b.embedding(7, 3, name="table")
    b.conv(3, 1)
    x = b.gelu()
    head = b.conv(7, 1, bias=bias, name="head")
    if shared:
        b.share(table, head, own_bias=bias)
    b.pixel_softmax(ignore_index=2, weight=0.5)
    b.conv(2, 1, after=x, name="few")  # fewer than it reads: as it is
    b.pixel_softmax()
    return b.build()


def planned(network: Network) -> Program:
    program = plan(network, setup("vdnn-all"), PLAIN, 1 << 24)
    program.verify()
    return program


@pytest.mark.parametrize("conventions", CONVENTIONS)
def test_plain_kernels_come_to_the_bits_of_the_network_with_all_logits(conventions: Conventions) -> None:
    for bias, shared in ((True, True), (True, False), (False, True)):
        plain = talk(conventions, bias=bias, shared=shared)
        losses, state = trained(planned(plain.leaner("pieces")), 2, order=CopiesLate(), poison=True)
        expected_losses, expected = trained(planned(plain), 2)
        assert losses == expected_losses and differing(state, expected) == []


@pytest.mark.parametrize("frozen", [("head.*",), ("table.*", "conv1.*"), ("*", "!head.b"), ("*", "!few")])
def test_what_is_frozen_has_no_gradient_and_the_loss_is_the_same(frozen: tuple[str, ...]) -> None:
    plain = talk(shared=False).trained_by("adamw", frozen=frozen)
    losses, state = trained(planned(plain.leaner("pieces")), 2)
    expected_losses, expected = trained(planned(plain), 2)
    assert losses == expected_losses and differing(state, expected) == []


def test_clipping_has_the_norm_of_the_same_gradients() -> None:
    plain = talk().trained_by("adamw", clip=0.01)
    (losses, state), (expected_losses, expected) = (
        trained(planned(one), 2) for one in (plain.leaner("pieces"), plain)
    )  # fmt: skip
    assert losses == expected_losses and differing(state, expected) == []


def test_fast_kernels_come_to_the_same_numbers_but_for_rounding() -> None:
    found, expected = (
        trained(plan(one, setup("baseline"), MACHINE, 1 << 24), 2)[1] for one in (talk().leaner("pieces"), talk())
    )
    for name, numbers in found.items():
        np.testing.assert_allclose(numbers, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("words", [["pieces"], ["gradients", "pieces"]])
def test_the_executor_and_the_planner_do_the_same(words: list[str]) -> None:
    network = build("tiny-gpt", 2).leaner(*words)
    compare(network, setup("vdnn-all"), budget(network, 0.5))


def test_predictions_and_losses_of_an_evaluation_are_those_of_all_logits() -> None:
    images, labels = draw_batch(talk())
    found = []
    for network in (talk().leaner("pieces"), talk()):
        with trainer(planned(network)) as made:
            found.append(made.evaluate(images, labels))
    (loss, predictions), (expected_loss, expected) = (
        (one.each["pixel_softmax1"].loss, one.each["pixel_softmax1"].predictions) for one in found
    )
    assert loss == expected_loss and predictions.shape[1] == 7 and predictions.tobytes() == expected.tobytes()


# -- which tensors, which calls ----------------------------------------------------------------------------------------


def test_one_step_has_a_piece_of_the_logits_and_no_step_has_all_of_them() -> None:
    for conventions in (VDNN, Conventions(relu_in_place=False)):
        network = talk(conventions).leaner("pieces")
        head, loss = network.layer("head"), network.layer("pixel_softmax1")
        assert not (head.forward.calls or loss.forward.calls or loss.backward.calls)
        call, *_ = head.backward.calls
        piece = call.arguments["piece"]
        assert piece.shape == (1, 7, TOKENS, 1) and [step for step in network.steps if piece in step.uses] == [
            head.backward
        ]
        assert not {head.y, loss.y} & {*network.managed, *(x for step in network.steps for x in step.uses)}
        assert [row.map_bytes for row in summary(network) if row.layer == "head"] == [0]
        assert network.layer("few").forward.calls and talk(conventions).layer("head").forward.calls


def test_a_window_of_few_tokens_is_one_piece() -> None:
    call, *_ = build("tiny-gpt:pieces", 2).layer("head").backward.calls
    assert call.arguments["piece"].shape == (1, 256, 64, 1)
    assert talk(windows=1).leaner("pieces").layer("head").backward.calls[0].function == "pieces.learn"


def test_a_gpus_model_times_it_as_the_calls_of_one_windows_logits_again_and_again() -> None:
    for machine in (MACHINES["v100"], MACHINES["titan-x"]):
        for windows, off in ((1, 1e-9), (8, 0.06)):
            plain, seconds = (
                sum(machine.seconds(call) for step in build(name, windows).steps for call in step.calls)
                for name in ("gpt2", "gpt2:pieces")
            )
            assert seconds == pytest.approx(plain, rel=off) and seconds >= plain * (1 - 1e-9)
    many = build("gpt2:pieces", 48)  # their logits have more elements than a kernel can index
    (call,) = (one for one in many.layer("head").backward.calls if one.function == "pieces.learn")
    assert (
        47
        < MACHINES["v100"].seconds(call) / sum(map(MACHINES["v100"].seconds, call.timed_as[: len(call.timed_as) // 48]))
        < 49
    )
