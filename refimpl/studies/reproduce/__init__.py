"""The papers' evaluations: each paper's published figures beside ours, and its claims measured on this computer.

A paper's folder has `published.json` (its figures, each with source and mark), `figures` (the parts: ours, with their
tables and pictures), and `measured` where more is measured than this room's `measured` does for every paper.  The
command knows the papers only by `PAPERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refimpl.studies.reproduce.evaluation import Part


@dataclass(frozen=True)
class Paper:
    """A paper's title, and the defaults of its measurement."""

    title: str
    folder: str
    trains: str  #: on a GPU, where no network is named
    policy: str  #: the preset that is measured
    small: str  #: options with which a measurement takes a minute on a CPU
    compares: tuple[str, int] | None = None  #: network and images, where one policy beside none is all that is measured
    gone: Mapping[str, str] = field(default_factory=dict)  #: a part that was here → where its question is answered

    def parts(self) -> dict[str, Part]:
        """The parts of its evaluation, by name."""
        return {part.name: part for part in import_module(f"{__name__}.{self.folder}.figures").PARTS}

    def measured(self) -> Any:
        """Its `measure(request)` and `rounds(backend, iterations)`."""
        if self.compares:
            return import_module(f"{__name__}.measured").PolicyBesideNone(*self.compares)
        return import_module(f"{__name__}.{self.folder}.measured")


PAPERS = {
    "vdnn": Paper(
        "vDNN", "vdnn", "256 images of vgg16", "vdnn-dyn",
        "--network tiny-vgg --batch 64 --budget 8MiB", ("vgg16", 256),
    ),
    "vdnnpp": Paper(
        "vDNN++", "vdnnpp", "128 images of vgg16:vdnnpp", "vdnnpp-all",
        "--network tiny-vgg:vdnnpp --batch 64 --budget 12MiB",
        gone={
            "demonstration": "refimpl compare vdnnpp-demo --batch 32 --machine gtx-970 --with vdnn-conv "
            "--with vdnnpp-conv",
            "microbenchmark": "docs/vdnnpp-evidence.md has it",
        },
    ),
    "superneurons": Paper(
        "SuperNeurons", "superneurons", "resnet50:superneurons for the heap, alexnet:superneurons for the rest",
        "superneurons", "--network tiny-resnet --batch 64 --budget 16MiB",
        gone={
            "fixed-cost": "docs/superneurons-evidence.md has what it found",
            "memory": "refimpl compare resnet50:superneurons --batch 32 --machine k40c --with superneurons-liveness "
            "--with superneurons-offload --with superneurons-recompute",
            "budget": "refimpl study FILE, with superneurons within several budgets (docs/study.md)",
        },
    ),
    "accudnn": Paper(
        "AccUDNN", "accudnn", "64 images of resnet152", "accudnn",
        "--network tiny-resnet --batch 64 --budget 8MiB", ("resnet152", 64),
        {
            "choice": "docs/accudnn-evidence.md has what it found",
            "policies": "refimpl compare resnet50 --batch 64 --budget 2.3GiB --with accudnn --with vdnn-dyn "
            "--with vdnnpp-dyn --with superneurons",
        },
    ),
}  # fmt: skip
