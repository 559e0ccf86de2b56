"""Blocks and step orders alone, by hand: when bytes leave, when they are back, and which node carries out an order."""

from __future__ import annotations

from typing import Any
from weakref import ref

import pytest

torch = pytest.importorskip("torch")

from refimpl.torch import DeferredTransfers, PlannedError  # noqa: E402
from refimpl.torch.blocks import BlockTable, StorageBlock  # noqa: E402
from refimpl.torch.step_orders import FORMAT, NodeOrders, Orders, StepOrders, read_plan  # noqa: E402
from refimpl.torch.transfers import CudaTransfers, Transfers, transfers_for  # noqa: E402
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


@pytest.mark.parametrize("order", ["free", "release"])
def test_a_block_stays_while_forward_reads_it(table: BlockTable, order: str) -> None:
    block = block_of(table, numbers())
    block.runs, block.readers = [Filling()], 2
    getattr(block, order)()
    assert block.leaving == order
    block.leave()
    assert block.storage is not None and block.readers == 1
    block.leave()
    assert block.storage is None and block.leaving == ""


def test_a_block_without_an_order_stays_when_its_last_reader_leaves(table: BlockTable) -> None:
    block = block_of(table, numbers())
    block.runs, block.readers = [Filling()], 1
    block.leave()
    assert block.storage is not None


def test_runs_follow_each_other_in_place(table: BlockTable) -> None:
    block = block_of(table, numbers())
    block.runs = [Filling(), Filling(), Filling()]
    block.recompute()
    assert table.recomputed == 0, "it is there"
    block.free()
    block.recompute()
    assert table.recomputed == 1 and listed(block.storage) == [2] * 6
    block.free()
    assert listed(block.have()) == [2] * 6 and table.recomputed == 2


class Both(Filling):
    """A run that makes a by-product, too."""

    def __init__(self, other: StorageBlock) -> None:
        super().__init__()
        self.other = other

    def again(self, own: Any) -> Any:
        self.other.storage = torch.full((6,), 7.0).untyped_storage()
        return super().again(own)


@pytest.mark.parametrize("gone", [True, False])
def test_a_by_product_comes_with_its_output(table: BlockTable, gone: bool) -> None:
    mask, output = (block_of(table, numbers()) for _ in range(2))
    mask.beside = ref(output)
    mask.runs = [Both(mask)]
    output.runs = [Both(mask)]
    mask.free()
    if gone:
        output.free()
    assert listed(mask.have()) == [7] * 6
    assert (output.storage is not None) and table.recomputed == 1
    assert listed(output.storage) == ([0] * 6 if gone else [0, 1, 2, 3, 4, 5])


def test_before_a_block_is_overwritten_what_is_computed_from_it_has_to_be_there(table: BlockTable) -> None:
    source, dropped, sent, kept = (block_of(table, numbers()) for _ in range(4))
    for one in (dropped, sent, kept):
        one.runs = [Filling()]
        source.read_by.append(ref(one))
    source.read_by.append(ref(source))
    assert table.held() == 24, "the source, which others are computed from"
    source.runs = [Filling()]
    sent.saved = source.saved = True
    sent.offload()
    source.offload()
    for one in (dropped, sent):
        one.free()
    source.before_change()
    assert dropped.storage is not None and sent.storage is None and table.recomputed == 1
    assert not (dropped.runs or sent.runs or kept.runs or source.read_by) and source.runs
    assert source.host is None and source.copying is None and sent.host is not None


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


def test_maps_that_stay_are_neither_ordered_nor_dropped() -> None:
    found = plan()
    found["steps"] = [step("a", True, after=[["release", "a"]]), step("a", False, before=[["free", "a"]])]
    found["maps"]["b.mask"]["recomputed"] = False
    read = StepOrders(found)
    assert read.ordered == set() and read.end == ()
    assert read.of["first"] == NodeOrders(("a",), False, False, Orders(), Orders())
    assert read.of["third"] == NodeOrders(("b", "b.mask"))


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


class Said(list[Any]):
    """Notes what is called: stands for a stream, an event, and for tensors that are copied."""

    def __getattr__(self, name: str) -> Any:
        def note(*args: Any, **kwargs: Any) -> Any:
            self.append((name, *args, *kwargs.items()))
            return self

        return note

    def __enter__(self) -> None:
        self.append("entered")

    def __exit__(self, *error: Any) -> None:
        self.append("left")


def test_a_copy_on_a_gpu_runs_on_its_own_stream_after_what_was_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    said, computing, pinned = Said(), Said(), list[Any]()
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: said)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: computing)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    transfers = transfers_for(torch.device("cuda"))
    assert isinstance(transfers, CudaTransfers)
    event = transfers._copy(said, "maps")
    assert event is said and said == [
        ("wait_stream", computing), "entered", ("copy_", "maps", ("non_blocking", True)), "left", ("record_event",),
    ]  # fmt: skip
    transfers.wait("event")
    assert computing == [("wait_event", "event")]
    assert transfers.is_over(said) and said[-1] == ("query",)

    def empty(nbytes: int, **options: Any) -> Any:
        pinned.append((nbytes, options))
        return numbers()

    monkeypatch.setattr(torch, "empty", empty)
    transfers.host_buffer(24)
    assert pinned == [(24, {"dtype": torch.uint8, "pin_memory": True})]
