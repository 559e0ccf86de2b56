"""A mapping of maps to fates: frozen, named, equal where it says the same."""

from __future__ import annotations

import dataclasses

import pytest

from refimpl.combined import Fates
from refimpl.combined.fates import by_name
from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.planner import Context, SetupError
from tests.messages import raises_naming

pytestmark = pytest.mark.combined


def test_equal_fates_are_equal_in_whatever_order_they_were_given() -> None:
    fates = Fates.of({"b": "drop", "a": "offload", "c": "keep"})
    assert fates == Fates.of({"a": "offload", "b": "drop"}) and hash(fates) == hash(
        Fates.of({"b": "drop", "a": "offload"})
    )
    assert [fates[name] for name in "abcd"] == ["offload", "drop", "keep", "keep"]
    assert fates.named("offload", "drop") == ["a", "b"] and str(fates) == "a offload, b drop"
    with pytest.raises(dataclasses.FrozenInstanceError):
        fates.chosen = ()  # type: ignore[misc]


def test_a_change_leaves_the_first_as_it_was() -> None:
    fates = Fates.of({"a": "offload"})
    assert fates.changed({"a": "keep", "b": "again"}) == Fates.of({"b": "again"})
    assert fates == Fates.of({"a": "offload"}) and str(Fates()) == "every map is kept"


def test_a_misspelt_map_and_a_dropped_batch_are_refused_in_one_line() -> None:
    maps = by_name(Context(build("alexnet", 2), MACHINES["titan-x"]))
    with raises_naming(SetupError, "con1", "conv1"):
        Fates.of({"con1": "offload"}).check(maps)
    with raises_naming(SetupError, "input"):
        Fates.of({"input": "drop"}).check(maps)
