"""The labs whose submission is a file of modules: which slots it fills, and what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from refimpl.combined.fixed import FixedAddresses
from refimpl.memory import ALLOCATORS
from refimpl.names import presets
from refimpl.planner import BASELINE, Setup
from refimpl.slots.algorithms import FastestThatFits
from refimpl.slots.baseline import LayerWise
from refimpl.slots.setup import FIELDS

MACHINE = "titan-x"  #: with our own kernels, so that a program can be run, too
Drawn = tuple[str, int, int]  #: a network, and the least and most images

#: Networks of the cases: the small ones are trained.
SMALL: tuple[Drawn, ...] = (("lenet", 16, 96), ("tiny-vgg", 8, 48), ("tiny-resnet", 4, 16))
LARGE: tuple[Drawn, ...] = (
    ("alexnet", 48, 160), ("vgg16", 12, 48), ("vgg19", 12, 32), ("resnet50", 8, 24), ("googlenet", 12, 40),
    ("tiny-inception", 24, 96),
)  # fmt: skip
BOUNDED = ("lenet", "tiny-vgg")  #: whose lower bound takes a moment
Figure = Literal["peak", "moved"]

#: What a submission may import, beside the packages of its lab.
PLAIN = (
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "functools", "heapq", "itertools", "math",
    "operator", "typing", "refimpl.network", "refimpl.slots.questions", "refimpl.slots", "refimpl.memory",
)  # fmt: skip
PAPERS = tuple(f"refimpl.{paper}" for paper in ("vdnn", "vdnnpp", "superneurons", "accudnn", "combined"))


@dataclass(frozen=True)
class LabTask:
    """A lab.  Budgets are drawn between the least of `least` and the least of `without`, where the lab is needed."""

    name: str  #: as in --task
    about: str  #: one line
    required: tuple[str, ...]  #: slots that the submission must fill
    base: Setup  #: what is in the other slots
    paper: Setup  #: what the submission is compared with
    paper_name: str
    without: Setup  #: a setup that needs more than every budget drawn
    figure: Figure  #: the bytes that are compared
    reach: tuple[float, float]  #: of budgets, as shares of the way from `least` to `without`
    least: Setup | None = None  #: None: the paper's
    names: tuple[str, ...] = ()  #: what it may define as well
    imports: tuple[str, ...] = PLAIN


FASTEST = FastestThatFits()
PLAINEST = BASELINE.replace(algorithms=FASTEST)
BASE = PLAINEST.replace(name="lab", liveness=LayerWise())
VDNN = presets.vdnn_conv.setup
SUPERNEURONS = presets.superneurons.setup

TASKS = {
    task.name: task
    for task in (
        LabTask(
            "A1", "liveness: after which step is a tensor released?", ("liveness",), PLAINEST, BASE, "SuperNeurons",
            PLAINEST, "peak", (0.02, 0.6),
        ),
        LabTask(
            "A3", "a Recompute and a Cache", ("recompute", "cache"), BASE,
            BASE.replace(recompute=SUPERNEURONS.recompute, cache=SUPERNEURONS.cache), "SuperNeurons", BASE,
            "moved", (0.1, 0.7),
        ),
        LabTask(
            "A4", "an allocator against fragmentation", ("allocator",), VDNN, VDNN, "best fit",
            VDNN.replace(allocator=ALLOCATORS["worst-fit"]), "peak", (0.0, 0.8),
            least=VDNN.replace(allocator=FixedAddresses()),
        ),
        LabTask(
            "A5", "an Offload and a Prefetch", ("offload", "prefetch"), BASE.replace(copy_streams="shared"),
            presets.vdnn_all(algorithms=FASTEST), "vDNN", BASE, "moved", (0.1, 0.7),
        ),
        LabTask(
            "A6", "the contest: any modules", (), BASE, SUPERNEURONS, "SuperNeurons", BASE, "moved", (0.05, 0.8),
            names=("setup", *FIELDS), imports=(*PLAIN, *PAPERS, "refimpl.planner", "refimpl.presets"),
        ),
    )
}  # fmt: skip
