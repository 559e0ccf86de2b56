"""The oracle's own tests: against PyTorch, and the product of matrices against its definition."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from refimpl.network.kinds import TRAITS


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(found: Any, expected: Any, tolerance: float = 2e-6) -> None:
    """Equal up to a few roundings to float32, relative to the largest value."""
    expected = np.asarray(expected)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1.0, float(np.abs(expected).max())))


def torch_gradients(torch: Any, function: Callable[..., Any], dy: np.ndarray | None, *inputs: np.ndarray) -> list[Any]:
    """PyTorch's output and the gradients of all inputs, in float64.  `dy` None: ones."""
    tensors = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in inputs]
    y = function(*tensors)
    y.backward(torch.ones_like(y) if dy is None else torch.tensor(dy, dtype=torch.float64))
    return [y.detach().numpy(), *(t.grad.numpy() for t in tensors)]


def check_by_torch(torch: Any, name: str, function: Callable[..., Any], *inputs: np.ndarray, **options: Any) -> None:
    """`name`_forward and `name`_backward, which reads inputs and dy, beside PyTorch's values and gradients."""
    y = getattr(reference, f"{name}_forward")(*inputs, **options)
    y = y[0] if isinstance(y, tuple) else y
    dy = normal(*y.shape, seed=9)
    theirs, *slopes = torch_gradients(torch, function, dy, *inputs)
    close(y, theirs)
    found = getattr(reference, f"{name}_backward")(*inputs, dy, **options)
    for ours, slope in zip(found if isinstance(found, (tuple, list)) else [found], slopes, strict=True):
        close(ours.reshape(slope.shape), slope, 1e-5)


# -- gemm --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_gemm_is_its_definition(trans_a: bool, trans_b: bool) -> None:
    m, n, k = 3, 4, 5
    a, b, c = normal(*((k, m) if trans_a else (m, k))), normal(*((n, k) if trans_b else (k, n)), seed=1), normal(m, n)
    expected = np.zeros((m, n))
    for i, j, t in itertools.product(range(m), range(n), range(k)):
        expected[i, j] += float(a[t, i] if trans_a else a[i, t]) * float(b[j, t] if trans_b else b[t, j])
    close(reference.gemm(a, b, trans_a=trans_a, trans_b=trans_b), expected)
    close(reference.gemm(a, b, c, trans_a, trans_b, alpha=0.5, beta=2.0), 0.5 * expected + 2.0 * c)


# -- convolution -------------------------------------------------------------------------------------------------------


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, int], tuple[int, int]]:
    """Shapes of x and w, stride and padding; the filter may be larger than the map without its padding."""
    pad = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    height, width = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    rows, columns = draw(st.integers(1, min(5, height + 2 * pad[0]))), draw(st.integers(1, min(5, width + 2 * pad[1])))
    channels = draw(st.integers(1, 3))
    stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return (
        (draw(st.integers(1, 2)), channels, height, width),
        (draw(st.integers(1, 3)), channels, rows, columns),
        stride,
        pad,
    )


@given(convolutions())
def test_convolution_and_its_gradients_as_in_pytorch(torch: Any, shapes: tuple[Any, ...]) -> None:
    x_shape, w_shape, stride, pad = shapes
    x, w, b = normal(*x_shape), normal(*w_shape, seed=1), normal(w_shape[0], seed=2)
    dy = normal(*reference.conv_output_shape(x_shape, w_shape, stride, pad), seed=3)

    def convolve(x: Any, w: Any, b: Any) -> Any:
        return torch.nn.functional.conv2d(x, w, b, stride, pad)

    y, dx, dw, db = torch_gradients(torch, convolve, dy, x, w, b)
    close(reference.conv_forward(x, w, b, stride, pad), y)
    close(reference.conv_forward(x, w, None, stride, pad), y - b[None, :, None, None])
    close(reference.conv_backward_data(dy, w, x_shape, stride, pad), dx)
    close(reference.conv_backward_filter(x, dy, w_shape, stride, pad), dw)
    close(reference.conv_backward_bias(dy), db)


# -- pooling -----------------------------------------------------------------------------------------------------------


