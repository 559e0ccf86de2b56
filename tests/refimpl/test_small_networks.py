"""The small networks of later layers and of tokens: presets train each as the baseline does, bit for bit.

PyTorch comes to the same losses, and they learn: a ViT and convolutional networks the digits, a GPT and a Llama the
next byte of a text, a BERT masked bytes.  Large transformers are planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl import data
from refimpl.backend import CopiesEarly, CopiesLate, Drawn, LegalOrder, Trainer
from refimpl.backend.windows import SyntheticTokens
from refimpl.machine import MACHINES, Machine
from refimpl.names.by_name import budget_bytes
from refimpl.names.networks import LATER
from refimpl.network import Network
from refimpl.network.initial_state import initial_state, state_tensors
from refimpl.planner import DoesNotFit, Program
from tests.matrix import more, some
from tests.messages import raises_naming

ITERATIONS = 2
TITAN_X = MACHINES["titan-x"].with_catalogue("own")
QUICK = {"combined": "combined effort=20"}  #: preset → how it is planned here
OF_TOKENS = ("tiny-gpt", "tiny-bert", "tiny-llama")
OF_IMAGES = [name for name, one in LATER.items() if name.startswith("tiny-") and one.make(batch=1).example == "image"]
ORDERS: tuple[Callable[[], LegalOrder], ...] = (CopiesEarly, CopiesLate, lambda: Drawn(1), lambda: Drawn(2))
OFTEN = ("tiny-se", "tiny-unet", "tiny-gpt")  #: a gate, skips and another loss, attention
FEW = ("baseline", "vdnn-all", "superneurons", "combined")
MAPS = "tiny-gpt with maps of probabilities"
TWO_TILES = {"batch": 2, "tokens": 132, "width": 16, "heads": 2, "words": 32}  # of which one is masked whole


def of_name(name: str, batch: int = 8) -> tuple[Network, Any]:
    """A network with the data that it learns from: digits, synthetic images where they are too small, or a text."""
    if name == MAPS:
        made = refimpl.networks.tiny_gpt(**TWO_TILES, probabilities="maps")
        return made, SyntheticTokens.of(made)
    if name in OF_TOKENS:
        made = LATER[name].make(batch=batch, tokens=32, width=32)
        return made, data.text_windows(made)
    source = data.digits(target=LATER[name].make(batch=1).output.loss.target)
    return LATER[name].make(batch=batch, shape=source.shape, classes=source.classes), source


def run(program: Program, source: Any, **given: Any) -> tuple[list[float], Mapping[str, bytes]]:
    """The losses, and the bytes of all that stays."""
    with Trainer(program, "cpu", **({"rate": 0.02} | given)) as trainer:
        losses = [trainer.step(*source.batch(program.network.batch, i)) for i in range(ITERATIONS)]
        return losses, {name: values.tobytes() for name, values in trainer.state().items()}


def in_little(made: Network, preset: str, on: Machine, needed: int) -> tuple[Program, float]:
    """The program within what is resident and the least of some shares of the baseline's maps that it fits."""
    for share in (1 / 3, 0.5, 0.7):
        try:
            return refimpl.plan(
                made, preset, on, int(made.resident_bytes + share * (needed - made.resident_bytes))
            ), share
        except DoesNotFit:
            pass
    return refimpl.plan(made, preset, on, needed), 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", some((*OF_IMAGES, *OF_TOKENS[:2], MAPS), *OFTEN))
def test_presets_come_to_the_bits_of_the_baseline(name: str) -> None:
    """In a third of what its maps need, or the least in which a preset fits; what must not be read is poisoned."""
    made, source = of_name(name)
    whole = refimpl.plan(made, "baseline", TITAN_X)
    expected, needed, shares = run(whole, source), budget_bytes(1.0, made, TITAN_X), {}
    assert len({*expected[0]}) == ITERATIONS and {*expected[1]} == {one.name for one in state_tensors(made)}
    same = TITAN_X.with_algorithms(whole.algorithms)
    for number, preset in enumerate(FEW):
        program, shares[preset] = in_little(made, QUICK.get(preset, preset), same, needed)
        program.verify()
        assert run(program, source, order=ORDERS[number % len(ORDERS)](), poison=True) == expected, preset
    assert shares["baseline"] == 1.0 and sum(share < 1 for share in shares.values()) > len(FEW) / 4
    if name in OF_TOKENS:
        assert shares["combined"] == 1 / 3 and max(shares["superneurons"], shares["vdnn-all"]) <= 0.5


