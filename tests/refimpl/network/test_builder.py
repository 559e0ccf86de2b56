"""Describing networks: shapes, names, and one clear line for what cannot be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.checks.arguments import KernelError
from kernels.checks.conv_shape import ConvShape
from kernels.clip import PART
from kernels.fast import batchnorm, layernorm, lrn, pixel_softmax, pool
from refimpl.machine.convolution import Convolution
from refimpl.names.networks import build
from refimpl.network import Builder, Layer, NetworkError
from refimpl.network.builder import LARGEST_LRN, PapersBuilder
from refimpl.network.conventions import VDNNPP
from refimpl.network.initial_state import spread
from refimpl.network.kinds import TRAITS
from refimpl.network.shapes import (
    clip_parts,
    layernorm_workspace,
    loss_parts_workspace,
    normalisation_workspace,
)
from tests.messages import raises_naming

PAIRS = st.tuples(st.integers(1, 5), st.integers(1, 5))
PADS = st.one_of(st.tuples(*2 * [st.integers(0, 3)]), st.tuples(*4 * [st.integers(0, 3)]))
MAPS = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 12), st.integers(1, 12))


def shape_or_none(make: Callable[[], tuple[int, ...]]) -> tuple[int, ...] | None:
    try:
        return make()
    except (KernelError, NetworkError) as error:
        assert "\n" not in str(error)
        return None


@given(MAPS, PAIRS, PAIRS, PADS, st.booleans())
@example((1, 1, 3, 3), (2, 2), (2, 2), (1, 1), True)  # the last window would start just after the map
def test_pooling_has_the_kernels_shapes(
    x: tuple[int, int, int, int], window: tuple[int, int], stride: tuple[int, int], pad: tuple[int, ...], ceil: bool
) -> None:
    expected = shape_or_none(lambda: pool.output_shape(x, window=window, stride=stride, pad=pad, ceil=ceil))
    assert shape_or_none(lambda: Builder("drawn", x).pool(window, stride, pad, ceil=ceil).shape) == expected


@given(MAPS, PAIRS, PAIRS, PADS, PAIRS, st.integers(1, 3))
def test_convolutions_have_the_kernels_shapes(
    x: tuple[int, int, int, int],
    window: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, ...],
    dilation: tuple[int, int],
    groups: int,
) -> None:
    """And the machines' own idea of them has, too."""
    x = (x[0], groups * x[1], *x[2:])
    w = (2 * groups, x[1] // groups, *window)
    how: dict[str, Any] = {"groups": groups, "dilation": dilation}
    made = shape_or_none(lambda: Builder("drawn", x).conv(2 * groups, window, stride, pad, **how).shape)
    assert made == shape_or_none(lambda: ConvShape.of(x, w, stride, pad, dilation).y_shape)
    if made:
        shape = ConvShape.of(x, w, stride, pad, dilation)
        conv = Convolution.made("forward", x, w, stride, pad, dilation)
        assert (conv.y_shape, conv.w_shape, conv.groups, conv.flops) == (made, w, groups, shape.flops)


@given(st.tuples(st.integers(1, 64), st.integers(1, 99), st.integers(1, 99), st.integers(1, 99)))
def test_batch_normalisation_has_the_kernels_workspace(x: tuple[int, int, int, int]) -> None:
    for numbers in (1, 4096, 4097, 70 * 70):
        assert clip_parts(numbers) == -(-numbers // PART)
        shape = (3, 5, numbers, 1)
        assert loss_parts_workspace(3, numbers, 2) == pixel_softmax.workspace_bytes(shape)
    assert normalisation_workspace(x) == batchnorm.workspace_bytes(x)
    assert normalisation_workspace(x[:2]) == batchnorm.workspace_bytes(x[:2])
    assert layernorm_workspace(x) == layernorm.workspace_bytes(x)


def test_layers_have_the_kernels_limits() -> None:
    assert LARGEST_LRN == lrn.SLOTS


def builder(batch: int = 2) -> Builder:
    return Builder("net", (batch, 3, 8, 8))


WRONG = {
    "no images": (lambda: Builder("net", (0, 3, 8, 8)), ("net", "batch", 0, 1)),
    "three axes": (lambda: Builder("net", (3, 8, 8)), ("net", (3, 8, 8))),
    "no filters": (lambda: builder().conv(0, 3), ("conv1", "filters", 0, 1)),
    "too large": (lambda: builder().conv(4, 9), ("conv1", "window", 9, 8, 0)),
    "padding": (lambda: builder().pool(2, pad=2), ("pool1", (2, 2), "window")),
    "rows": (lambda: [b := builder(), b.fc(3), b.conv(4, 1)], ("conv1", (2, 3))),
    "probability": (lambda: builder().dropout(1.0, name="d"), ("d", "probability", 1.0, 0)),
    "lrn": (lambda: builder().lrn(17), ("lrn", 17, 16)),
    "out_pad": (
        lambda: builder().conv_transpose(4, 3, stride=2, out_pad=2),
        ("conv_transpose1", "out_pad", 2, "stride"),
    ),
    "a gate of fewer channels": (
        lambda: [b := builder(), x := b.conv(4, 1), b.mul(x, b.global_pool(after=b.conv(3, 1)), name="gated")],
        ("gated", (2, 4, 8, 8), (2, 3, 1, 1), (2, 4, 1, 1)),
    ),
    "a scale of no number": (lambda: builder().scale(float("nan")), ("scale", "first", "nan")),
    "nearest corners": (lambda: builder().upsample(2, align_corners=True), ("upsample1", "align_corners", "nearest")),
    "groups of channels": (lambda: builder().groupnorm(2), ("groupnorm", 3, "channels", 2, "groups")),
    "no base": (lambda: [b := builder(), b.conv(6, 1), b.rotary(1, base=0)], ("rotary1", "base", 0)),
    "heads of no width": (lambda: [b := builder(), b.conv(12, 1), b.attention(5)], ("attention1", "12 channels", 15)),
    "no heads": (lambda: builder().attention(0), ("attention1", "heads", 0)),
    "keys of other heads": (
        lambda: [b := builder(), b.attention(1, keys=b.conv(4, 1), values=b.conv(4, 1), after=b.input)],
        ("attention1", "3 channels for 1", "4 channels for 1"),
    ),
    "causal across": (
        lambda: [b := builder(), k := b.pool(2), b.attention(3, True, None, k, b.conv(3, 1), after=b.input)],
        ("attention1", "causal", 64, 16),
    ),
    "one input": (lambda: [b := builder(), b.join(b.conv(4, 1))], ("join",)),
    "twice": (lambda: [b := builder(), b.concat(x := b.relu(), x)], ("concat",)),
    "sizes": (
        lambda: [b := builder(), b.join(b.conv(4, 1), b.conv(5, 1))],
        ("join1", (2, 4, 8, 8), (2, 5, 8, 8)),
    ),
    "names": (
        lambda: [b := builder(), b.relu(name="a"), b.relu(name="a")],
        ("net", "a"),
    ),
    "another's": (lambda: builder().relu(after=builder().relu()), ("relu1",)),
    "after it": (
        lambda: [b := builder(), b.fc(3), b.softmax(), b.relu()],
        ("relu1", "softmax"),
    ),
    "no end": (lambda: [b := builder(), b.fc(3), b.build()], ("net", "softmax")),
    "two ends": (
        lambda: [b := builder(), b.relu(), b.fc(3, after=b.input), b.softmax(), b.build()],
        ("net", "relu1", "loss"),
    ),
    "built": (lambda: [b := finished(), b.build(), b.build()], ("net", "built")),
    "tensors": (
        lambda: [b := builder(), b.conv(2, 1), b.lrn(name="l"), b.fc(2, name="d(l)"), b.softmax(), b.build()],
        ("net", "d(l)"),
    ),
    "an ignored label out of range": (
        lambda: [b := builder(), b.pixel_softmax(ignore_index=2**31)],
        ("pixel_softmax", "ignore_index", 2**31, "int32"),
    ),
    "an embedding of an image": (lambda: [b := builder(), b.embedding(5, 3)], ("embedding1", "input", "int32")),
    "tokens into a convolution": (
        lambda: [b := Builder("mine", (2, 5), dtype="int32"), b.conv(3, 1)], ("conv1", "input", "embedding"),
    ),
    "tied to a head with a bias": (
        lambda: [
            b := Builder("mine", (2, 5), dtype="int32"), e := b.embedding(7, 3), h := b.conv(7, 1),
            b.share(e, h), b.pixel_softmax(), b.build(),  # type: ignore[func-returns-value]
        ], ("conv1", "embedding1", "'b'"),
    ),
    "layer": (lambda: finished().build().layer("sofmax1"), ("sofmax1", "softmax1")),
    "a second input of other images": (
        lambda: builder().add_input("more", (3, 1, 4, 4)), ("net", "more", (3, 1, 4, 4), "(2, channels"),
    ),
    "another formula": (lambda: builder().gelu("sigmoid"), ("gelu", "sigmoid", "none or tanh")),
    "a branch that is always dropped": (lambda: builder().drop_path(1.0), ("drop_path", 1.0, 0)),
    "an order of halves": (lambda: builder().permute_channels([0, 1.5, 2]), ("permute_channels", 1.5)),  # type: ignore[list-item]
    "more than there are": (lambda: builder().take(2, 2), ("take1", 2, 3, (2, 3, 8, 8))),
    "sharing with another network": (
        lambda: (b := builder()).share(b.conv(3, 1), builder().conv(3, 1)), ("net", "conv1"),
    ),
    "a loss of no weight": (lambda: [b := builder(), b.fc(3), b.softmax(weight=0.0)], ("softmax1", "weight", 0.0)),
    "an optimiser": (lambda: finished().build().trained_by("adam"), ("adam", "adamw")),
    "a frozen layer": (lambda: finished().build().trained_by(frozen=["conv*"]), ("conv*", "fc1.w", "fc1.b")),
    "all frozen": (lambda: finished().build().trained_by(frozen=["fc*"]), ("2 parameters", "!fc1")),
    "ranks before the optimiser": (
        lambda: finished().build().data_parallel(2).trained_by("adamw"), ("net", 2, "trained_by"),
    ),
    "an input that nothing reads": (
        lambda: [b := builder(), b.add_input("unread", (2, 3, 4, 4)), b.fc(3, after=b.input), b.softmax(), b.build()],
        ("unread",),
    ),
    "shared weights of other shapes": (
        lambda: [
            b := builder(), x := b.conv(4, 3, pad=1), b.share(x, b.conv(4, 3, pad=1)),  # type: ignore[func-returns-value]
            b.fc(3), b.softmax(), b.build(),
        ], ("conv2", "conv1", (4, 4, 3, 3), (4, 3, 3, 3)),
    ),
    "shared weights of other shapes, which an earlier layer takes": (
        lambda: [
            b := builder(), x := b.conv(4, 3, pad=1), b.share(b.conv(4, 3, pad=1), x),  # type: ignore[func-returns-value]
            b.fc(3), b.softmax(), b.build(),
        ], ("conv2", "conv1", (4, 4, 3, 3), (4, 3, 3, 3)),
    ),
    "sharing with another kind": (
        lambda: [b := builder(), b.share(b.conv(4, 1), b.batchnorm())], ("batchnorm1", "batchnorm", "kind"),  # type: ignore[func-returns-value]
    ),
    "gradients that are managed": (
        lambda: build("tiny-vgg:vdnnpp", 2).data_parallel(2), ("d(fc5.w)", "data-parallel"),
    ),
    "no buckets": (lambda: finished().build().data_parallel(2, 0), (2, 0)),
    "ranks of ranks": (lambda: finished().build().data_parallel(2).data_parallel(3), ("net", 2)),
}  # fmt: skip


def test_the_last_pattern_that_fits_decides_what_learns() -> None:
    b = builder()
    b.conv(4, 1)
    b.batchnorm()
    b.fc(3)
    b.softmax()
    network = b.build()

    def learning(*patterns: str) -> list[str]:
        found = network.trained_by(frozen=patterns)
        return [f"{layer}.{name}" for layer, name, one in found.parameters() if not one.frozen]

    every = ["conv1.w", "conv1.b", "batchnorm1.gamma", "batchnorm1.beta", "fc1.w", "fc1.b"]
    assert learning("conv1") == every[2:]
    assert learning("*.b") == [name for name in every if not name.endswith(".b")]
    assert learning("*", "!fc1") == every[4:]
    assert learning("*", "!fc1", "fc1.b") == ["fc1.w"]
    assert learning("!fc1", "*.gamma") == [name for name in every if name != "batchnorm1.gamma"]


def finished() -> Builder:
    b = builder()
    b.fc(3)
    b.softmax()
    return b


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_one_line(case: str) -> None:
    make, says = WRONG[case]
    with raises_naming(NetworkError, *says):
        make()


def test_a_refused_layer_leaves_no_trace() -> None:
    b = builder()
    first = b.conv(4, 3)
    refused: list[Callable[[], Layer]] = [
        lambda: b.conv(4, 99), lambda: b.pool(2, mode="mean"), lambda: b.join(first, b.input),
        lambda: b.pool_to(0),
    ]  # fmt: skip
    for make in refused:
        with pytest.raises(NetworkError):
            make()
    b.fc(3)
    b.softmax()
    assert [layer.name for layer in b.build().layers] == ["conv1", "fc1", "softmax1"]


def test_pooling_to_a_size_is_a_layer_only_where_it_is_needed() -> None:
    b = builder()
    first = b.conv(4, 3)  # 6×6
    assert b.pool_to(6) is first and b.flatten() is first
    whole, uneven = b.pool_to((3, 2), after=first), b.pool_to((4, 6), "max", after=first)
    assert whole.options["window"] == whole.options["stride"] == (2, 3) and whole.shape == (2, 4, 3, 2)
    assert uneven.options == {"out": (4, 6), "mode": "max"} and uneven.shape == (2, 4, 4, 6)
    assert b.global_pool("max", after=first).shape == (2, 4, 1, 1)


def test_a_transposed_convolution_undoes_a_convolutions_shape_and_keeps_its_variance() -> None:
    b = builder()
    b.conv(4, 3, stride=2, pad=1, after=b.input)  # 8×8 to 4×4
    layer = b.conv_transpose(6, 3, stride=2, pad=1, out_pad=1)
    assert layer.shape == (2, 6, 8, 8)
    assert b.upsample((3, 1)).shape == (2, 6, 24, 8) and b.upsample_to(5, "bilinear").shape == (2, 6, 5, 5)
    assert b.upsample_to(5) is b.last
    b.fc(2)
    b.softmax()
    b.build()
    assert spread(layer, (4, 6, 3, 3)) == pytest.approx((2 / (4 * 9 / 4)) ** 0.5)


def test_describing_and_building_do_not_import_numba() -> None:
    """It takes longer than planning a network, and only running one needs it."""
    use = "from refimpl.names.networks import build; build('tiny-resnet').inference()"
    code = f"import sys; {use}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


# -- fused ReLUs -------------------------------------------------------------------------------------------------------


@pytest.mark.vdnnpp
def test_a_relu_behind_anything_else_or_beside_others_is_a_layer() -> None:
    b = Builder("net", (2, 3, 8, 8), VDNNPP)
    b.pool(2)
    assert b.relu().kind == "relu"
    read = b.conv(4, 1)
    b.batchnorm()
    other = b.relu()
    assert other.kind == "relu"
    beside = b.relu(after=read)  # the norm reads the convolution's output
    assert beside.kind == "relu" and not read.has_relu
    b.join(other, beside)
    b.fc(3)
    b.softmax()
    network = b.build()
    with raises_naming(NetworkError, "net"):
        b.relu(after=network.layers[-2])


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda b: b.linear(10), "a Builder has no 'linear'; write fc. There are: conv,"),
        (lambda b: b.batchnrm(), "a Builder has no 'batchnrm'; did you mean batchnorm? There are: conv,"),
        (lambda b: b.buld(), "did you mean build?"),
        (lambda b: b.conv(8, 3, padding=1), "conv has no option 'padding'; write pad. There are: filters, window,"),
        (lambda b: b.conv(8, 3, strid=1), "conv has no option 'strid'; did you mean stride?"),
        (lambda b: b.softmax(axis=1), "softmax has no option 'axis'. There are: name, after, weight."),
    ],
)
def test_a_misspelt_layer_or_option_is_one_line_that_says_what_to_write(ask: Any, says: str) -> None:
    with pytest.raises((AttributeError, NetworkError)) as refused:
        ask(Builder("mine", (1, 3, 8, 8)))
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_the_papers_builder_has_the_kinds_of_their_networks_alone() -> None:
    made = ("data", "fork")  # the batch is there, and forks are put in
    for kind, traits in TRAITS.items():
        assert hasattr(PapersBuilder, kind) == (traits.published and kind not in made), kind
        assert hasattr(Builder, kind) == (kind not in made and not traits.opaque), kind


def test_a_normalisation_begins_as_one_alone() -> None:
    """Its factors are 1 and its summands 0, so that its first output has the mean 0 and the variance 1."""
    b = Builder("normal", (2, 4, 5, 5))
    made = [b.batchnorm(), b.layernorm(), b.groupnorm(2), b.rmsnorm()]
    b.fc(2)
    b.softmax()
    b.build()
    for layer in made:
        first = {name: layer.traits.first[name] for name in layer.own}
        assert first == {"gamma": 1.0, "beta": 0.0} or (layer.kind == "rmsnorm" and first == {"gamma": 1.0})
