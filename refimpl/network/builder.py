"""A network described in a few lines of Python, by the layers of the papers' networks.

    b = PapersBuilder("two branches", (32, 3, 32, 32))
    b.conv(16, 3, pad=1)
    trunk = b.relu()
    left = b.conv(16, 1)
    right = b.conv(16, 3, pad=1, after=trunk)
    b.concat(left, right)
    b.fc(10)
    b.softmax()
    network = b.build()

Every method adds a layer after the last one, or after the layer `after`, and returns it.  An impossible layer is
refused at once, in one line that names it, and is not added.  `refimpl.Builder` has later layers, too
(`refimpl.network.later_layers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any, NoReturn

from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.kinds import TRAITS, LayerKind
from refimpl.network.layer import Layer, NetworkError
from refimpl.network.network import Network
from refimpl.network.shapes import convolved, pooled
from refimpl.network.spelling import (
    Pad,
    Size,
    layer_methods,
    name_advice,
    options_checked,
    pair_of,
    pooling_mode,
    sides_of,
    spread_option,
    whole_number,
)
from refimpl.text import counted

LARGEST_LRN = 16  #: channels; `kernels.fast.lrn.SLOTS`

#: The kinds that end a network.
LOSSES = tuple(kind for kind, traits in TRAITS.items() if traits.work == "loss" and not traits.opaque)

#: The axes of an input, by the type of its numbers: images, or tokens, which an embedding reads.
AXES = {
    "float32": {"images": "the batch", "channels": "the number of channels", "height": "the height",
                "width": "the width"},
    "int32": {"windows": "the batch", "tokens": "the number of tokens"},
}  # fmt: skip


@options_checked
class PapersBuilder:
    """A network under description.

    Of each method that adds a layer, `name` is the layer's (None: its kind and a number) and `after` the layer whose
    output it reads (None: the last one).

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
            whole_number(self.name, size, what)
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
            groups: of channels; each filter sees one group.  As many groups as channels: a depthwise convolution.
            dilation: rows and columns from one tap of a filter to the next.
            spread: the standard deviation of the first weights (None: He's rule).
        """
        layer = self._new("conv", name, [after or self.last])
        options: dict[str, Any] = self._moved_window(layer, window, stride, pad)
        options["dilation"] = pair_of(layer, dilation, "dilation", 1)
        options |= {"filters": whole_number(layer, filters, "filters"), "groups": whole_number(layer, groups, "groups")}
        layer.options = {**options, "bias": bias, **spread_option(layer, spread)}
        self._check_groups(layer)
        return self._add(layer, (layer.producers[0].shape[0], int(filters), *self._moved(layer, convolved)))

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
            count_padding: whether an average counts the padding as zeros.
        """
        layer = self._new("pool", name, [after or self.last])
        pooling_mode(layer, mode)
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
        out = pair_of(name or "pool_to", size, "size", 1)
        maps = before.shape[2:]
        if out == maps:
            return before
        if not (maps[0] % out[0] or maps[1] % out[1]):
            return self.pool((maps[0] // out[0], maps[1] // out[1]), mode=mode, name=name, after=before)
        layer = self._new("pool", name, [before])
        layer.options = {"out": out, "mode": pooling_mode(layer, mode)}
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
        layer.options = {
            "outputs": whole_number(layer, outputs, "outputs"),
            "bias": bias,
            **spread_option(layer, spread),
        }
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

    def lrn(
        self, size: int = 5, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0,
        name: str | None = None, after: Layer | None = None, ahead: int | None = None,
    ) -> Layer:  # fmt: skip
        """Local response normalisation over `size` neighbouring channels, as `kernels.fast.lrn` has it.

        `ahead` of them come after a channel (None: half, and the smaller half of an even size, as in PyTorch; in ONNX
        it is the larger half, size // 2).
        """
        if whole_number(name or "lrn", size, "size") > LARGEST_LRN:
            raise NetworkError(f"{name or 'lrn'}: size is {size}; the kernels look at up to {LARGEST_LRN} channels")
        options: dict[str, float] = {"size": size, "alpha": alpha, "beta": beta, "k": k}
        if ahead is not None and ahead != (size - 1) // 2:
            if whole_number(name or "lrn", ahead, "ahead", 0) >= size:
                raise NetworkError(f"{name or 'lrn'}: ahead is {ahead}; give less than the size, {size}")
            options["ahead"] = ahead
        return self._same("lrn", name, after, **options)

    def batchnorm(
        self, momentum: float = 0.1, epsilon: float = 1e-5, name: str | None = None, after: Layer | None = None
    ) -> Layer:
        """Batch normalisation; the running statistics move by `momentum` towards each batch's."""
        return self._same("batchnorm", name, after, momentum=momentum, epsilon=epsilon)

    def dropout(self, probability: float = 0.5, name: str | None = None, after: Layer | None = None) -> Layer:
        """Each number is set to 0 with this probability, and scaled up otherwise."""
        where = name or "dropout"
        if not 0 <= probability < 1:
            raise NetworkError(f"{where}: the probability is {probability}; give at least 0 and less than 1")
        return self._same("dropout", name, after, probability=probability)

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
        pairs = {what: pair_of(layer, size, what, 1) for what, size in (("window", window), ("stride", stride))}
        return {**pairs, "pad": sides_of(layer, pad)}

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
        names = (*layer_methods(type(self)), "add_input", "share", "build")
        raise AttributeError(f"a {type(self).__name__} has no {name!r}{name_advice(name, names)}")

    def _refuse_if_built(self) -> None:
        if self._built:
            raise NetworkError(
                f"{self.name} is built already; describe another network with another {type(self).__name__}"
            )
