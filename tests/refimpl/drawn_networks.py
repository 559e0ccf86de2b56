"""Networks drawn by hypothesis: chains, branches off any earlier map, joins, concats, every kind of layer.

And one that is not drawn, with every option that a layer has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from refimpl.network import SUPERNEURONS, VDNN, Builder, Conventions, Layer, Network
from refimpl.network.conventions import VDNNPP
from refimpl.network.kinds import TRAITS

#: The three published ones, and mixtures that are not published.
CONVENTIONS = (
    VDNN,
    SUPERNEURONS,
    VDNNPP,
    Conventions(relu_in_place=False, input_managed=False, holds_inputs=True),
    Conventions(fork_layers=True, input_gradient=True),
    Conventions(backward_depth_first=True),
    Conventions(softmax_in_place=True, holds_outputs=True, weight_gradients_managed=True, fork_layers=True),
)
#: The element-wise kinds beside the ReLU.
ACTIVATIONS = tuple(kind for kind, traits in TRAITS.items() if traits.elementwise and kind != "relu")
KINDS = (
    "conv", "conv", "conv_transpose", "pool", "upsample", "relu", "relu", "lrn", "batchnorm", "dropout",
    "layernorm", "groupnorm", "join", "concat", "mul", "scale", "drop_path", "channel_shuffle", "take", "pad",
    "permute_channels", "prepend", "rmsnorm", "rotary", "attention", "position", *ACTIVATIONS,
)  # fmt: skip
#: Those that read whole numbers: drawn where they are asked for.
OF_TOKENS = ("embedding",)
#: Those with a map of all pairs of tokens, much larger than the others: drawn where they are asked for, too.
OF_PAIRS = ("scores", "mix")


def every_option(batch: int, conventions: Conventions = VDNN, shape: tuple[int, int, int] = (2, 12, 12)) -> Network:
    """Groups, dilation, padding of one side, a clipped ReLU, ONNX's even LRN, pooling to a size, channels by table."""
    b = Builder("every-option", (batch, *shape), conventions)
    b.conv(6, 3, stride=2, pad=(0, 0, 1, 1))
    b.relu(at_most=0.7)
    b.conv(6, 3, pad=1, groups=6, bias=False)
    b.batchnorm()
    x = b.relu(at_most=1)
    b.lrn(size=4, alpha=0.5, k=2.0, ahead=2)
    b.conv(8, 3, pad=2, groups=2, dilation=2)
    y = b.pool(3, 2, pad=(1, 0, 0, 1), mode="average", ceil=True, count_padding=False)
    z = b.pool(3, 2, pad=(0, 0, 1, 1), ceil=True, after=b.conv(4, (1, 3), pad=(0, 1, 0, 2), dilation=(1, 2), after=x))
    b.concat(y, z)
    last = b.conv(10, 3, pad=(2, 1), dilation=(3, 1))
    b.join(b.pool_to((2, 2)), b.pool_to((2, 2), "max", after=last))
    b.permute_channels([*range(1, 10), 0])
    b.prepend(first=0.1)
    b.flatten(b.global_pool("max"))
    b.softmax()
    return b.build()


#: The layers of the smallest networks that train: none or one, or two that work in place, before the softmax.
SMALLEST = (
    (), ("relu",), ("fc",), ("pool",), ("conv",), ("batchnorm",), ("dropout",), ("lrn",), ("flatten",),
    ("relu", "dropout"),
)  # fmt: skip


def smallest(kinds: tuple[str, ...], conventions: Conventions = VDNN, batch: int = 8) -> Network:
    """A network of these layers and a softmax; no map has more than 128 bytes."""
    b = Builder("-".join((*kinds, "softmax")), (batch, 4, 1, 1), conventions)
    arguments = {"fc": (3,), "conv": (3, 1), "pool": (1,)}
    for kind in kinds:
        getattr(b, kind)(*arguments.get(kind, ()))
    b.softmax()
    return b.build()


