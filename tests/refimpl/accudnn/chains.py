"""Chains of layers whose model can be written down by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refimpl.accudnn import Candidate, Model


def chain(maps: Sequence[int], seconds: Sequence[float]) -> Model:
    """Map y_i of layer i, its gradient map as large; copies take a second a byte; no workspace, nothing resident.

    y_i is written in step i, read in i + 1 and again in 2N - i, which allocates its gradient map, that the next step
    reads.
    """
    layers = len(maps) + 1
    arriving, dying = (np.zeros(2 * layers + 1, dtype=np.int64) for _ in range(2))
    candidates = []
    for i, nbytes in enumerate(maps, 1):
        last_use, next_use = i + 1, 2 * layers - i
        arriving[i] += nbytes
        arriving[next_use] += nbytes
        dying[next_use] += nbytes
        dying[next_use + 1] += nbytes
        if next_use - last_use > 1:
            candidates.append(Candidate(f"y{i}", nbytes, i, last_use, next_use, float(nbytes), float(nbytes)))
    return Model(np.array([0.0, *seconds]), np.zeros(2 * layers + 1, dtype=np.int64), arriving, dying, candidates)


FIVE = chain((2, 1, 4, 1), (1, 2, 3, 1, 1, 1, 2, 3, 2, 1))
FOUR = chain((2, 4, 1), (1, 2, 3, 1, 1, 3, 4, 2))
