"""The table of what an iteration held and moved, beside the plan's prediction."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from refimpl.torch import PlannedError  # noqa: E402
from refimpl.torch.reporting import measured, report  # noqa: E402
from tests.messages import raises_naming  # noqa: E402


def test_a_report_sets_what_was_measured_beside_the_prediction() -> None:
    nothing = {
        "unplanned": 0,
        "unplanned_bytes": 0,
        "kept_bytes": 0,
        "compared": 0,
        "paths": SimpleNamespace(script=()),
    }
    predicted = {"held": 1 << 20, "peak": 3 << 20, "out": 5 << 20, "in": 6 << 20, "gradients_out": 7 << 20}
    last = SimpleNamespace(held=9 << 20, moved=lambda: (10 << 20, 11 << 20), recomputed=12, **nothing)
    orders = SimpleNamespace(plan={"predicted": predicted, "resident": 1 << 20, "keeps": "pytorch", "script": {}})
    planned = SimpleNamespace(last=last, orders=orders, parameters=lambda: iter(()))
    meter = SimpleNamespace(peak=13 << 20)
    assert measured(planned, meter) == {"held": 9 << 20, "peak": 14 << 20, "out": 10 << 20, "in": 11 << 20}
    assert measured(planned)["peak"] is None
    rows = [line.split() for line in report(planned, meter).splitlines()]
    assert [row[-4::2] for row in rows[1:5]] == [["1", "9"], ["4", "14"], ["5", "10"], ["6", "11"]]
    assert rows[5][-1] == "12" and {"7", "gradients,"} <= {*rows[6]} and len(rows) == 7
    del predicted["gradients_out"]
    assert len(report(planned).splitlines()) == 6 and "not counted" in report(planned)
    orders.plan["keeps"] = "own"
    assert 'keeps="pytorch"' in report(planned)
    planned.last = None
    with raises_naming(PlannedError, "report"):
        report(planned)


def test_a_report_says_what_the_plan_did_not_know() -> None:
    entry = SimpleNamespace(labels=("noise",), write="filled", differs={0: 1 << 10, -1: 2 << 10})
    last = SimpleNamespace(
        held=0, moved=lambda: (0, 0), recomputed=0, unplanned=3, unplanned_bytes=4 << 10, kept_bytes=5 << 10,
        compared=6 << 10, paths=SimpleNamespace(script=(entry,)),
    )  # fmt: skip
    predicted = {"held": 0, "peak": 0, "out": 0, "in": 0}
    plan = {"predicted": predicted, "resident": 0, "keeps": "pytorch", "script": {"torch": "2.0"}}
    planned = SimpleNamespace(last=last, orders=SimpleNamespace(plan=plan), parameters=lambda: iter(()))
    assert report(planned).splitlines()[6:] == [
        "3 operators are not in the plan: kept, 4 KiB",
        "held beside the plan, which lets it go: 5 KiB",
        "the first iteration of its kind: 6 KiB were copied to the host and compared",
        "kept, since its operators do not compute it again as it was: noise (1 KiB), filled (2 KiB)",
        f"the plan's script is of PyTorch 2.0, and this is {torch.__version__}",
    ]
