"""Blocks and step orders alone, by hand: when bytes leave, when they are back, and which node carries out an order."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from refimpl.torch import DeferredTransfers, PlannedError  # noqa: E402
from refimpl.torch.blocks import BlockTable, StorageBlock  # noqa: E402
from refimpl.torch.step_orders import FORMAT, NodeOrders, Orders, read_plan  # noqa: E402
from refimpl.torch.transfers import Transfers, transfers_for  # noqa: E402
from tests.messages import raises_naming  # noqa: E402


@pytest.fixture
def table() -> BlockTable:
    return BlockTable(DeferredTransfers())


def numbers(count: int = 6) -> Any:
    return torch.arange(count, dtype=torch.float32)


class Filling:
    """A run that adds one to the storage that it gets, or makes zeros."""

    def __init__(self, count: int = 6) -> None:
        self.count = count

    def again(self, own: Any) -> Any:
        made = torch.zeros(self.count) if own is None else torch.empty(0).set_(own, 0, (self.count,)) + 1
        return made.untyped_storage()


def listed(storage: Any) -> list[float]:
    return torch.empty(0).set_(storage, 0, (storage.nbytes() // 4,)).tolist()  # type: ignore[no-any-return]


def block_of(table: BlockTable, tensor: Any) -> StorageBlock:
    found = table[tensor]
    assert found is not None
    return found


def test_a_storage_is_one_block_until_it_is_let_go(table: BlockTable) -> None:
    weight, x = numbers(), numbers()
    table.fixed = {weight.untyped_storage()._cdata}
    table.operator = "an operator"
    block = block_of(table, x)
    assert table[weight] is None and table[x] is block and table[x[2:].view(2, 2)] is block
    assert (block.nbytes, block.made_by, block.map, block.version) == (24, "an operator", "", 0)
    block.runs = [Filling()]
    block.free()
    assert table[x] is not block, "another may have its key from now on"
    table.forget(block)
    assert table[x] is table[x]


def test_a_copy_starts_when_it_is_known_that_backward_reads_the_block(table: BlockTable) -> None:
    x = numbers()
    block, transfers = block_of(table, x), table.transfers
    block.offload()
    assert block.is_wanted and block.host is None and transfers.out_bytes == 0
    saved = block.save(x[1:5].view(2, 2))
    assert not block.is_wanted and transfers.out_bytes == 24 and block.copying == 1
    block.offload()
    assert transfers.out_bytes == 24, "it has a copy"
    block.release()
    assert block.storage is not None and block.leaving == "release", "the copy is under way"
    transfers.wait(block.copying)
    block.release()
    assert block.storage is None and block.leaving == "" and saved.tensor is None
    assert table.held() == 0
    block.recompute()
    assert block.storage is None, "it has a copy, which prefetch brings"
    back = saved.unpacked()
    assert back.tolist() == [[1, 2], [3, 4]] and back.dtype == torch.float32 and transfers.in_bytes == 24
    block.prefetch()
    assert transfers.in_bytes == 24, "it is there"
    assert table.held() == 0, "forgotten, as another storage may have its key"


def test_a_block_is_freed_at_once_and_waits_for_its_copy(table: BlockTable) -> None:
    block = block_of(table, numbers())
    block.free()
    block.release()
    block.prefetch()
    assert block.storage is not None, "there is no copy, and no run that computes it"
    block.saved = True
    block.offload()
    block.free()
    assert block.storage is None and table.transfers.waits == 1 and block.copying is None  # type: ignore[attr-defined]
    assert listed(block.have()) == [0, 1, 2, 3, 4, 5] and block.copying is None
    block.free()
    assert block.storage is None and listed(block.have())[-1] == 5, "the copy on the host serves again"


def test_what_was_saved_and_then_changed_is_an_error_with_both_versions(table: BlockTable) -> None:
    x = numbers()
    block = block_of(table, x)
    saved = block.save(x)
    assert saved.unpacked().tolist() == x.tolist()
    x.add_(1)
    with raises_naming(RuntimeError, "(6,)", "version 0", "version 1"):
        saved.unpacked()
    block.version = x._version
    block.runs = [Filling()]
    block.free()
    with raises_naming(RuntimeError, "(6,)", "version 0", "version 1"):
        saved.unpacked()


# -- the orders of a plan ----------------------------------------------------------------------------------------------


def step(layer: str, forward: bool, before: Any = (), after: Any = ()) -> dict[str, Any]:
    return {"pass": "forward" if forward else "backward", "layer": layer, "before": before, "after": after}


def plan() -> dict[str, Any]:
    """Layer a has two nodes, c and d have none; the map of c is never let go."""
    return {
        "format": FORMAT, "network": "drawn", "inputs": [], "fingerprint": "",
        "layers": {"a": ["a"], "b": ["b", "b.mask"]},
        "nodes": {"first": "a", "second": "a", "third": "b", "fourth": "other"},
        "maps": {
            name: {"recomputed": name == "b.mask", "bytes": size}
            for name, size in (("a", 8), ("b", 4), ("b.mask", 1), ("c", 2))
        },
        "steps": [
            step("a", True, after=[["offload", "a"]]),
            step("b", True, before=[["release", "a"]], after=[["release", "c"]]),
            step("c", True, before=[["free", "b"]], after=[["free", "b.mask"]]),
            step("d", False, before=[["prefetch", "a"]]),
            step("b", False, before=[["recompute", "b"]], after=[["recompute", "b.mask"], ["free", "c"]]),
            step("a", False, after=[["free", "a"]]),
        ],
    }  # fmt: skip


def test_a_step_without_a_node_leaves_its_orders_to_the_next() -> None:
    found = read_plan(plan())
    assert found.recomputed == {"b.mask"} and found.bytes == {"a": 8, "b": 4, "b.mask": 1, "c": 2}
    assert found.ordered == {"a", "b", "b.mask"}
    assert found.end == (("free", "b"), ("free", "b.mask")), "before backward"
    assert found.of == {
        "first": NodeOrders(
            ("a",), False, True, Orders((), (("offload", "a"),)), Orders((), (("free", "a"),)),
        ),
        "second": NodeOrders(("a",), False, True),
        "third": NodeOrders(
            ("b", "b.mask"), True, True,
            Orders((("release", "a"),), ()),
            Orders((("prefetch", "a"), ("recompute", "b")), (("recompute", "b.mask"),)),
        ),
    }  # fmt: skip


def test_plans_that_are_none(tmp_path: Any) -> None:
    (tmp_path / "plan.json").write_text("{", encoding="utf-8")
    for given, says in (
        (tmp_path / "plan.json", ("plan.json", "JSONDecodeError")),
        (str(tmp_path / "none.json"), ("none.json", "FileNotFoundError")),
        (plan() | {"format": "refimpl decisions 0"}, (FORMAT, "dict")),
        (3, (FORMAT, "int")),
        (plan() | {"nodes": {}}, ("drawn", "refimpl.networks.from_torch")),
        (plan() | {"steps": [step("a", True, after=[["explode", "a"]])]}, ("explode", "offload")),
    ):
        with raises_naming(PlannedError, *says):
            read_plan(given)


# -- copies ------------------------------------------------------------------------------------------------------------


def test_copies_on_a_cpu_are_over_at_once() -> None:
    transfers, hosts = transfers_for(torch.device("cpu")), list[Any]()
    assert type(transfers) is Transfers
    transfers.note_host = hosts.append
    host, event = transfers.out(numbers().untyped_storage(), "cpu")
    assert event is None and listed(host) == numbers().tolist() and hosts == [host]
    back, event = transfers.back(host, "cpu")
    assert event is None and listed(back) == numbers().tolist() and transfers.is_over(event)
    assert (transfers.out_bytes, transfers.in_bytes) == (24, 24)
