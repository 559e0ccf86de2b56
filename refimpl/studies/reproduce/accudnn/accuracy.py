"""AccUDNN's claim that a larger minibatch costs no accuracy, tried on a small network (R): trained, and not simulated.

The tuner takes the batch and the learning rate (`refimpl.accudnn.tuner`), for as much memory as the base batch takes
without the policy.  Both batches learn the same images for as many epochs, within that memory, under the policy.  The
result is that of a small network and 1,437 images of digits: it says how the rule works, and nothing of ResNet-152.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean

from refimpl.accudnn.tuner import Learning, warmed_up
from refimpl.backend.data import Data, digits
from refimpl.backend.trainer import Trainer
from refimpl.combined.papers import ACCUDNN
from refimpl.machine import MACHINES
from refimpl.names.largest_batch import unlimited_baseline
from refimpl.network import Network
from refimpl.network.small import tiny_resnet
from refimpl.planner import plan
from refimpl.report.tables import Column, plain
from refimpl.studies.reproduce.evaluation import one_table
from refimpl.studies.reproduce.published import Figures, Found, Reproduced, Watch
from refimpl.studies.tune.tuning import tune
from refimpl.text import counted, size

FIGURE = Figures(__file__).one("accuracy")
MACHINE = replace(MACHINES["titan-x"], catalogue="own")  #: our kernels, which can be trained with
BASE_BATCH, BASE_RATE = 32, 0.05
EPOCHS = 20
SEEDS = range(3)  #: of the first weights and of the order of the images


@dataclass(frozen=True)
class TrainedRow:
    """A batch with its learning rate, and the accuracies of the trained networks on the test images."""

    what: str
    budget_bytes: int
    batch: int
    rate: float
    warmup_epochs: int
    accuracies: Sequence[float]  #: per cent, a seed each

    @property
    def mean(self) -> float:
        return mean(self.accuracies)


def network_of(batch: int) -> Network:
    return tiny_resnet(batch, shape=(1, 8, 8))  # the digits'


def trained(batch: int, learning: Learning, budget: int, seed: int, epochs: int) -> float:
    """Test accuracy after training, per cent."""
    data: Data = digits()
    warmup = learning.warmup_epochs * data.per_epoch(batch)
    with Trainer(plan(network_of(batch), ACCUDNN, MACHINE, budget), seed=seed, rate=learning.rate) as trainer:
        for iteration in range(epochs * data.per_epoch(batch)):
            trainer.rate = warmed_up(learning.rate, learning.base_rate, warmup, iteration)
            trainer.step(*data.batch(batch, iteration, seed))
        return 100 * trainer.evaluate(data.test_images, data.test_labels).accuracy


def accuracy(watch: Watch) -> Found:
    """The base batch and the tuned one, and the tuned batch with the base rate, which the rule is there to avoid."""
    budget = unlimited_baseline(network_of(BASE_BATCH), MACHINE).peak_bytes
    watch("the batch")
    tuned = tune("tiny-resnet", ACCUDNN, MACHINE, budget, networks=network_of).optimal_batch
    rows = []
    for what, batch, rated in (("base", BASE_BATCH, BASE_BATCH), ("tuned", tuned, tuned), ("rate", tuned, BASE_BATCH)):
        watch(what)
        learning = Learning(rated, BASE_BATCH, BASE_RATE, digits().count)
        found = [trained(batch, learning, budget, seed, EPOCHS) for seed in SEEDS]
        rows.append(TrainedRow(what, budget, batch, learning.rate, learning.warmup_epochs, found))
    base, best, _ = rows
    note = f"{best.mean:.2f} % with {best.batch} images, {base.mean:.2f} % with {base.batch}; a small network"
    return Found([Reproduced(FIGURE, base.mean - best.mean, note)], rows)


TABLE = one_table(
    "Accuracy of tiny-resnet on digits",
    (
        Column("", "what"), Column("images", "batch", plain), Column("rate", "rate", "{:.3f}".format),
        Column("warm-up, epochs", "warmup_epochs", plain), Column("test accuracy", "mean", "{:.2f} %".format),
        Column("least", lambda row: min(row.accuracies), "{:.2f} %".format),
        Column("most", lambda row: max(row.accuracies), "{:.2f} %".format), Column("memory", "budget_bytes", size),
    ),
    f"Trained on the CPU for {EPOCHS} epochs with each of {counted(len(SEEDS), 'seed')}, under the policy.  base: the "
    "batch that needs this memory without it.  tuned: the batch and the rate of our tuner (R).  rate: the tuned "
    "batch with the base rate, without the rule.",
)  # fmt: skip
