"""The costs of every kernel's units on the CPU at hand: `refimpl/machine/cpu_costs.json`.

    python -m tests.refimpl.machine.cpu_reference
    REFIMPL_THREADS=1 python -m tests.refimpl.machine.cpu_reference --add

The first is to be repeated when a kernel changes.  The second adds the kernels that are not in the file: a new one's,
or those that only a CPU without AVX-512 runs, in a build for one (NUMBA_CPU_NAME=znver3,
NUMBA_CPU_FEATURES=+avx2,+fma,...).  They are scaled to the file's CPU by the measured kernel most like each.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import partial
from math import inf
from statistics import median

import numpy as np

from refimpl.machine import cpu_costs
from refimpl.machine.cpu_model import Units, fetched_bytes, seconds_of, units
from refimpl.machine.timing import least_in_turns
from refimpl.network import Builder, Network
from refimpl.network.kinds import TRAITS

SECONDS, TURNS, IN_A_ROW = 30.0, 5, 2e-4
IN_CACHE, COPIES = 3 << 20, (1 << 14, 1 << 15, 1 << 16)  #: bytes; elements


def networks(gradients: int = 10_000) -> list[Network]:
    """Every kernel in more sizes than a calibration has, depthwise convolutions, wide filters, and small maps.

    Args:
        gradients: how many the network has whose gradients are clipped together.
    """
    networks = [*cpu_costs.networks((*cpu_costs.SIZES, (32, 32, 32, 48)))]
    for count, sides in ((4, (3, 5)), (1, (7,))):
        b = Builder("depthwise", (count, 8, 28, 28))
        b.conv(96, 1)
        for window in sides:
            for stride in (1, 2):
                b.conv(96, window, stride, pad=window // 2, groups=96)
        b.fc(10)
        b.softmax()
        networks.append(b.build())
    for channels, side in ((8, 32), (20, 14), (64, 7)):
        b = Builder("wide filters", (16, channels, side, side))
        for window in (1, 3, 5, 7):
            b.conv(channels, window, pad=window // 2)
        b.fc(10)
        b.softmax()
        networks.append(b.build())
    for channels, side in ((8, 48), (32, 24)):
        b = Builder("strided", (8, channels, side, side))
        for window in (7, 3, 1):
            b.conv(channels, window, 2, pad=window // 2)
        b.fc(10)
        b.softmax()
        networks.append(b.build())
    for images, channels, side in ((64, 64, 13), (16, 256, 29), (128, 512, 5)):
        b = Builder("small maps", (images, channels, side, side))
        for size in (3, 2, 1):
            b.pool_to(2 * size, after=b.input if size == 3 else None)
            b.pool_to(size)
            b.conv(channels, 1)
            b.groupnorm(channels // 8)
            b.batchnorm()
            b.scale()
        b.fc(10)
        b.softmax()
        small = b.build()
        networks += [small, small.inference()]
    for images, channels, side in ((2, 32, 20), (8, 16, 30), (4, 64, 24), (1, 8, 64), (16, 96, 8)):
        b = Builder("maps in a cache", (images, channels, side, side))
        x = b.conv(channels, 1)
        b.concat(b.batchnorm(), x)
        b.fc(10)
        b.softmax()
        small = b.build()
        networks += [small, small.inference()]
    b = Builder("many gradients", (1, 1, 1, 1))
    for _ in range(gradients):
        b.conv(1, 1, bias=False)
    b.softmax()
    networks.append(b.build().trained_by("adamw", clip=1.0))
    for images, width, tokens in ((4, 64, 197), (1, 64, 300), (8, 8, 32), (2, 16, 100)):
        b = Builder("attention", (images, 6 * width, tokens, 1))
        b.conv(6 * width, 1)
        b.rotary(2)
        b.attention(2)
        b.conv(6 * width, 1)
        b.attention(2, causal=True)
        last = b.scores(2, causal=True, after=b.conv(4 * width, 1))
        b.mix(last, b.conv(2 * width, 1, after=b.layers[-3]))
        b.fc(10)
        b.softmax()
        networks.append(b.build())
    for rows, channels in ((256, 96), (64, 1000), (16, 4000)):
        b = Builder("rows", (rows, channels, 1, 1))
        b.scale()
        b.rmsnorm()
        b.softmax()
        networks.append(b.build())
    for images, channels, tokens in ((64, 1024, 4), (512, 96, 4), (4, 8192, 2), (32, 768, 16)):
        b = Builder("a token before few", (images, channels, tokens, 1))
        b.prepend()
        b.fc(4)
        b.softmax()
        networks.append(b.build())
    for size in (1000, 40_000, 300_000, 6_000_000):
        b = Builder("learning", (1, size, 1, 1))
        b.fc(4)
        b.softmax()
        networks.append(b.build().trained_by("adamw", clip=1.0))
    for words, wide, windows, tokens in ((256, 32, 8, 64), (1000, 64, 16, 99), (50, 256, 4, 256), (4000, 16, 2, 300)):
        b = Builder("tokens", (windows, tokens), dtype="int32")
        b.embedding(words, wide)
        b.position()
        b.conv(words, 1, bias=False)
        b.pixel_softmax()
        networks.append(b.build())
    losses = [
        kind for kind, traits in TRAITS.items() if traits.work == "loss" and not traits.opaque and kind != "softmax"
    ]
    for shape in ((4, 3, 64, 64), (16, 8, 24, 24), (256, 21, 8, 8), (1 << 15, 1, 1, 1), (1 << 17, 1, 1, 1)):
        for loss in losses:
            b = Builder(loss, shape)
            b.conv(shape[1], 1)
            getattr(b, loss)()
            ended = b.build()
            networks += [ended, ended.inference()]
    return networks


def fitted(samples: Sequence[tuple[Units, float]]) -> Units:
    """Costs of the units, none below zero, with the least sum of squared relative errors."""
    from scipy.optimize import nnls

    rows = np.array([[count / seconds for count in counted] for counted, seconds in samples])
    scale = rows.max(axis=0)
    scale[scale == 0] = 1
    found, _ = nnls(rows / scale, np.ones(len(rows)))
    return tuple(float(cost) for cost in found / scale)


def stand_in(name: str, known: Collection[str]) -> str:
    """The measured kernel that is most like this one, and in the file: if it is not, a product of matrices."""
    measured = cpu_costs.stand_in(name)
    return measured if measured in known else "gemm_vector_rows_nn"


def missing() -> dict[str, Units]:
    """The costs, on the file's CPU, of the kernels that the file lacks.

    The fastest turn counts, of these kernels and of the measured ones most like them, on arrays that a core's cache
    holds: so the machine may be busy.
    """
    from kernels.targets.cpu.build import load

    known = cpu_costs.reference()
    every = cpu_costs.cases(networks())
    like = {name: stand_in(name, known) for name, _ in every if name not in known}
    stand_ins = {*like.values()}
    runs = {cost: launched for cost, launched in every.items() if cost[0] not in known or cost[0] in stand_ins}
    runs |= {units(copy): copy for copy in map(cpu_costs.copy_of, COPIES)}
    for kernel in cpu_costs.kernels_of(runs):
        load(kernel)
    ready = {cost: partial(launched.run, None) for cost, launched in runs.items()}
    taken = least_in_turns(ready, cpu_costs._seconds, inf, SECONDS, TURNS, IN_A_ROW)
    overhead = min(least_in_turns({0: partial(cpu_costs.copy_of(1).run, None)}, cpu_costs._seconds, 50).values())
    samples: dict[str, list[tuple[Units, float]]] = defaultdict(list)
    for (name, counted), seconds in taken.items():
        if seconds > 2 * overhead and fetched_bytes([runs[name, counted]]) <= IN_CACHE:
            samples[name].append((counted, seconds - overhead))
    slower = {name: median(s / seconds_of(known[name], counted) for counted, s in samples[name]) for name in stand_ins}
    return {
        name: tuple(cost / slower[like[name]] for cost in fitted(each))
        for name, each in samples.items()
        if name in like
    }


def main() -> None:
    if "--add" in sys.argv:
        costs = cpu_costs.reference() | missing()
    else:
        costs = cpu_costs.calibrate(
            print, networks(), SECONDS, lambda samples: {name: fitted(each) for name, each in samples.items()}
        )
    cpu_costs.REFERENCE.write_text(json.dumps(costs, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
