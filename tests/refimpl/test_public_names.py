"""The public names: `dir(refimpl)` lists them, each can be imported and says what it is."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import refimpl
from refimpl import OFFERED, ROOMS
from tests.messages import raises_naming

PROMISED = (
    "Builder", "DoesNotFit", "Machine", "NetworkError", "NotFinite", "Context", "Program", "Setup", "SetupError",
    "Trainer", "data", "machines", "networks", "plan", "presets", "slots",
)  # fmt: skip


def test_what_was_promised_is_listed() -> None:
    assert set(PROMISED) <= set(dir(refimpl)) == {"__version__", *OFFERED, *ROOMS}


@pytest.mark.parametrize("name", [*OFFERED, *ROOMS])
def test_a_public_name_is_there_and_documented(name: str) -> None:
    found = getattr(refimpl, name)
    # a dataclass without a docstring has its signature for one
    said = inspect.getdoc(found) or ""
    assert len(said) > 20 and not said.startswith(f"{name}(")


def test_a_misspelt_name_is_one_line_with_an_offer() -> None:
    with raises_naming(AttributeError, "Traner", "refimpl"):
        refimpl.Traner  # noqa: B018


def test_importing_refimpl_imports_none_of_it() -> None:
    loaded = "[m for m in sys.modules if m.startswith('refimpl.') or m in ('numpy', 'numba')]"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, refimpl; dir(refimpl); print({loaded})"], capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr
