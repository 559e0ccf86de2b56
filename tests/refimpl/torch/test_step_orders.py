"""Step orders and copies alone, by hand: which node carries out an order, and when a copy is over."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from refimpl.torch import PlannedError  # noqa: E402
from refimpl.torch.step_orders import FORMAT, NodeOrders, Orders, read_plan  # noqa: E402
from refimpl.torch.transfers import Transfers, transfers_for  # noqa: E402
from tests.messages import raises_naming  # noqa: E402


def numbers(count: int = 6) -> Any:
    return torch.arange(count, dtype=torch.float32)


def listed(storage: Any) -> list[float]:
    return torch.empty(0).set_(storage, 0, (storage.nbytes() // 4,)).tolist()  # type: ignore[no-any-return]


# -- the orders of a plan ----------------------------------------------------------------------------------------------


def step(layer: str, forward: bool, before: Any = (), after: Any = ()) -> dict[str, Any]:
    return {"pass": "forward" if forward else "backward", "layer": layer, "before": before, "after": after}


def plan() -> dict[str, Any]:
    """Layer a has two nodes, c and d have none; the map of c is never let go."""
    return {
        "format": FORMAT, "network": "drawn", "inputs": [], "script": {},
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
            ("a",), False, Orders((), (("offload", "a"),)), Orders((), (("free", "a"),)),
        ),
        "second": NodeOrders(("a",), False),
        "third": NodeOrders(
            ("b", "b.mask"), True,
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
    assert event is None and listed(back.untyped_storage()) == numbers().tolist() and transfers.is_over(event)
    assert (transfers.out_bytes, transfers.in_bytes) == (24, 24)
