"""The catalogue's choices for attention: workspaces that the kernels take, the least that of one image's heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.fast import attention
from refimpl.machine import MACHINES
from refimpl.machine.cpu_costs import reference
from refimpl.machine.cpu_model import with_costs
from refimpl.machine.here import rough_cpu
from refimpl.network import Builder, Call

H100 = MACHINES["h100"]
CPU = with_costs(rough_cpu(), reference())


def passes(images: int, tokens: int, heads: int = 2, width: int = 8, **how: Any) -> tuple[Call, Call]:
    """The calls forward and backward of one layer."""
    b = Builder("net", (images, 4, tokens, 1))
    b.conv((heads + 2 * how.get("kv_heads", heads)) * width, 1)
    layer = b.attention(heads, **how)
    b.fc(2)
    b.softmax()
    b.build()
    return layer.forward.calls[0], layer.backward.calls[0]


@pytest.mark.parametrize("machine", [H100, CPU], ids=["gpu", "cpu"])
def test_the_menu_is_short_and_ends_in_one_images_heads(machine: Any) -> None:
    for pass_, call in zip(attention.MATRICES, passes(32, 20), strict=True):
        shapes = [x.shape for x in call.arguments["inputs"]]
        needed = [attention.workspace_bytes(pass_, shapes, heads=2, images=images) for images in (1, 2, 8, 32)]
        assert sorted(choice.workspace_bytes for choice in machine.choices(call)) == needed
        assert needed[0] == 4 * 2 * 20 * 20 * attention.MATRICES[pass_]


def test_every_choice_gives_the_same_bits() -> None:
    forward, _ = passes(5, 9)
    (x,), y = forward.arguments["inputs"], forward.arguments["y"]
    given, found = np.random.default_rng(1).standard_normal(x.shape).astype(np.float32), set()
    for choice in H100.choices(forward):
        made = np.full(y.shape, np.nan, np.float32)
        workspace = np.full(choice.workspace_bytes // 4, np.nan, np.float32)
        attention.forward([given], made, heads=2, algorithm=choice.algorithm, workspace=workspace)
        found.add(made.tobytes())
    assert len(found) == 1


def test_less_workspace_is_slower_and_a_mask_saves_time() -> None:
    for call in passes(64, 197, heads=12, width=64):
        seconds = [choice.seconds for choice in sorted(H100.choices(call), key=lambda one: -one.workspace_bytes)]
        assert seconds == sorted(seconds) and seconds[0] < seconds[-1]
    whole, causal = (passes(8, 1024, heads=12, width=64, causal=how) for how in (False, True))
    for one, other in zip(whole, causal, strict=True):
        assert 0.5 < H100.seconds(other) / H100.seconds(one) < 0.8
        assert other.flops == pytest.approx(one.flops / 2, rel=1e-3)
