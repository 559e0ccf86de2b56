"""The calls of each kind of layer, forward and backward, and so the tensors that it reads, writes and updates.

These are the kinds of the papers' networks, conv, pool and softmax first; the others are in `later_calls`, but for the
element-wise ones, whose calls follow from their records.

| layer | forward | backward reads | its gradient map dx |
| --- | --- | --- | --- |
| conv, fc | x, w, b → y | x, dy (not y) | new |
| pool | x → y | x, y, dy | new |
| relu | x → y, or in place | y, dy | in place on dy |
| lrn | x → y | x, dy | in place on dy |
| batchnorm | x → y | x, dy (not y) | new |
| dropout | x → y | dy; the mask follows from seed, layer and iteration | new |
| softmax | x → y, or in place | y | in place on y; new if forward was in place |
| concat | xs → y | dy | one new an input |
| join | xs → y, their sum | dy | the first input's is dy itself, the others' are copies |
| fork | x → ys, copies | dys | summed into the first |

A map that several layers read (where there are no fork layers) has one gradient map: the first backward step that
reaches it fills it, every later one adds to it, in the order of the backward route.  A layer with no
parameters below it computes no gradient of its input: it has fewer calls, or none.  A conv or an fc with a fused ReLU
also calls the ReLU's kernels, on y and on dy in place, and then reads y in backward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Protocol

from refimpl.network.call import ITERATION, SEED, Call
from refimpl.network.conventions import Conventions
from refimpl.network.layer import Layer, Output, Parameter
from refimpl.network.learning import Optimisation
from refimpl.network.shapes import clip_parts
from refimpl.network.tensor import Tensor


class Shared(Protocol):
    """The tensors that the calls of all layers share; a `Network` has it."""

    conventions: Conventions
    layers: list[Layer]
    learning: Optimisation
    output_of: dict[Layer, Output]  #: by the loss
    squares: Tensor  #: sums of the gradients' squares, where they are clipped, and
    gradient_norm: Tensor  #: the root of their sum
    scratch: Tensor | None  #: workspace of every batch normalisation, and of losses
    scratches: list[Tensor]  #: the same as a list: empty or one


def forward(network: Shared, layer: Layer) -> list[Call]:
    """The calls of a layer's forward step in training."""
    made = elementwise_forward if layer.traits.elementwise else FORWARD[layer.kind]
    return made(network, layer)


def is_later(layer: Layer) -> bool:
    """Whether the calls of its kind are in `later_calls`."""
    return not (layer.traits.published or layer.traits.elementwise)


# -- forward -----------------------------------------------------------------------------------------------------------


def weights_of(layer: Layer) -> dict[str, Tensor]:
    return {name: parameter.weight for name, parameter in layer.parameters.items()}


def multiply_adds(layer: Layer) -> int:
    """Floating-point operations of one pass of a convolution or a fully connected layer, the direct way."""
    results = layer.x.shape if layer.kind == "conv_transpose" else layer.shape
    return 2 * prod(results) * prod(layer.parameters["w"].weight.shape[1:])


def window_walk(layer: Layer) -> dict[str, tuple[int, ...]]:
    """Stride, padding and, if there is one, dilation of a convolution; a fully connected layer has none."""
    if layer.kind == "fc":
        return {}
    dilated = () if layer.options["dilation"] == (1, 1) else ("dilation",)
    return {name: layer.options[name] for name in ("stride", "pad", *dilated)}


def _linear_forward(network: Shared, layer: Layer) -> list[Call]:
    given = {"x": layer.x, **weights_of(layer)}
    arguments = {"b": None, **given, "y": layer.y, **window_walk(layer)}
    flops = multiply_adds(layer)
    return [Call(f"{layer.kind}.forward", arguments, given.values(), [layer.y], flops=flops), *_fused(layer)]


def _fused(layer: Layer) -> list[Call]:
    """The ReLU that is part of a layer."""
    y = layer.y
    return [Call("relu.forward", {"x": y, "y": y, **layer.relu_options}, updates=[y])] if layer.has_relu else []


