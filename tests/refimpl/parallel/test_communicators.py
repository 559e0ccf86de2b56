"""Ranks that train together: the contract of every communicator, the same bits everywhere, and one end for all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl.backend import (
    Alone,
    Communicator,
    CopiesLate,
    NotFinite,
    RankFailed,
    RunError,
    Trainer,
)
from refimpl.machine import wire_bytes
from refimpl.names.networks import build
from refimpl.names.presets import PRESETS
from refimpl.parallel.communicators import Threads, in_threads
from tests.messages import raises_naming
from tests.refimpl.backend.processes import mpiexec, needs_mpi
from tests.refimpl.backend.ranks import MPI_RUN, contract, trained


@pytest.mark.parametrize("size", [1, 2, 3])
def test_threads_keep_the_contract(size: int) -> None:
    in_threads(size, contract)


def test_one_rank_keeps_the_contract() -> None:
    contract(Alone())


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("size", [3, *(pytest.param(size, marks=pytest.mark.campaign) for size in (2, 4))])
def test_processes_keep_the_contract_and_learn_what_threads_learn(size: int) -> None:
    done = mpiexec(["-m", "tests.refimpl.backend.ranks"], copies=size)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads(line) for line in done.stdout.splitlines()[-size:]]
    for rank, twin in zip(ranks, in_threads(size, lambda communicator: trained(communicator, **MPI_RUN)), strict=True):
        assert (rank["learnt"], rank["losses"]) == (twin["learnt"], twin["losses"])
    assert sum(rank["sent"] for rank in ranks) == wire_bytes(2 * ranks[0]["reduced"], size)


@pytest.mark.slow
def test_all_ranks_learn_the_same_whatever_the_buckets_and_the_order() -> None:
    for size in (2, 3):
        learnt = set()
        for bucket, order in ((20_000, None), (1, 1), (None, 2)):
            found = in_threads(size, lambda communicator: trained(communicator, "baseline", bucket, order, "lenet"))  # noqa: B023
            assert sum(rank["sent"] for rank in found) == wire_bytes(2 * found[0]["reduced"], size)
            learnt |= {rank["learnt"] for rank in found}
        assert len(learnt) == 1, f"{size} ranks"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policies", "sizes"),
    [
        (("vdnn-all", "vdnn-all seams=yes", "vdnnpp-all", "superneurons", "combined effort=20"), (2,)),
        pytest.param(sorted({*PRESETS, "combined effort=20"} - {"combined"}), (2, 3, 4), marks=pytest.mark.campaign),
    ],
)
def test_all_ranks_learn_the_same_under_every_policy(policies: Sequence[str], sizes: Sequence[int]) -> None:
    """Policies that choose the same algorithms give the same bits, whatever they move and drop."""
    learnt: dict[tuple[int, int], set[int]] = {}
    for number, policy in enumerate(policies):
        order = number if number % 2 else None
        for size in sizes:
            found = in_threads(size, lambda communicator: trained(communicator, policy, 30_000, order, budget="8MiB"))  # noqa: B023
            learnt.setdefault((size, found[0]["algorithms"]), set()).update(rank["learnt"] for rank in found)
    assert [len(bits) for bits in learnt.values()] == [1] * len(learnt)
    assert len(learnt) < len(policies) * len(sizes)


def states(size: int, batch: int, steps: int) -> dict[str, np.ndarray]:
    """What `size` ranks with `batch` images each learn of the same images."""

    def work(communicator: Communicator) -> dict[str, np.ndarray]:
        net = build("tiny-vgg", batch).data_parallel(communicator.size)
        random = np.random.default_rng(1)
        with Trainer(refimpl.plan(net, machine="h100"), rate=0.02, communicator=communicator) as trainer:
            for _ in range(steps):
                images = random.standard_normal((8, *net.input.shape[1:]), dtype=np.float32)
                labels = random.integers(0, 10, 8)
                mine = slice(batch * communicator.rank, batch * (communicator.rank + 1))
                trainer.step(images[mine], labels[mine])
            return trainer.state()

    return in_threads(size, work)[0]


@pytest.mark.slow
def test_many_small_batches_are_one_large_batch_without_batch_normalisation() -> None:
    together, alone = states(4, 2, 2), states(1, 8, 2)
    assert not any("running" in name for name in alone)
    for name, values in alone.items():
        np.testing.assert_allclose(together[name], values, rtol=0, atol=1e-5, err_msg=name)


# -- all end together --------------------------------------------------------------------------------------------------


def trainers(work: Any, size: int = 2, guard: bool = True, **options: Any) -> list[Any]:
    """`work(trainer, images, labels, communicator)` as each rank."""

    def run(communicator: Communicator) -> Any:
        net = build("tiny-resnet", 2).data_parallel(communicator.size, 30_000)
        program = refimpl.plan(net, machine="h100")
        images = np.random.default_rng(communicator.rank).standard_normal(net.input.shape, dtype=np.float32)
        with Trainer(program, guard=guard, communicator=communicator, **options) as trainer:
            return work(trainer, images, np.zeros(2, np.int32), communicator)

    return in_threads(size, run)


def test_nan_on_one_rank_stops_all_and_nothing_is_learnt() -> None:
    def work(trainer: Trainer, images: np.ndarray, labels: np.ndarray, communicator: Communicator) -> str:
        trainer.step(images, labels)
        before = trainer.state()
        if communicator.rank == 1:
            images = np.full_like(images, 3e38)
        with raises_naming(NotFinite, 1, "conv1") as caught:
            trainer.step(images, labels)
        running = [name for name in before if "running" in name]
        assert all((trainer.state()[name] == before[name]).all() for name in running)
        trainer.load_state(before)
        trainer.step(np.zeros_like(images), labels)  # and all go on
        return str(caught.value)

    assert len(set(trainers(work))) == 1


@pytest.mark.parametrize("order", [None, CopiesLate()])
def test_ctrl_c_on_one_rank_stops_all_after_the_same_iteration(order: Any) -> None:
    def work(trainer: Trainer, images: np.ndarray, labels: np.ndarray, communicator: Communicator) -> int:
        trainer.step(images, labels)
        communicator.interrupted = communicator.rank == 1
        with pytest.raises(KeyboardInterrupt):
            trainer.step(images, labels)
        return trainer.iteration

    assert trainers(work, order=order) == [2, 2]


def test_a_rank_that_fails_before_it_computes_is_told_to_all() -> None:
    def work(trainer: Trainer, images: np.ndarray, labels: np.ndarray, communicator: Communicator) -> None:
        if communicator.rank == 1:
            communicator.fail("its disk is full", 2)
        else:
            with raises_naming(RankFailed, 1, "disk"):
                trainer.step(images, labels)

    trainers(work)


def test_a_rank_that_fails_in_backward_ends_all() -> None:
    class Broken(RuntimeError):
        pass

    def fails() -> None:
        raise Broken("a kernel failed")

    def work(trainer: Trainer, images: np.ndarray, labels: np.ndarray, communicator: Communicator) -> None:
        if communicator.rank == 1:
            last = max(trainer.replay._work)  # type: ignore[attr-defined]
            trainer.replay._work[last - 2 if last - 2 in trainer.replay._work else last] = [fails]  # type: ignore[attr-defined]
        trainer.step(images, labels)

    with pytest.raises(Broken):
        trainers(work)


def test_as_many_ranks_train_as_were_planned_for() -> None:
    program = refimpl.plan(build("lenet", 2).data_parallel(3), machine="h100")
    with raises_naming(RunError, 3, 1, "data_parallel", (1)):
        Trainer(program)
    with raises_naming(RunError, 2):
        Trainer(program, communicator=Threads.of(2)[0])


def test_the_reduces_run_beside_the_kernels_and_are_on_the_timeline() -> None:
    def work(trainer: Trainer, images: np.ndarray, labels: np.ndarray, communicator: Communicator) -> int:
        trainer.step(images, labels)
        timeline = trainer.timeline()
        assert not timeline.simulated and timeline.streams[-1] == "network"
        return len(timeline.on("network"))

    reduces = len(build("tiny-resnet", 2).data_parallel(2, 30_000).reduced)
    assert trainers(work) == [reduces, reduces] and reduces > 1
