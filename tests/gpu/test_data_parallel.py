"""Collective calls on a GPU: through pinned memory by a thread of the host, and nothing overtakes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from kernels.targets import emulated
from refimpl.backend import Communicator, DeviceFailed, RunError, Trainer
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.parallel.communicators import in_threads
from refimpl.planner import Program, plan
from tests.gpu_device import BACKEND
from tests.refimpl.backend.ranks import LEARNT
from tests.refimpl.backend.running import MACHINE, differing
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.gpu


class Mirror(Communicator):
    """The first of two ranks, the other of which does the same: the mean of equal gradients is the gradient."""

    size = 2
    failing = False

    def mean(self, gradients: Sequence[np.ndarray]) -> Callable[[], None]:
        def reduce() -> None:
            if self.failing:
                raise RunError("the other rank has ended")
            for gradient in gradients:
                np.add(gradient, gradient, out=gradient)
                np.multiply(gradient, np.float32(0.5), out=gradient)

        return reduce

    def _exchange(self, word: str) -> list[str]:
        return [word, word]


def program(policy: str, ranks: int) -> Program:
    return plan(build("tiny-resnet", 2).data_parallel(ranks, 30_000), setup(policy), MACHINE, 1 << 26)


@pytest.mark.parametrize("policy", ["vdnn-all", "superneurons"])
def test_two_equal_ranks_learn_what_one_learns(policy: str) -> None:
    states = []
    for communicator in (None, Mirror()):
        made = program(policy, communicator.size if communicator else 1)
        with Trainer(made, BACKEND, communicator=communicator) as trainer:
            for iteration in range(2):
                trainer.step(*draw_batch(made.network, iteration))
            trainer.evaluate(*draw_batch(made.network, 3))
            states.append(trainer.state())
            if communicator:
                timeline = trainer.timeline()
                assert len(timeline.on("network")) == len(made.network.reduced) > 1
    assert differing(*states) == []


def test_ranks_with_different_images_learn_what_they_learn_on_the_cpu() -> None:
    """A rank on the GPU and one on the CPU: their gradients meet in pinned memory, and their weights stay together."""

    def learn(communicator: Communicator, backends: tuple[str, str]) -> dict[str, np.ndarray]:
        made = program("vdnn-all", 2)
        with Trainer(made, backends[communicator.rank], communicator=communicator) as trainer:
            for iteration in range(2):
                trainer.step(*draw_batch(made.network, 2 * iteration + communicator.rank))
            state = trainer.state()
            return {tensor.name: state[tensor.name] for tensor in made.network.resident if tensor.kind in LEARNT}

    on_gpu, beside = in_threads(2, lambda communicator: learn(communicator, (BACKEND, "cpu")))
    on_cpu, _ = in_threads(2, lambda communicator: learn(communicator, ("cpu", "cpu")))
    for name, expected in on_cpu.items():
        for found in (on_gpu, beside):
            np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_rank_that_has_ended_ends_the_iteration_and_not_the_process() -> None:
    communicator = Mirror()
    made = program("baseline", 2)
    with Trainer(made, BACKEND, communicator=communicator) as trainer:
        trainer.step(*draw_batch(made.network, 0))
        communicator.failing = True
        with pytest.raises(RunError, match="the other rank has ended"):
            trainer.step(*draw_batch(made.network, 1))


@pytest.mark.skipif(BACKEND != "emulated", reason="only an emulated GPU sees every access")
def test_what_does_not_wait_for_the_other_ranks_is_found() -> None:
    made = program("baseline", 2)
    with Trainer(made, BACKEND, communicator=Mirror()) as trainer:
        replay: Any = trainer.replay
        hold = replay._network._hold
        replay._actions = [(act, given) for act, given in replay._actions if getattr(act, "func", act) != hold]
        replay._first[-1] = len(replay._actions)
        with pytest.raises(DeviceFailed, match="nothing orders two accesses to the same .*the network's thread"):
            replay.issue({})
            replay.finish()
        emulated.forgive()
