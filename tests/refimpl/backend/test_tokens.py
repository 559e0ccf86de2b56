"""Networks of tokens: int32 inputs with a label each, tables that two layers share, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.rungs import RUNGS
from refimpl.backend import BatchError, Trainer
from refimpl.network import Builder, Network
from tests.messages import raises_naming
from tests.refimpl.backend.running import comes_to_the_plain_bits, settings_of, small_program
from tests.refimpl.plainly import draw_batch

WORDS = 11


def network(tied: bool = False, batch: int = 3, tokens: int = 20) -> Network:
    b = Builder("of-tokens", (batch, tokens), dtype="int32")
    words = b.embedding(WORDS, 8)
    x = b.position()
    b.layernorm()
    b.conv(16, 1)
    b.gelu()
    b.join(b.conv(8, 1), x)
    b.layernorm()
    head = b.conv(WORDS, 1, bias=False, spread=0.02)
    if tied:
        b.share(words, head)
    b.pixel_softmax()
    return b.build()


@pytest.mark.parametrize("tied", [False, True])
def test_training_in_little_memory_comes_to_the_plain_bits(tied: bool) -> None:
    comes_to_the_plain_bits(network(tied))


@pytest.mark.parametrize("how", [{}, {"optimiser": "adamw", "clip": 0.1, "frozen": ["position1.w"]}])
@pytest.mark.parametrize("tied", [False, True])
def test_an_iteration_is_pytorchs(tied: bool, how: dict[str, Any], torch: Any) -> None:
    """The gradient of a shared table is the sum of both layers', and it is updated once."""
    from tests.refimpl.by_torch import trains_as_in_torch

    made = network(tied).trained_by(**how)
    trains_as_in_torch(made, settings_of(made) | {"iteration": 0}, rungs=RUNGS)


def test_a_step_takes_labels_of_the_shape_of_tokens() -> None:
    made = network()
    program = small_program(made)
    tokens, labels = draw_batch(made)
    losses = []
    for given in (labels, labels[..., 0], labels[..., 0].astype(np.int64)):
        with Trainer(program, rate=0.1) as trainer:
            losses.append(trainer.step(tokens.astype(np.int64), given))
            found = trainer.evaluate(tokens[:2], given[:2])
    assert len({*losses}) == 1 and found.predictions.shape == (2, WORDS, 20, 1)


def test_what_is_no_batch_is_one_line() -> None:
    made = network()
    tokens, labels = draw_batch(made)
    with Trainer(small_program(made), rate=0.1) as trainer:
        beyond = tokens.copy()
        beyond[1, 4] = WORDS
        with raises_naming(BatchError, 11, "window 1, token 4", "0 to 10"):
            trainer.step(beyond, labels)
        with raises_naming(BatchError, "tokens are float32", "whole numbers"):
            trainer.step(tokens.astype(np.float32), labels)
        with raises_naming(BatchError, "tokens", (3, 19), "(3, 20)"):
            trainer.step(tokens[:, :-1], labels)
        with raises_naming(BatchError, "labels", (3, 19), "a token", (3, 20)):
            trainer.step(tokens, labels[:, :-1, 0])
        labels[2, 7] = 12
        with raises_naming(BatchError, "label 12", "window 2, token 7", "0 to 10", "-100 for a token"):
            trainer.step(tokens, labels)
