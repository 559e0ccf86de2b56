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
from typing import Any, NoReturn

from refimpl.network.collector import collector_paused
from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.layer import Layer, LayerKind, NetworkError
from refimpl.network.network import Network
from refimpl.network.shapes import convolved, pooled
from refimpl.text import offer

Size = int | tuple[int, int]
LARGEST_LRN = 16  #: channels; `kernels.lrn.SLOTS`


class Builder:
    """A network under description; `shape` is that of the input batch: images, channels, height, width."""

    def __init__(self, name: str, shape: Sequence[int], conventions: Conventions = VDNN) -> None:
        if len(shape) != 4:
            raise NetworkError(f"{name}: the input's shape is {tuple(shape)}; give (images, channels, height, width)")
        for what, size in zip(("the batch", "the number of channels", "the height", "the width"), shape, strict=True):
            _whole(name, size, what)
        self.name, self.conventions = name, conventions
        self.input = Layer("input", "data", (), {})
        self.input.shape = tuple(int(size) for size in shape)
        self.last = self.input
        self.layers: list[Layer] = []
        self._known = {self.input}
        self._names = {"input"}
        self._counts: Counter[str] = Counter()
        self._fused = 0  #: ReLUs that are part of a layer: they count, so that dropout's masks are the same
        self._built = False

    # -- layers --------------------------------------------------------------------------------------------------------

    def conv(
        self,
        filters: int,
        window: Size,
        stride: Size = 1,
        pad: Size = 0,
        bias: bool = True,
        name: str | None = None,
        after: Layer | None = None,
    ) -> Layer:
        """A convolution.  Window, stride and padding are one number for both axes, or (vertical, horizontal).

        Args:
            filters: output channels.
            window: height and width of a filter.
            stride: step of the window.
            pad: zeros around the map.
            bias: whether each filter has a bias.
            name: the layer's name (None: its kind and a number).
            after: the layer whose output it reads (None: the last one).
        """
        layer = self._new("conv", name, [after or self.last])
        options = self._moved_window(layer, window, stride, pad)
        layer.options = {**options, "filters": _whole(layer, filters, "filters"), "bias": bias}
        return self._add(layer, (layer.producers[0].shape[0], int(filters), *self._moved(layer, convolved)))

    def pool(
        self, window: Size, stride: Size | None = None, pad: Size = 0, mode: str = "max", ceil: bool = False,
        name: str | None = None, after: Layer | None = None,
    ) -> Layer:  # fmt: skip
        """`mode` is "max" or "average"; without a stride the windows do not overlap."""
        layer = self._new("pool", name, [after or self.last])
        if mode not in ("max", "average"):
            raise NetworkError(f"{layer}: there is no pooling mode {mode!r}; give max or average")
        options = self._moved_window(layer, window, window if stride is None else stride, pad)
        layer.options = {**options, "mode": mode, "ceil": ceil}
        return self._add(layer, (*layer.producers[0].shape[:2], *self._moved(layer, pooled)))

    def fc(self, outputs: int, bias: bool = True, name: str | None = None, after: Layer | None = None) -> Layer:
        """Fully connected to every number of an image's maps."""
        layer = self._new("fc", name, [after or self.last])
        layer.options = {"outputs": _whole(layer, outputs, "outputs"), "bias": bias}
        return self._add(layer, (layer.producers[0].shape[0], int(outputs)))

    def relu(self, name: str | None = None, after: Layer | None = None) -> Layer:
        """In place, or part of the layer before it, where the network's conventions and its neighbours allow it."""
        before = after or self.last
        if self.conventions.relu_fused and before.kind in ("conv", "fc") and not before.consumers:
            self._refuse_if_built()
            before.has_relu = True
            self._fused += 1
            return before
        return self._same("relu", name, after)

    def lrn(
        self, size: int = 5, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0,
        name: str | None = None, after: Layer | None = None,
    ) -> Layer:  # fmt: skip
        """Local response normalisation over `size` neighbouring channels, as `kernels.lrn` has it."""
        if _whole(name or "lrn", size, "size") > LARGEST_LRN:
            raise NetworkError(f"{name or 'lrn'}: size is {size}; the kernels look at up to {LARGEST_LRN} channels")
        return self._same("lrn", name, after, size=size, alpha=alpha, beta=beta, k=k)

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

    def softmax(self, name: str | None = None, after: Layer | None = None) -> Layer:
        """Softmax with cross-entropy, the mean over the batch: the end of the network."""
        shape = (after or self.last).shape
        if len(shape) != 2:
            raise NetworkError(f"{name or 'softmax'}: its input is {shape}; put a fully connected layer before it")
        return self._same("softmax", name, after)

    # -- the network ---------------------------------------------------------------------------------------------------

    def build(self) -> Network:
        """The network, with every tensor and every step; nothing can be added afterwards."""
        self._refuse_if_built()
        ends = [layer.name for layer in self.layers if not layer.consumers]
        if not self.layers or self.layers[-1].kind != "softmax":
            raise NetworkError(f"{self.name}: the last layer must be a softmax")
        if len(ends) > 1:
            raise NetworkError(f"{self.name}: no layer reads {', '.join(ends[:-1])}; only the softmax may be an end")
        if self.conventions.fork_layers:
            self._insert_forks()
        with collector_paused():
            network = Network(self.name, self.input, self.layers[-1], self.conventions)
        self._built = True
        return network

    def _insert_forks(self) -> None:
        forks = {}
        for layer in (self.input, *self.layers):
            if len(layer.consumers) > 1:
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
            if x.kind == "softmax":
                raise NetworkError(f"{layer}: no layer can follow the softmax")
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

    def _same(self, kind: LayerKind, name: str | None, after: Layer | None, **options: float) -> Layer:
        """A layer whose output has the shape of its input."""
        layer = self._new(kind, name, [after or self.last])
        layer.options = options
        return self._add(layer, layer.producers[0].shape)

    def _many(self, kind: LayerKind, name: str | None, layers: Sequence[Layer]) -> Layer:
        if len(layers) < 2 or len(set(layers)) < len(layers):
            raise NetworkError(f"{name or kind}: give two or more different layers, not {list(layers)}")
        return self._new(kind, name, layers)

    @staticmethod
    def _moved_window(layer: Layer, window: Size, stride: Size, pad: Size) -> dict[str, tuple[int, int]]:
        x_shape = layer.producers[0].shape
        if len(x_shape) != 4:
            raise NetworkError(f"{layer}: its input is {x_shape}, not maps of a height and a width")
        given = {"window": (window, 1), "stride": (stride, 1), "pad": (pad, 0)}
        return {what: _pair(layer, size, what, least) for what, (size, least) in given.items()}

    @staticmethod
    def _moved(layer: Layer, size: Any) -> tuple[int, int]:
        try:
            height, width = size(layer.producers[0].shape, layer.options)
        except ValueError as error:
            raise NetworkError(f"{layer}: {error}") from None
        return height, width

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Builder has no {name!r}{meant(name, (*LAYERS, 'build'))}")

    def _refuse_if_built(self) -> None:
        if self._built:
            raise NetworkError(f"{self.name} is built already; describe another network with another Builder")


