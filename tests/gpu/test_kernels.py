"""Every family's kernels on a GPU, at sizes that fill it: against the oracle, the same source on the CPU, themselves.

A checkout is enough to run them, nothing need be installed: `PYTHONPATH=. python3 -m pytest tests/gpu`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.checks import reference  # fmt: skip
from kernels.checks.conv_shape import PASSES, ConvShape
from kernels.fast import (
    adamw,
    attention,
    batchnorm,
    channel_shuffle,
    clip,
    concat,
    conv,
    drop_path,
    dropout,
    elementwise,
    embedding,
    fc,
    gemm,
    join,
    layernorm,
    lrn,
    mean_loss,
    mix,
    mul,
    pad,
    permute_channels,
    pixel_softmax,
    pool,
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
from kernels.targets import gpu
from refimpl.network.kinds import TRAITS
from tests.gpu_device import sized

pytestmark = pytest.mark.gpu

Arrays = SimpleNamespace  # the arrays of a case by name, on the CPU or on the GPU


@dataclass(frozen=True)
class Case:
    """One call of a public function."""

    name: str
    arrays: Callable[[], Arrays]  # inputs and outputs, the same every time
    run: Callable[[Arrays, Any], None]  # makes the call, on a stream
    expected: Callable[[Arrays], dict[str, Any]]  # name → what that array should hold then, from the oracle
    tolerance: float = 1e-5  # of an array's largest expected element


# --- The cases -------------------------------------------------------------------------------------------------------


def drawn(*shape: int) -> Any:
    """Numbers that follow from the shape alone, so that a case's arrays are the same every time."""
    seed = zlib.crc32(repr(shape).encode())
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def another(*shape: int) -> Any:
    return np.ascontiguousarray(drawn(*shape[::-1]).transpose())


def blank(*shape: int) -> Any:
    """An output: nothing in it may be read, so it holds what would be seen in any sum."""
    return np.full(shape, np.nan, np.float32)


MATRICES: dict[str, dict[str, Any]] = {  # options of gemm.gemm
    "plain": {},
    "both transposed": {"trans_a": True, "trans_b": True},
    "scaled and added": {"trans_b": True, "alpha": 0.5, "beta": -1.5},
}


def matrix_cases() -> Iterator[Case]:
    for algorithm in gemm.ALGORITHMS:
        for form, options in MATRICES.items():
            yield matrix_case(f"gemm {algorithm}, {form}", algorithm, options)
        yield matrix_case(f"gemm {algorithm}, a batch", algorithm, {"trans_a": True}, batch=(3,))
        yield matrix_case(f"gemm {algorithm}, few rows", algorithm, {"trans_b": True}, m=32)


def matrix_case(
    name: str, algorithm: str, options: dict[str, Any], m: int = sized(777, 137), batch: tuple[int, ...] = ()
) -> Case:  # fmt: skip
    n, k, reads_c = sized(515, 131), sized(1030, 198), bool(options.get("beta"))

    def arrays() -> Arrays:
        a = drawn(*batch, *((k, m) if options.get("trans_a") else (m, k)))
        b = drawn(*batch, *((n, k) if options.get("trans_b") else (k, n)))
        words = gemm.workspace_bytes(m, n, k, algorithm, *batch) // 4
        return Arrays(a=a, b=b, c=(drawn if reads_c else blank)(*batch, m, n), workspace=blank(max(1, words)))

    def run(a: Arrays, stream: Any) -> None:
        gemm.gemm(a.a, a.b, a.c, **options, algorithm=algorithm, workspace=a.workspace, stream=stream)

    def expected(a: Arrays) -> dict[str, Any]:
        return {"c": reference.gemm(a.a, a.b, a.c if reads_c else None, **options)}

    return Case(name, arrays, run, expected)


CONVOLUTIONS: dict[str, tuple[Any, ...]] = {  # x, w, stride, padding[, dilation]
    "3x3": ((4, sized(64, 12), *sized((56, 56), (15, 13))), (64, sized(64, 12), 3, 3), (1, 1), (1, 1)),
    "first layer": (sized((4, 3, 112, 112), (2, 3, 24, 22)), (sized(64, 17), 3, 7, 7), (2, 2), (3, 3)),
    "1x1": (sized((8, 128, 28, 28), (3, 21, 9, 7)), sized((96, 128, 1, 1), (33, 21, 1, 1)), (1, 1), (0, 0)),
    "5x5, primes": (sized((3, 17, 31, 29), (2, 5, 11, 13)), sized((23, 17, 5, 5), (7, 5, 5, 5)), (1, 1), (2, 2)),
    "1x7": (sized((4, 32, 17, 17), (2, 8, 9, 9)), sized((48, 32, 1, 7), (11, 8, 1, 7)), (1, 2), (0, 3)),
    "depthwise": (sized((8, 96, 56, 56), (2, 6, 11, 9)), (sized(96, 6), 1, 3, 3), (2, 2), (0, 0, 1, 1)),
    "groups, dilated": (
        sized((4, 128, 28, 28), (2, 6, 9, 11)),
        sized((256, 32, 3, 3), (8, 3, 3, 3)),
        (1, 1),
        (2, 3),
        (2, 3),
    ),
}


def convolution_cases() -> Iterator[Case]:
    for algorithm, module in conv.ALGORITHMS.items():
        for form, (x_shape, w_shape, *walk) in CONVOLUTIONS.items():
            shape = ConvShape.of(x_shape, w_shape, *walk)
            for pass_ in PASSES:
                if module.why_not(pass_, shape) is None:
                    yield convolution_case(f"conv.{pass_} {algorithm}, {form}", pass_, algorithm, shape)
    y = sized((8, 64, 56, 56), (8, 64, 9, 7))
    yield Case(
        "conv.backward_bias",
        lambda: Arrays(dy=drawn(*y), db=blank(64)),
        lambda a, stream: conv.backward_bias(a.dy, a.db, stream=stream),
        lambda a: {"db": reference.conv_backward_bias(a.dy)},
    )