@st.composite
def networks(
    draw: st.DrawFn, /, layers: int = 12, batch: int = 3, side: int = 6, kinds: tuple[str, ...] = KINDS, **given: Any
) -> Network:
    """A network of up to `layers` drawn layers and the few that end it.

    `conventions=…` fixes those; `inputs=3` draws two inputs or three, the others up to four times as wide as the first.
    """
    conventions = given.get("conventions") or draw(st.sampled_from(CONVENTIONS))
    if tokens := [*{*kinds} & {*OF_TOKENS}]:
        b = Builder("drawn", (batch, draw(st.integers(1, 40))), conventions, "int32")
        b.embedding(draw(st.integers(1, 40)), draw(st.integers(1, 5)))
        kinds = tuple(kind for kind in kinds if kind not in tokens)
    else:
        b = Builder("drawn", (batch, draw(st.integers(1, 3)), side, side), conventions)
    for number in range(2, 1 + (draw(st.integers(2, given["inputs"])) if "inputs" in given else 0)):
        b.add_input(f"input{number}", (batch, draw(st.integers(1, 3)), side, side * draw(st.integers(1, 4))))
    for _ in range(draw(st.integers(1, layers))):
        earlier = [*([] if tokens else b.inputs), *b.layers]
        x = earlier[-1 - draw(st.integers(0, min(3, len(earlier) - 1)))]  # mostly the last: otherwise a branch
        _layer(draw, b, draw(st.sampled_from(kinds)), x, earlier)
    ends = [x for x in (*b.inputs, *b.layers) if not x.consumers and "dtype" not in x.options]
    small = [x if x.shape[2:] == (1, 1) else b.pool((x.shape[2], x.shape[3]), mode="average", after=x) for x in ends]
    if len(small) > 1:
        b.concat(*small)
    b.fc(draw(st.integers(2, 5)))
    b.softmax()
    return b.build()


def _layer(draw: Any, b: Builder, kind: str, x: Layer, earlier: list[Layer]) -> None:
    height, width = x.shape[2:]
    if kind == "conv":
        window = draw(st.sampled_from([1, 3, (1, 3)]))
        apart = draw(st.sampled_from([1, 1, 2]))
        pad = {1: 0, 3: apart, (1, 3): (0, apart, 0, apart + draw(st.integers(0, 1)))}[window]
        channels = x.shape[1]
        groups = draw(st.sampled_from([1, *(size for size in (2, channels) if channels % size == 0)]))
        filters = draw(st.integers(1, 4)) if groups == 1 else groups * draw(st.integers(1, 2))
        stride, bias = draw(st.integers(1, 2)), draw(st.booleans())
        b.conv(filters, window, stride, pad, bias=bias, after=x, groups=groups, dilation=apart)
    elif kind == "pool":
        mode, ceil, counted = draw(st.sampled_from(["max", "average"])), draw(st.booleans()), draw(st.booleans())
        window, stride = (min(2, height), min(2, width)), draw(st.integers(1, 2))
        pad = (0, 0, window[0] - 1, 0) if draw(st.booleans()) else 0
        b.pool(window, stride, pad, mode, ceil, count_padding=counted, after=x)
    elif kind == "conv_transpose":
        stride = draw(st.integers(1, 2)) if max(height, width) < 7 else 1
        how = {"pad": draw(st.sampled_from([0, 1, (0, 1, 1, 0)])), "out_pad": draw(st.integers(0, stride - 1))}
        groups = draw(st.sampled_from([1, x.shape[1]]))
        filters = groups * draw(st.integers(1, 2)) if groups > 1 else draw(st.integers(1, 4))
        b.conv_transpose(filters, (3, 4), stride, bias=draw(st.booleans()), after=x, groups=groups, **how)
    elif kind == "drop_path":
        b.drop_path(draw(st.sampled_from([0.0, 0.4])), after=x)
    elif kind == "channel_shuffle":
        b.channel_shuffle(draw(st.sampled_from([n for n in range(1, x.shape[1] + 1) if x.shape[1] % n == 0])), after=x)
    elif kind == "permute_channels":
        b.permute_channels(draw(st.permutations(range(x.shape[1]))), after=x)
    elif kind == "prepend":
        b.prepend(draw(st.sampled_from([0.0, 0.5])), after=x)
    elif kind == "take":
        axis = draw(st.integers(1, 2))
        start = draw(st.integers(0, x.shape[axis] - 1))
        b.take(draw(st.integers(1, x.shape[axis] - start)), start, axis, after=x)
    elif kind == "pad":
        wide = max(height, width) > 8
        b.pad((0, 1) if wide else draw(st.sampled_from([1, (2, 0, 0, 1)])), draw(st.sampled_from([0.0, -1.5])), after=x)
    elif kind in ("layernorm", "groupnorm", "rmsnorm"):
        groups = [draw(st.sampled_from([1, x.shape[1]]))] if kind == "groupnorm" else []
        getattr(b, kind)(*groups, affine=draw(st.booleans()), after=x)
    elif kind == "rotary":
        heads, width, packed = draw(st.integers(1, 2)), 2 * draw(st.integers(1, 3)), draw(st.booleans())
        rotated = draw(st.sampled_from([None, 2, width]))
        x = b.conv((3 if packed else 1) * heads * width, 1, after=x)
        b.rotary(heads, packed=packed, rotated=rotated, neighbours=draw(st.booleans()), base=100.0, after=x)
    elif kind == "attention":
        groups, together, width = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
        heads, causal = groups * together, draw(st.booleans())
        if draw(st.booleans()):
            x = b.conv((heads + 2 * groups) * width, 1, after=x)
            x = b.rotary(heads, groups, after=x) if width % 2 == 0 and draw(st.booleans()) else x
            b.attention(heads, causal, groups, after=x)
        else:  # no bias: all keys with the same number added give the same, so its gradient is rounding errors
            other = draw(st.sampled_from([y for y in earlier if not causal or y.shape[2:] == x.shape[2:]]))
            queries = b.conv(heads * width, 1, after=x)
            keys, values = (b.conv(groups * width, 1, bias=False, after=other) for _ in range(2))
            b.attention(heads, causal, groups, keys, values, after=queries)
    elif kind in ("scores", "mix"):
        heads, width, causal = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.booleans())
        probabilities = b.scores(heads, causal, after=b.conv(2 * heads * width, 1, after=x))
        if kind == "mix":
            b.mix(b.dropout(0.2) if draw(st.booleans()) else probabilities, b.conv(heads * width, 1, after=x))
        else:  # a map of all pairs is much larger than the others
            b.pool_to((2, 2))
    elif kind == "upsample":
        size = draw(st.integers(1, 7)), draw(st.integers(1, 7))
        mode, align_corners = draw(st.sampled_from([("nearest", False), ("bilinear", False), ("bilinear", True)]))
        b.upsample_to(size, mode, align_corners, after=x)
    elif kind == "mul":
        same = [y for y in earlier if y is not x and y.shape == x.shape]
        gate = draw(st.sampled_from(same)) if same and draw(st.booleans()) else b.global_pool("average", after=x)
        b.mul(x, gate if gate is not x else b.sigmoid(after=x))
    elif kind in ("join", "concat"):
        first = 1 if kind == "join" else 2
        same = [y for y in earlier if y is not x and y.shape[first:] == x.shape[first:]]
        if same:
            others = draw(st.lists(st.sampled_from(same), min_size=1, max_size=3, unique=True))
            order = draw(st.permutations([x, *others]))
            (b.join if kind == "join" else b.concat)(*order)
        else:
            b.relu(after=x)
    elif kind == "relu":
        b.relu(after=x, at_most=draw(st.sampled_from([None, None, 0.5])))
    elif kind in ACTIVATIONS:
        getattr(b, kind)(after=x, **draw(st.sampled_from(TRAITS[kind].forms)))
    else:
        getattr(b, kind)(after=x)


