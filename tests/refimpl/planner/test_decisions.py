"""A program's decisions without addresses: following them alone holds the maps that the program holds."""

from __future__ import annotations

import json
from typing import Any

import pytest

import refimpl
from refimpl.planner import Program


def followed(found: dict[str, Any]) -> list[set[str]]:
    """The maps on the device after each step, by the decisions alone; each order has to make sense."""
    device: set[str] = set()
    host: set[str] = set()
    held = []
    for step in found["steps"]:
        for verb, name in step.get("before", []):
            obey(verb, name, device, host)
        if step["pass"] == "forward":
            device |= {*found["layers"][step["layer"]]}
        for verb, name in step.get("after", []):
            obey(verb, name, device, host)
        held.append(set(device))
    return held


def obey(verb: str, name: str, device: set[str], host: set[str]) -> None:
    if verb == "offload":
        assert name in device
        host.add(name)
    elif verb in ("release", "free"):
        device.discard(name)
    else:
        assert verb == "recompute" or (verb == "prefetch" and name in host)
        device.add(name)


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    policies = ("baseline", "vdnnpp-all", "superneurons")
    return {name: refimpl.plan("tiny-inception", name, "titan-x") for name in policies}


def test_who_follows_the_decisions_holds_what_the_program_holds(programs: dict[str, Program]) -> None:
    for policy, program in programs.items():
        found = program.decisions()
        assert json.loads(json.dumps(found)) == found
        held, depth = followed(found), program.network.depth
        nbytes = {name: one["bytes"] for name, one in found["maps"].items()}
        assert found["predicted"]["held"] == sum(nbytes[name] for name in held[depth - 1]), policy
        if policy != "baseline":
            assert not held[-1], policy