@st.composite
def poolings(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """A shape and the options; PyTorch wants at most half a window of padding."""
    options: dict[str, Any] = {"window": (draw(st.integers(1, 4)), draw(st.integers(1, 4)))}
    options["pad"] = tuple(draw(st.integers(0, length // 2)) for length in options["window"])
    options["stride"] = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    options["ceil"] = draw(st.booleans())
    sizes = (draw(st.integers(max(1, w - 2 * p), 9)) for w, p in zip(options["window"], options["pad"], strict=True))
    return (draw(st.integers(1, 2)), draw(st.integers(1, 2)), *sizes), options


def torch_pooling(torch: Any, options: dict[str, Any], mode: str, count_padding: bool) -> Callable[[Any], Any]:
    given = {"kernel_size": options["window"], "stride": options["stride"], "padding": options["pad"]}
    given["ceil_mode"] = options["ceil"]
    if mode == "max":
        return lambda x: torch.nn.functional.max_pool2d(x, **given)
    return lambda x: torch.nn.functional.avg_pool2d(x, **given, count_include_pad=count_padding)


@pytest.mark.parametrize(("mode", "count_padding"), [("max", True), ("average", True), ("average", False)])
@given(drawn=poolings(), whole=st.booleans())
def test_pooling_as_in_pytorch(
    torch: Any, mode: str, count_padding: bool, drawn: tuple[tuple[int, ...], dict[str, Any]], whole: bool
) -> None:
    shape, options = drawn
    x = normal(*shape)
    if whole:  # many equal values in a window: the first must get the gradient
        x = np.round(x)
    y = reference.pool_forward(x, **options, mode=mode, count_padding=count_padding)
    dy = normal(*y.shape, seed=1)
    expected, dx = torch_gradients(torch, torch_pooling(torch, options, mode, count_padding), dy, x)
    assert y.shape == reference.pool_output_shape(shape, **options)
    close(y, expected)
    close(reference.pool_backward(x, y, dy, **options, mode=mode, count_padding=count_padding), dx)


# -- fully connected, relu ---------------------------------------------------------------------------------------------


@given(n=st.integers(1, 4), shape=st.lists(st.integers(1, 4), min_size=1, max_size=3), outputs=st.integers(1, 5))
def test_fully_connected_as_in_pytorch(torch: Any, n: int, shape: list[int], outputs: int) -> None:
    x, w, b = normal(n, *shape), normal(outputs, int(np.prod(shape)), seed=1), normal(outputs, seed=2)
    dy = normal(n, outputs, seed=3)
    layer = torch.nn.functional.linear
    y, dx, dw, db = torch_gradients(torch, lambda x, w, b: layer(x.flatten(1), w, b), dy, x, w, b)
    close(reference.fc_forward(x, w, b), y)
    close(reference.fc_forward(x, w), y - b)
    close(reference.fc_backward_data(dy, w).reshape(x.shape), dx)
    close(reference.fc_backward_filter(x, dy), dw)
    close(reference.fc_backward_bias(dy), db)


# -- normalisation -----------------------------------------------------------------------------------------------------


@given(channels=st.integers(1, 9), size=st.integers(1, 7), beta=st.sampled_from([0.5, 0.75, 1.0]))
def test_local_response_normalisation_as_in_pytorch(torch: Any, channels: int, size: int, beta: float) -> None:
    x, dy = normal(2, channels, 3, 2), normal(2, channels, 3, 2, seed=1)
    options: dict[str, Any] = {"size": size, "alpha": 0.3, "beta": beta, "k": 1.5}
    y, dx = torch_gradients(torch, lambda x: torch.nn.functional.local_response_norm(x, **options), dy, x)
    found = reference.lrn_forward(x, **options)
    close(found, y)
    close(reference.lrn_backward(x, found, dy, **options), dx)


@pytest.mark.parametrize("shape", [(4, 3, 2, 5), (2, 1, 1, 1), (7, 3)])
def test_batch_normalisation_as_in_pytorch(torch: Any, shape: tuple[int, ...]) -> None:
    x, dy = 2 * normal(*shape) + 3, normal(*shape, seed=1)
    gamma, beta = normal(shape[1], seed=2), normal(shape[1], seed=3)
    running_mean, running_variance = normal(shape[1], seed=4), normal(shape[1], seed=5) ** 2
    moved = [torch.tensor(r, dtype=torch.float64) for r in (running_mean, running_variance)]

    def normalise(x: Any, gamma: Any, beta: Any) -> Any:
        return torch.nn.functional.batch_norm(x, *moved, gamma, beta, training=True, momentum=0.2, eps=1e-3)

    y, dx, dgamma, dbeta = torch_gradients(torch, normalise, dy, x, gamma, beta)
    found, mean, inverse_std = reference.batchnorm_forward(x, gamma, beta, epsilon=1e-3)
    close(found, y)
    for ours, theirs in zip(reference.batchnorm_statistics(x, epsilon=1e-3), (mean, inverse_std), strict=True):
        assert np.array_equal(ours, theirs)
    for ours, theirs in zip(
        reference.batchnorm_backward(x, gamma, mean, inverse_std, dy), (dx, dgamma, dbeta), strict=True
    ):
        close(ours, theirs, 2e-5)
    updated = reference.batchnorm_update_running(
        mean, inverse_std, running_mean, running_variance, count=x.size // shape[1], momentum=0.2, epsilon=1e-3
    )
    for ours, theirs in zip(updated, moved, strict=True):
        close(ours, theirs.numpy())
    fixed = torch.nn.functional.batch_norm(
        *(torch.tensor(a, dtype=torch.float64) for a in (x, running_mean, running_variance, gamma, beta)), eps=1e-3
    )
    close(reference.batchnorm_inference(x, gamma, beta, running_mean, running_variance, epsilon=1e-3), fixed.numpy())


def test_one_value_a_channel_has_no_variance() -> None:
    x, one = np.array([[3.0]], np.float32), np.ones(1, np.float32)
    y, mean, inverse_std = reference.batchnorm_forward(x, one, one)
    assert (y.item(), mean.item()) == (1, 3)
    running = reference.batchnorm_update_running(mean, inverse_std, one, one, count=1, momentum=1.0)
    close(np.stack(running), [[3], [0]])


# -- dropout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # the known answers that Random123 publishes for philox4x32-10
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],  # the digits of pi
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_words(counter: list[int], key: list[int], words: list[int]) -> None:
    assert reference.philox(counter, key).tolist() == words
    assert reference.philox([counter, counter], key).tolist() == [words, words]


def test_a_dropout_mask_is_the_start_of_a_longer_one() -> None:
    """An element's fate depends on its index, not on how many there are or how they are arranged."""
    options: dict[str, Any] = {"probability": 0.4, "seed": 1 << 40, "layer": 3, "iteration": 1 << 35}
    long = reference.dropout_mask(3000, **options)
    assert 0.5 < long.mean() < 0.7
    for shape in ((1,), (257,), (5, 205), (3, 1000)):
        assert np.array_equal(reference.dropout_mask(shape, **options).ravel(), long[: np.prod(shape)])


def test_dropout_scales_what_it_keeps() -> None:
    options: dict[str, Any] = {"probability": 0.75, "seed": 5, "layer": 0, "iteration": 0}
    x = normal(6, 50)
    y, kept = reference.dropout_forward(x, **options), reference.dropout_mask(x.shape, **options)
    assert np.array_equal(y[kept], 4 * x[kept]) and not y[~kept].any()
    assert np.array_equal(reference.dropout_backward(x, **options), y)


# -- softmax -----------------------------------------------------------------------------------------------------------


@given(rows=st.integers(1, 5), classes=st.integers(1, 6), spread=st.sampled_from([1.0, 30.0]))
def test_softmax_and_cross_entropy_as_in_pytorch(torch: Any, rows: int, classes: int, spread: float) -> None:
    x = np.float32(spread) * normal(rows, classes)
    labels = np.random.default_rng(1).integers(0, classes, rows).astype(np.int32)
    wanted = torch.tensor(labels, dtype=torch.int64)
    y = reference.softmax_forward(x)
    close(y, torch.softmax(torch.tensor(x, dtype=torch.float64), dim=1).numpy())
    loss, dx = torch_gradients(torch, lambda x: torch.nn.functional.cross_entropy(x, wanted), None, x)
    each = reference.softmax_cross_entropy(y, labels)
    assert each.shape == (rows,)
    np.testing.assert_allclose(each.mean(), loss, rtol=1e-5, atol=1e-6)
    close(reference.softmax_backward(y, labels), dx)


# -- the rest ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_sgd_steps_as_in_pytorch(torch: Any, momentum: float, decay: float) -> None:
    w = normal(5, 3)
    theirs = torch.nn.Parameter(torch.tensor(w, dtype=torch.float64))
    optimiser = torch.optim.SGD([theirs], lr=0.1, momentum=momentum, weight_decay=decay)
    v = np.zeros_like(w)
    for step in range(4):
        dw = normal(5, 3, seed=step + 1)
        theirs.grad = torch.tensor(dw, dtype=torch.float64)
        optimiser.step()
        w, v = reference.sgd_update(w, dw, v, rate=0.1, momentum=momentum, decay=decay)
        close(w, theirs.detach().numpy())


# -- what else PyTorch has ---------------------------------------------------------------------------------------------

FORMS = [
    pytest.param(kind, form, id="-".join((kind, *form)))
    for kind, traits in TRAITS.items()
    if traits.elementwise
    for form in traits.forms
]


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_activations_as_in_pytorch(kind: Any, form: dict[str, Any], torch: Any) -> None:
    from refimpl.studies.bench.pytorch_twins import elementwise

    x, dy = 3 * normal(3, 700), normal(3, 700, seed=1)
    theirs, slope = torch_gradients(torch, lambda x: elementwise(kind, x, form), dy, x)
    y = getattr(reference, f"{kind}_forward")(x, **form)
    close(y, theirs)
    read = [{"x": x, "y": y}[name] for name in TRAITS[kind].backward_reads]
    close(getattr(reference, f"{kind}_backward")(*read, dy, **form), slope)


def test_products_as_in_pytorch(torch: Any) -> None:
    x = normal(3, 5, 4, 6)
    for gate in (normal(3, 5, 4, 6, seed=1), normal(3, 5, 1, 1, seed=1)):
        check_by_torch(torch, "mul", torch.mul, x, gate)
    check_by_torch(torch, "scale", lambda x, w: x * w[:, None, None], x, normal(5, seed=1))


@pytest.mark.parametrize("groups", [None, 1, 3])
def test_normalisation_of_sets_as_in_pytorch(torch: Any, groups: int | None) -> None:
    x, gamma, beta = 2 * normal(2, 6, 3, 5) + 3, normal(6, seed=1), normal(6, seed=2)

    def normalised(x: Any, gamma: Any, beta: Any) -> Any:
        if groups is not None:
            return torch.nn.functional.group_norm(x, groups, gamma, beta)
        return torch.nn.functional.layer_norm(x.movedim(1, -1), (6,), gamma, beta).movedim(-1, 1)

    y, *slopes = torch_gradients(torch, normalised, dy := normal(2, 6, 3, 5, seed=3), x, gamma, beta)
    close(reference.layernorm_forward(x, gamma, beta, groups)[0], y)
    for ours, theirs in zip(reference.layernorm_backward(x, gamma, dy, groups), slopes, strict=True):
        close(ours, theirs, 1e-5)
    check_by_torch(
        torch, "rmsnorm", lambda x, w: torch.nn.functional.rms_norm(x.movedim(1, -1), (6,), w, 1e-6).movedim(-1, 1),
        x, gamma,
    )  # fmt: skip


@pytest.mark.parametrize("how", [{}, {"mode": "bilinear"}, {"mode": "bilinear", "align_corners": True}])
@pytest.mark.parametrize("out", [(3, 4), (7, 13), (1, 1)])
def test_upsampling_as_in_pytorch(torch: Any, how: dict[str, Any], out: tuple[int, int]) -> None:
    x, dy = normal(2, 3, 4, 5), normal(2, 3, *out, seed=1)
    given = {"mode": "nearest"} | how | ({"align_corners": how.get("align_corners", False)} if how else {})
    y, dx = torch_gradients(torch, lambda x: torch.nn.functional.interpolate(x, out, **given), dy, x)
    close(reference.upsample_forward(x, out, **how), y)
    close(reference.upsample_backward(dy, (4, 5), **how), dx)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_attention_as_in_pytorch(torch: Any, groups: int, causal: bool) -> None:
    """From three maps, and from one that has them group by group."""
    inputs = [normal(2, heads * 3, 7, 1, seed=heads) for heads in (4, groups, groups)]
    how: dict[str, Any] = {"heads": 4, "kv_heads": groups, "causal": causal}
    dy = normal(2, 12, 7, 1)

    def attended(*maps: Any) -> Any:
        q, k, v = (x.reshape(2, -1, 3, 7).mT for x in maps)
        k, v = (x.repeat_interleave(4 // groups, 1) for x in (k, v))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return y.mT.reshape(2, 12, 7, 1)

    y, *slopes = torch_gradients(torch, attended, dy, *inputs)

    def packed(maps: list[Any]) -> np.ndarray:
        return np.concatenate([x.reshape(2, groups, -1, 3, 7) for x in maps], axis=2).reshape(2, -1, 7, 1)

    for maps, gradients in ((inputs, slopes), ([packed(inputs)], [packed(slopes)])):
        close(reference.attention_forward(maps, **how), y)
        for ours, theirs in zip(reference.attention_backward(maps, dy, **how), gradients, strict=True):
            close(ours, theirs)


@pytest.mark.parametrize("padding", [None, 3])
def test_embedding_as_in_pytorch(torch: Any, padding: int | None) -> None:
    tokens, w, dy = np.random.default_rng(0).integers(0, 7, (2, 30), np.int32), normal(7, 4), normal(2, 4, 30)

    def embedded(w: Any) -> Any:
        return torch.nn.functional.embedding(torch.tensor(tokens).long(), w, padding).movedim(-1, 1)

    y, dw = torch_gradients(torch, embedded, dy, w)
    close(reference.embedding_forward(tokens, w), y)
    close(reference.embedding_backward(tokens, dy, 7, padding), dw)


@pytest.mark.parametrize("ignore_index", [-100, 0])
def test_losses_as_in_pytorch(torch: Any, ignore_index: int) -> None:
    functional, shape = torch.nn.functional, (3, 4, 5, 6)
    x, targets = 4 * normal(*shape), np.random.default_rng(1).random(shape).astype(np.float32)
    labels = np.random.default_rng(2).integers(0, 4, (3, 5, 6)).astype(np.int32)
    labels[0, 0] = ignore_index
    y = reference.pixel_softmax_forward(x)
    loss, dx = torch_gradients(
        torch, lambda x: functional.cross_entropy(x, torch.tensor(labels).long(), ignore_index=ignore_index), None, x
    )
    close(reference.pixel_softmax_cross_entropy(y, labels, ignore_index)[0].mean(), loss, 1e-5)
    close(reference.pixel_softmax_backward(y, labels, ignore_index), dx)
    wanted = torch.tensor(targets, dtype=torch.float64)
    for error, function in (
        ("squared", functional.mse_loss), ("binary", functional.binary_cross_entropy_with_logits)
    ):  # fmt: skip
        loss, dx = torch_gradients(torch, lambda x, of=function: of(x, wanted), None, x)
        close(reference.mean_loss_forward(x, targets, error).mean(), loss, 1e-5)
        close(reference.mean_loss_backward(x, targets, error), dx)


def test_clipping_and_shuffled_channels_as_in_pytorch(torch: Any) -> None:
    gradients = [normal(5000), normal(70, seed=1)]
    norm = reference.clip_norm(np.concatenate([reference.clip_square(dw) for dw in gradients]))
    for largest in (0.5, 1e6):
        theirs = [torch.zeros(dw.shape, dtype=torch.float64, requires_grad=True) for dw in gradients]
        for one, dw in zip(theirs, gradients, strict=True):
            one.grad = torch.tensor(dw, dtype=torch.float64)
        close(norm[0], torch.nn.utils.clip_grad_norm_(theirs, largest), 1e-6)
        for one, dw in zip(theirs, gradients, strict=True):
            close(reference.clip_apply(norm, dw, largest), one.grad.numpy())
    x = normal(2, 6, 3, 4)
    shuffled = torch.nn.functional.channel_shuffle(torch.tensor(x), 3).numpy()
    assert np.array_equal(reference.channel_shuffle_forward(x, 3), shuffled)
    assert np.array_equal(reference.channel_shuffle_backward(shuffled, 3), x)
