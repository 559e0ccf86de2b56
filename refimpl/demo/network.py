"""The demo's network: a list of calls, forward and then backward, over named arrays.

    images → conv1 → relu1 → lrn1 → pool1 → conv2 → norm2 → relu2 → pool2 → fc3 → dropout3 → fc4 → softmax → loss

Each call names a kernel family's function, the arrays it reads and those it writes, and the NumPy function that
computes the same.  The gradient of an array `a` is called `da`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels import batchnorm, conv, dropout, fc, lrn, pool, reference, relu, softmax
from refimpl.demo.data import BATCH, CLASSES, SIDE
from refimpl.devices import Device

Arrays = dict[str, Any]
Options = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One function of a kernel family; `reference` returns what it should write, in the same order."""

    name: str
    function: Callable[..., None]
    reference: Callable[..., Any]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    options: Options = field(default_factory=dict)  #: for both
    extra: dict[str, str] = field(default_factory=dict)  #: for the kernels' function: option → array, a workspace
    shapes: dict[str, str] = field(default_factory=dict)  #: for the reference: option → array with that shape

    def run(self, arrays: Arrays) -> None:
        self.function(*self.arguments(arrays), **self.options, **{name: arrays[a] for name, a in self.extra.items()})

    def arguments(self, arrays: Arrays) -> list[Any]:
        return [arrays[name] for name in (*self.reads, *self.writes)]

    def expected(self, values: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        shapes = {name: values[array].shape for name, array in self.shapes.items()}
        result = self.reference(*(values[name] for name in self.reads), **self.options, **shapes)
        return result if isinstance(result, tuple) else (result,)


FIVE: Options = {"pad": (2, 2)}
THREE: Options = {"pad": (1, 1)}
MAX: Options = {"mode": "max", "window": (2, 2), "stride": (2, 2)}
AVERAGE: Options = {"mode": "average", "window": (2, 2), "stride": (2, 2)}

#: Dropout's options.  Training sets the iteration: each has a mask of its own, forward and backward the same.
NOISE: Options = {"probability": 0.2, "seed": 2026, "layer": 3, "iteration": 0}


def conv_without_bias(x: Any, w: Any, y: Any, **options: Any) -> None:
    """A bias in front of a batch normalisation would be taken off again at once."""
    conv.forward(x, w, None, y, **options)


FIRST_HALF = (
    Call("conv1", conv.forward, reference.conv_forward, ("images", "w1", "b1"), ("conv1",), FIVE),
    Call("relu1", relu.forward, reference.relu_forward, ("conv1",), ("relu1",)),
    Call("lrn1", lrn.forward, reference.lrn_forward, ("relu1",), ("lrn1",)),
    Call("pool1", pool.forward, reference.pool_forward, ("lrn1",), ("pool1",), MAX),
    Call("conv2", conv_without_bias, reference.conv_forward, ("pool1", "w2"), ("conv2",), THREE),
)
NORM_TRAINING = Call(
    "norm2", batchnorm.forward, reference.batchnorm_forward,
    ("conv2", "gamma", "beta"), ("norm2", "mean", "inverse_std"), extra={"workspace": "space"},
)  # fmt: skip
NORM_INFERENCE = Call(
    "norm2", batchnorm.inference, reference.batchnorm_inference,
    ("conv2", "gamma", "beta", "running_mean", "running_variance"), ("norm2",),
)  # fmt: skip
TO_FC = (
    Call("relu2", relu.forward, reference.relu_forward, ("norm2",), ("relu2",)),
    Call("pool2", pool.forward, reference.pool_forward, ("relu2",), ("pool2",), AVERAGE),
    Call("fc3", fc.forward, reference.fc_forward, ("pool2", "w3", "b3"), ("fc3",)),
)
DROPOUT = Call("dropout3", dropout.forward, reference.dropout_forward, ("fc3",), ("dropout3",), NOISE)


def classify(source: str) -> tuple[Call, ...]:
    """The last layers, which read `source`."""
    return (
        Call("fc4", fc.forward, reference.fc_forward, (source, "w4", "b4"), ("fc4",)),
        Call("softmax", softmax.forward, reference.softmax_forward, ("fc4",), ("softmax",)),
        Call("loss", softmax.cross_entropy, reference.cross_entropy, ("softmax", "labels"), ("loss",)),
    )


FORWARD = (*FIRST_HALF, NORM_TRAINING, *TO_FC, DROPOUT, *classify("dropout3"))
INFERENCE = (*FIRST_HALF, NORM_INFERENCE, *TO_FC, *classify("fc3"))


def fc_backward(layer: str, x: str, w: str, b: str, dy: str) -> tuple[Call, ...]:
    return (
        Call(f"{layer} filter", fc.backward_filter, reference.fc_backward_weight, (x, dy), (f"d{w}",)),
        Call(f"{layer} bias", fc.backward_bias, reference.fc_backward_bias, (dy,), (f"d{b}",)),
        Call(f"{layer} data", fc.backward_data, reference.fc_backward_data, (dy, w), (f"d{x}",)),
    )


def conv_backward(layer: str, x: str, w: str, b: str | None, dy: str, options: Options, data: bool) -> tuple[Call, ...]:
    calls = [
        Call(
            f"{layer} filter", conv.backward_filter, reference.conv_backward_filter, (x, dy), (f"d{w}",),
            options, extra={"workspace": f"{layer} space"}, shapes={"w_shape": w},
        ),
    ]  # fmt: skip
    if b is not None:
        calls.append(Call(f"{layer} bias", conv.backward_bias, reference.conv_backward_bias, (dy,), (f"d{b}",)))
    if data:
        calls.append(
            Call(
                f"{layer} data", conv.backward_data, reference.conv_backward_data, (dy, w), (f"d{x}",),
                options, shapes={"x_shape": x},
            )
        )  # fmt: skip
    return tuple(calls)


BACKWARD = (
    Call("softmax", softmax.backward, reference.softmax_backward, ("softmax", "labels"), ("dfc4",)),
    *fc_backward("fc4", "dropout3", "w4", "b4", "dfc4"),
    Call("dropout3", dropout.backward, reference.dropout_backward, ("ddropout3",), ("dfc3",), NOISE),
    *fc_backward("fc3", "pool2", "w3", "b3", "dfc3"),
    Call("pool2", pool.backward, reference.pool_backward, ("relu2", "pool2", "dpool2"), ("drelu2",), AVERAGE),
    Call("relu2", relu.backward, reference.relu_backward, ("relu2", "drelu2"), ("dnorm2",)),
    Call(
        "norm2", batchnorm.backward, reference.batchnorm_backward,
        ("conv2", "gamma", "mean", "inverse_std", "dnorm2"), ("dconv2", "dgamma", "dbeta"),
        extra={"workspace": "space"},
    ),
    *conv_backward("conv2", "pool1", "w2", None, "dconv2", THREE, data=True),
    Call("pool1", pool.backward, reference.pool_backward, ("lrn1", "pool1", "dpool1"), ("dlrn1",), MAX),
    Call("lrn1", lrn.backward, reference.lrn_backward, ("relu1", "lrn1", "dlrn1"), ("drelu1",)),
    Call("relu1", relu.backward, reference.relu_backward, ("relu1", "drelu1"), ("dconv1",)),
    *conv_backward("conv1", "images", "w1", "b1", "dconv1", FIVE, data=False),
)  # fmt: skip

PARAMETERS = {
    "w1": (16, 1, 5, 5), "b1": (16,), "w2": (32, 16, 3, 3), "gamma": (32,), "beta": (32,),
    "w3": (64, 32 * 7 * 7), "b3": (64,), "w4": (len(CLASSES), 64), "b4": (len(CLASSES),),
}  # fmt: skip
MAPS = {
    "images": (1, SIDE, SIDE), "conv1": (16, SIDE, SIDE), "relu1": (16, SIDE, SIDE), "lrn1": (16, SIDE, SIDE),
    "pool1": (16, 14, 14), "conv2": (32, 14, 14), "norm2": (32, 14, 14), "relu2": (32, 14, 14), "pool2": (32, 7, 7),
    "fc3": (64,), "dropout3": (64,), "fc4": (len(CLASSES),), "softmax": (len(CLASSES),), "loss": (),
}  # fmt: skip


def make_arrays(device: Device) -> Arrays:
    """Every array of the network on the device: parameters drawn (He's rule), the rest zero."""
    random = np.random.default_rng(7)
    made: dict[str, np.ndarray] = {}
    for name, shape in PARAMETERS.items():
        spread = (2 / np.prod(shape[1:])) ** 0.5 if name.startswith("w") else 0.0
        made[name] = (spread * random.standard_normal(shape)).astype(np.float32)
        made[f"d{name}"] = np.zeros(shape, np.float32)
        made[f"v{name}"] = np.zeros(shape, np.float32)
    made["gamma"][:] = 1
    for name, shape in MAPS.items():
        made[name] = np.zeros((BATCH, *shape), np.float32)
        made[f"d{name}"] = np.zeros((BATCH, *shape), np.float32)
    for name in ("mean", "inverse_std", "running_mean", "running_variance"):
        made[name] = np.ones(32, np.float32) * (name == "running_variance")
    made["labels"] = np.zeros(BATCH, np.int32)
    made["space"] = np.zeros(batchnorm.workspace_bytes(made["conv2"].shape) // 4, np.float32)
    for layer, x, w, options in (("conv1", "images", "w1", FIVE), ("conv2", "pool1", "w2", THREE)):
        size = conv.workspace_bytes("backward_filter", made[x].shape, made[w].shape, **options)
        made[f"{layer} space"] = np.zeros(max(1, size // 4), np.float32)
    return {name: device.array(values) for name, values in made.items()}
