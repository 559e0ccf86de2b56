"""What all tests share: hypothesis's profile, PyTorch as a second oracle, and the marker `gpu`."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest
from hypothesis import settings

# No deadline: the first example of a test may compile a kernel.  In CI the same examples are drawn every time.
settings.register_profile("here", deadline=None, max_examples=30)
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(scope="module", autouse=True)
def quiet_collector() -> None:
    """What earlier modules left alive is not looked through again: a test that measures time measures its own."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch on the CPU: an oracle and no dependency.  Where it is missing its tests are skipped, and say so."""
    return pytest.importorskip("torch", reason="PyTorch is not installed, so there is no second oracle")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Campaigns run only where `-m` names them."""
    if "campaign" not in config.getoption("markexpr"):
        campaigns = [item for item in items if item.get_closest_marker("campaign")]
        config.hook.pytest_deselected(items=campaigns)
        items[:] = [item for item in items if not item.get_closest_marker("campaign")]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        from kernels import gpu

        reason = gpu.why_not()
        if reason is not None:
            pytest.skip(reason)
