"""Lab A1, liveness: pytest tutorials/labs/test_a1.py --submission mine.py"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from refimpl.names.presets import superneurons, vdnn_all
from refimpl.network import Step, Tensor
from refimpl.planner import Program
from refimpl.planner.loop import Planner
from refimpl.slots.baseline import LayerWise
from refimpl.text import size
from tutorials.labs.gates import Marked
from tutorials.labs.lab import PLAINEST, Lab, most_live

VDNN, SUPERNEURONS = vdnn_all.setup, superneurons.setup
SETUP = PLAINEST
BESIDE_OFFLOAD = PLAINEST.replace(liveness=LayerWise(), offload=VDNN.offload, prefetch=VDNN.prefetch)
BESIDE_RECOMPUTE = PLAINEST.replace(liveness=LayerWise(), recompute=SUPERNEURONS.recompute)


TINY_VGG_PEAK = 8_142_552  #: bytes, of 48 images
PASSES = 4  #: over all uses


LAB = Lab(
    "a1",
    ("liveness",),
    {"SETUP": SETUP, "BESIDE_OFFLOAD": BESIDE_OFFLOAD, "BESIDE_RECOMPUTE": BESIDE_RECOMPUTE},
    most_live,
    unit=lambda nbytes: size(int(nbytes)),
)


# -- step 1: every tensor goes after its last use ----------------------------------------------------------------------

Asked = Callable[..., Planner]


def released(asked: Planner) -> dict[object, list[int]]:
    """Tensor → the steps after which the submission releases it."""
    found: dict[object, list[int]] = {}
    for step in asked.network.steps:
        for tensor in asked.liveness.dead(step):
            found.setdefault(tensor, []).append(step.number)
    return found


def test_gradients_go_after_their_last_use(asked: Asked) -> None:
    made = asked("tiny-vgg", 8)
    gradients = {one: uses for one, uses in made.context.uses.items() if one.kind == "gradient map" and uses}
    after = released(made)
    for one, uses in gradients.items():
        assert after.get(one) == [uses[-1].number], (
            f"{one} is used last by {uses[-1]}, and is released after steps {after.get(one, 'none')}"
        )


def test_a_map_that_backward_never_reads_goes_in_forward(asked: Asked) -> None:
    made = asked("tiny-vgg", 8)
    after = released(made)
    for one, uses in made.context.uses.items():
        if uses and one.kind == "map" and uses[-1].forward:
            assert after.get(one) == [uses[-1].number], f"no step after {uses[-1]} reads {one}; release it there"


def test_nothing_is_released_before_its_last_reader(asked: Asked) -> None:
    made = asked("tiny-resnet", 4)
    after = released(made)
    for one, uses in made.context.uses.items():
        for number in after.get(one, ()):
            assert number >= uses[-1].number, f"{one} is released after step {number}, and {uses[-1]} uses it"


def test_the_peak_of_tiny_vgg_with_48_images(planned: Callable[..., Program]) -> None:
    program = planned("tiny-vgg", 48)
    peak = most_live(program)
    assert peak <= TINY_VGG_PEAK, (
        f"tiny-vgg(48) holds {size(peak)} at {program.peak.step}; {size(TINY_VGG_PEAK)} are enough"
    )


# -- step 2: a map that waits elsewhere --------------------------------------------------------------------------------


def test_an_offloaded_map_leaves_after_its_last_forward_reader(asked: Asked) -> None:
    made = asked("tiny-vgg", 8, around="BESIDE_OFFLOAD")
    after = released(made)
    assert made.context.fates
    for one in made.context.fates:
        last = made.context.last_forward_use(one)
        assert last in after.get(one, ()), f"{one} is offloaded (context.fates); release it after step {last}, too"


# -- step 3: rebuilds are uses -----------------------------------------------------------------------------------------


def test_a_checkpoint_stays_until_its_last_rebuild(asked: Asked) -> None:
    made = asked("shufflenet-v2", 4, around="BESIDE_RECOMPUTE")
    after = released(made)
    for one, rebuilds in made.context.rebuilt_from.items():
        last = max(after.get(one, [0]))
        assert last >= max(rebuilds), f"{one} is gone after step {last}, and step {max(rebuilds)} rebuilds from it"


class Counted(dict[Tensor, Sequence[Step]]):
    """Uses that may be read a few times each."""

    reads = 0

    def read(self, count: int) -> None:
        self.reads += count
        assert self.reads <= PASSES * len(self), (
            f"context.uses was read more than {PASSES} times for each of {len(self):,} tensors; "
            f"find the steps of all tensors once, in bind"
        )

    def __getitem__(self, tensor: Tensor) -> Sequence[Step]:
        self.read(1)
        return super().__getitem__(tensor)

    def items(self) -> Any:
        self.read(len(self))
        return super().items()

    def values(self) -> Any:
        self.read(len(self))
        return super().values()


def test_one_pass_over_a_thousand_steps(asked: Asked) -> None:
    """What leaves after a step is looked up; the uses are not searched again for each step."""
    made = asked("resnet:341", 1)
    assert len(made.network.steps) > 1000
    made.context.uses = Counted(made.context.uses)
    made.liveness = made.setup.liveness.bound(made.context)
    released(made)


class TestMark(Marked):
    lab = LAB
