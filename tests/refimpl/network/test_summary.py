"""A network as rows: each figure computed by other code, and the rows as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from refimpl.names.networks import build
from refimpl.network import VDNN, Builder
from refimpl.network.accounting import SummaryRow, summary, total


def test_rows_of_a_small_network() -> None:
    b = Builder("net", (2, 3, 8, 8), VDNN)
    b.conv(4, 3, name="conv")
    b.relu(name="relu")
    b.pool(2, name="pool")
    b.fc(5, name="fc")
    b.softmax(name="softmax")
    rows = summary(b.build())
    conv, fc = 2 * (2 * 4 * 36) * 27, 2 * (2 * 5) * 36
    assert rows == [
        SummaryRow("input", "data", (2, 3, 8, 8), 0, 0, 0, 4 * 384, False),
        SummaryRow("conv", "conv", (2, 4, 6, 6), 4 * 27 + 4, conv, conv, 4 * 288, False),  # no gradient of the input
        SummaryRow("relu", "relu", (2, 4, 6, 6), 0, 0, 0, 0, True),
        SummaryRow("pool", "pool", (2, 4, 3, 3), 0, 0, 0, 4 * 72, False),
        SummaryRow("fc", "fc", (2, 5), 36 * 5 + 5, fc, 2 * fc, 4 * 10, False),
        SummaryRow("softmax", "softmax", (2, 5), 0, 0, 0, 4 * 10, False),
    ]
    assert total(rows) == SummaryRow(
        "total", "", (), 112 + 185, conv + fc, conv + 2 * fc, 4 * (384 + 288 + 72 + 20), False
    )
    assert json.loads(json.dumps([asdict(row) for row in rows]))[1]["shape"] == [2, 4, 6, 6]


def test_totals_are_the_networks() -> None:
    for name in ("vgg16", "googlenet", "resnet50:superneurons"):
        network = build(name, 4)
        rows = summary(network)
        sums = total(rows)
        assert len(rows) == 1 + len(network.layers)
        assert sums.parameters == network.parameter_count
        assert sums.flops_forward + sums.flops_backward == network.flops
        maps = [tensor for tensor in network.managed if tensor.kind == "map"]
        assert sums.map_bytes == sum(tensor.nbytes for tensor in maps) + network.input.nbytes
    fork = next(row for row in rows if row.kind == "fork")
    assert fork.map_bytes == 2 * 4 * 4 * 64 * 56 * 56
