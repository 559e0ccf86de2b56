"""The bench's cases, all of them: what each launches, on arrays of which shapes, and what its rivals compute.

`cases.txt` has a line a case and a line a launch, for both devices, and `rivals.txt` the sum of each rival's result on
small maps.  After a change of the cases, `python -m tests.refimpl.studies.bench.test_cases` rewrites both.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from refimpl.studies.bench import cases
from refimpl.studies.bench.kernels import Rival
from tests.refimpl.studies.bench.near import is_near

HERE = Path(__file__).parent
CALLS = (
    "forward", "backward", "backward_data", "backward_filter", "update", "apply", "gemm", "inference", "softmax",
    "softmax_backward", "fill", "copy", "axpy",
)  # fmt: skip


class Shaped:
    """An array of which only the shape is known."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __repr__(self) -> str:
        return "×".join(map(str, self.shape))

    def copy_to_device(self, other: Shaped) -> None:
        pass


class Shapes:
    """A device that makes no arrays."""

    name, free_bytes = "shapes", 3 << 30

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def array(self, values: np.ndarray) -> Shaped:
        return Shaped(*values.shape)

    def empty(self, *shape: int) -> Shaped:
        return Shaped(*shape)


class Arrays:
    """A CPU whose arrays are NumPy's."""

    name, free_bytes, kind = "arrays", 3 << 30, "cpu"

    def array(self, values: np.ndarray) -> np.ndarray:
        return values.copy()

    def empty(self, *shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)

    def tensor(self, torch: Any, array: np.ndarray) -> Any:
        return torch.from_numpy(array)


def shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "×".join(map(str, value.shape))
    return f"[{', '.join(map(shown, value))}]" if isinstance(value, list) else str(value)


def called(name: str, *arrays: Any, **options: Any) -> str:
    """A launch, as text."""
    given = [shown(array) for array in arrays] + [f"{key}={shown(value)}" for key, value in options.items()]
    return f"{name}({', '.join(given)})"


@contextmanager
def only_called() -> Iterator[None]:
    """Kernels' functions give the text of their call, and nothing is launched."""
    modules = {
        one for one in vars(cases).values() if isinstance(one, ModuleType) and one.__name__.startswith("kernels.fast.")
    }
    modules |= {import_module(f"kernels.fast.{kind}") for kind in cases.ACTIVATIONS}
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            for name in CALLS:
                if callable(getattr(module, name, None)):
                    patch.setattr(
                        module, name, partial(called, f"{module.__name__.removeprefix('kernels.fast.')}.{name}")
                    )
        patch.setattr(cases, "bind", lambda function, *arrays, **options: [function(*arrays, **options)])
        yield


def lines(kind: str, quick: bool) -> Iterator[str]:
    """Every case of a device, with its launches and the names of its rivals."""
    device: Any = Shapes(kind)
    with only_called(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "random", lambda device, *shape: Shaped(*shape))
        patch.setattr(cases, "torch", None)
        for case in cases.cases(device, quick):
            more = f"{' headline' if case.headline else ''}{f' {case.times} times' if case.times > 1 else ''}"
            ours, rivals = case.prepare(device)
            others = [f"{name} {rival.amount:.10g}" if rival.amount else name for name, rival in rivals.items()]
            more += f", beside {', '.join(others)}" if others else ""
            yield f"{case.family}: {case.what}, {case.size}: {case.amount:.10g} {case.unit}{more}\n"
            if not quick:
                for name, launches in ours.items():
                    yield from (f"  {name}: {launch}\n" for launch in launches)


def every_case() -> str:
    blocks = []
    for kind in ("cpu", "gpu"):
        for quick in (True, False):
            blocks.append(f"{kind}{', quick' if quick else ''}\n{''.join(lines(kind, quick))}")
    return "\n".join(blocks)


# -- rivals ------------------------------------------------------------------------------------------------------------

SOME = np.random.default_rng(0).standard_normal(4099, dtype=np.float32)
LEFT_OUT = ("conv", "dropout", "attention")  #: has a test of its own; draws; takes long


@cache
def some(count: int) -> np.ndarray:
    return np.resize(SOME, count)


def total(result: Any) -> float:
    """A weighted sum of the sizes of a rival's numbers, or of those of the first of several results."""
    first = result[0] if isinstance(result, tuple | list) else result
    if first is None:
        return math.nan
    sizes = np.abs(np.asarray(first)).ravel()
    return float(sizes.sum() + sizes[::2].sum() + sizes[::3].sum())


def sums(rival: Rival) -> str:
    """Of its result, and of its arrays after it."""
    result = rival.run()
    arrays = rival.run.args if isinstance(rival.run, partial) else ()
    return " ".join(f"{value:.4g}" for value in map(total, (result, *arrays)))


def rival_lines() -> Iterator[str]:
    """Every rival but plain copies, of small maps."""
    device: Any = Arrays()
    with only_called(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "random", lambda device, *shape: some(math.prod(shape)).reshape(shape).copy())
        patch.setattr(cases, "map_shape", lambda gpu, quick: (2, 32, 6, 6))
        for case in cases.cases(device, quick=True):
            if case.family not in LEFT_OUT and (case.family != "gemm" or "best" in case.what):
                _, rivals = case.prepare(device)
                yield from (
                    f"{case.family}, {case.what}, {name}: {sums(rival)}\n"
                    for name, rival in rivals.items()
                    if name != "copy"
                )


# -- both files --------------------------------------------------------------------------------------------------------


def test_the_cases_and_their_launches_are_the_same() -> None:
    assert every_case() == (HERE / "cases.txt").read_text(encoding="utf-8")


def test_the_rivals_compute_the_same() -> None:
    pytest.importorskip("torch")
    assert is_near("".join(rival_lines()), (HERE / "rivals.txt").read_text(encoding="utf-8"))


if __name__ == "__main__":
    (HERE / "cases.txt").write_text(every_case(), encoding="utf-8")
    (HERE / "rivals.txt").write_text("".join(rival_lines()), encoding="utf-8")
    sys.stdout.write("2 files written\n")
