"""`refimpl run` with maps that threads of the host compress: what it says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from refimpl.cli import resolve
from refimpl.names.machines import named as machine
from refimpl.vdnnpp.compression import CompressedBuffers
from tests.refimpl.cli.said import Command

pytestmark = pytest.mark.vdnnpp

COMMAND = ("run", "tiny-vgg:vdnnpp", "--batch", 8, "--steps", 2, "--backend", "cpu", "--policy", "vdnnpp-all")


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was measured here: threads that are done with a map at once, so that the plan has maps compressed."""
    made = replace(machine("here"), host_rate=1e12)
    monkeypatch.setattr(resolve, "machine", lambda *_, **__: made)


def test_a_line_says_what_was_compressed_and_a_table_says_it_map_by_map(refimpl: Command) -> None:
    said = refimpl(*COMMAND)
    assert said.status == 0 and said.err == ""
    line = next(line for line in said.out.splitlines() if line.startswith("On host"))
    assert "maps, " in line and " compressed to " in line and "not zero; " in line and line.endswith(" back")
    rows = [line.split() for line in said.out.splitlines()]
    assert any(row and row[0] == "conv1_1" for row in rows) and any(row and row[0] == "together" for row in rows)
    assert max(map(len, said.out.splitlines())) <= 100


def test_the_document_has_every_map(refimpl: Command) -> None:
    said = refimpl(*COMMAND, "--json")
    assert said.err == ""
    document: dict[str, Any] = json.loads(said.out)
    compressed = document["compressed"]
    assert len(compressed) >= 2 and document["pinned_bytes"] > 0
    for one in compressed:
        assert 0 < one["density"] < 1 and one["compress_seconds"] > 0
        assert one["density"] * one["nbytes"] <= one["stored"] <= one["nbytes"] * 33 // 32


def test_nothing_is_said_where_nothing_is_compressed(refimpl: Command) -> None:
    said = refimpl(*COMMAND, "--set", "pinned=vdnnpp-on-demand")
    assert said.status == 0 and "On host" not in said.out


def test_that_no_map_is_compressed_is_said(refimpl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompressedBuffers, "bytes_in_store", lambda *_: None)  # as if every map had to stay raw
    assert "On host   no map compressed: by the plan the host's threads are too slow" in refimpl(*COMMAND).out