def convolution_case(name: str, pass_: str, algorithm: str, shape: ConvShape) -> Case:
    geometry: Any = dict(zip(("stride", "pad", "dilation"), shape.walk, strict=True))
    words = conv.workspace_bytes(pass_, shape.x_shape, shape.w_shape, **geometry, algorithm=algorithm) // 4

    def arrays() -> Arrays:
        x, w, y = drawn(*shape.x_shape), drawn(*shape.w_shape), drawn(*shape.y_shape)
        output = blank(*{"forward": y, "backward_data": x, "backward_filter": w}[pass_].shape)
        return Arrays(x=x, w=w, b=drawn(shape.filters), y=y, output=output, workspace=blank(max(1, words)))

    def run(a: Arrays, stream: Any) -> None:
        how = {**geometry, "algorithm": algorithm, "workspace": a.workspace, "stream": stream}
        if pass_ == "forward":
            conv.forward(a.x, a.w, a.b, a.output, **how)
        elif pass_ == "backward_data":
            conv.backward_data(a.y, a.w, a.output, **how)
        else:
            conv.backward_filter(a.x, a.y, a.output, **how)

    def expected(a: Arrays) -> dict[str, Any]:
        if pass_ == "forward":
            return {"output": reference.conv_forward(a.x, a.w, a.b, **geometry)}
        if pass_ == "backward_data":
            return {"output": reference.conv_backward_data(a.y, a.w, shape.x_shape, **geometry)}
        return {"output": reference.conv_backward_filter(a.x, a.y, shape.w_shape, **geometry)}

    return Case(name, arrays, run, expected, tolerance=1e-4 if algorithm == "winograd" else 1e-5)


def pooling_cases() -> Iterator[Case]:
    for mode in ("max", "average"):
        yield from pooling(f"{mode}, 2x2", {"mode": mode, "window": (2, 2), "stride": (2, 2)})
        overlapping = {"window": (3, 3), "stride": (2, 2), "pad": (1, 1), "ceil": True}
        yield from pooling(f"{mode}, 3x3 overlapping", {"mode": mode, **overlapping})
        yield from pooling(f"{mode}, to a size", {"mode": mode, "out": (5, 7)})


def pooling(form: str, how: dict[str, Any]) -> Iterator[Case]:
    to = "_to" if "out" in how else ""
    forward, backward = (getattr(pool, f"{direction}{to}") for direction in ("forward", "backward"))
    by_numpy, slopes = (getattr(reference, f"pool_{direction}{to}") for direction in ("forward", "backward"))

    def arrays() -> Arrays:
        x = drawn(*sized((8, 64, 57, 55), (2, 5, 17, 15)))
        y = by_numpy(x, **how)
        return Arrays(x=x, y=y, dy=drawn(*y.shape), out=blank(*y.shape), dx=blank(*x.shape))

    yield Case(
        f"pool.forward {form}", arrays,
        lambda a, stream: forward(a.x, a.out, **how, stream=stream),
        lambda a: {"out": by_numpy(a.x, **how)},
    )  # fmt: skip
    yield Case(
        f"pool.backward {form}", arrays,
        lambda a, stream: backward(a.x, a.y, a.dy, a.dx, **how, stream=stream),
        lambda a: {"dx": slopes(a.x, a.y, a.dy, **how)},
    )  # fmt: skip


def upsampling_cases() -> Iterator[Case]:
    yield from upsampling("nearest")
    yield from upsampling("bilinear", mode="bilinear")
    yield from upsampling("bilinear, aligned", mode="bilinear", align_corners=True)


def upsampling(form: str, **how: Any) -> Iterator[Case]:
    small, large = sized((8, 64, 29, 28), (2, 5, 9, 8)), sized((8, 64, 57, 56), (2, 5, 17, 16))

    def arrays() -> Arrays:
        return Arrays(x=drawn(*small), y=blank(*large), dy=drawn(*large), dx=blank(*small))

    yield Case(
        f"upsample.forward {form}", arrays,
        lambda a, stream: upsample.forward(a.x, a.y, **how, stream=stream),
        lambda a: {"y": reference.upsample_forward(a.x, large[2:], **how)},
    )  # fmt: skip
    yield Case(
        f"upsample.backward {form}", arrays,
        lambda a, stream: upsample.backward(a.dy, a.dx, **how, stream=stream),
        lambda a: {"dx": reference.upsample_backward(a.dy, small[2:], **how)},
    )  # fmt: skip


