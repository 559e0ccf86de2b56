"""The pieces of `make gpu-quick`: copies, plain kernels, a preset a paper, two networks planned and run, a product."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kernels.fast import gemm
from refimpl.backend import Trainer, data
from refimpl.machine import Engine
from refimpl.machine.measure import time_bandwidth, time_copies
from refimpl.names.by_name import plan
from refimpl.names.networks import build
from refimpl.studies.bench.kernels import Case, measure
from refimpl.studies.bench.products import gemm_case
from tests.gpu_device import BACKEND, sized

PRESETS = ("vdnn-all", "vdnnpp-all", "superneurons", "accudnn", "combined, effort=20")
Figures = dict[str, Any]


def pieces(device: Any, tested: bool) -> dict[str, Callable[[], Figures]]:
    """Name → what measures it; `tested`: kernels and presets are compared, which needs pytest."""
    side, small = sized(4096, 64), ("tiny-inception", 2)
    case = gemm_case("ladder", side, side, side, gemm.BEST, True)
    found: dict[str, Callable[[], Figures]] = {"copies": partial(copies, device)}
    if tested:
        from tests.kernels.operations import OPERATIONS

        found |= {f"plain kernels: {name}": partial(beside_numpy, name) for name in OPERATIONS}
        found |= {f"bits: {one}": partial(as_when_held, one, *sized(("tiny-vgg", 64), small)) for one in PRESETS}
    found["lenet, superneurons"] = partial(iteration, "superneurons", 0.9, *sized(("lenet", 512), small))
    found["vgg16, vdnn-all"] = partial(iteration, "vdnn-all", sized("6GiB", 0.9), *sized(("vgg16", 64), small))
    found[f"gemm {side}³"] = lambda: rates(device, case)
    return found


def rates(device: Any, case: Case) -> Figures:
    found = measure(device, case, 0.6)
    assert found is not None
    return {found.unit: found.ours, "by": found.algorithm} | {f"of {who}": x for who, x in found.ratio.items()}


def copies(device: Any) -> Figures:
    found = {f"{way}, GB/s": time_copies(device, way).bytes_per_second / 1e9 for way in ("out", "in")}
    return found | {"within the device, GB/s": time_bandwidth(device) / 1e9}


def beside_numpy(name: str) -> Figures:
    """An operation's plain kernels come to what NumPy comes to, and twice to the same bits."""
    from tests.gpu.test_kernels import OnGpu
    from tests.kernels.operations import NUMPY, OPERATIONS, PLAIN, Draw
    from tests.kernels.test_plain import close

    with np.errstate(all="ignore"):
        expected = OPERATIONS[name](NUMPY, Draw(3))
    found, again = (OPERATIONS[name](OnGpu(PLAIN), Draw(3)) for _ in range(2))
    close(name, found, expected, 3)
    assert [one.tobytes() for one in found] == [one.tobytes() for one in again], "two runs differ"
    return {}


def as_when_held(preset: str, name: str, batch: int) -> Figures:
    """A preset's program learns to the last bit what it learns when every map stays, in the bytes that were planned."""
    from tests.refimpl.backend.running import MACHINE, differing, held, trained, trainer
    from tests.refimpl.plainly import draw_batch

    program = plan(build(name, batch), preset, MACHINE, 0.6)
    with trainer(program, backend=BACKEND, rate=0.01) as made:
        losses = [made.step(*draw_batch(program.network, number)) for number in range(2)]
        state, peak = made.state(), made.recounted_peak
    held_losses, expected = trained(held(program), 2, backend=BACKEND, rate=0.01)
    assert (peak, losses, differing(state, expected)) == (program.peak_bytes, held_losses, [])
    return {}


def iteration(preset: str, budget: Any, name: str, batch: int) -> Figures:
    """A program planned, proved and run: peak, seconds, and each engine's busy time, measured beside simulated."""
    program = plan(build(name, batch), preset, sized("here", "h100"), budget)
    program.verify()
    with Trainer(program, BACKEND, rate=1e-4, guard=False) as trainer:
        trainer.step(*data.synthetic_for(program.network, seed=1).batch(batch, 0))
        seconds = min(trainer.repeat() for _ in range(sized(5, 1)))
        timelines, peak = (trainer.timeline(), program.simulate()), trainer.recounted_peak
    assert peak == program.peak_bytes
    found = {"network": f"{name}({batch})", "peak, MiB": peak / 2**20, "ms": seconds * 1e3}
    engines: tuple[Engine, ...] = ("compute", "out", "in")
    for engine in engines:
        busy, simulated = (1e3 * one.busy(engine) for one in timelines)
        found[engine] = f"{busy:.2f} ms ({simulated:.2f} simulated)"
    return found | {"simulated, ms": 1e3 * timelines[1].seconds}