def elementwise_forward(network: Shared, layer: Layer) -> list[Call]:
    """x → y with the layer's own options."""
    x, y = layer.x, layer.y
    function, arguments = f"{layer.kind}.forward", {"x": x, "y": y, **layer.options}
    return [Call(function, arguments, updates=[y]) if x is y else Call(function, arguments, [x], [y])]


def pool_forward(network: Shared, layer: Layer) -> list[Call]:
    arguments = {"x": layer.x, "y": layer.y, **layer.options}
    return [Call(f"pool.{_pooling(layer, 'forward')}", arguments, [layer.x], [layer.y])]


def _pooling(layer: Layer, direction: str) -> str:
    """The function of `kernels.pool`: by windows of one size, or to maps of a given size."""
    return f"{direction}_to" if "out" in layer.options else direction


def softmax_into(network: Shared, layer: Layer, y: Tensor | None = None) -> list[Call]:
    """x → y (None: the layer's own), probabilities, and from them the losses."""
    x, y, labels, losses = layer.x, y or layer.y, network.output_of[layer].labels, network.output_of[layer].losses
    arguments = {"x": x, "y": y}
    return [
        Call("softmax.forward", arguments, updates=[y]) if x is y else Call("softmax.forward", arguments, [x], [y]),
        Call("softmax.cross_entropy", {"y": y, "labels": labels, "losses": losses}, [y, labels], [losses]),
    ]


def loss_weight(layer: Layer) -> dict[str, float]:
    """The argument for a loss that is not alone."""
    return {} if layer.weight == 1 else {"weight": layer.weight}


# -- backward ----------------------------------------------------------------------------------------------------------


def applied(learning: Optimisation, p: Parameter) -> Call:
    """The optimiser's call for a parameter whose gradient is finished."""
    rule = learning.rule
    kept = {rule.states[name]: tensor for name, tensor in p.states.items()}
    without = {} if learning.decays(p.weight.shape) else {"decay": 0.0}
    arguments = {"w": p.weight, "dw": p.gradient, **kept, **rule.arguments, **without}
    return Call(rule.function, arguments, [p.gradient], updates=[p.weight, *kept.values()])