def token_cases() -> Iterator[Case]:
    windows, count, words, channels = sized((8, 512, 5003, 300), (2, 70, 40, 37))
    maps, table = (windows, channels, count, 1), (words, channels)
    ranks = np.random.default_rng(0).zipf(1.3, (windows, count))

    def arrays() -> Arrays:
        return Arrays(
            tokens=(ranks % words).astype(np.int32), w=drawn(*table), y=blank(*maps), dy=drawn(*maps), dw=blank(*table),
            begun=drawn(*table), at=drawn(*maps[1:]), dat=blank(*maps[1:]),
            workspace=blank(embedding.workspace_bytes((windows, count)) // 4),
        )  # fmt: skip

    def added(a: Arrays, stream: Any) -> None:
        embedding.backward(a.tokens, a.dy, a.begun, added=True, workspace=a.workspace, stream=stream)

    yield Case(
        "embedding.forward", arrays, lambda a, stream: embedding.forward(a.tokens, a.w, a.y, stream=stream),
        lambda a: {"y": reference.embedding_forward(a.tokens, a.w)[..., None]},
    )  # fmt: skip
    yield Case(
        "embedding.backward", arrays,
        lambda a, stream: embedding.backward(a.tokens, a.dy, a.dw, workspace=a.workspace, stream=stream),
        lambda a: {"dw": reference.embedding_backward(a.tokens, a.dy, words)},
    )  # fmt: skip
    yield Case(
        "embedding.backward, added", arrays, added,
        lambda a: {"begun": a.begun + reference.embedding_backward(a.tokens, a.dy, words)},
    )  # fmt: skip
    yield Case(
        "position.forward", arrays, lambda a, stream: position.forward(a.dy, a.at, a.y, stream=stream),
        lambda a: {"y": reference.position_forward(a.dy, a.at)},
    )  # fmt: skip
    yield Case(
        "position.backward", arrays, lambda a, stream: position.backward(a.dy, a.dat, stream=stream),
        lambda a: {"dat": reference.position_backward(a.dy)},
    )  # fmt: skip


def moving_cases() -> Iterator[Case]:
    n, c, h, w = shape = sized((8, 64, 57, 55), (3, 6, 17, 15))
    chance = {"probability": 0.4, "seed": 2**40 + 3, "layer": 5, "iteration": 2**33 + 1}
    yield from moving("drop_path", drop_path, shape, shape, {}, chance)
    yield from moving("channel_shuffle", channel_shuffle, shape, shape, {}, {"groups": 2})
    yield from moving("take", take, shape, (n, c // 2, h, w), {"count": c // 2}, {"start": 1})
    yield from moving("take, rows", take, shape, (n, c, 3, w), {"count": 3}, {"axis": 2, "start": 4})
    yield from moving("pad", pad, shape, (n, c, h + 3, w + 3), {}, {"pad": (1, 0, 2, 3), "value": 0.5})


def channel_and_token_cases() -> Iterator[Case]:
    n, c, h, w = shape = sized((8, 64, 57, 55), (3, 6, 17, 15))
    longer = (n, c, 1 + h * w, 1)

    def arrays() -> Arrays:
        order = np.random.default_rng(5).permutation(c).astype(np.int32)
        given = {"x": drawn(*shape), "w": drawn(c, 1), "order": order, "dy": drawn(*longer)}
        return Arrays(**given, y=blank(*shape), dx=blank(*shape), longer=blank(*longer), dw=blank(c, 1))

    yield Case(
        "permute_channels.forward", arrays,
        lambda a, stream: permute_channels.forward(a.x, a.order, a.y, stream=stream),
        lambda a: {"y": reference.permute_channels_forward(a.x, a.order)},
    )  # fmt: skip
    yield Case(
        "permute_channels.backward", arrays,
        lambda a, stream: permute_channels.backward(a.x, a.order, a.dx, stream=stream),
        lambda a: {"dx": reference.permute_channels_backward(a.x, a.order)},
    )  # fmt: skip
    yield Case(
        "prepend.forward", arrays,
        lambda a, stream: prepend.forward(a.x, a.w, a.longer, stream=stream),
        lambda a: {"longer": reference.prepend_forward(a.x, a.w)},
    )  # fmt: skip
    yield Case(
        "prepend.backward", arrays,
        lambda a, stream: prepend.backward(a.dy, a.dx, a.dw, stream=stream),
        lambda a: dict(zip(("dx", "dw"), reference.prepend_backward(a.dy, shape), strict=True)),
    )  # fmt: skip


def moving(
    name: str, module: Any, x_shape: Any, y_shape: Any, more: dict[str, Any], how: dict[str, Any]
) -> Iterator[Case]:
    kind, _, form = name.partition(", ")
    by_numpy, slopes = (getattr(reference, f"{kind}_{direction}") for direction in ("forward", "backward"))
    of_x = {"x_shape": x_shape} if kind == "take" else {}

    def arrays() -> Arrays:
        return Arrays(x=drawn(*x_shape), y=blank(*y_shape), dy=drawn(*y_shape), dx=blank(*x_shape))

    yield Case(
        f"{kind}.forward {form}", arrays,
        lambda a, stream: module.forward(a.x, a.y, **how, stream=stream),
        lambda a: {"y": by_numpy(a.x, **more, **how)},
    )  # fmt: skip
    yield Case(
        f"{kind}.backward {form}", arrays,
        lambda a, stream: module.backward(a.dy, a.dx, **how, stream=stream),
        lambda a: {"dx": slopes(a.dy, **of_x, **how)},
    )  # fmt: skip


def fully_connected_cases() -> Iterator[Case]:
    batch, features, classes = sized((32, 2048, 1000), (9, 270, 140))
    x_shape, w_shape, y_shape = (batch, features), (classes, features), (batch, classes)

    def arrays() -> Arrays:
        words = max(fc.workspace_bytes(pass_, x_shape, w_shape) for pass_ in PASSES) // 4
        outputs = {"out": blank(*y_shape), "dx": blank(*x_shape), "dw": blank(*w_shape), "db": blank(classes)}
        given = {"x": drawn(*x_shape), "w": drawn(*w_shape), "b": drawn(classes), "y": drawn(*y_shape)}
        return Arrays(**given, **outputs, workspace=blank(max(1, words)))

    def backward(a: Arrays, stream: Any) -> None:
        fc.backward_data(a.y, a.w, a.dx, workspace=a.workspace, stream=stream)
        fc.backward_filter(a.x, a.y, a.dw, workspace=a.workspace, stream=stream)
        fc.backward_bias(a.y, a.db, stream=stream)

    yield Case(
        "fc.forward", arrays,
        lambda a, stream: fc.forward(a.x, a.w, a.b, a.out, workspace=a.workspace, stream=stream),
        lambda a: {"out": reference.fc_forward(a.x, a.w, a.b)},
    )  # fmt: skip
    yield Case(
        "fc.backward", arrays, backward,
        lambda a: {
            "dx": reference.fc_backward_data(a.y, a.w),
            "dw": reference.fc_backward_filter(a.x, a.y),
            "db": reference.fc_backward_bias(a.y),
        },
    )  # fmt: skip


def normalisation_cases() -> Iterator[Case]:
    shape = sized((16, 96, 27, 27), (7, 13, 27, 27))
    how: dict[str, Any] = {"size": 5, "alpha": 1e-2, "beta": 0.75, "k": 2.0}

    def lrn_arrays() -> Arrays:
        x = drawn(*shape)
        return Arrays(x=x, y=reference.lrn_forward(x, **how), dy=another(*shape), out=blank(*shape))

    yield Case(
        "lrn.forward", lrn_arrays,
        lambda a, stream: lrn.forward(a.x, a.out, **how, stream=stream),
        lambda a: {"out": reference.lrn_forward(a.x, **how)},
    )  # fmt: skip
    yield Case(
        "lrn.backward", lrn_arrays,
        lambda a, stream: lrn.backward(a.x, a.y, a.dy, a.out, **how, stream=stream),
        lambda a: {"out": reference.lrn_backward(a.x, a.y, a.dy, **how)},
    )  # fmt: skip

    count = shape[0] * shape[2] * shape[3]

    def batchnorm_arrays() -> Arrays:
        x = drawn(*shape) + np.float32(3)
        mean, inverse_std = reference.batchnorm_statistics(x)
        outputs = {name: blank(shape[1]) for name in ("new_mean", "new_inverse_std", "dgamma", "dbeta")}
        return Arrays(
            x=x, gamma=drawn(shape[1]), beta=drawn(1, shape[1])[0], mean=mean, inverse_std=inverse_std,
            running_mean=drawn(2, shape[1])[0], running_variance=drawn(2, shape[1])[1] ** 2, dy=another(*shape),
            out=blank(*shape), workspace=blank(batchnorm.workspace_bytes(shape) // 4), **outputs,
        )  # fmt: skip

    def training(a: Arrays, stream: Any) -> None:
        batchnorm.forward(
            a.x, a.gamma, a.beta, a.out, a.new_mean, a.new_inverse_std, workspace=a.workspace, stream=stream
        )
        batchnorm.update_running(
            a.new_mean, a.new_inverse_std, a.running_mean, a.running_variance, count=count, stream=stream
        )

    def trained(a: Arrays) -> dict[str, Any]:
        y, mean, inverse_std = reference.batchnorm_forward(a.x, a.gamma, a.beta)
        running = reference.batchnorm_update_running(mean, inverse_std, a.running_mean, a.running_variance, count)
        names = ("out", "new_mean", "new_inverse_std", "running_mean", "running_variance")
        return dict(zip(names, (y, mean, inverse_std, *running), strict=True))

    def backward(a: Arrays, stream: Any) -> None:
        batchnorm.backward(
            a.x, a.gamma, a.mean, a.inverse_std, a.dy, a.out, a.dgamma, a.dbeta, workspace=a.workspace, stream=stream
        )

    def gradients(a: Arrays) -> dict[str, Any]:
        found = reference.batchnorm_backward(a.x, a.gamma, a.mean, a.inverse_std, a.dy)
        return dict(zip(("out", "dgamma", "dbeta"), found, strict=True))

    yield Case("batchnorm.forward and update_running", batchnorm_arrays, training, trained, tolerance=1e-4)
    yield Case("batchnorm.backward", batchnorm_arrays, backward, gradients, tolerance=1e-4)
    yield Case(
        "batchnorm.inference", batchnorm_arrays,
        lambda a, stream: batchnorm.inference(
            a.x, a.gamma, a.beta, a.running_mean, a.running_variance, a.out, stream=stream
        ),
        lambda a: {
            "out": reference.batchnorm_inference(a.x, a.gamma, a.beta, a.running_mean, a.running_variance)
        },
    )  # fmt: skip


def set_normalisation_cases() -> Iterator[Case]:
    yield from set_normalisation("layer", None)
    yield from set_normalisation("group", 8)


def set_normalisation(form: str, groups: int | None) -> Iterator[Case]:
    shape = sized((16, 96, 27, 27), (3, 16, 9, 7))
    kept = layernorm.Sets.of("", shape, groups).kept

    def arrays() -> Arrays:
        x, gamma = drawn(*shape) + np.float32(3), drawn(shape[1])
        _, mean, inverse_std = reference.layernorm_forward(x, None, None, groups)
        return Arrays(
            x=x, gamma=gamma, beta=drawn(1, shape[1])[0], mean=mean, inverse_std=inverse_std, dy=another(*shape),
            y=blank(*shape), new_mean=blank(*kept), new_inverse_std=blank(*kept), dgamma=blank(shape[1]),
            dbeta=blank(shape[1]), workspace=blank(layernorm.workspace_bytes(shape) // 4),
        )  # fmt: skip

    def backward(a: Arrays, stream: Any) -> None:
        slopes: dict[str, Any] = {"dgamma": a.dgamma, "dbeta": a.dbeta, "workspace": a.workspace, "stream": stream}
        layernorm.backward(a.x, a.gamma, a.mean, a.inverse_std, a.dy, a.dy, groups=groups, **slopes)

    def named(*names: str) -> Callable[[Any], dict[str, Any]]:
        return lambda found: dict(zip(names, found, strict=True))

    made, slopes = named("y", "new_mean", "new_inverse_std"), named("dy", "dgamma", "dbeta")
    yield Case(
        f"layernorm.forward, {form}", arrays,
        lambda a, stream: layernorm.forward(
            a.x, a.gamma, a.beta, a.y, a.new_mean, a.new_inverse_std, groups=groups, stream=stream
        ),
        lambda a: made(reference.layernorm_forward(a.x, a.gamma, a.beta, groups)), tolerance=1e-4,
    )  # fmt: skip
    yield Case(
        f"layernorm.backward, {form}", arrays, backward,
        lambda a: slopes(reference.layernorm_backward(a.x, a.gamma, a.dy, groups)), tolerance=1e-4,
    )  # fmt: skip


def rms_normalisation_cases() -> Iterator[Case]:
    shape = sized((16, 96, 27, 27), (3, 16, 9, 7))
    kept = shape[0], shape[2] * shape[3]

    def arrays() -> Arrays:
        x = drawn(*shape) + np.float32(1)
        _, inverse_rms = reference.rmsnorm_forward(x, None)
        words = rmsnorm.workspace_bytes(shape) // 4
        return Arrays(
            x=x, gamma=drawn(shape[1]), inverse_rms=inverse_rms, dy=another(*shape), y=blank(*shape),
            filled=blank(*kept), dgamma=blank(shape[1]), workspace=blank(words),
        )  # fmt: skip

    def backward(a: Arrays, stream: Any) -> None:
        given = a.x, a.gamma, a.inverse_rms, a.dy, a.dy, a.dgamma
        rmsnorm.backward(*given, workspace=a.workspace, stream=stream)

    yield Case(
        "rmsnorm.forward", arrays, lambda a, stream: rmsnorm.forward(a.x, a.gamma, a.y, a.filled, stream=stream),
        lambda a: dict(zip(("y", "filled"), reference.rmsnorm_forward(a.x, a.gamma), strict=True)), tolerance=1e-4,
    )  # fmt: skip
    yield Case(
        "rmsnorm.backward", arrays, backward,
        lambda a: dict(zip(("dy", "dgamma"), reference.rmsnorm_backward(a.x, a.gamma, a.dy), strict=True)),
        tolerance=1e-4,
    )  # fmt: skip


def rotary_cases() -> Iterator[Case]:
    yield from turning("one map", heads=4, kv_heads=2, neighbours=True)
    yield from turning("heads alone", heads=4, packed=False, rotated=sized(32, 6))


def turning(form: str, **how: Any) -> Iterator[Case]:
    images, width, tokens = sized((4, 64, 500), (2, 8, 77))
    shape = images, (8 if "kv_heads" in how else 4) * width, tokens, 1

    def arrays() -> Arrays:
        return Arrays(x=drawn(*shape), y=blank(*shape), dy=another(*shape))

    yield Case(
        f"rotary.forward, {form}", arrays, lambda a, stream: rotary.forward(a.x, a.y, **how, stream=stream),
        lambda a: {"y": reference.rotary_forward(a.x, **how)},
    )  # fmt: skip
    yield Case(
        f"rotary.backward, {form}, in place", arrays,
        lambda a, stream: rotary.backward(a.dy, a.dy, **how, stream=stream),
        lambda a: {"dy": reference.rotary_backward(a.dy, **how)},
    )  # fmt: skip


def attention_cases() -> Iterator[Case]:
    for algorithm in attention.ALGORITHMS:
        yield from attending(f"{algorithm}, one map", algorithm, sized((4, 2, 64, 197), (2, 2, 5, 33)), heads=2)
        grouped: dict[str, Any] = {"heads": 4, "kv_heads": 2, "causal": True}
        yield from attending(f"{algorithm}, causal", algorithm, sized((2, 4, 64, 512), (1, 4, 5, 150)), **grouped)
    yield from attending("across", attention.BEST, sized((4, 3, 64, 100), (2, 3, 5, 17)), keys=sized(300, 140), heads=3)


def attending(
    form: str, algorithm: str, sizes: tuple[int, int, int, int], keys: int | None = None, **how: Any
) -> Iterator[Case]:
    """sizes: images, heads of queries, channels of each, tokens; keys: their number, if they are other tokens."""
    (images, heads, width, tokens), kv_heads = sizes, how.get("kv_heads", sizes[1])
    shapes = [(images, (heads + 2 * kv_heads) * width, tokens, 1)]
    if keys:
        shapes = [(images, heads * width, tokens, 1), *[(images, kv_heads * width, keys, 1)] * 2]

    def arrays() -> Arrays:
        words = attention.workspace_bytes("backward", shapes, **how, images=max(1, images // 2)) // 4
        inputs = {f"x{i}": (another if i == 2 else drawn)(*shape) for i, shape in enumerate(shapes)}
        slopes = {f"dx{i}": blank(*shape) for i, shape in enumerate(shapes)}
        y = images, heads * width, tokens, 1
        return Arrays(**inputs, **slopes, y=blank(*y), dy=another(*y), workspace=blank(words))

    def maps(a: Arrays, name: str) -> list[Any]:
        return [getattr(a, f"{name}{i}") for i in range(len(shapes))]

    given = {**how, "algorithm": algorithm}
    yield Case(
        f"attention.forward, {form}", arrays,
        lambda a, stream: attention.forward(maps(a, "x"), a.y, **given, workspace=a.workspace, stream=stream),
        lambda a: {"y": reference.attention_forward(maps(a, "x"), **how)},
    )  # fmt: skip
    yield Case(
        f"attention.backward, {form}", arrays,
        lambda a, stream: attention.backward(
            maps(a, "x"), a.dy, maps(a, "dx"), **given, workspace=a.workspace, stream=stream
        ),
        lambda a: {f"dx{i}": dx for i, dx in enumerate(reference.attention_backward(maps(a, "x"), a.dy, **how))},
    )  # fmt: skip


def probability_cases() -> Iterator[Case]:
    """As a map; with a mask their gradient is that of the reference in the tiles that are computed, and else 0."""
    images, heads, width, tokens = sized((2, 4, 64, 512), (1, 2, 5, 150))
    keyed, values = (images, 2 * heads * width, tokens, 1), (images, heads * width, tokens, 1)
    for form in ("all", "causal"):
        yield from with_a_map_of_probabilities(form, keyed, values, heads)


def with_a_map_of_probabilities(
    form: str, keyed: tuple[int, ...], values: tuple[int, ...], heads: int
) -> Iterator[Case]:
    causal, squares = form == "causal", (keyed[0], heads, keyed[2], keyed[2])
    places = np.arange(keyed[2])
    computed = places < (places[:, None] // attention.TILE + 1) * attention.TILE if causal else places >= 0

    def arrays() -> Arrays:
        x = drawn(*keyed)
        maps = {"p": reference.scores_forward(x, heads, causal), "dp": another(*squares), "out": blank(*squares)}
        rows = {"v": another(*values), "dv": blank(*values), "y": blank(*values), "dy": drawn(*values)}
        return Arrays(x=x, dx=blank(*keyed), **maps, **rows)

    def forward(a: Arrays, stream: Any) -> None:
        scores.forward(a.x, a.out, heads=heads, causal=causal, stream=stream)
        scores.softmax(a.out, causal=causal, stream=stream)

    def backward(a: Arrays, stream: Any) -> None:
        scores.softmax_backward(a.p, a.dp, causal=causal, stream=stream)
        scores.backward(a.x, a.dp, a.dx, heads=heads, causal=causal, stream=stream)

    def of_rows(a: Arrays) -> dict[str, np.ndarray]:
        p, dp = a.p.astype(np.float64), a.dp.astype(np.float64)
        ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))
        return {"dp": np.where(computed, ds.astype(np.float32), a.dp)}

    def unmixed(a: Arrays) -> dict[str, np.ndarray]:
        dp, dv = reference.mix_backward(a.p, a.v, a.dy)
        return {"dv": dv, "out": np.where(computed, dp, np.float32(0))}

    yield Case(
        f"scores.forward and softmax, {form}", arrays, forward,
        lambda a: {"out": reference.scores_forward(a.x, heads, causal)},
    )  # fmt: skip
    yield Case(
        f"scores.backward and softmax's, {form}", arrays, backward,
        lambda a: {"dx": reference.scores_backward(a.x, a.dp, heads, causal), **of_rows(a)},
    )  # fmt: skip
    yield Case(
        f"mix.forward, {form}", arrays, lambda a, stream: mix.forward(a.p, a.v, a.y, causal=causal, stream=stream),
        lambda a: {"y": reference.mix_forward(a.p, a.v)},
    )  # fmt: skip
    yield Case(
        f"mix.backward, {form}", arrays,
        lambda a, stream: mix.backward(a.p, a.v, a.dy, a.out, a.dv, causal=causal, stream=stream), unmixed,
    )  # fmt: skip


def loss_cases() -> Iterator[Case]:
    shape = sized((128, 1000), (5, 1000))

    def arrays() -> Arrays:
        labels = np.random.default_rng(7).integers(0, shape[1], shape[0], dtype=np.int32)
        x = drawn(*shape)
        return Arrays(x=x, y=reference.softmax_forward(x), labels=labels, out=blank(*shape), losses=blank(shape[0]))

    def forward(a: Arrays, stream: Any) -> None:
        softmax.forward(a.x, a.out, stream=stream)
        softmax.cross_entropy(a.y, a.labels, a.losses, stream=stream)

    yield Case(
        "softmax.forward and cross_entropy", arrays, forward,
        lambda a: {"out": reference.softmax_forward(a.x), "losses": reference.softmax_cross_entropy(a.y, a.labels)},
    )  # fmt: skip
    yield Case(
        "softmax.backward", arrays,
        lambda a, stream: softmax.backward(a.y, a.labels, a.out, stream=stream),
        lambda a: {"out": reference.softmax_backward(a.y, a.labels)},
    )  # fmt: skip


def pixel_loss_cases() -> Iterator[Case]:
    shape = sized((4, 21, 96, 96), (2, 5, 9, 70))
    pixels = (shape[0], *shape[2:])

    def arrays() -> Arrays:
        random = np.random.default_rng(7)
        labels = random.integers(0, shape[1], pixels, dtype=np.int32)
        labels[random.random(pixels) < 0.3] = 255
        x = drawn(*shape)
        return Arrays(
            x=x, y=reference.pixel_softmax_forward(x), labels=labels, out=blank(*shape), losses=blank(shape[0]),
            counted=np.full(1, np.count_nonzero(labels != 255), np.float32),
            workspace=blank(pixel_softmax.workspace_bytes(shape) // 4),
        )  # fmt: skip

    def forward(a: Arrays, stream: Any) -> None:
        pixel_softmax.forward(a.x, a.out, stream=stream)
        given = {"ignore_index": 255, "workspace": a.workspace, "stream": stream}
        pixel_softmax.cross_entropy(a.y, a.labels, a.losses, a.counted, **given)

    yield Case(
        "pixel_softmax.forward and cross_entropy", arrays, forward,
        lambda a: {
            "out": reference.pixel_softmax_forward(a.x),
            "losses": reference.pixel_softmax_cross_entropy(a.y, a.labels, 255)[0],
        },
    )  # fmt: skip
    yield Case(
        "pixel_softmax.backward", arrays,
        lambda a, stream: pixel_softmax.backward(a.y, a.labels, a.counted, a.out, ignore_index=255, stream=stream),
        lambda a: {"out": reference.pixel_softmax_backward(a.y, a.labels, 255)},
    )  # fmt: skip


def mean_loss_cases(error: str) -> Iterator[Case]:
    shape = sized((8, 3, 128, 128), (2, 3, 40, 41))

    def arrays() -> Arrays:
        targets = np.random.default_rng(7).random(shape, np.float32)
        workspace = blank(mean_loss.workspace_bytes(shape) // 4)
        return Arrays(x=drawn(*shape), targets=targets, out=blank(*shape), losses=blank(shape[0]), workspace=workspace)

    yield Case(
        f"mean_loss.forward, {error}", arrays,
        lambda a, stream: mean_loss.forward(
            a.x, a.targets, a.losses, error=error, workspace=a.workspace, stream=stream
        ),
        lambda a: {"losses": reference.mean_loss_forward(a.x, a.targets, error)},
    )  # fmt: skip
    yield Case(
        f"mean_loss.backward, {error}", arrays,
        lambda a, stream: mean_loss.backward(a.x, a.targets, a.out, error=error, stream=stream),
        lambda a: {"out": reference.mean_loss_backward(a.x, a.targets, error)},
    )  # fmt: skip
    if error == "binary":
        yield Case(
            "mean_loss.sigmoid", arrays, lambda a, stream: mean_loss.sigmoid(a.x, a.out, stream=stream),
            lambda a: {"out": reference.mean_loss_sigmoid(a.x)},
        )  # fmt: skip


def joining_cases() -> Iterator[Case]:
    channels, images = (64, 33, 7), sized(8, 1)

    def parts(make: Callable[..., Any]) -> dict[str, Any]:
        return {f"x{i}": make(images, n, 28, 28) for i, n in enumerate(channels)}

    def same(make: Callable[..., Any]) -> dict[str, Any]:
        return {f"x{i}": make(images, 64, 28, 28) * np.float32(i + 1) for i in range(5)}

    def several(a: Arrays) -> list[Any]:
        return [value for name, value in vars(a).items() if name.startswith("x")]

    def named(values: Any) -> dict[str, Any]:
        return {f"x{i}": value for i, value in enumerate(values)}

    yield Case(
        "concat.forward", lambda: Arrays(**parts(drawn), y=blank(images, sum(channels), 28, 28)),
        lambda a, stream: concat.forward(several(a), a.y, stream=stream),
        lambda a: {"y": reference.concat_forward(several(a))}, tolerance=0,
    )  # fmt: skip
    yield Case(
        "concat.backward", lambda: Arrays(**parts(blank), y=drawn(images, sum(channels), 28, 28)),
        lambda a, stream: concat.backward(a.y, several(a), stream=stream),
        lambda a: named(reference.concat_backward(a.y, channels)), tolerance=0,
    )  # fmt: skip
    yield Case(
        "join.forward", lambda: Arrays(**same(drawn), y=blank(images, 64, 28, 28)),
        lambda a, stream: join.forward(several(a), a.y, stream=stream),
        lambda a: {"y": reference.join_forward(several(a))},
    )  # fmt: skip
    yield Case(
        "join.backward", lambda: Arrays(**same(blank), y=drawn(images, 64, 28, 28)),
        lambda a, stream: join.backward(a.y, several(a), stream=stream),
        lambda a: named(reference.join_backward(a.y, 5)), tolerance=0,
    )  # fmt: skip


def elementwise_cases() -> Iterator[Case]:
    shape = sized((32, 64, 57, 55), (2, 5, 57, 55))
    chance: dict[str, Any] = {"probability": 0.4, "seed": 2**40 + 3, "layer": 5, "iteration": 2**33 + 1}

    def arrays() -> Arrays:
        return Arrays(x=drawn(*shape), y=another(*shape), v=drawn(1, *shape)[0], out=blank(*shape))

    yield Case(
        "relu.forward", arrays,
        lambda a, stream: relu.forward(a.x, a.out, stream=stream),
        lambda a: {"out": reference.relu_forward(a.x)}, tolerance=0,
    )  # fmt: skip
    yield Case(
        "relu.backward in place", arrays,
        lambda a, stream: relu.backward(a.y, a.x, a.x, stream=stream),
        lambda a: {"x": reference.relu_backward(a.y, a.x)}, tolerance=0,
    )  # fmt: skip
    yield Case(
        "relu.forward clipped", arrays,
        lambda a, stream: relu.forward(a.x, a.out, at_most=0.5, stream=stream),
        lambda a: {"out": reference.relu_forward(a.x, 0.5)}, tolerance=0,
    )  # fmt: skip
    yield Case(
        "relu.backward clipped", arrays,
        lambda a, stream: relu.backward(a.y, a.x, a.x, at_most=0.5, stream=stream),
        lambda a: {"x": reference.relu_backward(a.y, a.x, 0.5)}, tolerance=0,
    )  # fmt: skip
    for kind in (kind for kind, traits in TRAITS.items() if traits.elementwise and kind != "relu"):
        for form in TRAITS[kind].forms:
            yield from activation(kind, form, arrays)
    yield Case(
        "dropout.forward", arrays,
        lambda a, stream: dropout.forward(a.x, a.out, **chance, stream=stream),
        lambda a: {"out": reference.dropout_forward(a.x, **chance)},
    )  # fmt: skip
    yield Case(
        "dropout.backward in place", arrays,
        lambda a, stream: dropout.backward(a.x, a.x, **chance, stream=stream),
        lambda a: {"x": reference.dropout_backward(a.x, **chance)},
    )  # fmt: skip
    yield Case(
        "elementwise.fill", arrays,
        lambda a, stream: elementwise.fill(a.out, 2.5, stream=stream),
        lambda a: {"out": reference.elementwise_fill(a.out, 2.5)}, tolerance=0,
    )  # fmt: skip
    yield Case(
        "elementwise.copy", arrays,
        lambda a, stream: elementwise.copy(a.x, a.out, stream=stream),
        lambda a: {"out": reference.elementwise_copy(a.x)}, tolerance=0,
    )  # fmt: skip
    yield Case(
        "elementwise.axpy", arrays,
        lambda a, stream: elementwise.axpy(-0.3, a.x, a.y, stream=stream),
        lambda a: {"y": reference.elementwise_axpy(-0.3, a.x, a.y)},
    )  # fmt: skip
    rule: dict[str, Any] = {"rate": 0.1, "momentum": 0.9, "decay": 1e-3}
    yield Case(
        "sgd.update", arrays,
        lambda a, stream: sgd.update(a.x, a.y, a.v, **rule, stream=stream),
        lambda a: dict(zip("xv", reference.sgd_update(a.x, a.y, a.v, **rule), strict=True)),
    )  # fmt: skip


def product_cases() -> Iterator[Case]:
    """A gate of one number a map, of x's shape, and a number a channel; every gradient is in place, in dy."""
    shape = sized((32, 64, 57, 55), (2, 5, 57, 55))
    per_map, per_channel = (*shape[:2], 1, 1), shape[1:2]

    def arrays(gate: tuple[int, ...]) -> Callable[[], Arrays]:
        return lambda: Arrays(
            x=drawn(*shape), dy=drawn(*shape), y=blank(*shape), gate=drawn(*gate), dgate=blank(*gate),
            workspace=blank(scale.workspace_bytes(shape) // 4),
        )  # fmt: skip

    for which, gate in (("", per_map), (", one shape", shape)):
        yield Case(
            f"mul.forward{which}", arrays(gate), lambda a, stream: mul.forward(a.x, a.gate, a.y, stream=stream),
            lambda a: {"y": reference.mul_forward(a.x, a.gate)},
        )  # fmt: skip
        yield Case(
            f"mul.backward{which}", arrays(gate),
            lambda a, stream: mul.backward(a.x, a.gate, a.dy, a.dy, a.dgate, stream=stream),
            lambda a: dict(zip(("dy", "dgate"), reference.mul_backward(a.x, a.gate, a.dy), strict=True)),
        )  # fmt: skip
    yield Case(
        "scale.forward", arrays(per_channel), lambda a, stream: scale.forward(a.x, a.gate, a.y, stream=stream),
        lambda a: {"y": reference.scale_forward(a.x, a.gate)},
    )  # fmt: skip
    yield Case(
        "scale.backward", arrays(per_channel),
        lambda a, stream: scale.backward(a.x, a.gate, a.dy, a.dy, a.dgate, workspace=a.workspace, stream=stream),
        lambda a: dict(zip(("dy", "dgate"), reference.scale_backward(a.x, a.gate, a.dy), strict=True)),
    )  # fmt: skip


def activation(kind: str, form: Mapping[str, Any], arrays: Callable[[], Arrays]) -> Iterator[Case]:
    """An element-wise kind of layers with these options; its gradient in place, of its input or its output in x."""
    module, which = import_module(f"kernels.fast.{kind}"), "".join(f", {name}={value}" for name, value in form.items())
    by_numpy, slopes = (getattr(reference, f"{kind}_{direction}") for direction in ("forward", "backward"))
    yield Case(
        f"{kind}.forward{which}", arrays,
        lambda a, stream: module.forward(a.x, a.out, **form, stream=stream), lambda a: {"out": by_numpy(a.x, **form)},
    )  # fmt: skip
    yield Case(
        f"{kind}.backward{which}", arrays,
        lambda a, stream: module.backward(a.x, a.y, a.y, **form, stream=stream),
        lambda a: {"y": slopes(a.x, a.y, **form)},
    )  # fmt: skip


def norm_of(dw: Any) -> Any:
    return reference.clip_norm(reference.clip_square(dw))


def learning_cases() -> Iterator[Case]:
    shape = sized((1024, 1024), (5, 1030))

    def arrays() -> Arrays:
        workspace = blank(clip.parts(shape[0] * shape[1]))
        both = {"mean": drawn(*shape) * np.float32(0.1), "square": drawn(*shape) ** 2}
        return Arrays(x=drawn(*shape), y=another(*shape), workspace=workspace, norm=blank(1), **both)

    rule: dict[str, Any] = {"iteration": 7, "rate": 0.1, "beta1": 0.8, "decay": 0.1}
    yield Case(
        "adamw.update", arrays,
        lambda a, stream: adamw.update(a.x, a.y, a.mean, a.square, **rule, stream=stream),
        lambda a: dict(
            zip(("x", "mean", "square"), reference.adamw_update(a.x, a.y, a.mean, a.square, **rule), strict=True)
        ),
    )  # fmt: skip

    def clipped(a: Arrays, stream: Any) -> None:
        clip.square(a.y, a.workspace, place=0, stream=stream)
        clip.norm(a.workspace, a.norm, stream=stream)
        clip.apply(a.norm, a.y, max_norm=2.0, stream=stream)

    yield Case(
        "clip.square, norm and apply",
        arrays,
        clipped,
        lambda a: {"y": reference.clip_apply(norm_of(a.y), a.y, 2.0), "norm": norm_of(a.y)},
    )


CASES = [
    *learning_cases(),
    *matrix_cases(), *convolution_cases(), *pooling_cases(), *upsampling_cases(), *moving_cases(),
    *channel_and_token_cases(), *token_cases(),
    *fully_connected_cases(), *normalisation_cases(), *set_normalisation_cases(), *attention_cases(), *loss_cases(),
    *probability_cases(),
    *rms_normalisation_cases(), *rotary_cases(), *pixel_loss_cases(), *mean_loss_cases("squared"),
    *mean_loss_cases("binary"), *joining_cases(), *elementwise_cases(), *product_cases(),
]  # fmt: skip


# --- The tests -------------------------------------------------------------------------------------------------------


def on_gpu(arrays: Arrays) -> Arrays:
    return Arrays(**{name: gpu.to_device(array) for name, array in vars(arrays).items()})


def bits(array: Any) -> Any:
    """NaN equals NaN, and 0 does not equal -0."""
    return array.view(np.uint32)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_gpu_agrees_with_the_oracle_the_cpu_and_itself(case: Case) -> None:
    start, on_cpu = case.arrays(), case.arrays()
    expected = case.expected(start)
    case.run(on_cpu, None)
    runs = []
    for _ in range(2):
        arrays, stream = on_gpu(start), gpu.stream()
        gpu.synchronize()  # the copies went by the default stream
        case.run(arrays, stream)
        runs.append({name: gpu.to_host(array) for name, array in vars(arrays).items()})

    for name, first in runs[0].items():
        np.testing.assert_array_equal(bits(runs[1][name]), bits(first), err_msg=f"{name} differs from run to run")
        if name in expected:
            room = case.tolerance * float(np.abs(expected[name]).max())
            for other, of in ((expected[name], "oracle"), (getattr(on_cpu, name), "CPU")):
                np.testing.assert_allclose(first, other, rtol=0, atol=room, err_msg=f"{name} against the {of}'s")
        elif name != "workspace":
            np.testing.assert_array_equal(bits(first), bits(getattr(start, name)), err_msg=f"{name} was written to")
