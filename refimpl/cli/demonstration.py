"""`make demo`: what each paper does where a network does not fit; then a small one, trained in a third of the memory.

The first part only plans: VGG-16 with 256 images on a GPU of 12 GiB, the network that vDNN made famous.  The second
part trains for real: scikit-learn's digits, this project's kernels, a budget that is a hard limit, and programs that
are proved safe before they run.  The third runs a few of the same iterations on an emulated GPU.
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
from refimpl.combined.papers import best_of
from refimpl.machine import Machine
from refimpl.memory.base import GRANULARITY
from refimpl.names.largest_batch import unlimited_baseline
from refimpl.names.least_budget import least_budget
from refimpl.names.presets import PAPERS, PRESETS, combinations
from refimpl.network import Network
from refimpl.planner import Program
from refimpl.report.page import write_page
from refimpl.text import counted, size

GIB = 1 << 30
BUDGET = 12 * GIB  #: of the GPU that VGG-16 is planned for

BATCH = 64  #: digits
SHARE = 1 / 3  #: of what the baseline needs
TRAINED = ("vdnnpp-all", "superneurons")  #: the policies that train the small network
RATE = 0.05
WANTED = 0.95  #: share of the test images
EPOCHS = 15  #: at most
EMULATED = 3  #: iterations on the emulated GPU
WHERE = {"cpu": "on the CPU", "cuda": "on the GPU", "emulated": "on an emulated GPU, every access checked"}
NEXT = (
    "refimpl view vgg16 --batch 64 --policy superneurons --budget 6GiB    # look at a program",
    "refimpl compare resnet50 --budget 4GiB --with vdnn-dyn --with superneurons --with accudnn",
    "refimpl run tiny-resnet --data digits --policy superneurons --budget 0.3 --epochs 5",
)


# -- VGG-16 ------------------------------------------------------------------------------------------------------------


def plan_vgg16() -> dict[str, Program]:
    """Paper → its best program within `BUDGET`, or the baseline's without a limit; says who fits, how and how fast."""
    network, machine = refimpl.networks.vgg16(batch=256), refimpl.machines.titan_x
    unlimited = unlimited_baseline(network, machine)
    say(f"VGG-16 with 256 images, on a GPU of {size(BUDGET)} ({machine.name}, simulated):\n")
    programs, rows = {"baseline": unlimited}, []
    for paper in PAPERS:
        best = best_of(combinations(paper), network, machine, BUDGET)
        program = best.program
        if program is None:
            least = min(filter(None, (least_budget(network, one.setup, machine) for one in best.tried)))
            rows.append([paper, "–", "–", "–", f"does not fit: the least budget is {size(least)}"])
            continue
        program.verify()
        programs[paper] = program
        slower = f"{program.planned_seconds / unlimited.planned_seconds:.2f} ×"
        rows.append([paper, size(program.pool_bytes), size(program.peak_bytes), slower, means(program)])
    show("who fits", ["paper", "pool", "peak", "time", "how"], rows)
    say("pool: what is taken of the budget; peak: what is in use at most.")
    say("time: an iteration, over that of the baseline if memory had no end.\n")
    return programs


def means(program: Program) -> str:
    """The means by which a program fits, in a few words."""
    counts = program.counts
    moved = counts.offloaded_bytes + counts.evicted_bytes
    words = [f"copies {size(moved)} out and in"] * bool(moved)
    words += [f"recomputes {counted(counts.recomputed_layers, 'step')}"] * bool(counts.recomputed_layers)
    return ", ".join(words) or "keeps everything"


# -- digits ------------------------------------------------------------------------------------------------------------


@dataclass
class Training:
    """The result, for people."""

    losses: list[float] = field(default_factory=list)  #: of every iteration
    right: list[float] = field(default_factory=list)  #: share of the test images, after every epoch
    last: Evaluation | None = None


def needed(network: Network, machine: Machine) -> int:
    """The baseline's least budget with the policies' algorithms, so the same on every machine; bytes."""
    least = least_budget(network, PRESETS["baseline"](algorithms="memory"), machine, GRANULARITY)
    assert least is not None
    return least


def plan_digits(shape: tuple[int, ...]) -> dict[str, Program]:
    """Policy → its program of a small ResNet in `SHARE` of what the baseline needs; each is proved safe."""
    network, machine = refimpl.networks.tiny_resnet(batch=BATCH, shape=shape), refimpl.machines.here
    budget = int(SHARE * needed(network, machine))
    programs = {}
    for policy in TRAINED:  # with the same algorithms, so that all bits are the same
        programs[policy] = refimpl.plan(network, PRESETS[policy](algorithms="memory"), machine, budget)
        programs[policy].verify()
    return programs


