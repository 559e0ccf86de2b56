"""What the tests of machines share: the three passes of one convolution as calls, and shapes drawn by hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from refimpl.machine.convolution import Convolution
from refimpl.network import Call, Tensor

Pair = tuple[int, int]


def passes(
    x: tuple[int, int, int, int],
    filters: int,
    window: Pair,
    stride: Pair = (1, 1),
    pad: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
) -> list[Call]:
    """Forward, backward data and backward filter of a convolution without a bias."""
    reach = [dilation[axis] * (window[axis] - 1) + 1 for axis in (0, 1)]
    y_size = [(x[2 + axis] + 2 * pad[axis] - reach[axis]) // stride[axis] + 1 for axis in (0, 1)]
    depth = x[1] // groups
    maps, weights = (
        [Tensor(name, shape, "map") for name in names]
        for names, shape in ((("x", "dx"), x), (("w", "dw"), (filters, depth, *window)))
    )
    y, dy = (Tensor(name, (x[0], filters, *y_size), "map", managed=True) for name in ("y", "dy"))
    context = {"stride": stride, "pad": pad} | ({} if dilation == (1, 1) else {"dilation": dilation})
    flops = 2 * y.nbytes // 4 * depth * window[0] * window[1]
    return [
        Call("conv.forward", {"b": None, "x": maps[0], "w": weights[0], "y": y, **context}, [maps[0], weights[0]], [y],
             flops=flops),
        Call("conv.backward_data", {"dy": dy, "w": weights[0], "dx": maps[1], **context}, [dy, weights[0]], [maps[1]],
             flops=flops),
        Call("conv.backward_filter", {"x": maps[0], "dy": dy, "dw": weights[1], **context}, [maps[0], dy], [weights[1]],
             flops=flops),
    ]  # fmt: skip


def as_kernels_take_it(call: Call) -> tuple[str, Any, Any, Any, Any, Any]:
    """Pass, shapes of x and w, stride, padding and dilation."""
    conv = Convolution.of(call)
    stride, pad, dilation = conv.walk.values()
    return conv.pass_, conv.x_shape, conv.w_shape, stride, pad, dilation


@st.composite
def convolutions(draw: st.DrawFn, largest: int = 40, images: int = 40) -> list[Call]:
    """The passes of a convolution of any stride, padding, dilation and groups, rows and columns on their own."""
    window = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    pad = draw(st.tuples(st.integers(0, window[0] - 1), st.integers(0, window[1] - 1)))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 3)]))
    least = [apart * (taps - 1) + 1 for apart, taps in zip(dilation, window, strict=True)]
    size = draw(st.tuples(st.integers(least[0], largest), st.integers(least[1], largest)))
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    x = (draw(st.integers(1, images)), groups * draw(st.integers(1, 20 // groups)), *size)
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    return passes(x, groups * draw(st.integers(1, 20 // groups)), window, stride, pad, dilation, groups)
