"""A6, the contest: papers as submissions."""

from __future__ import annotations

import random
from typing import Any

from refimpl.memory import UNLIMITED
from refimpl.names import presets
from refimpl.names.by_name import setup_named
from refimpl.planner import plan
from tutorials.labs.lab import LAYER_WISE, Case, machine, network_of
from tutorials.labs.test_a6 import LAB as LAB
from tutorials.solutions.a6_contest import setup

NETWORKS = {
    "lenet": (16, 96), "alexnet": (48, 160), "tiny-vgg": (8, 48),
    "tiny-resnet": (4, 16), "tiny-unet": (8, 32), "tiny-convnext": (16, 48), "tiny-inception": (24, 96),
    "tiny-vit": (8, 32),
}  # fmt: skip
PARTS = [f"{network} {number} of 3" for network in NETWORKS for number in (1, 2, 3)]
DRAWS, NEED = 3, 0.05
KIB = 1 << 10
REACH = 0.2, 0.85  #: shares of the way from what the largest step uses to what layer-wise takes


def draw(part: str, numbers: random.Random) -> Case:
    name, number, _, count = part.split()
    network = network_of(name, numbers.randint(*NETWORKS[name]))
    low = network.resident_bytes + max(sum(one.nbytes for one in step.uses if one.managed) for step in network.steps)
    high = plan(network, LAYER_WISE, machine(), UNLIMITED).peak_bytes
    first, last = REACH
    share = first + (last - first) * (int(number) - numbers.random()) / int(count)
    return Case(part, name, network.batch, int(low + share * (high - low)) // KIB * KIB)


ZERO: dict[str, Any] = {"setup": setup_named("save-on-cpu")}
FULL: dict[str, Any] = {"setup": setup}
STEPS: dict[str, dict[str, Any]] = {
    name: {"setup": presets.PRESETS[name].setup} for name in ("vdnnpp-dyn", "superneurons", "accudnn")
}