def train(
    trainer: Trainer, digits: data.Data, epochs: int = EPOCHS, watch: Callable[[str], None] = lambda _: None
) -> Training:
    """Epoch after epoch, until more than `WANTED` of the test images are named right."""
    done = Training()
    for epoch in range(epochs):
        for images, labels in data.batches(digits, BATCH, epoch):
            watch(f"epoch {epoch + 1}")
            done.losses.append(trainer.step(images, labels))
        done.last = trainer.evaluate(digits.test_images, digits.test_labels)
        done.right.append(done.last.accuracy)
        if done.last.accuracy > WANTED:
            break
    return done


def train_digits(folder: Path, digits: data.Data, programs: dict[str, Program], backend: str) -> Training | None:
    """Train under each policy and draw the last; None if the losses differ or too little was learnt."""
    first = next(iter(programs.values()))
    network, whole = first.network, needed(first.network, first.machine)
    say(f"{network.name}, {counted(len(network.layers), 'layer')}, {BATCH} digits a batch, trained {WHERE[backend]}:\n")
    say(f"  budget {size(first.budget)}, a third of the {size(whole)} that the baseline needs; both programs are")
    say("  proved safe; the first time, their kernels are compiled, which takes a minute\n")
    found: list[Training] = []
    for policy, program in programs.items():
        with Trainer(program, backend, rate=RATE) as trainer:
            epochs = len(found[0].right) if found else 1 if backend == "emulated" else EPOCHS
            with progress(f"training, {policy}", epochs * digits.per_epoch(BATCH)) as advance:
                found.append(train(trainer, digits, epochs, advance))
            done, peak, timeline = found[-1], trainer.recounted_peak, trainer.timeline()
        agrees = "as planned" if peak == program.peak_bytes else f"NOT the {size(program.peak_bytes)} that were planned"
        say(f"  {policy:13} {means(program)}; peak {size(peak)}, {agrees}")
        learnt = f"loss {done.losses[-1]:.6f}, accuracy {done.right[-1]:.1%}"
        say(f"  {'':13} after {counted(len(done.right), 'epoch')}: {learnt}")
        write_page(folder / f"digits-{policy}.html", program, timeline)
        if peak != program.peak_bytes:
            return None
    pictures.draw_digits(folder, program, timeline, digits, done.losses, done.right, done.last)
    same = all(done.losses == found[0].losses for done in found)
    count = len(found[0].losses)
    say(f"\n  The losses of all {count} iterations are {'the same, to the last bit' if same else 'NOT the same'}.\n")
    enough = backend == "emulated" or found[0].right[-1] > WANTED  # one epoch shows that it works
    return found[0] if same and enough else None


def run_emulated(digits: data.Data, program: Program, losses: list[float]) -> bool:
    """The first iterations again, on an emulated GPU; whether they agree."""
    from kernels.targets import emulated, gpu

    reason = emulated.why_not() or gpu.why_not_compile()
    if reason is not None:
        say(f"An emulated GPU is not at hand: {reason}\n")
        return True
    say("The same program on an emulated GPU: real streams, events and pinned copies, each kernel's PTX run on the")
    say("CPU, every access checked; the first time, its kernels are translated, which takes half a minute\n")
    with Trainer(program, "emulated", rate=RATE) as trainer:
        batches = list(data.batches(digits, BATCH, 0))[:EMULATED]
        again = [trainer.step(images, labels) for images, labels in batches]
    apart = max(abs(one - other) for one, other in zip(again, losses, strict=False))
    say(f"  losses {', '.join(f'{loss:.6f}' for loss in again)}: {apart:.0e} from the CPU's at most\n")
    return bool(apart < 1e-4 and np.isfinite(again).all())


def main(folder: Path, backend: str | None = None) -> int:
    """Everything, one after the other; 1 if something is not as it should be."""
    from kernels.targets import gpu

    start = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    programs = plan_vgg16()
    pictures.draw_vgg16(folder, programs, BUDGET)
    write_page(folder / "vgg16.html", programs["vDNN"], against=programs["combined"])
    digits = data.digits()
    backend = backend or ("cpu" if gpu.why_not() else "cuda")
    small = plan_digits(digits.shape)
    done = train_digits(folder, digits, small, backend)
    agrees = done is not None and (backend != "cpu" or run_emulated(digits, small[TRAINED[0]], done.losses))
    pages = ", ".join(sorted(path.name for path in folder.glob("*.html")))
    say(f"Pictures in {folder}/: " + ", ".join(sorted(path.name for path in folder.glob("*.png"))))
    say(f"Pages to look at the programs, in any browser: {pages}")
    say(f"{time.perf_counter() - start:.0f} seconds.  next:")
    for command in NEXT:
        say(f"  {command}")
    return 0 if agrees else 1
