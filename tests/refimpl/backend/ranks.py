"""What every rank does in the tests of data-parallel training, threads or processes.

    mpiexec -n 3 python -m tests.refimpl.backend.ranks           what each rank found, as JSON on the last lines

Each rank is a process of its own.  The contract is kept, or the first command fails.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl.backend import Communicator, Drawn, ProgramOrder, RankFailed, Trainer
from refimpl.machine import wire_bytes
from refimpl.names.networks import build
from refimpl.parallel.communicators import Mpi

#: Few numbers; two messages of them, for 2 ranks or for more; more than are summed at once; more than are put side by
#: side.  No multiple of 2, 3 or 4.
SHAPES = tuple(((3, 5), (1,), (largest,), (7, 11)) for largest in (30, 3_000, 10_000, 40_000, 300_000))


def gradients(rank: int, shapes: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    random = np.random.default_rng(rank)
    return [random.standard_normal(shape, dtype=np.float32) for shape in shapes]


def contract(communicator: Communicator) -> None:
    """What every communicator keeps."""
    rank, size = communicator.rank, communicator.size
    assert communicator.agree() == [""] * size
    nbytes = 0
    for shapes in SHAPES:
        mine, of_ranks = gradients(rank, shapes), [gradients(other, shapes) for other in range(size)]
        reduce = communicator.mean(mine)
        reduce()
        for found, first, *others in zip(mine, *of_ranks, strict=True):
            expected = sum(others, first)
            np.testing.assert_array_equal(found, expected * np.float32(1 / size))
        for one in mine:
            one[:] = np.float32(rank)
        reduce()
        assert all(float(number) == (size - 1) / 2 for one in mine for number in one.ravel()[[0, -1]])
        nbytes += 2 * sum(one.nbytes for one in mine)
    assert sum(map(int, communicator.agree(str(communicator.sent_bytes)))) == wire_bytes(nbytes, size)

    order = np.array([1e8, 1.0, -1e8, 0.0][rank : rank + 1], np.float32)  # (1e8 + 1) - 1e8 = 0 in float32
    communicator.mean([order])()
    assert size < 3 or order[0] == 0.0
    assert communicator.agree(f"×{rank}\n" * 1000) == [f"×{other}\n" * 1000 for other in range(size)]
    with pytest.raises(RankFailed, match=rf"^rank {size - 1}: no ×room$") as failed:
        if rank == size - 1:
            communicator.fail("no ×room", status=3)
            raise RankFailed(rank, 3, "no ×room")
        communicator.agree()
    assert (failed.value.rank, failed.value.status) == (size - 1, 3)
    assert communicator.agree("on") == ["on"] * size


LEARNT = ("weight", "weight gradient", "momentum")


def trained(
    communicator: Communicator,
    policy: str = "baseline",
    bucket: int | None = 20_000,
    order: int | None = None,
    network: str = "tiny-resnet",
    batch: int = 2,
    steps: int = 2,
    budget: str = "64MiB",
    rate: float = 0.05,
    catalogue: str = "own",
    **learning: Any,
) -> dict[str, Any]:
    """Train as this rank; what was learnt is the checksum of all weights, gradients and momentum."""
    net = build(network, batch).trained_by(**learning).data_parallel(communicator.size, bucket)
    program = refimpl.plan(net, policy, refimpl.machines.h100.with_catalogue(catalogue), budget)
    proof = program.verify()
    drawn = ProgramOrder() if order is None else Drawn(order + communicator.rank)
    random = np.random.default_rng(7)
    with Trainer(program, "cpu", 3, rate, order=drawn, poison=order is not None, communicator=communicator) as trainer:
        losses = []
        for _ in range(steps):
            shape = batch * communicator.size, *net.input.shape[1:]
            if net.input.dtype == "int32":
                images, labels = random.integers(0, 256, (2, *shape))
            else:
                images = random.standard_normal(shape, dtype=np.float32)
                labels = random.integers(0, 10, len(images))
            mine = slice(batch * communicator.rank, batch * (communicator.rank + 1))
            losses.append(trainer.step(images[mine], labels[mine]))
        state = trainer.state()
    kinds = {tensor.name: tensor.kind for tensor in (*net.resident, *net.on_host)}
    learnt = [state[name] for name in sorted(state) if kinds[name] in LEARNT]
    algorithms = [(str(i.call), i.choice.algorithm) for i in program.instructions if getattr(i, "choice", None)]
    return {
        "losses": losses,
        "learnt": zlib.crc32(b"".join(one.tobytes() for one in learnt)),
        "sent": communicator.sent_bytes,
        "reduced": sum(net.reduced),
        "algorithms": zlib.crc32(repr(sorted(algorithms)).encode()),
        "warnings": len(proof.warnings),
    }


MPI_RUN: dict[str, Any] = {
    "policy": "superneurons", "bucket": 1, "order": 5, "network": "lenet", "optimiser": "adamw", "clip": 1.0,
    "frozen": ("conv1",), "rate": 1e-3,
}  # fmt: skip


def main() -> None:
    communicator = Mpi()
    contract(communicator)
    before = communicator.sent_bytes
    found = trained(communicator, **MPI_RUN)
    found["sent"] -= before
    for word in communicator.agree(json.dumps(found)):
        if communicator.rank == 0:
            print(word)
    communicator.close()


if __name__ == "__main__":
    main()
