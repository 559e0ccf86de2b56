"""What the fast families refuse before they launch anything: a line that names the function, the array and the sizes.

Convolution, pooling, fully connected layers and gemm have theirs in their own files.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import (
    adamw,
    attention,
    batchnorm,
    channel_shuffle,
    clip,
    concat,
    drop_path,
    dropout,
    elementwise,
    embedding,
    join,
    layernorm,
    lrn,
    mean_loss,
    mix,
    mul,
    pad,
    permute_channels,
    pixel_softmax,
    position,
    prepend,
    relu,
    rmsnorm,
    rotary,
    scale,
    scores,
    sgd,
    softmax,
    take,
    upsample,
)
from refimpl.network.kinds import TRAITS
from tests.messages import raises_naming


def array(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("kind", "form"), [(kind, form) for kind, traits in TRAITS.items() if traits.elementwise for form in traits.forms]
)
def test_activations(kind: str, form: Mapping[str, Any]) -> None:
    module, right, wrong = import_module(f"kernels.fast.{kind}"), array(4, 3), array(3, 4)
    with raises_naming(KernelError, f"{kind}.forward", "y", (3, 4), (4, 3)):
        module.forward(right, wrong, **form)
    for gradients in ((wrong, right), (right, wrong)):
        with raises_naming(KernelError, f"{kind}.backward", (3, 4), (4, 3)):
            module.backward(right, *gradients, **form)


def test_adamw_and_clip() -> None:
    w, other, one = array(3, 4), array(4, 3), np.zeros(1, np.float32)
    with raises_naming(KernelError, "adamw.update", "exp_avg_sq", (3, 4), (4, 3)):
        adamw.update(w, w, w, other, iteration=0, rate=0.1)
    with raises_naming(KernelError, "clip.square", "place", 1):
        clip.square(w, one, place=1)
    with raises_naming(KernelError, "clip.square", 2, 1):
        clip.square(array(5000), one, place=0)
    with raises_naming(KernelError, "clip.apply", "norm", (3, 4)):
        clip.apply(w, w, max_norm=1.0)


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


def test_elementwise() -> None:
    x = array(4, 3)
    with raises_naming(KernelError, "elementwise.copy", "y", (3, 4), (4, 3)):
        elementwise.copy(x, np.empty((3, 4), np.float32))
    with raises_naming(KernelError, "elementwise.axpy", "y", (12,), (4, 3)):
        elementwise.axpy(1.0, x, x.ravel())
    with raises_naming(KernelError, "elementwise.fill", "x", "float64", "float32"):
        elementwise.fill(np.zeros(3), 1)


def test_join() -> None:
    x, other = array(4, 3), array(3, 4)
    with raises_naming(KernelError, "join.forward", "inputs"):
        join.forward([], x)
    with raises_naming(KernelError, "join.backward", "dxs"):
        join.backward(x, [])
    with raises_naming(KernelError, "join.forward", "inputs[1]", (3, 4), (4, 3)):
        join.forward([x, other], array(4, 3))
    with raises_naming(KernelError, "join.fork_forward", "ys[0]", (3, 4), (4, 3)):
        join.fork_forward(x, [other])
    with raises_naming(KernelError, "join.fork_backward", "dx", "dys[0]", "later"):
        join.fork_backward([array(4, 3), x], x)
    strange: Any = [[1.0, 2.0]]
    with raises_naming(KernelError, "inputs[0]", "list", "NumPy"):
        join.forward(strange, x)


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


def test_losses_of_maps() -> None:
    x, labels = array(2, 3, 4, 4), np.zeros((2, 4, 4), np.int32)
    losses, counted, workspace = np.zeros(2, np.float32), np.zeros(1, np.float32), np.zeros(4, np.float32)
    with raises_naming(KernelError, "x", "(2, 3)", "height"):
        pixel_softmax.forward(x[:, :, 0, 0].copy(), x)
    with raises_naming(KernelError, "labels", "(2, 4)", "(2, 4, 4)"):
        pixel_softmax.cross_entropy(x, labels[:, 0].copy(), losses, counted, workspace=workspace)
    with raises_naming(KernelError, "workspace", 4, 16):
        pixel_softmax.cross_entropy(x, labels, losses, counted, workspace=workspace[:1])
    with raises_naming(KernelError, "workspace", 4, 8):
        mean_loss.forward(x, x, losses, error="squared", workspace=workspace[:1])
    with raises_naming(KernelError, "targets", "(2, 3, 4)"):
        mean_loss.backward(x, x[..., 0].copy(), x, error="squared")
    with raises_naming(KernelError, "error", "cubed", "squared", "binary"):
        mean_loss.forward(x, x, losses, error="cubed", workspace=workspace)


def test_lrn() -> None:
    x = array(2, 3, 4)
    for size in (0, lrn.SLOTS + 1):
        with raises_naming(KernelError, size, 1, lrn.SLOTS):
            lrn.forward(x, x, size=size)
    with raises_naming(KernelError, "y", "(1, 3, 4)", "(2, 3, 4)", "lrn.forward"):
        lrn.forward(x, x[:1])
    with raises_naming(KernelError, "dy"):
        lrn.backward(x, None, x[:1], x)
    with raises_naming(KernelError, "axes"):
        lrn.forward(x[0, 0], x[0, 0])


def test_what_puts_numbers_elsewhere() -> None:
    x = array(2, 6, 3, 3)
    with raises_naming(KernelError, "permute_channels.forward", "order", (3,), (6,)):
        permute_channels.forward(x, np.arange(3, dtype=np.int32), x)
    with raises_naming(KernelError, "permute_channels.backward", "order", "float32"):
        permute_channels.backward(x, array(6), x)
    with raises_naming(KernelError, "prepend.forward", "y", (2, 6, 3, 3), (2, 6, 10, 1)):
        prepend.forward(x, array(6, 1), x)
    with raises_naming(KernelError, "channel_shuffle.forward", (2, 6, 3, 3), 4, "groups"):
        channel_shuffle.forward(x, x, groups=4)
    with raises_naming(KernelError, "take.forward", 4, 3, 6):
        take.forward(x, array(2, 4, 3, 3), start=3)
    with raises_naming(KernelError, "take.backward", "axis", 3):
        take.backward(x, x, axis=3)
    with raises_naming(KernelError, "pad.forward", "y", (2, 6, 3, 3), (2, 6, 4, 3)):
        pad.forward(x, x, pad=(1, 0, 0, 0))
    with raises_naming(KernelError, "drop_path.forward", "probability", 1.0):
        drop_path.forward(x, x, probability=1.0, seed=1, layer=1, iteration=1)


def test_mul_and_scale() -> None:
    x, wrong = array(2, 3, 4, 4), array(2, 4, 1, 1)
    with raises_naming(KernelError, "mul.forward", "gate", (2, 4, 1, 1), (2, 3, 4, 4), (2, 3, 1, 1)):
        mul.forward(x, wrong, x)
    gate = array(2, 3, 1, 1)
    with raises_naming(KernelError, "mul.backward", "dgate", (2, 4, 1, 1), (2, 3, 1, 1)):
        mul.backward(x, gate, x, x, wrong)
    with raises_naming(KernelError, "scale.forward", "w", (4,), (3,)):
        scale.forward(x, array(4), x)
    with raises_naming(KernelError, "scale.backward", "workspace", 5, 6):
        scale.backward(x, array(3), x, x, array(3), workspace=array(5))


def test_scores_and_mix() -> None:
    x, p, values = array(2, 12, 5, 1), array(2, 3, 5, 5), array(2, 6, 5, 1)
    with raises_naming(KernelError, "scores.forward", (2, 12, 5, 1), 5, "heads"):
        scores.forward(x, p, heads=5)
    with raises_naming(KernelError, "scores.forward", "y", (2, 3, 5, 5), (2, 2, 5, 5)):
        scores.forward(x, p, heads=2)
    with raises_naming(KernelError, "scores.softmax", "y", (2, 12, 5, 1), "tokens, tokens"):
        scores.softmax(x)
    with raises_naming(KernelError, "scores.softmax_backward", "dy", (2, 12, 5, 1)):
        scores.softmax_backward(p, x)
    with raises_naming(KernelError, "scores.backward", "dx", (2, 6, 5, 1), (2, 12, 5, 1)):
        scores.backward(x, p, values, heads=3)
    with raises_naming(KernelError, "mix.forward", (2, 3, 5, 5), (2, 5, 5, 1), "fit"):
        mix.forward(p, array(2, 5, 5, 1), values)
    with raises_naming(KernelError, "mix.forward", 5, 7, "keys", "values"):
        mix.forward(p, array(2, 6, 7, 1), values)
    with raises_naming(KernelError, "mix.forward", "causal", 4, 5):
        mix.forward(array(2, 3, 4, 5), values, array(2, 6, 4, 1), causal=True)
    with raises_naming(KernelError, "mix.backward", "dy", (2, 12, 5, 1), (2, 6, 5)):
        mix.backward(p, values, x, p, values)
    with raises_naming(KernelError, "mix.backward", "dp", (2, 6, 5, 1), (2, 3, 5, 5)):
        mix.backward(p, values, values, values, values)


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


def test_rmsnorm() -> None:
    x, gamma, kept = array(2, 6, 3, 3), array(6), array(2, 9)
    with raises_naming(KernelError, "rmsnorm.forward", "inverse_rms", (2, 9), (2, 3)):
        rmsnorm.forward(x, gamma, x, array(2, 3))
    with raises_naming(KernelError, "rmsnorm.forward", "gamma", 5, 6):
        rmsnorm.forward(x, array(5), x, kept)
    with raises_naming(KernelError, "rmsnorm.backward", "gamma, dgamma"):
        rmsnorm.backward(x, gamma, kept, x, x)
    with raises_naming(KernelError, "rmsnorm.backward", "workspace", 0, 24):
        rmsnorm.backward(x, gamma, kept, x, x, gamma)


def test_rotary() -> None:
    x = array(2, 12, 5, 1)
    with raises_naming(KernelError, "rotary.forward", (2, 12, 5, 1), 5, "heads"):
        rotary.forward(x, x, heads=5)
    with raises_naming(KernelError, "rotary.forward", 3, 2, "groups"):
        rotary.forward(x, x, heads=3, kv_heads=2)
    with raises_naming(KernelError, "rotary.forward", 3, "pairs"):
        rotary.forward(x, x, heads=4, packed=False)
    with raises_naming(KernelError, "rotary.forward", 6, 4, "pairs"):
        rotary.forward(x, x, heads=1, rotated=6)
    with raises_naming(KernelError, "rotary.backward", "dx", (2, 4, 5, 1), (2, 12, 5, 1)):
        rotary.backward(x, array(2, 4, 5, 1), heads=1)
    with raises_naming(KernelError, "rotary.backward", "base", -1):
        rotary.backward(x, x, heads=1, base=-1)
    long = np.empty((1, 2, rotary.LONGEST + 1), np.float32)
    with raises_naming(KernelError, "rotary.forward", rotary.LONGEST + 1, rotary.LONGEST, "tokens"):
        rotary.forward(long, long, heads=1, packed=False)


def test_sgd() -> None:
    w, other = array(4, 3), array(3, 4)
    with raises_naming(KernelError, "sgd.update", "dw", (3, 4), (4, 3)):
        sgd.update(w, other, w, rate=0.1)
    with raises_naming(KernelError, "sgd.update", "momentum_buffer", (3, 4), (4, 3)):
        sgd.update(w, w, other, rate=0.1)
    with raises_naming(KernelError, "sgd.update", "dw", "float64"):
        sgd.update(w, w.astype(np.float64), w, rate=0.1)


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


def test_embedding_and_position() -> None:
    tokens, w, y = np.zeros((2, 5), np.int32), array(7, 3), array(2, 3, 5, 1)
    with raises_naming(KernelError, "embedding.forward", "tokens", "float32", "int32"):
        embedding.forward(tokens.astype(np.float32), w, y)
    with raises_naming(KernelError, "embedding.forward", "y", (2, 3, 5, 1), (2, 4, 5)):
        embedding.forward(tokens, array(7, 4), y)
    with raises_naming(KernelError, "embedding.forward", "w", (7, 3, 2), "channels"):
        embedding.forward(tokens, array(7, 3, 2), y)
    with raises_naming(KernelError, "embedding.backward", "workspace", 40, 80):
        embedding.backward(tokens, y, w, workspace=array(10))
    with raises_naming(KernelError, "embedding.backward", "padding", 7, 7):
        embedding.backward(tokens, y, w, padding=7, workspace=array(20))
    with raises_naming(KernelError, "position.forward", "w", (7, 3), (3, 5, 1)):
        position.forward(y, w, y)


def test_upsample() -> None:
    x, y = array(2, 3, 4, 4), array(2, 3, 8, 8)
    with raises_naming(KernelError, "upsample.forward", "mode", "cubic", "nearest, bilinear"):
        upsample.forward(x, y, mode="cubic")
    with raises_naming(KernelError, "upsample.backward", (2, 3, 8, 8), (2, 4, 4, 4)):
        upsample.backward(y, array(2, 4, 4, 4))
    long = np.broadcast_to(np.float32(0), (1, 1, 1, 1 << 16)).copy()
    with raises_naming(KernelError, "upsample.forward", 1 << 16):
        upsample.forward(long, long)