class Backward:
    """Makes the backward calls, layer by layer along the backward route, and keeps every map's gradient map."""

    def __init__(self, network: Shared) -> None:
        self.network = network
        self.gradients: dict[Tensor, Tensor] = {}  #: map → its gradient map, as far as it has been filled
        self.managed: list[Tensor] = []  #: every gradient map made
        self.clipped: list[Parameter] = []  #: those that wait for the norm of all gradients
        #: Parameter → layers that it has a gradient from, in all and so far.
        self.users = Counter(p for layer in network.layers if layer.learns for p in layer.parameters.values())
        self.parts: Counter[Parameter] = Counter()

    def calls(self, layer: Layer) -> list[Call]:
        """The calls of a layer's backward step; none if neither it nor a layer below it has parameters."""
        kind = "elementwise" if layer.traits.elementwise else layer.kind
        return getattr(self, f"_{kind}")(layer) if layer.learns else []

    # What a layer may do with a gradient of its input: fill a new map, add to one, or let dy become it.

    def _new(self, name: str, like: Tensor) -> Tensor:
        made = Tensor(name, like.shape, "gradient map", managed=True)
        self.managed.append(made)
        return made

    def _into(self, layer: Layer, x: Tensor) -> tuple[Tensor, list[Call]]:
        """The map that takes this layer's gradient of x, and the calls that must follow."""
        so_far = self.gradients.get(x)
        if so_far is None:
            self.gradients[x] = made = self._new(f"d({x.name})", x)
            return made, []
        part = self._new(f"d({x.name}) by {layer.name}", x)
        return part, [self._add(so_far, part)]

    def _becomes(self, dy: Tensor, x: Tensor) -> list[Call]:
        """The map dy is x's gradient from now on, or is added to it."""
        so_far = self.gradients.setdefault(x, dy)
        return [] if so_far is dy else [self._add(so_far, dy)]

    @staticmethod
    def _add(total: Tensor, part: Tensor) -> Call:
        return Call("join.fork_backward", {"dys": (total, part), "dx": total}, [part], updates=[total])

    def _held(self, *held: Tensor) -> tuple[Tensor, ...]:
        """The tensors that are read only because the published systems' library reads them."""
        return held if self.network.conventions.holds_inputs else ()

    def _dy(self, layer: Layer) -> Tensor:
        return self.gradients[layer.y]

    # One method for all element-wise kinds, and one a kind for the others.

    def _elementwise(self, layer: Layer) -> list[Call]:
        """In place on dy, with those of its maps that the kind's record names."""
        maps, dy, traits = {"x": layer.x, "y": layer.y}, self._dy(layer), layer.traits
        arguments = {name: maps[name] for name in traits.backward_reads} | {"dy": dy, "dx": dy, **layer.options}
        function = f"{layer.kind}.backward"
        if layer.in_place:
            return [Call(function, arguments, [layer.y], updates=[dy])]
        held = self._held(*(maps[name] for name in traits.library_reads))
        reads = [tensor for name, tensor in maps.items() if name in traits.backward_reads or tensor in held]
        return [Call(function, arguments, reads, updates=[dy]), *self._becomes(dy, layer.x)]

    def _linear(self, layer: Layer) -> list[Call]:
        """A convolution or a fully connected layer."""
        kind, x, dy, w, flops = layer.kind, layer.x, self._dy(layer), layer.parameters["w"], multiply_adds(layer)
        walk = window_walk(layer)
        held = [layer.y] if self.network.conventions.holds_outputs else []

        def to_data(dx: Tensor) -> Call:
            data = {"dy": dy, "w": w.weight, "dx": dx, **walk}
            return Call(f"{kind}.backward_data", data, [dy, w.weight], [dx], flops=flops)

        def to_filter(dw: Tensor) -> Call:
            filter_ = {"x": x, "dy": dy, "dw": dw, **walk}
            return Call(f"{kind}.backward_filter", filter_, [x, dy, *held], [dw], flops=flops)

        return self._product(layer, kind, to_filter, to_data)

    _conv = _fc = _linear

    def _product(
        self, layer: Layer, family: str, to_filter: Callable[[Tensor], Call], to_data: Callable[[Tensor], Call]
    ) -> list[Call]:
        """Filter, then data, then bias; the gradient of the weights needs no map of its own and so comes first.

        Where it does need one, that is the last to be allocated.
        """
        dy, w, b = self._dy(layer), layer.parameters["w"], layer.parameters.get("b")
        calls = []
        if not w.frozen:
            dw, then = self._into_gradient(layer, w)
            calls = [to_filter(dw), *then]
        if layer.producers[0].learns:
            dx, then = self._into(layer, layer.x)
            made = [to_data(dx), *then]
            calls = [*made, *calls] if calls and dw.managed else [*calls, *made]
        if layer.has_relu:
            relu = {"y": layer.y, "dy": dy, "dx": dy, **layer.relu_options}
            calls.insert(0, Call("relu.backward", relu, [layer.y], updates=[dy]))
        if b and not b.frozen:
            db, then = self._into_gradient(layer, b)
            calls += [Call(f"{family}.backward_bias", {"dy": dy, "db": db}, [dy], [db]), *then]
        return calls + self._update(layer)

    def _update(self, layer: Layer) -> list[Call]:
        """The optimiser's calls for the weights whose gradients this step has finished."""
        trained = [p for p in layer.parameters.values() if not p.frozen and self._is_finished(p)]
        if self.network.learning.clip is not None:
            self.clipped += trained
            return []
        return [applied(self.network.learning, parameter) for parameter in trained]

    def _pool(self, layer: Layer) -> list[Call]:
        x, y, dy = layer.x, layer.y, self._dy(layer)
        dx, then = self._into(layer, x)
        arguments = {"x": x, "y": y, "dy": dy, "dx": dx, **layer.options}
        return [Call(f"pool.{_pooling(layer, 'backward')}", arguments, [x, y, dy], [dx]), *then]

    def _softmax(self, layer: Layer) -> list[Call]:
        y, labels, weight = layer.y, self.network.output_of[layer].labels, loss_weight(layer)
        if layer.in_place:
            dx, then = self._into(layer, y)
            return [Call("softmax.backward", {"y": y, "labels": labels, "dx": dx, **weight}, [y, labels], [dx]), *then]
        arguments = {"y": y, "labels": labels, "dx": y, **weight}
        call = Call("softmax.backward", arguments, [*self._held(layer.x), labels], updates=[y])
        return [call, *self._becomes(y, layer.x)]

    # -- shared parameters, clipping, and the other kinds: a first reader stops here -----------------------------------

    def _into_gradient(self, layer: Layer, p: Parameter) -> tuple[Tensor, list[Call]]:
        """The tensor that takes this layer's gradient of a parameter, and the calls that must follow.

        Of layers that share one the first to go backward fills it, and the others add to it.
        """
        if self.parts[p] == 0:
            return p.gradient, []
        part = Tensor(f"{p.gradient.name} by {layer.name}", p.weight.shape, "weight gradient", managed=True)
        self.managed.append(part)
        return part, [self._add(p.gradient, part)]

    def _is_finished(self, p: Parameter) -> bool:
        """Whether this layer was the last of those that share the parameter."""
        self.parts[p] += 1
        return self.parts[p] == self.users[p]

    def at_the_end(self) -> list[Call]:
        """The calls of the last step that needs all gradients: their norm, clipping, and the updates."""
        network, gradients = self.network, [parameter.gradient for parameter in self.clipped]
        if not gradients:
            return []
        squares, norm, limit = network.squares, network.gradient_norm, {"max_norm": network.learning.clip}
        made, place = [], 0
        for dw in gradients:
            made.append(Call("clip.square", {"dw": dw, "squares": squares, "place": place}, [dw], updates=[squares]))
            place += clip_parts(prod(dw.shape))
        made.append(Call("clip.norm", {"squares": squares, "norm": norm}, [squares], [norm]))
        made += [Call("clip.apply", {"norm": norm, "dw": dw, **limit}, [norm], updates=[dw]) for dw in gradients]
        return made + [applied(self.network.learning, parameter) for parameter in self.clipped]

    def _lrn(self, layer: Layer) -> list[Call]:
        x, dy = layer.x, self._dy(layer)
        arguments = {"x": x, "y": None, "dy": dy, "dx": dy, **layer.options}
        return [Call("lrn.backward", arguments, [x, *self._held(layer.y)], updates=[dy]), *self._becomes(dy, x)]

    def _batchnorm(self, layer: Layer) -> list[Call]:
        x, dy, gamma, beta = layer.x, self._dy(layer), layer.parameters["gamma"], layer.parameters["beta"]
        kept = {name: layer.statistics[name] for name in ("mean", "inverse_std")}
        given = {"x": x, "gamma": gamma.weight, **kept, "dy": dy}
        filled = {"dgamma": gamma.gradient, "dbeta": beta.gradient}
        dx, then = self._over(layer)
        arguments = {**given, **filled, "dx": dx, "workspace": self.network.scratch}
        writes = [*([] if dx is dy else [dx]), *filled.values(), *self.network.scratches]
        updates = [dy] if dx is dy else []
        reads = [tensor for tensor in given.values() if tensor not in updates]
        return [Call("batchnorm.backward", arguments, reads, writes, updates), *then, *self._update(layer)]

    def _over(self, layer: Layer) -> tuple[Tensor, list[Call]]:
        """As `_into`, of x, for kernels that always compute dx: if it is not needed, it overwrites dy."""
        return self._into(layer, layer.x) if layer.producers[0].learns else (self._dy(layer), [])

    def _dropout(self, layer: Layer) -> list[Call]:
        dy, (dx, then) = self._dy(layer), self._over(layer)
        arguments = {"dy": dy, "dx": dx, **dropout_options(layer)}
        reads, writes, updates = ([], [], [dy]) if dx is dy else ([dy], [dx], [])
        return [Call(f"{layer.kind}.backward", arguments, reads, writes, updates), *then]

    def _concat(self, layer: Layer) -> list[Call]:
        """Every input's gradient is computed, needed or not: the kernels split dy as a whole."""
        dy = self._dy(layer)
        filled = [self._into(layer, x) for x in layer.inputs]
        dxs = tuple(dx for dx, _ in filled)
        sums = [call for _, then in filled for call in then]
        return [Call("concat.backward", {"dy": dy, "dxs": dxs}, [dy], dxs), *sums]

    def _join(self, layer: Layer) -> list[Call]:
        dy, inputs = self._dy(layer), (p.output_for(layer) for p in layer.producers if p.learns)
        first, *others = sorted(inputs, key=lambda x: x is not layer.y)  # one that y has overwritten, if any
        started = [self.gradients[x] for x in others if x in self.gradients]
        fresh = [self._into(layer, x)[0] for x in others if x not in self.gradients]
        calls = [Call("join.backward", {"dy": dy, "dxs": tuple(fresh)}, [dy], fresh)] if fresh else []
        calls += [self._add(total, dy) for total in started]
        return calls + self._becomes(dy, first)  # last: from here on dy is another map's

    def _fork(self, layer: Layer) -> list[Call]:
        first, *others = (self.gradients[y] for y in layer.outputs)
        calls = [Call("join.fork_backward", {"dys": (first, *others), "dx": first}, others, updates=[first])]
        return calls + self._becomes(first, layer.x)


