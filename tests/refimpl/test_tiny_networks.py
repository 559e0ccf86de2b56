"""The small networks of layers that no paper knew: every preset trains each as the baseline does, bit for bit.

They learn the digits in seconds, too.
"""

from __future__ import annotations

from typing import Any

import pytest

import refimpl
from refimpl.backend import data
from refimpl.machine import MACHINES
from refimpl.names.by_name import budget_bytes
from refimpl.names.networks import LATER
from refimpl.names.presets import PRESETS
from refimpl.network import Network
from refimpl.planner import DoesNotFit
from tests.matrix import some

BATCH = 8
QUICK = {"combined": "combined effort=20"}  #: preset → how it is planned here
TINY = [name for name, one in LATER.items() if name.startswith("tiny-") and one.make(batch=1).example == "image"]
#: Others → height and width of images that a CPU trains in a minute or a few; 8² are the digits.
SMALL = {
    "mobilenet-v3-small": 8, "efficientnet-b0": 8, "regnet-y-400mf": 8, "shufflenet-v2": 8, "convnext-tiny": 32,
    "unet": 32, "fcn-resnet50": 32,
}  # fmt: skip


def network(name: str, batch: int = BATCH) -> tuple[Network, Any]:
    """For the digits, or for synthetic images where they are too small for it; the data come with it."""
    target = LATER[name].make(batch=1).output.loss.target
    if SMALL.get(name, 8) > 8:
        made = LATER[name].make(batch=batch, shape=(3, SMALL[name], SMALL[name]), classes=10)
        return made, data.synthetic_for(made)
    source = data.digits(target=target)
    return LATER[name].make(batch=batch, shape=source.shape, classes=source.classes), source


def trained(program: refimpl.Program, source: Any, steps: int = 2) -> dict[str, bytes]:
    with refimpl.Trainer(program, "cpu", rate=0.05) as trainer:
        for iteration in range(steps):
            trainer.step(*source.batch(program.network.batch, iteration))
        return {name: values.tobytes() for name, values in trainer.state().items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TINY, *(pytest.param(name, marks=pytest.mark.campaign) for name in SMALL)])
def test_every_preset_trains_it_as_the_baseline_does(name: str) -> None:
    """In 70 % of what the baseline's maps need where that is enough, and with all of it otherwise."""
    made, source = network(name)
    machine = MACHINES["titan-x"].with_catalogue("own")
    whole = refimpl.plan(made, "baseline", machine)
    expected, needed, fits = trained(whole, source), budget_bytes(1.0, made, machine), 0
    tight = made.resident_bytes + int(0.7 * (needed - made.resident_bytes))
    for preset in PRESETS:
        same = machine.with_algorithms(whole.algorithms)
        try:
            program = refimpl.plan(made, QUICK.get(preset, preset), same, tight)
            fits += 1
        except DoesNotFit:
            program = refimpl.plan(made, preset, same)
        program.verify()
        assert trained(program, source) == expected, preset
    assert fits > len(PRESETS) / 4


@pytest.mark.slow
@pytest.mark.parametrize("name", some(TINY, TINY[0], TINY[-1]))
def test_it_learns_the_digits(name: str) -> None:
    """Those with attention by AdamW: plain gradient descent learns them slowly, and at no rate of the others'."""
    made, source = network(name, 32)
    attends = any("causal" in layer.options for layer in made.layers)
    made, rate = (made.trained_by("adamw"), 3e-3) if attends else (made, 0.1)
    with refimpl.Trainer(refimpl.plan(made, "vdnn-all", "here"), "cpu", rate=rate) as trainer:
        for iteration in range(3 * source.per_epoch(32)):
            trainer.step(*source.batch(32, iteration))
        assert trainer.evaluate(source.test_images, source.test_labels).accuracy > 0.8
