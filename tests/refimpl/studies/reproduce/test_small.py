"""Every part of every paper's evaluation, whole, of networks so small that it takes no time: nothing may differ.

`small/` has a file a part: the published figures beside ours, its tables, its rows, and what its picture holds.  The
networks are not those of the paper, so the figures mean nothing; that they stay the same does.  After a change that is
meant to change them, `python -m tests.refimpl.studies.reproduce.test_small` rewrites the files: read the difference
before you commit it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from refimpl.machine import Machine
from refimpl.names.largest_batch import Largest, largest
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Setup
from refimpl.studies.reproduce import PAPERS
from refimpl.studies.reproduce.accudnn import figures as accudnn
from refimpl.studies.reproduce.accudnn import published as accudnn_published
from refimpl.studies.reproduce.evaluation import Part, published_table
from refimpl.studies.reproduce.published import Published
from refimpl.studies.reproduce.superneurons import capacity, pool_study, traffic, unseen
from refimpl.studies.reproduce.superneurons import figures as superneurons
from refimpl.studies.reproduce.superneurons import published as superneurons_published
from refimpl.studies.reproduce.vdnn import figures as vdnn
from refimpl.studies.reproduce.vdnn import published as vdnn_published
from refimpl.studies.reproduce.vdnnpp import figures as vdnnpp
from refimpl.studies.reproduce.vdnnpp import published as vdnnpp_published
from tests.refimpl.report.drawn import columns, held

STORED = Path(__file__).parent / "small"


SN = superneurons_published


def some(whole: Mapping[Any, Any], *names: Any) -> dict[Any, Any]:
    return {name: whole[name] for name in names}


def barely(network_of: Callable[[int], Network], setup: Setup, machine: Machine, budget: int) -> Largest:
    """The largest that fits in a fortieth of the budget."""
    return largest(network_of, setup, machine, budget // 40)


def lenet(name: str, batch: int) -> Network:
    """In place of a named network; one whose name has a depth gets as many more images."""
    depth = name.partition("resnet:")[2].partition(":")[0]
    return build("lenet:superneurons", 20 * batch + int(depth or 0))


#: Paper → module → what takes the place of its constants.
SMALL: dict[str, list[tuple[ModuleType, dict[str, Any]]]] = {
    "vdnn": [
        (vdnn, {
            "CONVENTIONAL": (("alexnet", 128), ("vgg16", 128), ("vgg16", 256)),
            "DEEP": (("alexnet", 32), ("vgg16", 32)),
        }),
        (vdnn_published, {
            "SAVED": some(vdnn_published.SAVED, "alexnet"), "SAVED_FIRST": some(vdnn_published.SAVED_FIRST, "alexnet"),
            "DEEP_HOST": {"alexnet": vdnn_published.DEEP_HOST["vgg116"], "vgg16": vdnn_published.DEEP_HOST["vgg416"]},
        }),
    ],
    "vdnnpp": [
        (vdnnpp, {
            "NETWORKS": (("alexnet", 128), ("vdnnpp-demo", 32)), "COMPRESSED": (("alexnet", 8), ("vgg16", 16)),
            "MACHINE_NAMES": ("gtx-970",), "PLACED": (("alexnet", 128), ("vgg16", 16)),
        }),
    ],
    "superneurons": [
        (superneurons, {"NETWORKS": {"alexnet": 200}, "SHRUNK": ("alexnet",), "SHARES": (0.01, 0.5, 1.0)}),
        (capacity, {
            "NETWORKS": ("resnet50",), "SETUPS": some(capacity.SETUPS, "recompute", "all"), "UNITS_OF_2500": 1,
            "largest": barely, "build": lenet,
        }),
        (traffic, {"BATCHES": (256, 1024)}),
        (unseen, {"TRIED": (1e-3,)}),
        (SN, {
            "FASTER_WITH_CACHE": some(SN.FASTER_WITH_CACHE, "alexnet"),
            "FASTER_WITH_POOL": some(SN.FASTER_WITH_POOL, "alexnet"),
            "SPEED_SHAPES": some(SN.SPEED_SHAPES, "alexnet"),
            "LARGEST_MEMORY": some(SN.LARGEST_MEMORY, "alexnet"),
            "RECOMPUTED": some(SN.RECOMPUTED, "alexnet"),
        }),
        (pool_study, {"FITTED": "alexnet"}),
    ],
    "accudnn": [
        (accudnn, {
            "NETWORK": "tiny-vgg", "BUDGET": 400 << 20, "GPUS": ("titan-x",), "CASES": (("alexnet", 256, 1.4),),
            "CELLS": {("k40c", "alexnet", 64): (0.2, 0.35)}, "tuned": cache(accudnn.tuned.__wrapped__),
        }),
        (accudnn_published, {"BEFORE_GB": 0.5}),
    ],
}  # fmt: skip


@contextmanager
def small(paper: str) -> Iterator[None]:
    """The paper's evaluation with small networks, and few of them."""
    with pytest.MonkeyPatch.context() as patch:
        for module, constants in SMALL[paper]:
            for name, value in constants.items():
                patch.setattr(module, name, value)
        yield


