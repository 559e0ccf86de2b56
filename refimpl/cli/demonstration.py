"""`make demo`: what does not fit, and why; then a small network, trained in less memory than it would take.

The first part only plans: VGG-16 with 256 images on a GPU of 12 GiB, the network that vDNN made famous.  The second
part trains for real: scikit-learn's digits, this project's kernels, a budget that is a hard limit, and a program that
was proved safe before it ran.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import refimpl
from refimpl.backend import Evaluation, Trainer, data
from refimpl.cli import demonstration_pictures as pictures
from refimpl.cli.terminal import progress, say, show
from refimpl.planner import DoesNotFit, Program
from refimpl.registry.planning import unlimited_baseline
from refimpl.reproduce import titles
from refimpl.text import size

GIB = 1 << 30
BUDGET = 12 * GIB  #: of the GPU that VGG-16 is planned for

BATCH = 64  #: digits
DIGITS_BUDGET = (9 << 20) // 4  #: 2.25 MiB
RATE = 0.05
WANTED = 0.95  #: share of the test images
EPOCHS = 15  #: at most

#: What is tried for VGG-16, from the hungriest: what it is called here → options of the preset.
SETUPS = {
    "baseline, fastest algorithms": {},
    "baseline, least workspace": {"algorithms": "memory"},
    "layer-wise, least workspace": {"liveness": "layer-wise", "algorithms": "memory"},
}


# -- VGG-16 ------------------------------------------------------------------------------------------------------------


def plan_vgg16() -> dict[str, Program]:
    """Each setup's program, as if memory had no end; says where each fails in `BUDGET`, and what it needs."""
    network, machine = refimpl.networks.vgg16(batch=256), refimpl.machines.titan_x
    say(f"VGG-16 with 256 images, on a GPU of {size(BUDGET)} ({machine.name}):\n")
    programs, rows = {}, []
    for name, options in SETUPS.items():
        setup = refimpl.presets.baseline(**options)
        program = programs[name] = refimpl.plan(network, setup, machine, budget="1TiB")
        program.verify()
        try:
            refimpl.plan(network, setup, machine, BUDGET)
            fails = "nowhere: it fits"
        except DoesNotFit as error:
            step = error.step
            fails = (
                f"step {step.number} of {len(network.steps)}, {step.layer} {step.direction}" if step else "the weights"
            )
        beyond = program.peak_bytes - BUDGET
        rows.append([name, size(program.peak_bytes), size(beyond) if beyond > 0 else "", fails])
    show("what it holds at its peak", ["setup", "holds", "too much", "first fails at"], rows)
    say(
        "Releasing every map after its last use helps, and is not enough.  To go further something has to leave\n"
        f"the GPU or be computed twice: that is what {titles()} are about.\n"
    )
    return programs


# -- digits ------------------------------------------------------------------------------------------------------------


@dataclass
class Training:
    """What became of it."""

    losses: list[float] = field(default_factory=list)  #: of every iteration
    right: list[float] = field(default_factory=list)  #: share of the test images, after every epoch
    last: Evaluation | None = None


def plan_digits(shape: tuple[int, ...]) -> Program:
    """A small ResNet within `DIGITS_BUDGET`, for the device at hand; proved safe."""
    network = refimpl.networks.tiny_resnet(batch=BATCH, shape=shape)
    setup = refimpl.presets.baseline(liveness="layer-wise", algorithms="memory")
    program = refimpl.plan(network, setup, refimpl.machines.here, DIGITS_BUDGET)
    program.verify()
    return program


def train(trainer: Trainer, digits: data.Data, watch: Callable[[str], None] = lambda _: None) -> Training:
    """Epoch after epoch, until more than `WANTED` of the test images are named right."""
    done = Training()
    for epoch in range(EPOCHS):
        for images, labels in data.batches(digits, BATCH, epoch):
            watch(f"epoch {epoch + 1}")
            done.losses.append(trainer.step(images, labels))
        done.last = trainer.evaluate(digits.test_images, digits.test_labels)
        done.right.append(done.last.accuracy)
        loss = np.mean(done.losses[-digits.per_epoch(BATCH) :])
        say(f"  epoch {epoch + 1}: loss {loss:.3f}, {done.last.accuracy:.1%} of the test images are named right")
        if done.last.accuracy > WANTED:
            break
    return done


def train_digits(folder: Path, backend: str | None) -> bool:
    """Plan, prove, train, draw; whether it learnt enough."""
    from kernels import gpu

    digits, backend = data.digits(), backend or ("cpu" if gpu.why_not() else "cuda")
    program = plan_digits(digits.shape)
    network, where = program.network, "on the CPU"
    if backend == "cuda":
        where = f"on {gpu.device_name()}"
    elif backend == "emulated":
        where = "on an emulated GPU: every kernel's PTX is run on the CPU, and every access is checked"
    baseline = unlimited_baseline(network, program.machine).peak_bytes
    say(f"{network.name}, {len(network.layers)} layers, {BATCH} digits a batch, trained {where}:\n")
    say(
        f"  budget {size(program.budget)}; "
        f"the baseline would hold {size(baseline)}, this plan {size(program.peak_bytes)}"
    )
    say("  the program is proved safe; the first time, its kernels are compiled, which takes a minute or two\n")
    with Trainer(program, backend, rate=RATE) as trainer:
        with progress("training", EPOCHS * digits.per_epoch(BATCH)) as advance:
            done = train(trainer, digits, advance)
        peak, timeline = trainer.recounted_peak, trainer.timeline()
    agrees = "as predicted" if peak == program.peak_bytes else f"NOT the {size(program.peak_bytes)} that were predicted"
    say(f"\n  peak, recounted from what was executed: {size(peak)}, {agrees}\n")
    pictures.draw_digits(folder, program, timeline, digits, done.losses, done.right, done.last)
    return done.right[-1] > WANTED and peak == program.peak_bytes


def main(folder: Path, backend: str | None = None) -> int:
    """Everything, one after the other; 1 if the network did not learn enough."""
    start = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    pictures.draw_vgg16(folder / "vgg16.png", plan_vgg16(), BUDGET)
    learnt = train_digits(folder, backend)
    say(f"Pictures in {folder}/: " + ", ".join(sorted(path.name for path in folder.glob("*.png"))))
    say(f"{time.perf_counter() - start:.0f} seconds")
    return 0 if learnt else 1