def with_kind(kind: str, form: Mapping[str, Any], conventions: Conventions = VDNN, batch: int = 4) -> Network:
    """A network with a layer of this kind, called "layer", after a convolution and before a fully connected layer."""
    if kind in OF_TOKENS:
        b = Builder(f"with-{kind}", (batch, 12), conventions, "int32")
        getattr(b, kind)(7, 4, **form, name="layer")
        b.fc(3)
        b.softmax()
        return b.build()
    b = Builder(f"with-{kind}", (batch, 3, 6, 6), conventions)
    x = b.conv(4, 3, pad=1, bias=False, name="before")  # a normalisation takes a bias off again
    given: dict[str, tuple[Any, ...]] = {
        "conv": (4, 3),
        "conv_transpose": (3, 2, 2),
        "pool": (2,),
        "fc": (6,),
        "upsample": (2,),
        "groupnorm": (2,),
        "drop_path": (0.5,),
        "channel_shuffle": (2,),
        "permute_channels": ([1, 3, 0, 2],),
        "take": (2, 1),
        "pad": (1,),
    }
    if kind in ("join", "concat", "fork"):
        getattr(b, "join" if kind == "fork" else kind)(x, b.conv(4, 1), name="layer")
    elif kind == "mul":
        b.mul(x, b.conv(4, 1, after=b.global_pool(after=x)), name="layer")
    elif kind in ("scores", "mix"):
        probabilities = b.scores(**{"heads": 2, **form}, name="layer" if kind == "scores" else "scores")
        b.mix(probabilities, b.conv(4, 1, after=x), name="layer" if kind == "mix" else "mix")
    elif kind in ("attention", "rotary"):
        b.conv(12, 1)
        getattr(b, kind)(**{"heads": 2, **form}, name="layer")
    elif TRAITS[kind].work == "loss" and kind != "softmax":  # type: ignore[index]
        getattr(b, kind)(name="layer")
        return b.build()
    elif kind not in ("data", "softmax"):
        getattr(b, kind)(*given.get(kind, ()), **form, name="layer")
    b.fc(3)
    b.softmax()
    return b.build()
