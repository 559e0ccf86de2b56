"""What the fast families refuse before they launch anything: a line that names the function, the array and the sizes.

Convolution, pooling, fully connected layers and gemm have theirs in their own files.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError
from kernels.fast import (
    attention,
    batchnorm,
    concat,
    dropout,
    layernorm,
    mul,
    pixel_softmax,
    relu,
    silu,
    softmax,
)
from tests.messages import raises_naming


def array(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def test_activations() -> None:
    right, wrong = array(4, 3), array(3, 4)
    with raises_naming(KernelError, "silu.forward", "y", (3, 4), (4, 3)):
        silu.forward(right, wrong)
    for gradients in ((wrong, right), (right, wrong)):
        with raises_naming(KernelError, "silu.backward", (3, 4), (4, 3)):
            silu.backward(right, *gradients)


def test_attention() -> None:
    x, y, workspace = array(2, 12, 5, 1), array(2, 4, 5, 1), array(200)
    with raises_naming(KernelError, "attention.forward", 12, 5, "heads"):
        attention.forward([x], y, heads=5, workspace=workspace)
    with raises_naming(KernelError, "attention.forward", 3, 2, "heads of queries"):
        attention.forward([x], y, heads=3, kv_heads=2, workspace=workspace)
    with raises_naming(KernelError, "attention.forward", "y", (2, 12, 5, 1), (2, 4, 5, 1)):
        attention.forward([x], x, heads=2, workspace=workspace)
    with raises_naming(KernelError, "attention.backward", "gradient 0", (2, 4, 5, 1), (2, 12, 5, 1)):
        attention.backward([x], y, [y], heads=2, workspace=workspace)
    with raises_naming(KernelError, "attention.backward", 1, 2):
        attention.backward([x], y, [x, x], heads=2, workspace=workspace)
    keys = array(2, 4, 7, 1)
    with raises_naming(KernelError, "attention.forward", "causal", 5, 7):
        attention.forward([y, keys, keys], y, heads=2, causal=True, workspace=workspace)
    with raises_naming(KernelError, "attention.forward", "one map", "queries, keys and values"):
        attention.forward([y, keys], y, heads=2, workspace=workspace)
    with raises_naming(KernelError, "attention.forward", "do not fit together"):
        attention.forward([y, keys, y], y, heads=2, workspace=workspace)
    with raises_naming(KernelError, "attention.forward", "workspace", 100, 400, 96):
        attention.forward([x], y, heads=2, workspace=array(24))
    with raises_naming(KernelError, "attention.backward", "workspace", 800):
        attention.backward([x], y, [x], heads=2)
    with raises_naming(KernelError, "attention.forward", "fused", "tiled"):
        attention.forward([x], y, heads=2, algorithm="fused", workspace=workspace)
    with raises_naming(KernelError, "attention.workspace_bytes", "sideways", "forward", "backward"):
        attention.workspace_bytes("sideways", [x.shape], heads=2)
    with raises_naming(KernelError, "attention.workspace_bytes", 3, 2):
        attention.workspace_bytes("forward", [x.shape], heads=2, images=3)


def test_batchnorm() -> None:
    shape = (2, 3, 4)
    x, gamma, (mean, std) = array(*shape), array(3), (array(3), array(3))
    for space in (None, array(5)):
        with raises_naming(KernelError, "workspace", 24):
            batchnorm.forward(x, gamma, gamma, x, mean, std, workspace=space)
        with raises_naming(KernelError, "workspace", 24):
            batchnorm.backward(x, gamma, mean, std, x, x, gamma, gamma, workspace=space)
    with raises_naming(KernelError, "gamma", (4,), (3,)):
        batchnorm.inference(x, array(4), gamma, mean, std, x)
    with raises_naming(KernelError, "dy"):
        batchnorm.backward(x, gamma, mean, std, x[:1], x, gamma, gamma, workspace=array(6))
    with raises_naming(KernelError, "axes"):
        batchnorm.forward(x[0, 0], gamma, gamma, x[0, 0], mean, std, workspace=array(6))
    with raises_naming(KernelError, 0):
        batchnorm.update_running(mean, std, mean, std, count=0)


def test_concat() -> None:
    a, b, y = array(2, 3, 4, 4), array(2, 2, 4, 4), array(2, 5, 4, 4)
    with raises_naming(KernelError, "concat.forward", "inputs", 3, "y", 5):
        concat.forward([a], y)
    with raises_naming(KernelError, "concat.forward", "inputs"):
        concat.forward([], y)
    with raises_naming(KernelError, "inputs[1]", (3, 2, 4, 4), (2, 2, 4, 4)):
        concat.forward([a, array(3, 2, 4, 4)], y)
    with raises_naming(KernelError, "concat.backward", "dxs[0]", (2, 3, 4, 5), (2, 3, 4, 4)):
        concat.backward(y, [array(2, 3, 4, 5), b])
    with raises_naming(KernelError, "dxs[1]"):
        concat.backward(y, [a, y[:, 3:]])
    with raises_naming(KernelError, "dxs[1]", (5,)):
        concat.backward(y, [a, array(5)])
    with raises_naming(KernelError, "y", (5,)):
        concat.forward([array(5)], array(5))


def test_dropout() -> None:
    x = array(4, 3)
    good: dict[str, Any] = {"probability": 0.3, "seed": 1, "layer": 7, "iteration": 3}
    for probability in (-0.1, 1.0, 1.5, float("nan")):
        with raises_naming(KernelError, "dropout.forward", "probability", 0, 1):
            dropout.forward(x, x, **{**good, "probability": probability})
    with raises_naming(KernelError, "dropout.backward", "seed", -1, 0, 2, 64):
        dropout.backward(x, x, **{**good, "seed": -1})
    with raises_naming(KernelError, 4294967296, 0, 2, 32):
        dropout.forward(x, x, **{**good, "layer": 2**32})
    with raises_naming(KernelError, "iteration", -3):
        dropout.forward(x, x, **{**good, "iteration": -3})
    with raises_naming(KernelError, "dropout.backward", "dx", (12,), (4, 3)):
        dropout.backward(x, x.ravel(), **good)


def test_layernorm() -> None:
    x, gamma, kept = array(2, 6, 3, 3), array(6), array(2, 9)
    with raises_naming(KernelError, "layernorm.forward", 6, "channels", 4, "groups"):
        layernorm.forward(x, gamma, gamma, x, kept, kept, groups=4)
    with raises_naming(KernelError, "layernorm.forward", "mean", (2, 9), (2, 3)):
        layernorm.forward(x, gamma, gamma, x, kept, kept, groups=3)
    with raises_naming(KernelError, "layernorm.forward", "gamma, beta"):
        layernorm.forward(x, gamma, None, x, kept, kept)
    with raises_naming(KernelError, "layernorm.backward", "workspace", 0, 48):
        layernorm.backward(x, gamma, kept, kept, x, x, gamma, gamma)


def test_pixel_softmax() -> None:
    x, labels = array(2, 3, 4, 4), np.zeros((2, 4, 4), np.int32)
    losses, counted, workspace = np.zeros(2, np.float32), np.zeros(1, np.float32), np.zeros(4, np.float32)
    with raises_naming(KernelError, "x", "(2, 3)", "height"):
        pixel_softmax.forward(x[:, :, 0, 0].copy(), x)
    with raises_naming(KernelError, "labels", "(2, 4)", "(2, 4, 4)"):
        pixel_softmax.cross_entropy(x, labels[:, 0].copy(), losses, counted, workspace=workspace)
    with raises_naming(KernelError, "workspace", 4, 16):
        pixel_softmax.cross_entropy(x, labels, losses, counted, workspace=workspace[:1])


def test_mul() -> None:
    x, wrong = array(2, 3, 4, 4), array(2, 4, 1, 1)
    with raises_naming(KernelError, "mul.forward", "gate", (2, 4, 1, 1), (2, 3, 4, 4), (2, 3, 1, 1)):
        mul.forward(x, wrong, x)
    gate = array(2, 3, 1, 1)
    with raises_naming(KernelError, "mul.backward", "dgate", (2, 4, 1, 1), (2, 3, 1, 1)):
        mul.backward(x, gate, x, x, wrong)


def test_relu() -> None:
    x, other = array(4, 3), array(3, 4)
    with raises_naming(KernelError, "relu.forward", "y", (3, 4), (4, 3)):
        relu.forward(x, other)
    with raises_naming(KernelError, "relu.backward", "dy", (3, 4), (4, 3)):
        relu.backward(x, other, x)
    with raises_naming(KernelError, "relu.backward", "dx", (3, 4), (4, 3)):
        relu.backward(x, x, other)
    with raises_naming(KernelError, "relu.forward", "x", (1, 4)):
        relu.forward(other.T, x)
    with raises_naming(KernelError, "relu.forward", "at_most", 0):
        relu.forward(x, x, at_most=0)


def test_softmax() -> None:
    x, labels = array(4, 5), np.zeros(4, np.int32)
    losses = np.zeros(4, np.float32)
    with raises_naming(KernelError, "classes"):
        softmax.forward(x[0], x[0])
    with raises_naming(KernelError, "y", "(3, 5)", "(4, 5)", "softmax.forward"):
        softmax.forward(x, x[:3])
    with raises_naming(KernelError, "labels", "int64", "int32"):
        softmax.cross_entropy(x, labels.astype(np.int64), losses)
    with raises_naming(KernelError, "labels"):
        softmax.backward(x, labels[:3], x)
    with raises_naming(KernelError, "losses"):
        softmax.cross_entropy(x, labels, losses[:3])
