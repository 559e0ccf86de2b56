"""The points of the challenge: those that are printed in `set.json`, and those that follow from a seed.

A point is a network, a batch, a machine and a budget in bytes.  Budgets are between what no policy of whole steps can
do without and what the baseline uses with memory enough.  The printed points are those on which the papers' policies
differ; the drawn ones are of the same kind, and there for policies that were tuned to the printed ones.
"""

from __future__ import annotations

import json
import random
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from refimpl.names.largest_batch import least_conceivable, unlimited_baseline
from refimpl.names.machines import named
from refimpl.studies.grid.rows import GridPoint, network_of

FILE = Path(__file__).with_name("set.json")
FORMAT = "refimpl challenge 1"
DRAWN = 67  #: points that follow from a seed; twice as many are printed
SHARES = (0.1, 0.8)  #: of the way from what no policy of whole steps can do without to what the baseline uses
MIB = 1 << 20

#: Network → its batches.
NETWORKS: dict[str, tuple[int, ...]] = {
    "lenet": (1024, 4096), "tiny-vgg": (256, 1024), "tiny-resnet": (256, 1024), "tiny-inception": (256, 1024),
    "tiny-unet": (256, 1024), "tiny-convnext": (256, 1024), "tiny-vit": (256, 1024), "tiny-gpt": (128, 512),
    "alexnet": (128, 256, 512), "overfeat": (64, 128, 256), "vgg11": (32, 64, 128), "vgg16": (32, 64, 128, 256),
    "vgg19": (32, 64, 128), "googlenet": (64, 128, 256), "resnet50": (16, 32, 64), "resnet101": (16, 32),
    "inceptionv4": (8, 16), "vgg16:superneurons": (16, 32), "resnet50:superneurons": (16, 32),
    "alexnet:superneurons": (200, 400), "vdnnpp-demo": (16, 32),
    "mobilenet-v3-small": (64, 128, 256), "efficientnet-b0": (32, 64, 128), "regnet-y-400mf": (64, 128),
    "convnext-tiny": (32, 64), "shufflenet-v2": (64, 128), "unet": (8, 16), "fcn-resnet50": (8, 16),
    "vit-b16": (32, 64), "gpt2": (4, 8), "gpt2-medium": (2, 4), "bert-base": (8, 16),
}  # fmt: skip
MACHINES = ("titan-x", "k40c", "gtx-970", "v100", "t4", "a100-40g", "rtx-3060", "rtx-4090", "h100")


class BestKnown(NamedTuple):
    """The fastest program that is known of a point."""

    seconds: float
    by: str  #: the setup that plans it, or who entered it
    program: str  #: its hash


class ChallengePoint(NamedTuple):
    """A point, and what is known of it; seconds of an iteration."""

    network: str
    batch: int
    machine: str
    budget: int  #: bytes
    bound: float | None = None  #: no plan is faster: proved
    best: BestKnown | None = None

    @property
    def reference(self) -> float | None:
        """What the seconds of a plan are divided by; None: those of the baseline with memory enough."""
        return self.bound or (self.best and self.best.seconds)

    def point(self, setup: str) -> GridPoint:
        return GridPoint(self.network, setup, self.machine, str(self.budget), self.batch)

    def __str__(self) -> str:
        return f"{self.network}({self.batch}) on {self.machine} within {self.budget // MIB} MiB"


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def version() -> int:
    """Of the set: scores of two versions do not compare."""
    return int(document()["version"])


def printed() -> list[ChallengePoint]:
    """The points of the file."""
    return [case_of(one) for one in document()["points"]]


def case_of(one: dict[str, Any]) -> ChallengePoint:
    return ChallengePoint(**{**one, "best": BestKnown(**one["best"]) if one.get("best") else None})


def as_json(case: ChallengePoint) -> dict[str, Any]:
    """A point as values that JSON can hold; `case_of` reads it."""
    return case._asdict() | {"best": case.best and case.best._asdict()}


def drawn(seed: int | str, count: int = DRAWN) -> list[ChallengePoint]:
    """Points that follow from a seed, those of one network after another."""
    draw = random.Random(f"refimpl challenge {seed}")
    names = [*NETWORKS] * (count // len(NETWORKS)) + draw.sample([*NETWORKS], count % len(NETWORKS))
    asked = sorted((name, draw.choice(NETWORKS[name]), draw.choice(MACHINES), draw.uniform(*SHARES)) for name in names)
    return list(dict.fromkeys(ChallengePoint(*one[:3], within(*one)) for one in asked))


def within(name: str, batch: int, machine: str, share: float) -> int:
    """A budget: whole MiB, `share` of the way from what no policy of whole steps can do without to the baseline's."""
    network = network_of(name, batch)
    least, most = least_conceivable(network), unlimited_baseline(network, named(machine)).peak_bytes
    return int(least + share * (most - least)) // MIB * MIB