# -- misspelt layers and options ---------------------------------------------------------------------------------------

LAYERS = ("conv", "pool", "fc", "relu", "lrn", "batchnorm", "dropout", "concat", "join", "softmax")

#: What other frameworks call it → what it is called here.
ELSEWHERE = {
    "linear": "fc", "dense": "fc", "conv2d": "conv", "maxpool": "pool", "max_pool2d": "pool", "maxpool2d": "pool",
    "avgpool": "pool", "batchnorm2d": "batchnorm", "batch_norm": "batchnorm", "bn": "batchnorm", "add": "join",
    "cat": "concat", "cross_entropy": "softmax", "padding": "pad", "kernel_size": "window", "kernel": "window",
    "strides": "stride", "out_channels": "filters", "channels": "filters", "out_features": "outputs",
    "units": "outputs", "ceil_mode": "ceil", "p": "probability", "rate": "probability", "eps": "epsilon",
    "input": "after", "inputs": "after",
}  # fmt: skip


def meant(name: str, names: Sequence[str]) -> str:
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
                raise NetworkError(f"{method.__name__} has no option {name!r}{meant(name, options)}")
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


def _pair(where: Layer, size: Any, what: str, least: int) -> tuple[int, int]:
    """A number for both axes, or one for each."""
    both = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(both) != 2:
        raise NetworkError(f"{where}: {what} is {size!r}; give one number, or (vertical, horizontal)")
    return _whole(where, both[0], what, least), _whole(where, both[1], what, least)