# -- forward of the other kinds ----------------------------------------------------------------------------------------


def _batchnorm_forward(network: Shared, layer: Layer) -> list[Call]:
    kept = {name: layer.statistics[name] for name in ("mean", "inverse_std")}
    running = {name: layer.statistics[name] for name in ("running_mean", "running_variance")}
    given = {"x": layer.x, **weights_of(layer)}
    epsilon = layer.options["epsilon"]
    arguments = {**given, "y": layer.y, **kept, "epsilon": epsilon, "workspace": network.scratch}
    count = layer.x.nbytes // 4 // layer.x.shape[1]
    moved = {**kept, **running, "count": count, "momentum": layer.options["momentum"], "epsilon": epsilon}
    return [
        Call("batchnorm.forward", arguments, given.values(), [layer.y, *kept.values(), *network.scratches]),
        Call("batchnorm.update_running", moved, kept.values(), updates=running.values(), once=True),
    ]


def dropout_options(layer: Layer) -> dict[str, object]:
    return {**layer.options, "seed": SEED, "layer": layer.number, "iteration": ITERATION}


def dropout_forward(network: Shared, layer: Layer) -> list[Call]:
    arguments = {"x": layer.x, "y": layer.y, **dropout_options(layer)}
    return [Call(f"{layer.kind}.forward", arguments, [layer.x], [layer.y])]


def _meeting_forward(network: Shared, layer: Layer) -> list[Call]:
    """All inputs → y: a concat or a join."""
    inputs = layer.inputs
    return [Call(f"{layer.kind}.forward", {"inputs": tuple(inputs), "y": layer.y}, inputs, [layer.y])]


def _fork_forward(network: Shared, layer: Layer) -> list[Call]:
    return [Call("join.fork_forward", {"x": layer.x, "ys": tuple(layer.outputs)}, [layer.x], layer.outputs)]


#: Kind → its calls; those of an element-wise kind follow from its record.
FORWARD: dict[str, Callable[[Shared, Layer], list[Call]]] = {
    "conv": _linear_forward, "fc": _linear_forward, "pool": pool_forward, "lrn": elementwise_forward,
    "batchnorm": _batchnorm_forward, "dropout": dropout_forward, "softmax": softmax_into,
    "concat": _meeting_forward, "join": _meeting_forward, "fork": _fork_forward,
}  # fmt: skip