def text_of(part: Part) -> str:
    """All that a part finds, prints and draws."""
    heard: list[str] = []
    found = part.find(heard.append)
    tables = [published_table("", found.figures, part.units)] if found.figures else []
    tables += part.tables(found.rows) if part.tables else []
    blocks = [f"{part.about}: {part.rounds} rounds, here {', '.join(heard)}\n"]
    blocks += [f"{table.text()}\n" for table in tables]
    if found.rows:
        blocks.append("".join(f"{name}: {values}\n" for name, values in columns(map(part.document, found.rows))))
    if part.picture:
        blocks.append(held(part.picture(found.rows)))
    return "\n".join(blocks)


def published_text(module: ModuleType) -> Iterator[str]:
    """A line a published figure, in the order in which the module has them."""

    def inside(value: Any) -> Iterator[Published]:
        if isinstance(value, Published):
            yield value
        elif isinstance(value, dict):
            yield from inside([*value.values()])
        elif isinstance(value, (list, tuple)):
            for one in value:
                yield from inside(one)
        elif is_dataclass(value) and not isinstance(value, type):
            yield from inside([getattr(value, field.name) for field in fields(value)])

    for name, value in vars(module).items():
        if name.isupper():
            for one in inside(value):
                also = [word for word, said in (("above", one.above), ("not in medians", not one.in_medians)) if said]
                limit = f" within {one.within:g}" if one.within is not None else ""
                yield (f"{one.mark}: {one.what}: {one.value:.10g} {one.unit}{limit} ({one.quantity}) {' '.join(also)}"
                       f"[{one.source}]\n")  # fmt: skip


PUBLISHED = {
    "vdnn": vdnn_published, "vdnnpp": vdnnpp_published, "superneurons": SN, "accudnn": accudnn_published,
}  # fmt: skip
ALL = [(paper, part) for paper in PAPERS for part in PAPERS[paper].parts()]
OWN_MARK = [pytest.param(*one, marks=getattr(pytest.mark, one[0]), id="-".join(one)) for one in ALL]


@pytest.mark.parametrize(("paper", "part"), OWN_MARK)
def test_a_part_finds_prints_and_draws_the_same(paper: str, part: str) -> None:
    with small(paper):
        said = text_of(PAPERS[paper].parts()[part])
    assert said == (STORED / f"{paper}-{part}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("paper", PUBLISHED)
def test_the_published_figures_are_those_that_were_copied_once(paper: str) -> None:
    """A second copy of what was published: a slip of the finger changes one of the two."""
    stored = (STORED / f"{paper}.txt").read_text(encoding="utf-8")
    assert "".join(published_text(PUBLISHED[paper])) == stored


def written() -> None:
    """Write all files."""
    STORED.mkdir(exist_ok=True)
    for paper, part in ALL:
        with small(paper):
            (STORED / f"{paper}-{part}.txt").write_text(text_of(PAPERS[paper].parts()[part]), encoding="utf-8")
    for paper, module in PUBLISHED.items():
        (STORED / f"{paper}.txt").write_text("".join(published_text(module)), encoding="utf-8")


if __name__ == "__main__":
    written()
    sys.stdout.write(f"{len(ALL) + len(PUBLISHED)} files written\n")
