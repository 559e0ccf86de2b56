"""Every family's kernels on a GPU: beside the same kernels on the CPU, and beside themselves.

The operations are those of `tests/kernels/operations.py`, of sizes that fill a GPU, too.  An emulated GPU runs a few:
`tests/kernels/test_plain.py` makes every launch from its PTX there.
A checkout is enough to run them, nothing need be installed: `PYTHONPATH=. python3 -m pytest tests/gpu`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from kernels.checks.conv_shape import PASSES, ConvShape
from kernels.fast import conv, gemm
from kernels.targets import gpu
from tests.gpu_device import sized
from tests.kernels.operations import FAST, LARGE, OPERATIONS, PLAIN, Draw, like, normal, nothing
from tests.kernels.test_plain import close
from tests.matrix import some

pytestmark = pytest.mark.gpu


def launch(function: Callable[..., None], given: list[Any], named: dict[str, Any]) -> None:
    stream = gpu.stream()
    gpu.synchronize()  # the copies went by the default stream
    function(*given, **named, stream=stream)


class OnGpu:
    """A rung whose functions get copies of their arrays on the GPU; `act` makes the call with them."""

    def __init__(
        self, rung: Any, act: Callable[[Callable[..., None], list[Any], dict[str, Any]], None] = launch
    ) -> None:
        self.rung, self.act = rung, act

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.rung, name)
        return partial(self.call, found) if callable(found) else OnGpu(found, self.act)

    def call(self, function: Callable[..., None], *given: Any, **named: Any) -> None:
        copies: dict[int, tuple[np.ndarray, Any]] = {}  #: one of each array, given twice or not

        def moved(value: Any) -> Any:
            if isinstance(value, list):
                return [moved(one) for one in value]
            if not isinstance(value, np.ndarray):
                return value
            return copies.setdefault(id(value), (value, gpu.to_device(value)))[1]

        self.act(function, [moved(one) for one in given], {name: moved(one) for name, one in named.items()})
        for array, copy in copies.values():
            array[...] = gpu.to_host(copy)


def multiplied(algorithm: str) -> Any:
    def operation(rung: Any, random: Draw) -> list[np.ndarray]:
        made = []
        for options in ({}, {"trans_a": True, "trans_b": True}, {"trans_b": True, "alpha": 0.5, "beta": -1.5}):
            m, n, k = sized((777, 515, 1030), (137, 131, 198))
            a = normal(random, *((k, m) if options.get("trans_a") else (m, k)))
            b, c = normal(random, *((n, k) if options.get("trans_b") else (k, n))), normal(random, m, n)
            workspace = nothing(max(1, gemm.workspace_bytes(m, n, k, algorithm) // 4))
            rung.gemm.gemm(a, b, c, **options, algorithm=algorithm, workspace=workspace)
            made.append(c)
        return made

    return operation


#: x, w, stride, padding, dilation.
CONVOLUTIONS: tuple[tuple[Any, ...], ...] = (
    ((4, sized(64, 12), 15, 13), (64, sized(64, 12), 3, 3), (1, 1), (1, 1), (1, 1)),
    (sized((4, 3, 112, 112), (2, 3, 24, 22)), (sized(64, 17), 3, 7, 7), (2, 2), (3, 3), (1, 1)),
    (sized((8, 96, 56, 56), (2, 6, 11, 9)), (sized(96, 6), 1, 3, 3), (2, 2), (0, 0, 1, 1), (1, 1)),
    (sized((4, 128, 28, 28), (2, 6, 9, 11)), sized((256, 32, 3, 3), (8, 3, 3, 3)), (1, 1), (2, 3), (2, 3)),
)


def convolved(algorithm: str) -> Any:
    def operation(rung: Any, random: Draw) -> list[np.ndarray]:
        made = []
        for given in CONVOLUTIONS:
            shape = ConvShape.of(*given)
            how: dict[str, Any] = dict(zip(("stride", "pad", "dilation"), shape.walk, strict=True))
            x, w, dy = (normal(random, *one) for one in (shape.x_shape, shape.w_shape, shape.y_shape))
            y, dx, dw = like(dy, x, w)
            inputs: dict[str, tuple[Any, ...]] = {
                "forward": (x, w, None, y),
                "backward_data": (dy, w, dx),
                "backward_filter": (x, dy, dw),
            }
            for pass_ in PASSES:
                if conv.ALGORITHMS[algorithm].why_not(pass_, shape) is None:
                    words = conv.workspace_bytes(pass_, shape.x_shape, shape.w_shape, **how, algorithm=algorithm) // 4
                    workspace = nothing(max(1, words))
                    getattr(rung.conv, pass_)(*inputs[pass_], **how, algorithm=algorithm, workspace=workspace)
                    made.append(inputs[pass_][-1])
        return made

    return operation


CASES = {
    **OPERATIONS,
    **{f"gemm {algorithm}": multiplied(algorithm) for algorithm in gemm.ALGORITHMS},
    **{f"conv by {algorithm}": convolved(algorithm) for algorithm in conv.ALGORITHMS if algorithm != "vector_direct"},
}
EMULATED = ("gemm coalesced", "conv by winograd", "softmax", "elementwise", "scores and mix")


@pytest.mark.parametrize("name", sized([*CASES], some(CASES, *EMULATED)))
def test_the_gpu_agrees_with_the_cpu_and_itself(name: str) -> None:
    for seed in sized((0, 3, 7, LARGE), (0,)):
        for rung in (FAST, *([PLAIN] if name in OPERATIONS and sized(True, False) else [])):
            expected, *runs = (CASES[name](one, Draw(seed)) for one in (rung, OnGpu(rung), OnGpu(rung)))
            assert [one.tobytes() for one in runs[0]] == [one.tobytes() for one in runs[1]], f"seed {seed}"
            close(name, runs[0], expected, seed, 1e-4 if "winograd" in name or "norm" in name else 1e-5)
