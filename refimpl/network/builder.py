"""A network described in a few lines of Python.

    b = Builder("two branches", (32, 3, 32, 32))
    b.conv(16, 3, pad=1)
    trunk = b.relu()
    left = b.conv(16, 1)
    right = b.conv(16, 3, pad=1, after=trunk)
    b.concat(left, right)
    b.fc(10)
    b.softmax()
    network = b.build()

Every method adds a layer after the last one, or after the layer `after`, and returns it.  An impossible layer is
refused at once, in one line that names it, and is not added.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any, NoReturn

from kernels.targets.collector import collector_paused
from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.kinds import TRAITS, LayerKind
from refimpl.network.layer import Layer, NetworkError
from refimpl.network.network import Network
from refimpl.network.shapes import convolved, four_sides, pooled, transposed
from refimpl.text import counted, offer, shown

Size = int | tuple[int, int]
Pad = int | tuple[int, ...]  #: one number, (vertical, horizontal) or (top, left, bottom, right)
UPSAMPLING = ("nearest", "bilinear")
LARGEST_LRN = 16  #: channels; `kernels.fast.lrn.SLOTS`
LARGEST_HEAD = 1024  #: channels of a rotary position; `kernels.fast.rotary.WIDEST`


#: The axes of an input, by the type of its numbers: images, or tokens, which an embedding reads.
AXES = {
    "float32": {"images": "the batch", "channels": "the number of channels", "height": "the height",
                "width": "the width"},
    "int32": {"windows": "the batch", "tokens": "the number of tokens"},
}  # fmt: skip


class Builder:
    """A network under description.

    Args:
        name: the network's.
        shape: of the input batch: images, channels, height, width; or of tokens (`dtype="int32"`): windows, tokens.
        conventions: by which published systems' versions of one network differ.
        dtype: "float32", or "int32" for whole numbers, each of which stands for a row of an embedding's table.
    """

    def __init__(
        self, name: str, shape: Sequence[int], conventions: Conventions = VDNN, dtype: str = "float32"
    ) -> None:
        self.name, self.conventions = name, conventions
        self.input = self._input("input", shape, dtype)
        self.inputs = [self.input]
        self.last = self.input
        self.layers: list[Layer] = []
        self._known = {self.input}
        self._names = {"input"}
        self._counts: Counter[str] = Counter()
        self._fused = 0  #: ReLUs that are part of a layer: they count, so that dropout's masks are the same
        self._built = False

    def _input(self, name: str, shape: Sequence[int], dtype: str) -> Layer:
        if dtype not in AXES:
            raise NetworkError(f"{self.name}: {name} cannot be of {dtype!r}; give {' or '.join(AXES)}")
        axes = AXES[dtype]
        if len(shape) != len(axes):
            wanted = ", ".join(axes)
            raise NetworkError(f"{self.name}: the {name}'s shape is {tuple(shape)}; give ({wanted})")
        for what, size in zip(axes.values(), shape, strict=True):
            _whole(self.name, size, what)
        layer = Layer(name, "data", (), {} if dtype == "float32" else {"dtype": dtype})
        layer.shape = tuple(int(size) for size in shape)
        return layer

    def add_input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Layer:
        """Another input beside the first: maps of (images, channels, height, width), or numbers (images, …, 1, 1).

        Or tokens, with `dtype="int32"`.
        """
        self._refuse_if_built()
        axes = [*AXES.get(dtype, shape)][1:]
        if len(shape) != 1 + len(axes) or min(shape) < 1 or shape[0] != self.input.shape[0]:
            wanted = ", ".join((str(self.input.shape[0]), *map(str, axes)))
            raise NetworkError(f"{self.name}: the input {name} has the shape {tuple(shape)}; give ({wanted})")
        if name in self._names:
            raise NetworkError(f"{self.name}: there is a layer named {name!r} already; take another name")
        layer = self._input(name, shape, dtype)
        self.inputs.append(layer)
        self._known.add(layer)
        self._names.add(name)
        return layer

    # -- layers --------------------------------------------------------------------------------------------------------

    def conv(
        self,
        filters: int,
        window: Size,
        stride: Size = 1,
        pad: Pad = 0,
        bias: bool = True,
        name: str | None = None,
        after: Layer | None = None,
        groups: int = 1,
        dilation: Size = 1,
        spread: float | None = None,
    ) -> Layer:
        """A convolution.  Window, stride, padding and dilation are one number for both axes, or (vertical, horizontal).

        Args:
            filters: output channels.
            window: height and width of a filter.
            stride: step of the window.
            pad: zeros around the map; also (top, left, bottom, right).
            bias: whether each filter has a bias.
            name: the layer's name (None: its kind and a number).
            after: the layer whose output it reads (None: the last one).
            groups: of channels; each filter sees one group.  As many groups as channels: a depthwise convolution.
            dilation: rows and columns from one tap of a filter to the next.
            spread: the standard deviation of the first weights (None: He's rule).
        """
        layer = self._new("conv", name, [after or self.last])
        options: dict[str, Any] = self._moved_window(layer, window, stride, pad)
        options["dilation"] = _pair(layer, dilation, "dilation", 1)
        options |= {"filters": _whole(layer, filters, "filters"), "groups": _whole(layer, groups, "groups")}
        layer.options = {**options, "bias": bias, **_spread(layer, spread)}
        self._check_groups(layer)
        return self._add(layer, (layer.producers[0].shape[0], int(filters), *self._moved(layer, convolved)))

    def conv_transpose(
        self, filters: int, window: Size, stride: Size = 1, pad: Pad = 0, bias: bool = True,
        name: str | None = None, after: Layer | None = None, groups: int = 1, dilation: Size = 1, out_pad: Size = 0,
    ) -> Layer:  # fmt: skip
        """A transposed convolution: the gradient of a convolution, which makes maps larger by its stride.

        Args:
            filters: output channels.
            window: height and width of a filter.
            stride: of the convolution: rows and columns of the output from one input to the next.
            pad: rows and columns left out around the output; also (top, left, bottom, right).
            bias: whether each output channel has a bias.
            name: the layer's name (None: its kind and a number).
            after: the layer whose output it reads (None: the last one).
            groups: of channels.
            dilation: rows and columns from one tap of a filter to the next.
            out_pad: rows and columns added below and on the right, less than the stride.
        """
        layer = self._new("conv_transpose", name, [after or self.last])
        options: dict[str, Any] = self._moved_window(layer, window, stride, pad)
        options["dilation"] = _pair(layer, dilation, "dilation", 1)
        options["out_pad"] = _pair(layer, out_pad, "out_pad", 0)
        options |= {"filters": _whole(layer, filters, "filters"), "groups": _whole(layer, groups, "groups")}
        layer.options = {**options, "bias": bias}
        self._check_groups(layer)
        return self._add(layer, (layer.producers[0].shape[0], int(filters), *self._moved(layer, transposed)))

    def pool(
        self, window: Size, stride: Size | None = None, pad: Pad = 0, mode: str = "max", ceil: bool = False,
        name: str | None = None, after: Layer | None = None, count_padding: bool = True,
    ) -> Layer:  # fmt: skip
        """Pooling; without a stride the windows do not overlap.

        Args:
            window: height and width of a window.
            stride: step of the window (None: its size).
            pad: around the map; also (top, left, bottom, right).
            mode: "max" or "average".
            ceil: whether the number of windows is rounded up: a last one may hang over the edge.
            name: the layer's name (None: its kind and a number).
            after: the layer whose output it reads (None: the last one).
            count_padding: whether an average counts the padding as zeros.
        """
        layer = self._new("pool", name, [after or self.last])
        _mode(layer, mode)
        options: dict[str, Any] = self._moved_window(layer, window, window if stride is None else stride, pad)
        uncounted = {} if count_padding or mode == "max" else {"count_padding": False}
        layer.options = {**options, "mode": mode, "ceil": ceil, **uncounted}
        return self._add(layer, (*layer.producers[0].shape[:2], *self._moved(layer, pooled)))

    def pool_to(self, size: Size, mode: str = "average", name: str | None = None, after: Layer | None = None) -> Layer:
        """Pooling to maps of this height and width, by windows that share the map out among them.

        Where the size does not divide the map's, windows differ by a row or a column and overlap, as in PyTorch's
        adaptive pooling.  Maps that have this size already need no layer: then the layer before is returned.
        """
        before = after or self.last
        if len(before.shape) != 4:
            raise NetworkError(f"{name or 'pool_to'}: its input is {before.shape}, not maps of a height and a width")
        out = _pair(name or "pool_to", size, "size", 1)
        maps = before.shape[2:]
        if out == maps:
            return before
        if not (maps[0] % out[0] or maps[1] % out[1]):
            return self.pool((maps[0] // out[0], maps[1] // out[1]), mode=mode, name=name, after=before)
        layer = self._new("pool", name, [before])
        layer.options = {"out": out, "mode": _mode(layer, mode)}
        return self._add(layer, (*before.shape[:2], *out))

    def upsample(
        self, factor: Size, mode: str = "nearest", align_corners: bool = False,
        name: str | None = None, after: Layer | None = None,
    ) -> Layer:  # fmt: skip
        """Maps a whole number of times as high and as wide: values repeated, or "bilinear" between neighbours.

        With `align_corners` the corners of a bilinear map keep their values, as in PyTorch.
        """
        before = after or self.last
        high, wide = _pair(name or "upsample", factor, "factor", 1)
        size = tuple(times * length for times, length in zip((high, wide), before.shape[2:], strict=False))
        return self.upsample_to(size if len(size) == 2 else 1, mode, align_corners, name, before)

    def upsample_to(
        self, size: Size, mode: str = "nearest", align_corners: bool = False,
        name: str | None = None, after: Layer | None = None,
    ) -> Layer:  # fmt: skip
        """Maps of this height and width, larger or smaller, by `upsample`; those that have it need no layer."""
        before = after or self.last
        out = _pair(name or "upsample_to", size, "size", 1)
        if len(before.shape) != 4:
            raise NetworkError(f"{name or 'upsample'}: its input is {before.shape}, not maps of a height and a width")
        if out == before.shape[2:]:
            return before
        layer = self._new("upsample", name, [before])
        if mode not in UPSAMPLING:
            raise NetworkError(f"{layer}: there is no mode {mode!r}; give {' or '.join(UPSAMPLING)}")
        if align_corners and mode != "bilinear":
            raise NetworkError(f"{layer}: align_corners is of the mode bilinear, not of {mode}")
        layer.options = {"mode": mode} | ({"align_corners": True} if align_corners else {})
        return self._add(layer, (*before.shape[:2], *out))

    def global_pool(self, mode: str = "average", name: str | None = None, after: Layer | None = None) -> Layer:
        """Pooling of every map to a single number."""
        return self.pool_to(1, mode, name, after)

    def flatten(self, after: Layer | None = None) -> Layer:
        """No layer: a fully connected layer and a softmax read an image's maps as one row."""
        return after or self.last

    def fc(
        self, outputs: int, bias: bool = True, name: str | None = None, after: Layer | None = None,
        spread: float | None = None,
    ) -> Layer:  # fmt: skip
        """Fully connected to every number of an image's maps; `spread` as a convolution's."""
        layer = self._new("fc", name, [after or self.last])
        layer.options = {"outputs": _whole(layer, outputs, "outputs"), "bias": bias, **_spread(layer, spread)}
        return self._add(layer, (layer.producers[0].shape[0], int(outputs)))

    def relu(self, name: str | None = None, after: Layer | None = None, at_most: float | None = None) -> Layer:
        """In place, or part of the layer before it, where the network's conventions and its neighbours allow it.

        With `at_most` larger numbers are set to that: ReLU6 has at_most=6.
        """
        before = after or self.last
        if at_most is not None and not 0 < at_most < inf:
            raise NetworkError(f"{name or 'relu'}: at_most is {at_most!r}; give a number above 0")
        options = {} if at_most is None else {"at_most": float(at_most)}
        if self.conventions.relu_fused and before.traits.fuses_relu and not before.consumers:
            before.has_relu, before.relu_options = True, options
            self._fused += 1
            return before
        return self._same("relu", name, after, **options)

    def gelu(self, approximate: str = "none", name: str | None = None, after: Layer | None = None) -> Layer:
        """The Gaussian error linear unit; "tanh" is an approximate formula, which the first networks had."""
        if approximate not in ("none", "tanh"):
            raise NetworkError(f"{name or 'gelu'}: approximate is {approximate!r}; give none or tanh")
        return self._same("gelu", name, after, **({"approximate": approximate} if approximate != "none" else {}))

    def silu(self, name: str | None = None, after: Layer | None = None) -> Layer:
        """Each number times its sigmoid; also called Swish."""
        return self._same("silu", name, after)

    def hardswish(self, name: str | None = None, after: Layer | None = None) -> Layer:
        """Each number times its hard sigmoid."""
        return self._same("hardswish", name, after)

    def sigmoid(self, name: str | None = None, after: Layer | None = None) -> Layer:
        """1 / (1 + exp(-x)); in place where the network's conventions and its neighbours allow it."""
        return self._same("sigmoid", name, after)

    def hardsigmoid(self, name: str | None = None, after: Layer | None = None) -> Layer:
        """x / 6 + 1/2, at least 0 and at most 1; in place as a sigmoid."""
        return self._same("hardsigmoid", name, after)

    def tanh(self, name: str | None = None, after: Layer | None = None) -> Layer:
        """The hyperbolic tangent; in place as a sigmoid."""
        return self._same("tanh", name, after)

    def leaky_relu(self, negative_slope: float = 0.01, name: str | None = None, after: Layer | None = None) -> Layer:
        """Numbers below zero times `negative_slope`; in place as a sigmoid."""
        if not 0 < negative_slope < inf:
            raise NetworkError(f"{name or 'leaky_relu'}: negative_slope is {negative_slope!r}; give a number above 0")
        return self._same("leaky_relu", name, after, negative_slope=float(negative_slope))

    def mul(self, x: Layer, gate: Layer, name: str | None = None) -> Layer:
        """The product of two layers' maps: of one shape, or the second with one number a map, such as a gate.

        Which is the first and which the second makes no difference.
        """
        if isinstance(x, Layer) and isinstance(gate, Layer) and prod(gate.shape) > prod(x.shape):
            x, gate = gate, x
        layer = self._many("mul", name, (x, gate))
        one_a_map = gate.shape[:2] == x.shape[:2] and prod(gate.shape[2:]) == 1
        if gate.shape != x.shape and not one_a_map:
            wanted = (*x.shape[:2], *(1 for _ in x.shape[2:]))
            raise NetworkError(f"{layer}: {x.shape} times {gate.shape}; give the second {x.shape} or {wanted}")
        return self._add(layer, x.shape)

    def scale(self, first: float = 1.0, name: str | None = None, after: Layer | None = None) -> Layer:
        """Every channel times a number that is learnt (layer scale), and that begins as `first`."""
        if not -inf < first < inf:
            raise NetworkError(f"{name or 'scale'}: first is {first!r}; give a number")
        return self._same("scale", name, after, first=float(first))

    def embedding(
        self, words: int, channels: int, name: str | None = None, after: Layer | None = None, spread: float = 0.02,
        padding: int | None = None,
    ) -> Layer:  # fmt: skip
        """For every token of an input of tokens its row of a learnt table: maps of (windows, channels, tokens, 1).

        Args:
            words: rows of the table; a token is a whole number from 0 to words - 1.
            channels: numbers of a row.
            name: the layer's name (None: its kind and a number).
            after: the input that it reads (None: the first).
            spread: the standard deviation of the table's first values.
            padding: a token whose row this layer does not train, as that which fills short windows (None: none).
        """
        layer = self._new("embedding", name, [after or self.last])
        if "dtype" not in layer.producers[0].options:
            raise NetworkError(f"{layer}: {layer.producers[0]} has no tokens; describe it with dtype='int32'")
        layer.options = {"words": _whole(layer, words, "words"), **_spread(layer, spread)}
        if padding is not None:
            if _whole(layer, padding, "padding", 0) >= words:
                raise NetworkError(f"{layer}: padding is {padding}; tokens are 0 to {words - 1}")
            layer.options["padding"] = int(padding)
        windows, tokens = layer.producers[0].shape
        return self._add(layer, (windows, _whole(layer, channels, "channels"), tokens, 1))

    def position(
        self, name: str | None = None, after: Layer | None = None, spread: float = 0.02, alike: bool = False
    ) -> Layer:
        """A learnt number added to each number of an image, or of a window of tokens, the same for all of them.

        It tells positions apart.  With `alike` it is one number a channel for all positions: a bias.  `spread` is the
        standard deviation of the first values.
        """
        layer = self._new("position", name, [after or self.last])
        layer.options = {**_spread(layer, spread), **({"alike": True} if alike else {})}
        if alike and len(layer.producers[0].shape) != 4:
            raise NetworkError(f"{layer}: its input is {layer.producers[0].shape}, not maps; leave out alike")
        return self._add(layer, layer.producers[0].shape)

    def lrn(
        self, size: int = 5, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0,
        name: str | None = None, after: Layer | None = None, ahead: int | None = None,
    ) -> Layer:  # fmt: skip
        """Local response normalisation over `size` neighbouring channels, as `kernels.fast.lrn` has it.

        `ahead` of them come after a channel (None: half, and the smaller half of an even size, as in PyTorch; in ONNX
        it is the larger half, size // 2).
        """
        if _whole(name or "lrn", size, "size") > LARGEST_LRN:
            raise NetworkError(f"{name or 'lrn'}: size is {size}; the kernels look at up to {LARGEST_LRN} channels")
        options: dict[str, float] = {"size": size, "alpha": alpha, "beta": beta, "k": k}
        if ahead is not None and ahead != (size - 1) // 2:
            if _whole(name or "lrn", ahead, "ahead", 0) >= size:
                raise NetworkError(f"{name or 'lrn'}: ahead is {ahead}; give less than the size, {size}")
            options["ahead"] = ahead
        return self._same("lrn", name, after, **options)

    def batchnorm(
        self, momentum: float = 0.1, epsilon: float = 1e-5, name: str | None = None, after: Layer | None = None
    ) -> Layer:
        """Batch normalisation; the running statistics move by `momentum` towards each batch's."""
        return self._same("batchnorm", name, after, momentum=momentum, epsilon=epsilon)

    def layernorm(
        self, epsilon: float = 1e-5, affine: bool = True, name: str | None = None, after: Layer | None = None
    ) -> Layer:
        """Layer normalisation of every position (pixel, token) over its channels, scaled and shifted if `affine`."""
        return self._same("layernorm", name, after, epsilon=epsilon, **({} if affine else {"affine": False}))

    def groupnorm(
        self, groups: int, epsilon: float = 1e-5, affine: bool = True,
        name: str | None = None, after: Layer | None = None,
    ) -> Layer:  # fmt: skip
        """Group normalisation of every image over a group's channels and all positions, and as above if `affine`.

        As many groups as channels make it instance normalisation.
        """
        channels = (after or self.last).shape[1]
        if channels % _whole(name or "groupnorm", groups, "groups"):
            raise NetworkError(f"{name or 'groupnorm'}: {channels} channels cannot be cut into {groups} groups")
        options = {"groups": int(groups), "epsilon": epsilon} | ({} if affine else {"affine": False})
        return self._same("groupnorm", name, after, **options)

    def rmsnorm(
        self, epsilon: float = 1e-6, affine: bool = True, name: str | None = None, after: Layer | None = None
    ) -> Layer:
        """RMS normalisation: a position's channels divided by the root of their mean square, scaled if `affine`."""
        return self._same("rmsnorm", name, after, epsilon=epsilon, **({} if affine else {"affine": False}))

    def rotary(
        self, heads: int, kv_heads: int | None = None, packed: bool = True, rotated: int | None = None,
        neighbours: bool = False, base: float = 10000.0, name: str | None = None, after: Layer | None = None,
    ) -> Layer:  # fmt: skip
        """Rotary position: pairs of channels of every query and key are turned by an angle that grows with the place.

        Args:
            heads: of queries, or of whatever the map has alone.
            kv_heads: of keys and values, if the map has them (None: as many as heads).
            packed: whether the map is the one map of an attention layer, whose values stay as they are; otherwise all
                heads are turned, those of queries or of keys.
            rotated: channels of a head that are turned, its first ones (None: all).
            neighbours: whether channels 2i and 2i + 1 are a pair, as in GPT-J, not i and i + rotated / 2, as in Llama.
            base: pair i is turned by base^(-2i / rotated) from one token to the next.
            name: the layer's name (None: its kind and a number).
            after: the layer whose output it reads (None: the last one).
        """
        layer = self._new("rotary", name, [after or self.last])
        shape = layer.producers[0].shape
        heads = _whole(layer, heads, "heads")
        groups = heads if kv_heads is None else _whole(layer, kv_heads, "kv_heads")
        if len(shape) != 4:
            raise NetworkError(f"{layer}: its input is {shape}, not a map of tokens")
        if heads % groups or (not packed and groups != heads):
            raise NetworkError(f"{layer}: {heads} heads of queries cannot be shared out over {groups} of keys")
        width, left = divmod(shape[1], heads + 2 * groups if packed else heads)
        if left:
            whose = f"{heads} heads and {groups} of keys and of values" if packed else f"{heads} heads"
            raise NetworkError(f"{layer}: {shape[1]} channels are not those of {whose}")
        turned = width if rotated is None else _whole(layer, rotated, "rotated", 2)
        if turned % 2 or turned > min(width, LARGEST_HEAD):
            raise NetworkError(f"{layer}: of {width} channels {turned} cannot be turned in pairs; give an even number")
        if not 0 < base < inf:
            raise NetworkError(f"{layer}: base is {base!r}; give a number above 0")
        layer.options = {"heads": heads, "kv_heads": groups, "packed": bool(packed), "rotated": turned}
        layer.options |= {"neighbours": bool(neighbours), "base": float(base)}
        return self._add(layer, shape)

    def attention(
        self, heads: int, causal: bool = False, kv_heads: int | None = None, keys: Layer | None = None,
        values: Layer | None = None, name: str | None = None, after: Layer | None = None,
    ) -> Layer:  # fmt: skip
        """Attention: every token's mean of the values, weighted by how well its query fits the keys, head by head.

        The tokens are the positions of a map.  Queries, keys and values are one map: for every head of the keys its
        queries, the key and the value, all of equally many channels.  Or they are three, `after`, `keys` and `values`.

        Args:
            heads: of the queries.
            causal: whether a token sees itself and those before it alone.
            kv_heads: of the keys and values, each of which serves `heads / kv_heads` queries (None: as many as heads).
            keys: the layer that makes the keys, if they are a map of their own.
            values: and the values.
            name: the layer's name (None: its kind and a number).
            after: the layer that makes the queries, or all in one map (None: the last one).
        """
        given = [after or self.last, *(one for one in (keys, values) if one is not None)]
        layer = self._new("attention", name, given)
        heads = _whole(layer, heads, "heads")
        kv_heads = heads if kv_heads is None else _whole(layer, kv_heads, "kv_heads")
        shapes = [x.shape for x in given]
        if len(given) == 2 or len(set(given)) < len(given):
            raise NetworkError(f"{layer}: give keys and values, two layers beside the queries', or neither")
        if min(map(len, shapes)) < 4:
            raise NetworkError(f"{layer}: its inputs are {', '.join(map(str, shapes))}, not maps of tokens")
        if heads % kv_heads:
            raise NetworkError(f"{layer}: {heads} heads of queries cannot be shared out over {kv_heads} of keys")
        counts = (heads, kv_heads, kv_heads) if keys else (heads + 2 * kv_heads,)
        widths = [shape[1] / count for shape, count in zip(shapes, counts, strict=True)]
        if len(set(widths)) > 1 or widths[0] % 1:
            found = " and ".join(f"{s[1]} channels for {count}" for s, count in zip(shapes, counts, strict=True))
            raise NetworkError(f"{layer}: {found} heads of queries, keys and values; give a multiple")
        tokens = [prod(shape[2:]) for shape in shapes]
        if tokens[1:2] != tokens[2:]:
            raise NetworkError(f"{layer}: there are {tokens[1]} keys and {tokens[2]} values; give as many")
        if causal and tokens[0] != tokens[-1]:
            raise NetworkError(f"{layer}: causal needs as many queries as keys, not {tokens[0]} and {tokens[-1]}")
        layer.options = {"heads": heads, "kv_heads": kv_heads, "causal": bool(causal)}
        return self._add(layer, (shapes[0][0], heads * int(widths[0]), *shapes[0][2:]))

    def scores(self, heads: int, causal: bool = False, name: str | None = None, after: Layer | None = None) -> Layer:
        """Attention's probabilities as a map, (images, heads, tokens, tokens): each query's softmax over all keys.

        Its input has head by head the query and the key, of equally many channels.  With `mix` it computes what
        `attention` does, which never has this map.

        Args:
            heads: of queries and keys.
            causal: whether a token sees itself and those before it alone.
            name: the layer's name (None: its kind and a number).
            after: the layer that makes queries and keys (None: the last one).
        """
        layer = self._new("scores", name, [after or self.last])
        shape, heads = layer.producers[0].shape, _whole(layer, heads, "heads")
        if len(shape) != 4:
            raise NetworkError(f"{layer}: its input is {shape}, not a map of tokens")
        if shape[1] % (2 * heads):
            raise NetworkError(
                f"{layer}: {shape[1]} channels are not queries and keys of {heads} heads; give a multiple"
            )
        layer.options = {"heads": heads, "causal": bool(causal)}
        tokens = prod(shape[2:])
        return self._add(layer, (shape[0], heads, tokens, tokens))

    def mix(self, probabilities: Layer, values: Layer, name: str | None = None) -> Layer:
        """The mean of the values for every query, weighted by probabilities that `scores` made, head by head."""
        layer = self._many("mix", name, [probabilities, values])
        p, x = probabilities.shape, values.shape
        if len(x) != 4 or len(p) != 4 or p[2:] != 2 * (prod(x[2:]),) or x[1] % p[1]:
            raise NetworkError(f"{layer}: probabilities {p} and values {x} are not those of as many heads and tokens")
        layer.options = {"causal": probabilities.kind == "scores" and probabilities.options["causal"]}
        return self._add(layer, x)

    def dropout(self, probability: float = 0.5, name: str | None = None, after: Layer | None = None) -> Layer:
        """Each number is set to 0 with this probability, and scaled up otherwise."""
        where = name or "dropout"
        if not 0 <= probability < 1:
            raise NetworkError(f"{where}: the probability is {probability}; give at least 0 and less than 1")
        return self._same("dropout", name, after, probability=probability)

    def drop_path(self, probability: float, name: str | None = None, after: Layer | None = None) -> Layer:
        """Stochastic depth: all maps of an image are set to 0 with this probability, and scaled up otherwise."""
        if not 0 <= probability < 1:
            raise NetworkError(
                f"{name or 'drop_path'}: the probability is {probability}; give at least 0 and less than 1"
            )
        return self._same("drop_path", name, after, probability=probability)

    def channel_shuffle(self, groups: int, name: str | None = None, after: Layer | None = None) -> Layer:
        """The channels of the groups in turn, as in ShuffleNet: the first of each group, then the second of each, …"""
        channels = (after or self.last).shape[1]
        if channels % _whole(name or "channel_shuffle", groups, "groups"):
            raise NetworkError(f"{name or 'channel_shuffle'}: {channels} channels cannot be cut into {groups} groups")
        return self._same("channel_shuffle", name, after, groups=int(groups))

    def permute_channels(self, order: Sequence[int], name: str | None = None, after: Layer | None = None) -> Layer:
        """The channels in any order: y's channel c is x's channel order[c].  Each number has to be there once."""
        channels = (after or self.last).shape[1]
        try:
            given = [int(number) for number in order if int(number) == number]
        except (TypeError, ValueError):
            given = []
        if sorted(given) != [*range(channels)] or len(given) < len(order):
            raise NetworkError(
                f"{name or 'permute_channels'}: the order is {shown(order)}; give the numbers 0 to {channels - 1}, "
                "each once"
            )
        return self._same("permute_channels", name, after, order=tuple(given))

    def take(
        self, count: int, start: int = 0, axis: int = 1, name: str | None = None, after: Layer | None = None
    ) -> Layer:
        """A part of the channels: `count` from channel `start` on; with axis=2 of the rows."""
        layer = self._new("take", name, [after or self.last])
        shape = layer.producers[0].shape
        if axis not in (1, 2) or axis >= len(shape):
            raise NetworkError(f"{layer}: axis is {axis!r} of {shape}; give 1 for channels, 2 for rows")
        until = _whole(layer, start, "start", 0) + _whole(layer, count, "count")
        if until > shape[axis]:
            raise NetworkError(f"{layer}: {count} from {start} on are not within the {shape[axis]} of {shape}")
        layer.options = {"axis": axis, "start": int(start)}
        return self._add(layer, (*shape[:axis], int(count), *shape[axis + 1 :]))

    def pad(self, sides: Pad, value: float = 0.0, name: str | None = None, after: Layer | None = None) -> Layer:
        """Rows and columns of one number around the maps; zeros before a convolution are its own option."""
        layer = self._new("pad", name, [after or self.last])
        shape, pad = layer.producers[0].shape, _sides(layer, sides)
        if len(shape) != 4:
            raise NetworkError(f"{layer}: its input is {shape}, not maps of a height and a width")
        if not -inf < value < inf:
            raise NetworkError(f"{layer}: value is {value!r}; give a number")
        top, left, bottom, right = four_sides(pad)
        layer.options = {"pad": (top, left, bottom, right), "value": float(value)}
        return self._add(layer, (*shape[:2], top + shape[2] + bottom, left + shape[3] + right))

    def prepend(self, first: float = 0.0, name: str | None = None, after: Layer | None = None) -> Layer:
        """A token before an image's own, which is learnt and begins as `first`: a class token.

        The positions of the maps, row by row, are the tokens: of (images, channels, height, width) the output is
        (images, channels, 1 + height · width, 1).  `take(1, axis=2)` takes the token out.
        """
        layer = self._new("prepend", name, [after or self.last])
        if not -inf < first < inf:
            raise NetworkError(f"{layer}: first is {first!r}; give a number")
        shape = layer.producers[0].shape
        layer.options = {"first": float(first)}
        return self._add(layer, (*shape[:2], 1 + prod(shape[2:]), 1))

    def concat(self, *layers: Layer, name: str | None = None) -> Layer:
        """The layers' maps one after the other along the channels."""
        layer = self._many("concat", name, layers)
        shapes = [x.shape for x in layers]
        if len({(s[0], *s[2:]) for s in shapes}) > 1:
            raise NetworkError(f"{layer}: only the channels may differ, not {', '.join(map(str, shapes))}")
        return self._add(layer, (shapes[0][0], sum(s[1] for s in shapes), *shapes[0][2:]))

    def join(self, *layers: Layer, name: str | None = None) -> Layer:
        """The sum of the layers' maps, element by element."""
        layer = self._many("join", name, layers)
        if len({x.shape for x in layers}) > 1:
            shapes = ", ".join(str(x.shape) for x in layers)
            raise NetworkError(f"{layer}: maps of one shape can be added, not {shapes}")
        return self._add(layer, layers[0].shape)

    def softmax(self, name: str | None = None, after: Layer | None = None, weight: float = 1.0) -> Layer:
        """Softmax with cross-entropy, the mean over the batch: an end of the network.

        An image's maps are read as one row.  With several losses the sum counts, each times its weight.
        """
        return self._weighted(self._same("softmax", name, after), weight)

    def pixel_softmax(
        self, ignore_index: int = -100, name: str | None = None, after: Layer | None = None, weight: float = 1.0
    ) -> Layer:
        """Softmax with cross-entropy for every pixel or token, over the channels: an end with labels for each.

        Such networks segment images, or write text.  The loss is the mean over the pixels that count: those whose
        label is not `ignore_index`.
        """
        if not isinstance(ignore_index, int) or not -(2**31) <= ignore_index < 2**31:
            raise NetworkError(
                f"{name or 'pixel_softmax'}: ignore_index is {ignore_index!r}; give a whole number that an int32 can "
                "have, such as -100 or 255"
            )
        layer = self._new("pixel_softmax", name, [after or self.last])
        layer.options = {"ignore_index": ignore_index}
        shape = layer.producers[0].shape
        if len(shape) != 4:
            raise NetworkError(f"{layer}: its input is {shape}, not maps of a height and a width; softmax takes rows")
        return self._weighted(self._add(layer, shape), weight)

    def mean_squared_error(self, name: str | None = None, after: Layer | None = None, weight: float = 1.0) -> Layer:
        """The mean of the squared differences to the targets, over all numbers: an end of a network."""
        return self._weighted(self._same("mean_squared_error", name, after), weight)

    def binary_cross_entropy(self, name: str | None = None, after: Layer | None = None, weight: float = 1.0) -> Layer:
        """Cross-entropy of a probability for every number, as PyTorch's BCEWithLogitsLoss: an end of a network.

        Its input are logits: numbers of either sign, of which a sigmoid makes probabilities.
        """
        return self._weighted(self._same("binary_cross_entropy", name, after), weight)

    def share(self, first: Layer, *others: Layer, own_bias: bool = False) -> None:
        """Have other layers take the parameters of the first, convolutions or fully connected layers of one shape.

        There is one weight for all: its gradient is the sum over the layers, and it is updated once.  A 1×1
        convolution without a bias may share the table of an embedding, of as many words as it has filters.  With
        `own_bias` a layer that has a bias has its own, and the weight alone is shared.
        """
        self._refuse_if_built()
        for layer in (first, *others):
            if layer not in self._known:
                raise NetworkError(f"{layer!r} is no layer of {self.name}")
            tied = {layer.kind, first.kind} == {"embedding", "conv"}
            multiplies = layer.traits.work == "product" and layer.traits.learns
            if not tied and not (layer.kind == first.kind and (multiplies or layer.kind == "embedding")):
                raise NetworkError(f"{layer} is of the kind {layer.kind}; what layers of one kind learn can be shared")
        for layer in others:
            if layer is first or layer.shares or first.shares or any(one.shares is layer for one in self.layers):
                raise NetworkError(f"{layer} and {first}: name all that share in one call, each once")
            layer.shares, layer.own_bias = first, own_bias
        first.own_bias = own_bias

    # -- the network ---------------------------------------------------------------------------------------------------

    def build(self) -> Network:
        """The network, with every tensor and every step; nothing can be added afterwards."""
        self._refuse_if_built()
        ends = [layer for layer in (*self.inputs, *self.layers) if not layer.consumers]
        if not self.layers or self.layers[-1].traits.work != "loss":
            raise NetworkError(f"{self.name}: the last layer must be a loss: {', '.join(LOSSES)}")
        if loose := [layer.name for layer in ends if layer.traits.work != "loss"]:
            raise NetworkError(f"{self.name}: no layer reads {', '.join(loose)}; only a loss may be an end")
        if self.conventions.fork_layers:
            self._insert_forks()
        with collector_paused():
            network = Network(self.name, self.inputs, ends, self.conventions)
        self._built = True
        return network

    def _insert_forks(self) -> None:
        forks = {}
        for layer in (*self.inputs, *self.layers):
            if len(layer.consumers) > 1 and "dtype" not in layer.options:  # tokens are read, and have no gradient
                forks[layer] = fork = Layer(f"{layer.name}.fork", "fork", (layer,), {})
                fork.shape, fork.consumers, layer.consumers = layer.shape, layer.consumers, [fork]
        for layer in self.layers:
            layer.producers = [forks.get(producer, producer) for producer in layer.producers]

    # -- helpers: a layer is made, its shape found, and only then is it added ------------------------------------------

    def _new(self, kind: LayerKind, name: str | None, producers: Sequence[Layer]) -> Layer:
        self._refuse_if_built()
        layer = Layer(name or self._free_name(kind), kind, tuple(producers), {})
        if layer.name in self._names:
            raise NetworkError(f"{self.name}: there is a layer named {layer.name!r} already; take another name")
        for x in producers:
            if x not in self._known:
                raise NetworkError(f"{layer}: {x!r} is no layer of {self.name}")
            if x.traits.work == "loss":
                raise NetworkError(f"{layer}: no layer can follow the {x.kind}")
            if "dtype" in x.options and kind != "embedding":
                raise NetworkError(f"{layer}: {x} has tokens, which only an embedding reads")
        return layer

    def _free_name(self, kind: LayerKind) -> str:
        number = self._counts[kind] + 1
        while f"{kind}{number}" in self._names:
            number += 1
        return f"{kind}{number}"

    def _add(self, layer: Layer, shape: tuple[int, ...]) -> Layer:
        for x in layer.producers:
            x.consumers.append(layer)
        self.layers.append(layer)
        self.last, layer.shape, layer.number = layer, shape, len(self.layers) + self._fused
        self._known.add(layer)
        self._names.add(layer.name)
        self._counts[layer.kind] += 1
        return layer

    def _same(self, kind: LayerKind, name: str | None, after: Layer | None, **options: Any) -> Layer:
        """A layer whose output has the shape of its input."""
        layer = self._new(kind, name, [after or self.last])
        layer.options = options
        return self._add(layer, layer.producers[0].shape)

    @staticmethod
    def _weighted(loss: Layer, weight: float) -> Layer:
        if not 0 < weight < inf:
            raise NetworkError(f"{loss}: its weight is {weight!r}; give a number above 0")
        loss.weight = float(weight)
        return loss

    def _many(self, kind: LayerKind, name: str | None, layers: Sequence[Layer]) -> Layer:
        if len(layers) < 2 or len(set(layers)) < len(layers):
            raise NetworkError(f"{name or kind}: give two or more different layers, not {list(layers)}")
        return self._new(kind, name, layers)

    @staticmethod
    def _moved_window(layer: Layer, window: Size, stride: Size, pad: Pad) -> dict[str, tuple[int, ...]]:
        x_shape = layer.producers[0].shape
        if len(x_shape) != 4:
            raise NetworkError(f"{layer}: its input is {x_shape}, not maps of a height and a width")
        pairs = {what: _pair(layer, size, what, 1) for what, size in (("window", window), ("stride", stride))}
        return {**pairs, "pad": _sides(layer, pad)}

    @staticmethod
    def _check_groups(layer: Layer) -> None:
        channels, filters, groups = layer.producers[0].shape[1], layer.options["filters"], layer.options["groups"]
        if channels % groups or filters % groups:
            both = f"{counted(channels, 'channel')} and {counted(filters, 'filter')}"
            raise NetworkError(f"{layer}: {both} cannot be cut into {groups} groups")

    @staticmethod
    def _moved(layer: Layer, size: Any) -> tuple[int, int]:
        try:
            height, width = size(layer.producers[0].shape, layer.options)
        except ValueError as error:
            raise NetworkError(f"{layer}: {error}") from None
        return height, width

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Builder has no {name!r}{name_advice(name, (*LAYERS, 'add_input', 'share', 'build'))}")

    def _refuse_if_built(self) -> None:
        if self._built:
            raise NetworkError(f"{self.name} is built already; describe another network with another Builder")


# -- misspelt layers and options ---------------------------------------------------------------------------------------

#: The methods that add a layer.
LAYERS = tuple(
    name
    for name, method in vars(Builder).items()
    if inspect.isfunction(method) and name[0] != "_" and method.__annotations__["return"] == "Layer"
    if name != "add_input"
)

#: Those of them that end a network.
LOSSES = tuple(kind for kind, traits in TRAITS.items() if traits.work == "loss" and not traits.opaque)

#: What other frameworks call it → what it is called here.
ELSEWHERE = {
    "linear": "fc", "dense": "fc", "conv2d": "conv", "maxpool": "pool", "max_pool2d": "pool", "maxpool2d": "pool",
    "avgpool": "pool", "batchnorm2d": "batchnorm", "batch_norm": "batchnorm", "bn": "batchnorm", "add": "join",
    "cat": "concat", "cross_entropy": "softmax", "padding": "pad", "kernel_size": "window", "kernel": "window",
    "strides": "stride", "out_channels": "filters", "channels": "filters", "out_features": "outputs",
    "units": "outputs", "ceil_mode": "ceil", "p": "probability", "rate": "probability", "eps": "epsilon",
    "input": "after", "inputs": "after", "relu6": "relu", "swish": "silu", "multiply": "mul", "hard_swish": "hardswish",
    "hard_sigmoid": "hardsigmoid", "leakyrelu": "leaky_relu", "alpha": "negative_slope",
    "adaptive_avg_pool2d": "pool_to", "adaptive_pool": "pool_to", "adaptive_max_pool2d": "pool_to",
    "count_include_pad": "count_padding", "dilations": "dilation", "group": "groups",
    "conv_transpose2d": "conv_transpose", "convtranspose2d": "conv_transpose", "output_padding": "out_pad",
    "stochastic_depth": "drop_path", "split": "take", "slice": "take", "deconv": "conv_transpose",
    "class_token": "prepend", "cls_token": "prepend", "permute": "permute_channels", "gather": "permute_channels",
    "index_select": "permute_channels",
    "interpolate": "upsample", "resize": "upsample_to", "scale_factor": "factor",
    "mse": "mean_squared_error", "mse_loss": "mean_squared_error", "mseloss": "mean_squared_error",
    "mha": "attention", "multihead_attention": "attention", "scaled_dot_product_attention": "attention",
    "num_heads": "heads", "num_kv_heads": "kv_heads", "is_causal": "causal", "rms_norm": "rmsnorm",
    "vocabulary": "words", "num_embeddings": "words", "embedding_dim": "channels", "std": "spread",
    "rope": "rotary", "theta": "base", "rotary_embedding": "rotary",
    "bce": "binary_cross_entropy", "bcewithlogitsloss": "binary_cross_entropy",
    "binary_cross_entropy_with_logits": "binary_cross_entropy", "ignored": "ignore_index",
}  # fmt: skip


def name_advice(name: str, names: Sequence[str]) -> str:
    """Error text for a name that is not one of these: what was probably meant, then all of them."""
    here = ELSEWHERE.get(name.lower(), "")
    return f"; write {here}. There are: {', '.join(names)}." if here in names else offer(name, names)


def options_checked(method: Callable[..., Layer]) -> Callable[..., Layer]:
    """The method; an option that it does not have is refused in one line that says what to write."""
    options = [*inspect.signature(method).parameters][1:]

    @functools.wraps(method)
    def checked(self: Builder, *values: Any, **given: Any) -> Layer:
        for name in given:
            if name not in options:
                raise NetworkError(f"{method.__name__} has no option {name!r}{name_advice(name, options)}")
        return method(self, *values, **given)

    return checked


for _layer in LAYERS:
    setattr(Builder, _layer, options_checked(getattr(Builder, _layer)))


# -- sizes -------------------------------------------------------------------------------------------------------------


def _whole(where: Layer | str, number: Any, what: str, least: int = 1) -> int:
    try:
        whole = int(number)
    except (TypeError, ValueError, OverflowError):
        whole = least - 1
    if whole != number or whole < least:
        raise NetworkError(f"{where}: {what} is {number!r}; give a whole number of at least {least}")
    return whole


def _spread(layer: Layer, spread: float | None) -> dict[str, float]:
    """The option of that name; without one, none."""
    if spread is not None and not 0 < spread < inf:
        raise NetworkError(f"{layer}: spread is {spread!r}; give a number above 0")
    return {} if spread is None else {"spread": float(spread)}


def _mode(layer: Layer, mode: str) -> str:
    if mode not in ("max", "average"):
        raise NetworkError(f"{layer}: there is no pooling mode {mode!r}; give max or average")
    return mode


def _pair(where: Layer | str, size: Any, what: str, least: int) -> tuple[int, int]:
    """A number for both axes, or one for each."""
    both = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(both) != 2:
        raise NetworkError(f"{where}: {what} is {size!r}; give one number, or (vertical, horizontal)")
    return _whole(where, both[0], what, least), _whole(where, both[1], what, least)


def _sides(where: Layer, pad: Any) -> tuple[int, ...]:
    """Padding as a pair, or as four numbers where opposite sides differ."""
    if not isinstance(pad, tuple | list) or len(pad) != 4:
        return _pair(where, pad, "pad", 0)
    sides = tuple(_whole(where, side, "pad", 0) for side in pad)
    return sides[:2] if sides[:2] == sides[2:] else sides