ADAMW_DEFAULTS = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "decay": 0.01}


def losses_by_pytorch(made: Network, source: Any, rate: float) -> list[float]:
    """Those of PyTorch's own operators and optimiser, in double precision, from the same first weights."""
    from tests.refimpl.by_torch import run_torch

    adamw = made.learning.optimiser == "adamw"
    settings = {"seed": 0, "rate": rate} | (ADAMW_DEFAULTS if adamw else {"momentum": 0.9, "decay": 0.0})
    state = {tensor.name: np.asarray(values) for tensor, values in initial_state(made, 0)}
    losses = []
    for i in range(ITERATIONS):
        images, labels = source.batch(made.batch, i)
        after = run_torch(made, state, images, labels.reshape(made.labels.shape), settings | {"iteration": i})
        state |= after
        losses.append(float(np.mean(after["losses"], dtype=np.float64)))
    return losses


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "optimiser", "rate"),
    [
        more("tiny-vit", "sgd", 0.02),
        more("tiny-bert", "sgd", 0.02),
        (MAPS, "sgd", 0.02),
        ("tiny-llama", "sgd", 0.02),
        ("tiny-gpt", "adamw", 1e-3),
    ],
)
def test_losses_are_those_of_pytorch(name: str, optimiser: str, rate: float, torch: Any) -> None:
    made, source = of_name(name)
    made = made.trained_by(optimiser)
    ours, _ = run(refimpl.plan(made, "vdnn-all", TITAN_X), source, rate=rate)
    assert ours == pytest.approx(losses_by_pytorch(made, source, rate), rel=5e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", some(OF_IMAGES, OF_IMAGES[-1]))
def test_it_learns_the_digits(name: str) -> None:
    """In three epochs at most; those with attention by AdamW: plain gradient descent learns them slowly."""
    made, source = of_name(name, 32)
    attends = any("causal" in layer.options for layer in made.layers)
    made, rate = (made.trained_by("adamw"), 3e-3) if attends else (made, 0.1)
    with Trainer(refimpl.plan(made, "vdnn-all", "here"), "cpu", rate=rate) as trainer:
        test, epoch = (source.test_images, source.test_labels), source.per_epoch(32)
        for iteration in range(3 * epoch):
            trainer.step(*source.batch(32, iteration))
            if iteration % epoch == epoch - 1 and trainer.evaluate(*test).accuracy > 0.6:
                return
    pytest.fail("it has learnt little")


@pytest.mark.emulated
@pytest.mark.slow
def test_a_gpt_comes_to_the_bits_of_the_baseline_on_the_emulated_gpu() -> None:
    """Two iterations of a plan that copies maps; every access is checked.  A CPU comes to the same but for rounding."""
    made = LATER["tiny-gpt"].make(batch=1, tokens=8, width=8, layers=1, heads=2, words=16)
    source = SyntheticTokens.of(made)
    whole = refimpl.plan(made, "baseline", "h100")
    program = refimpl.plan(made, "vdnn-all", MACHINES["h100"].with_algorithms(whole.algorithms))
    assert program.verify() and program.counts.offloaded_bytes
    found = []
    for planned, backend in ((whole, "emulated"), (program, "emulated"), (program, "cpu")):
        with Trainer(planned, backend, rate=0.02) as trainer:
            losses = [trainer.step(*source.batch(1, i)) for i in range(2)]
            found.append((losses, {name: values.tobytes() for name, values in trainer.state().items()}))
    assert found[0] == found[1] and found[2][0] == pytest.approx(found[0][0], rel=1e-6)


def test_what_is_no_way_to_have_probabilities_is_refused() -> None:
    with raises_naming(refimpl.NetworkError, "probabilities", "'fused'", "workspace", "maps"):
        refimpl.networks.tiny_gpt(probabilities="fused")


# -- large ones, planned -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_gpt2_trains_in_what_its_blocks_need() -> None:
    """Eight windows of 1,024 words in 4 GiB: the head's logits are one map, which shares and gradients overwrite."""
    program = refimpl.plan("gpt2", "superneurons", "rtx-4090", "4GiB")
    assert program.network.input.shape[:2] == (8, 1024) and program.verify() and program.peak_bytes <= 4 << 30
    head = program.network.layer("head")
    assert program.network.layer("softmax").y is head.y, "no map of probabilities beside the logits"
