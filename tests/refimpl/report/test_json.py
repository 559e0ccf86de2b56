"""The document of `plan --json`: every field there, documented, of JSON's own types, and right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from refimpl.planner import DoesNotFit, plan
from refimpl.report.json import FIELDS, misfit_json, plan_json
from refimpl.report.times import step_times
from tests.refimpl.modules import NetworkWide, machine, setup
from tests.refimpl.report.programs import ALL, SMALL, baseline, timeline

#: What the contract of the command names at least.
#: Fields whose inside is documented in a sentence.
OPAQUE = ("slots", "chosen", "traffic", "counts", "fates", "steps[].calls", "misfit")


def paths(value: Any, path: str = "") -> Iterator[str]:
    """The names of a document's fields, as `FIELDS` writes them."""
    if path:
        yield path
    if path in OPAQUE:
        return
    if isinstance(value, dict):
        for key, below in value.items():
            yield from paths(below, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for below in value:
            yield from (name for name in paths(below, f"{path}[]") if name != f"{path}[]")


def leaves(value: Any) -> Iterator[Any]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if inside is None:
        yield value
    else:
        for below in inside:
            yield from leaves(below)


def documented(document: dict[str, Any]) -> None:
    found = set(paths(document)) - {"steps"}
    groups = {name for name in found if any(field.startswith(f"{name}.") for field in FIELDS)}
    assert found - set(FIELDS) <= groups, "fields that are not documented"
    assert all(FIELDS.values())
    plain = (str, int, float, bool, type(None))
    assert {type(leaf) for leaf in leaves(document)} <= set(plain), "numbers that are not plain"
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.parametrize("make", SMALL)
def test_every_field_is_there_and_documented(make) -> None:
    document = plan_json(make(), timeline(make), baseline_seconds=1.5)
    documented(document)
    assert set(FIELDS) <= set(paths(document))


@pytest.mark.parametrize("make", ALL)
def test_the_figures_are_the_programs(make) -> None:
    program, line = make(), timeline(make)
    document = plan_json(program, line)
    steps = document["steps"]
    live = [step["live_bytes"] for step in steps]
    assert [step["step"] for step in steps] == list(range(1, 2 * program.network.depth + 1))
    peak = document["peak"]
    assert peak["live_bytes"] == max(live) == live[peak["step"] - 1]
    assert peak["step"] == live.index(max(live)) + 1
    assert (peak["layer"], peak["direction"]) == tuple(steps[peak["step"] - 1][key] for key in ("layer", "direction"))
    assert peak["transient_bytes"] >= peak["live_bytes"]
    assert peak["pool_bytes"] == program.peak_bytes <= document["budget_bytes"]
    assert max(step["pool_bytes"] for step in steps) <= peak["pool_bytes"]
    assert document["average_live_bytes"] == pytest.approx(sum(live) / len(live), abs=1)
    assert document["resident_bytes"] == sum(tensor.nbytes for tensor in program.resident)
    seconds = document["seconds"]
    assert seconds["compute"] + seconds["stall"] == pytest.approx(seconds["iteration"])
    assert [(step["start"], step["end"]) for step in steps] == step_times(program, line)
    moved = {(entry["direction"], entry["why"]): entry["bytes"] for entry in document["traffic"]}
    assert moved.get(("copy out", "offload"), 0) == document["offloaded_bytes"]
    assert moved.get(("copy out", "evicted"), 0) == document["evicted_bytes"]
    again = sum(i.op == "launch" and i.rebuild for i in program.instructions)
    assert bool(document["recomputed_layers"]) == bool(again)
    assert {fate["tensor"] for fate in document["fates"]} == {tensor.name for tensor in program.fates}


def test_what_does_not_fit_has_the_same_fields() -> None:
    network, wanted, on = baseline().network, setup(liveness=NetworkWide()), machine()
    budget = baseline().peak_bytes - 1
    with pytest.raises(DoesNotFit) as caught:
        plan(network, wanted, on, budget)
    document = misfit_json(network, wanted, on, budget, caught.value)
    documented(document)
    assert set(document) == set(plan_json(baseline(), timeline(baseline)))
    assert document["fits"] is False and document["steps"] == [] and document["peak"] is None
    misfit = document["misfit"]
    assert misfit["layer"] in misfit["message"] and misfit["asked_bytes"] > misfit["largest_hole_bytes"]
