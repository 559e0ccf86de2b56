"""The costs of every kernel's units on the CPU at hand: `refimpl/machine/cpu_costs.json`.

    python -m tests.refimpl.machine.cpu_reference
    NUMBA_CPU_NAME=znver3 NUMBA_CPU_FEATURES=+avx2,+fma,... python -m tests.refimpl.machine.cpu_reference --add

The first is to be repeated when a kernel changes.  The second adds the kernels that are not in the file: those that
only a CPU without AVX-512 runs, in a build for one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import numpy as np

from refimpl.machine import cpu_costs
from refimpl.machine.cpu import Units
from refimpl.network import Builder, Network

SECONDS = 30.0


def networks() -> list[Network]:
    """Every kernel in more sizes than a calibration has, and depthwise convolutions."""
    b = Builder("depthwise", (4, 8, 28, 28))
    b.conv(96, 1)
    for window in (3, 5):
        for stride in (1, 2):
            b.conv(96, window, stride, pad=window // 2, groups=96)
    b.fc(10)
    b.softmax()
    return [b.build(), *cpu_costs.networks((*cpu_costs.SIZES, (32, 32, 32, 48)))]


def fitted(samples: Sequence[tuple[Units, float]]) -> Units:
    """Costs of the units, none below zero, with the least sum of squared relative errors."""
    from scipy.optimize import nnls

    rows = np.array([[count / seconds for count in counted] for counted, seconds in samples])
    scale = rows.max(axis=0)
    scale[scale == 0] = 1
    found, _ = nnls(rows / scale, np.ones(len(rows)))
    return tuple(float(cost) for cost in found / scale)


def main() -> None:
    costs = cpu_costs.calibrate(
        print, networks(), SECONDS, lambda samples: {name: fitted(each) for name, each in samples.items()}
    )
    known = cpu_costs.reference() if "--add" in sys.argv else {}
    cpu_costs.REFERENCE.write_text(json.dumps(costs | known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
