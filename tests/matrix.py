"""Cases of a test that has many: `make test` runs those kept here, `make matrix` the others, marked `matrix`.

A case earns its place in `make test` if it runs something that no other one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def more(*arguments: Any) -> Any:
    """A case for `make matrix`."""
    return pytest.param(*arguments, marks=pytest.mark.matrix)


def some(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """The values of one argument; those not kept are for `make matrix`."""
    cases = [*cases]
    assert (missing := [one for one in kept if one not in cases]) == [], f"no cases: {missing}"
    return [one if one in kept else more(one) for one in cases]


def diagonal(*axes: Iterable[Any]) -> list[Any]:
    """All combinations of several arguments; those kept have each value of each, and are the fewest that do."""
    values: list[Sequence[Any]] = [[*axis] for axis in axes]
    kept = [tuple(axis[i % len(axis)] for axis in values) for i in range(max(map(len, values)))]
    return [one if one in kept else more(*one) for one in product(*values)]
