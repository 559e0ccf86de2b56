"""The layers that no network of the papers has: later activations, normalisations, attention, upsampling, losses."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from refimpl.network.builder import PapersBuilder
from refimpl.network.layer import Layer, NetworkError
from refimpl.network.shapes import four_sides, transposed
from refimpl.network.spelling import (
    Pad,
    Size,
    layer_methods,
    options_checked,
    pair_of,
    sides_of,
    spread_option,
    whole_number,
)
from refimpl.text import shown

UPSAMPLING = ("nearest", "bilinear")


@options_checked
class Builder(PapersBuilder):
    """A network under description, of every layer that there is."""

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
            groups: of channels.
            dilation: rows and columns from one tap of a filter to the next.
            out_pad: rows and columns added below and on the right, less than the stride.
        """
        layer = self._new("conv_transpose", name, [after or self.last])
        options: dict[str, Any] = self._moved_window(layer, window, stride, pad)
        options["dilation"] = pair_of(layer, dilation, "dilation", 1)
        options["out_pad"] = pair_of(layer, out_pad, "out_pad", 0)
        options |= {"filters": whole_number(layer, filters, "filters"), "groups": whole_number(layer, groups, "groups")}
        layer.options = {**options, "bias": bias}
        self._check_groups(layer)
        return self._add(layer, (layer.producers[0].shape[0], int(filters), *self._moved(layer, transposed)))

    def upsample(
        self, factor: Size, mode: str = "nearest", align_corners: bool = False,
        name: str | None = None, after: Layer | None = None,
    ) -> Layer:  # fmt: skip
        """Maps a whole number of times as high and as wide: values repeated, or "bilinear" between neighbours.

        With `align_corners` the corners of a bilinear map keep their values, as in PyTorch.
        """
        before = after or self.last
        high, wide = pair_of(name or "upsample", factor, "factor", 1)
        size = tuple(times * length for times, length in zip((high, wide), before.shape[2:], strict=False))
        return self.upsample_to(size if len(size) == 2 else 1, mode, align_corners, name, before)

    def upsample_to(
        self, size: Size, mode: str = "nearest", align_corners: bool = False,
        name: str | None = None, after: Layer | None = None,
    ) -> Layer:  # fmt: skip
        """Maps of this height and width, larger or smaller, by `upsample`; those that have it need no layer."""
        before = after or self.last
        out = pair_of(name or "upsample_to", size, "size", 1)
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
            spread: the standard deviation of the table's first values.
            padding: a token whose row this layer does not train, as that which fills short windows (None: none).
        """
        layer = self._new("embedding", name, [after or self.last])
        if "dtype" not in layer.producers[0].options:
            raise NetworkError(f"{layer}: {layer.producers[0]} has no tokens; describe it with dtype='int32'")
        layer.options = {"words": whole_number(layer, words, "words"), **spread_option(layer, spread)}
        if padding is not None:
            if whole_number(layer, padding, "padding", 0) >= words:
                raise NetworkError(f"{layer}: padding is {padding}; tokens are 0 to {words - 1}")
            layer.options["padding"] = int(padding)
        windows, tokens = layer.producers[0].shape
        return self._add(layer, (windows, whole_number(layer, channels, "channels"), tokens, 1))

    def position(
        self, name: str | None = None, after: Layer | None = None, spread: float = 0.02, alike: bool = False
    ) -> Layer:
        """A learnt number added to each number of an image, or of a window of tokens, the same for all of them.

        It tells positions apart.  With `alike` it is one number a channel for all positions: a bias.  `spread` is the
        standard deviation of the first values.
        """
        layer = self._new("position", name, [after or self.last])
        layer.options = {**spread_option(layer, spread), **({"alike": True} if alike else {})}
        if alike and len(layer.producers[0].shape) != 4:
            raise NetworkError(f"{layer}: its input is {layer.producers[0].shape}, not maps; leave out alike")
        return self._add(layer, layer.producers[0].shape)

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
        if channels % whole_number(name or "groupnorm", groups, "groups"):
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
        """
        layer = self._new("rotary", name, [after or self.last])
        shape = layer.producers[0].shape
        heads = whole_number(layer, heads, "heads")
        groups = heads if kv_heads is None else whole_number(layer, kv_heads, "kv_heads")
        if len(shape) != 4:
            raise NetworkError(f"{layer}: its input is {shape}, not a map of tokens")
        if heads % groups or (not packed and groups != heads):
            raise NetworkError(f"{layer}: {heads} heads of queries cannot be shared out over {groups} of keys")
        width, left = divmod(shape[1], heads + 2 * groups if packed else heads)
        if left:
            whose = f"{heads} heads and {groups} of keys and of values" if packed else f"{heads} heads"
            raise NetworkError(f"{layer}: {shape[1]} channels are not those of {whose}")
        turned = width if rotated is None else whole_number(layer, rotated, "rotated", 2)
        if turned % 2 or turned > width:
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
            after: the layer that makes the queries, or all in one map (None: the last one).
        """
        given = [after or self.last, *(one for one in (keys, values) if one is not None)]
        layer = self._new("attention", name, given)
        heads = whole_number(layer, heads, "heads")
        kv_heads = heads if kv_heads is None else whole_number(layer, kv_heads, "kv_heads")
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
            after: the layer that makes queries and keys (None: the last one).
        """
        layer = self._new("scores", name, [after or self.last])
        shape, heads = layer.producers[0].shape, whole_number(layer, heads, "heads")
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
        if channels % whole_number(name or "channel_shuffle", groups, "groups"):
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
        until = whole_number(layer, start, "start", 0) + whole_number(layer, count, "count")
        if until > shape[axis]:
            raise NetworkError(f"{layer}: {count} from {start} on are not within the {shape[axis]} of {shape}")
        layer.options = {"axis": axis, "start": int(start)}
        return self._add(layer, (*shape[:axis], int(count), *shape[axis + 1 :]))

    def pad(self, sides: Pad, value: float = 0.0, name: str | None = None, after: Layer | None = None) -> Layer:
        """Rows and columns of one number around the maps; zeros before a convolution are its own option."""
        layer = self._new("pad", name, [after or self.last])
        shape, pad = layer.producers[0].shape, sides_of(layer, sides)
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


#: The methods that add a layer.
LAYERS = layer_methods(Builder)
