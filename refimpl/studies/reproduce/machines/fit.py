"""The fit of each GPU's shares of its peaks to the rows of the files that are marked.

One set of numbers serves every network, convolution and pass of a GPU: the least sum of squared logarithms of predicted
over measured, found by a pattern search, which gives the same answer every time.  A part of a network counts as
`WEIGHTS` says, by its source; a pass of a single convolution a tenth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import log

from refimpl.machine.model import Efficiency
from refimpl.studies.reproduce.machines.independent import GPUS, Measured, Prediction, compared, convolutions, networks

LIBRARY = ("products", "weights", "transforms", "streaming", "half_tiles")

#: GPU → the GPUs whose rows it is fitted to, and the figures that these rows can tell.  The others are assumed to be
#: those of Titan X, whose releases 2 and 4 alone tell what the kernels of the first generation reach.
FITTED = {
    "titan-x": (("titan-x",), (*LIBRARY, "early")),
    "k40c": (("k40c", "k80"), ("products", "weights", "transforms", "streaming")),
    "titan-xp": (("titan-xp", "titan-x-pascal"), LIBRARY),
    "p100": (("p100",), LIBRARY),
    "v100": (("v100",), LIBRARY),
    "t4": (("t4",), ("products", "weights", "transforms", "half_tiles")),  # of convolutions alone
}

#: Of a part of a network: the small batches of cnn-benchmarks are what the older fits missed; release 2 tells `early`.
WEIGHTS = {"convnet-benchmarks": 1.0, "deepbench": 0.1}
SMALL_BATCH, FIRST_RELEASE = 10.0, 0.05


def weight(row: Measured) -> float:
    """How much a figure of this row counts."""
    return FIRST_RELEASE if row.cudnn < 3 else WEIGHTS.get(row.source, SMALL_BATCH)


def rows_of(name: str) -> list[Measured]:
    """The rows that a GPU is fitted to."""
    return [row for row in (*networks(), *convolutions()) if row.fitted and row.gpu in FITTED[name][0]]


def misfit(predictions: Iterable[Prediction]) -> float:
    """Weighted sum of the squared logarithms of predicted over measured."""
    return sum(weight(one.measured) * log(one.predicted / one.milliseconds) ** 2 for one in predictions)


def fit(name: str) -> Efficiency:
    """The figures with the least misfit, no share above 1: each in turn up or down, by smaller and smaller steps."""
    gpus, figures = FITTED[name]
    rows = rows_of(name)

    def missed(tried: Efficiency) -> float:
        machines = {gpu: replace(GPUS[gpu], efficiency=tried) for gpu in gpus}
        return misfit(compared(rows, machines))

    best = GPUS[name].efficiency
    least, stride = missed(best), 0.2
    while stride > 0.005:
        before = least
        for figure in figures:
            for factor in (1 + stride, 1 / (1 + stride)):
                most = 100.0 if figure == "half_tiles" else 1.0
                tried = replace(best, **{figure: min(most, getattr(best, figure) * factor)})
                if (found := missed(tried)) < least:
                    best, least = tried, found
                    break
        if least == before:
            stride /= 2
    return best
