"""The papers' evaluations: each paper's published figures beside ours, and its claims measured on this computer.

A paper's folder has `published.json` (its figures, each with source and mark), `figures` (the parts: ours, with their
tables and pictures), and `measured` where more is measured than this room's `measured` does for every paper.  The
command knows the papers only by `PAPERS`.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    ),
    "superneurons": Paper(
        "SuperNeurons", "superneurons", "resnet50:superneurons for the heap, alexnet:superneurons for the rest",
        "superneurons", "--network tiny-resnet --batch 64 --budget 16MiB",
    ),
    "accudnn": Paper(
        "AccUDNN", "accudnn", "64 images of resnet152", "accudnn",
        "--network tiny-resnet --batch 64 --budget 8MiB", ("resnet152", 64),
    ),
}  # fmt: skip
