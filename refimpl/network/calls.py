"""The calls of each kind of layer, forward and backward, and so the tensors that it reads, writes and updates.

| layer | forward | backward reads | its gradient map dx |
| --- | --- | --- | --- |
| conv, conv_transpose, fc | x, w, b → y | x, dy (not y) | new |
| pool | x → y | x, y, dy | new |
| upsample, channel_shuffle, permute_channels, take, pad | x → y | dy | new |
| prepend | x, w → y | dy | new |
| relu and other element-wise kinds | x → y, or in place | x or y, dy | in place on dy |
| lrn | x → y | x, dy | in place on dy |
| batchnorm | x → y | x, dy (not y) | new |
| rotary | x → y, or in place | dy | in place on dy |
| attention | x or queries, keys and values → y | x, dy: its probabilities are computed again | one new an input |
| scores | x, queries and keys → y, probabilities | x, y, dy | new; dy is overwritten |
| mix | probabilities, values → y | both, dy | one new an input |
| layernorm, groupnorm, rmsnorm | x → y | x, dy (not y) | in place on dy |
| dropout, drop_path | x → y | dy; the mask follows from seed, layer and iteration | new |
| softmax | x → y, or in place | y | in place on y; new if forward was in place |
| mul | x, gate → y | x, gate, dy | x's in place on dy, the gate's new |
| scale | x, w → y | x, dy | in place on dy |
| embedding | tokens, w → y | tokens, dy | none |
| position | x, w → y, or in place | dy | dy itself |
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
    made = _elementwise_forward if layer.traits.elementwise else FORWARD[layer.kind]
    return made(network, layer)


def inference(network: Shared, layer: Layer) -> list[Call]:
    """The calls of a layer's forward step in inference.

    It uses the running statistics and no dropout; a loss fills its output's predictions, which are resident.
    """
    if layer.kind == "batchnorm":
        given = {"x": layer.x, **_weights(layer)}
        given |= {name: layer.statistics[name] for name in ("running_mean", "running_variance")}
        arguments = {**given, "y": layer.y, "epsilon": layer.options["epsilon"]}
        return [Call("batchnorm.inference", arguments, given.values(), [layer.y])]
    if layer.kind in ("dropout", "drop_path"):
        return [Call("elementwise.copy", {"x": layer.x, "y": layer.y}, [layer.x], [layer.y])]
    if layer.traits.work == "loss":
        return LOSSES[layer.kind](network, layer, network.output_of[layer].predictions)
    return forward(network, layer)


# -- forward -----------------------------------------------------------------------------------------------------------


def _weights(layer: Layer) -> dict[str, Tensor]:
    return {name: parameter.weight for name, parameter in layer.parameters.items()}


def _multiply_adds(layer: Layer) -> int:
    """Floating-point operations of one pass of a convolution or a fully connected layer, the direct way."""
    results = layer.x.shape if layer.kind == "conv_transpose" else layer.shape
    return 2 * prod(results) * prod(layer.parameters["w"].weight.shape[1:])


def _window_walk(layer: Layer) -> dict[str, tuple[int, ...]]:
    """Stride, padding and, if there is one, dilation of a convolution; a fully connected layer has none."""
    if layer.kind == "fc":
        return {}
    dilated = () if layer.options["dilation"] == (1, 1) else ("dilation",)
    return {name: layer.options[name] for name in ("stride", "pad", *dilated)}


def _linear_forward(network: Shared, layer: Layer) -> list[Call]:
    given = {"x": layer.x, **_weights(layer)}
    arguments = {"b": None, **given, "y": layer.y, **_window_walk(layer)}
    flops = _multiply_adds(layer)
    return [Call(f"{layer.kind}.forward", arguments, given.values(), [layer.y], flops=flops), *_fused(layer)]


def _transposed_forward(network: Shared, layer: Layer) -> list[Call]:
    """The gradient of the data of a convolution that reads y and makes x; the bias comes after it."""
    x, y, weights = layer.x, layer.y, _weights(layer)
    arguments = {"dy": x, "w": weights["w"], "dx": y, **_window_walk(layer)}
    calls = [Call("conv.backward_data", arguments, [x, weights["w"]], [y], flops=_multiply_adds(layer))]
    if "b" in weights:
        calls.append(Call("conv.add_bias", {"b": weights["b"], "y": y}, [weights["b"]], updates=[y]))
    return calls


def _fused(layer: Layer) -> list[Call]:
    """The ReLU that is part of a layer."""
    y = layer.y
    return [Call("relu.forward", {"x": y, "y": y, **layer.relu_options}, updates=[y])] if layer.has_relu else []


def _elementwise_forward(network: Shared, layer: Layer) -> list[Call]:
    """x → y with the layer's own options."""
    x, y = layer.x, layer.y
    function, arguments = f"{layer.kind}.forward", {"x": x, "y": y, **layer.options}
    return [Call(function, arguments, updates=[y]) if x is y else Call(function, arguments, [x], [y])]


def _pool_forward(network: Shared, layer: Layer) -> list[Call]:
    arguments = {"x": layer.x, "y": layer.y, **layer.options}
    return [Call(f"pool.{_pooling(layer, 'forward')}", arguments, [layer.x], [layer.y])]


def _pooling(layer: Layer, direction: str) -> str:
    """The function of `kernels.fast.pool`: by windows of one size, or to maps of a given size."""
    return f"{direction}_to" if "out" in layer.options else direction


def _batchnorm_forward(network: Shared, layer: Layer) -> list[Call]:
    kept = {name: layer.statistics[name] for name in ("mean", "inverse_std")}
    running = {name: layer.statistics[name] for name in ("running_mean", "running_variance")}
    given = {"x": layer.x, **_weights(layer)}
    epsilon = layer.options["epsilon"]
    arguments = {**given, "y": layer.y, **kept, "epsilon": epsilon, "workspace": network.scratch}
    count = layer.x.nbytes // 4 // layer.x.shape[1]
    moved = {**kept, **running, "count": count, "momentum": layer.options["momentum"], "epsilon": epsilon}
    return [
        Call("batchnorm.forward", arguments, given.values(), [layer.y, *kept.values(), *network.scratches]),
        Call("batchnorm.update_running", moved, kept.values(), updates=running.values(), once=True),
    ]


def _of_sets(layer: Layer) -> dict[str, int]:
    """What layer normalisation has not, and group normalisation has."""
    return {name: layer.options[name] for name in ("groups",) if name in layer.options}


def _layernorm_forward(network: Shared, layer: Layer) -> list[Call]:
    given = {"x": layer.x, **_weights(layer)}
    how = {**_of_sets(layer), "epsilon": layer.options["epsilon"]}
    arguments = {"gamma": None, "beta": None, **given, "y": layer.y, **layer.kept, **how}
    return [Call("layernorm.forward", arguments, given.values(), [layer.y, *layer.kept.values()])]


def _rmsnorm_forward(network: Shared, layer: Layer) -> list[Call]:
    given = {"x": layer.x, **_weights(layer)}
    arguments = {"gamma": None, **given, "y": layer.y, **layer.kept, "epsilon": layer.options["epsilon"]}
    return [Call("rmsnorm.forward", arguments, given.values(), [layer.y, *layer.kept.values()])]


def _dropout_options(layer: Layer) -> dict[str, object]:
    return {**layer.options, "seed": SEED, "layer": layer.number, "iteration": ITERATION}


def _dropout_forward(network: Shared, layer: Layer) -> list[Call]:
    arguments = {"x": layer.x, "y": layer.y, **_dropout_options(layer)}
    return [Call(f"{layer.kind}.forward", arguments, [layer.x], [layer.y])]


def _loss_forward(network: Shared, layer: Layer) -> list[Call]:
    return LOSSES[layer.kind](network, layer, layer.y)


def _softmax(network: Shared, layer: Layer, y: Tensor) -> list[Call]:
    x, labels, losses = layer.x, network.output_of[layer].labels, network.output_of[layer].losses
    arguments = {"x": x, "y": y}
    return [
        Call("softmax.forward", arguments, updates=[y]) if x is y else Call("softmax.forward", arguments, [x], [y]),
        Call("softmax.cross_entropy", {"y": y, "labels": labels, "losses": losses}, [y, labels], [losses]),
    ]


def _pixel_softmax(network: Shared, layer: Layer, y: Tensor) -> list[Call]:
    x, output = layer.x, network.output_of[layer]
    filled = {"losses": output.losses, "counted": output.counted}
    shares = {"x": x, "y": y}
    arguments = {"y": y, "labels": output.labels, **filled, **layer.options, "workspace": network.scratch}
    writes = [tensor for tensor in (*filled.values(), *network.scratches) if tensor]
    return [
        Call("pixel_softmax.forward", shares, updates=[y])
        if x is y
        else Call("pixel_softmax.forward", shares, [x], [y]),
        Call("pixel_softmax.cross_entropy", arguments, [y, output.labels], writes),
    ]


#: Kind → the `error` of `kernels.fast.mean_loss`.
ERRORS = {"mean_squared_error": "squared", "binary_cross_entropy": "binary"}


def _mean_loss(network: Shared, layer: Layer, y: Tensor) -> list[Call]:
    """In training y is x: there is nothing to compute but the losses."""
    x, output = layer.x, network.output_of[layer]
    arguments = {"x": x, "targets": output.labels, "losses": output.losses, "error": ERRORS[layer.kind]}
    predicting = "mean_loss.sigmoid" if output.loss.shares else "elementwise.copy"
    return [
        *([] if y is x else [Call(predicting, {"x": x, "y": y}, [x], [y])]),
        Call(
            "mean_loss.forward", arguments | {"workspace": network.scratch},
            [x, output.labels], [output.losses, *network.scratches],
        ),
    ]  # fmt: skip


#: Kind of loss → its calls, which fill the losses and the given map.
LOSSES: dict[str, Callable[[Shared, Layer, Tensor], list[Call]]] = {
    "softmax": _softmax, "pixel_softmax": _pixel_softmax, "mean_squared_error": _mean_loss,
    "binary_cross_entropy": _mean_loss,
}  # fmt: skip


def _meeting_forward(network: Shared, layer: Layer) -> list[Call]:
    """All inputs → y: a concat or a join."""
    inputs = layer.inputs
    return [Call(f"{layer.kind}.forward", {"inputs": tuple(inputs), "y": layer.y}, inputs, [layer.y])]


def _mul_forward(network: Shared, layer: Layer) -> list[Call]:
    x, gate = layer.inputs
    return [Call("mul.forward", {"x": x, "gate": gate, "y": layer.y}, [x, gate], [layer.y])]


def _scale_forward(network: Shared, layer: Layer) -> list[Call]:
    given = {"x": layer.x, **_weights(layer)}
    return [Call("scale.forward", {**given, "y": layer.y}, given.values(), [layer.y])]


def _attention_forward(network: Shared, layer: Layer) -> list[Call]:
    """The probabilities are workspace, of which a plan chooses how much."""
    arguments = {"inputs": tuple(layer.inputs), "y": layer.y, **layer.options}
    return [Call("attention.forward", arguments, layer.inputs, [layer.y], flops=_attention_flops(layer, 2))]


def _attention_flops(layer: Layer, products: int) -> int:
    """Floating-point operations of `products` over all pairs of a query and a key that it sees."""
    queries, keys = prod(layer.shape[2:]), prod(layer.inputs[-1].shape[2:])
    pairs = queries * (queries + 1) // 2 if layer.options["causal"] else queries * keys
    return products * 2 * prod(layer.shape[:2]) * pairs


def _scores_forward(network: Shared, layer: Layer) -> list[Call]:
    """The products, then the softmax of their rows: two passes over the map, and so two calls."""
    x, y, options = layer.x, layer.y, layer.options
    products = Call("scores.forward", {"x": x, "y": y, **options}, [x], [y], flops=_pair_flops(layer, y, x.shape[1]))
    return [products, Call("scores.softmax", {"y": y, "causal": options["causal"]}, updates=[y])]


def _mix_forward(network: Shared, layer: Layer) -> list[Call]:
    p, x = layer.inputs
    arguments = {"p": p, "x": x, "y": layer.y, **layer.options}
    return [Call("mix.forward", arguments, [p, x], [layer.y], flops=_pair_flops(layer, p, 2 * x.shape[1]))]


def _pair_flops(layer: Layer, p: Tensor, each: int) -> int:
    """Floating-point operations: `each` for all heads of a query and a key that it sees."""
    images, _, queries, keys = p.shape
    return each * images * (queries * (queries + 1) // 2 if layer.options["causal"] else queries * keys)


def _permute_channels_forward(network: Shared, layer: Layer) -> list[Call]:
    order = layer.constants["order"]
    arguments = {"x": layer.x, "order": order, "y": layer.y}
    return [Call("permute_channels.forward", arguments, [layer.x, order], [layer.y])]


def _prepend_forward(network: Shared, layer: Layer) -> list[Call]:
    given = {"x": layer.x, **_weights(layer)}
    return [Call("prepend.forward", {**given, "y": layer.y}, given.values(), [layer.y])]


def _embedding_forward(network: Shared, layer: Layer) -> list[Call]:
    given = {"tokens": layer.x, **_weights(layer)}
    return [Call("embedding.forward", {**given, "y": layer.y}, given.values(), [layer.y])]


def _position_forward(network: Shared, layer: Layer) -> list[Call]:
    x, y, w = layer.x, layer.y, layer.parameters["w"].weight
    arguments, (reads, writes, updates) = {"x": x, "w": w, "y": y}, ([w], [], [y]) if x is y else ([x, w], [y], [])
    return [Call("position.forward", arguments, reads, writes, updates)]


def _fork_forward(network: Shared, layer: Layer) -> list[Call]:
    return [Call("join.fork_forward", {"x": layer.x, "ys": tuple(layer.outputs)}, [layer.x], layer.outputs)]


#: Kind → its calls; those of an element-wise kind follow from its record.
FORWARD: dict[str, Callable[[Shared, Layer], list[Call]]] = {
    "conv": _linear_forward, "fc": _linear_forward, "conv_transpose": _transposed_forward,
    "pool": _pool_forward, "lrn": _elementwise_forward,
    **dict.fromkeys(("upsample", "channel_shuffle", "take", "pad", "rotary"), _elementwise_forward),
    "permute_channels": _permute_channels_forward, "prepend": _prepend_forward, "drop_path": _dropout_forward,
    "batchnorm": _batchnorm_forward, "layernorm": _layernorm_forward, "groupnorm": _layernorm_forward,
    "rmsnorm": _rmsnorm_forward,
    "dropout": _dropout_forward, **dict.fromkeys(LOSSES, _loss_forward), "mul": _mul_forward, "scale": _scale_forward,
    "concat": _meeting_forward, "join": _meeting_forward, "fork": _fork_forward, "attention": _attention_forward,
    "scores": _scores_forward, "mix": _mix_forward,
    "embedding": _embedding_forward, "position": _position_forward,
}  # fmt: skip


def _loss_weight(layer: Layer) -> dict[str, float]:
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
        so_far = self.gradients.get(x)
        if so_far is None:
            self.gradients[x] = dy
            return []
        return [self._add(so_far, dy)]

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

    def _update(self, layer: Layer) -> list[Call]:
        """The optimiser's calls for the weights whose gradients this step has finished."""
        trained = [p for p in layer.parameters.values() if not p.frozen and self._is_finished(p)]
        if self.network.learning.clip is not None:
            self.clipped += trained
            return []
        return [applied(self.network.learning, parameter) for parameter in trained]

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

    def _linear(self, layer: Layer) -> list[Call]:
        """A convolution or a fully connected layer."""
        kind, x, dy, w, flops = layer.kind, layer.x, self._dy(layer), layer.parameters["w"], _multiply_adds(layer)
        walk = _window_walk(layer)
        held = [layer.y] if self.network.conventions.holds_outputs else []

        def to_data(dx: Tensor) -> Call:
            data = {"dy": dy, "w": w.weight, "dx": dx, **walk}
            return Call(f"{kind}.backward_data", data, [dy, w.weight], [dx], flops=flops)

        def to_filter(dw: Tensor) -> Call:
            filter_ = {"x": x, "dy": dy, "dw": dw, **walk}
            return Call(f"{kind}.backward_filter", filter_, [x, dy, *held], [dw], flops=flops)

        return self._product(layer, kind, to_filter, to_data)

    _conv = _fc = _linear

    def _conv_transpose(self, layer: Layer) -> list[Call]:
        """Those of the convolution that reads dy and makes dx."""
        x, dy, w, flops = layer.x, self._dy(layer), layer.parameters["w"], _multiply_adds(layer)
        walk = _window_walk(layer)

        def to_data(dx: Tensor) -> Call:
            data = {"x": dy, "w": w.weight, "b": None, "y": dx, **walk}
            return Call("conv.forward", data, [dy, w.weight], [dx], flops=flops)

        def to_filter(dw: Tensor) -> Call:
            return Call("conv.backward_filter", {"x": dy, "dy": x, "dw": dw, **walk}, [dy, x], [dw], flops=flops)

        return self._product(layer, "conv", to_filter, to_data)

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

    def _pool(self, layer: Layer) -> list[Call]:
        x, y, dy = layer.x, layer.y, self._dy(layer)
        dx, then = self._into(layer, x)
        arguments = {"x": x, "y": y, "dy": dy, "dx": dx, **layer.options}
        return [Call(f"pool.{_pooling(layer, 'backward')}", arguments, [x, y, dy], [dx]), *then]

    def _moved(self, layer: Layer) -> list[Call]:
        """x's gradient from dy alone, in a map of its own, with the layer's options."""
        dy = self._dy(layer)
        dx, then = self._into(layer, layer.x)
        return [Call(f"{layer.kind}.backward", {"dy": dy, "dx": dx, **layer.options}, [dy], [dx]), *then]

    _upsample = _channel_shuffle = _take = _pad = _moved

    def _permute_channels(self, layer: Layer) -> list[Call]:
        dy, order = self._dy(layer), layer.constants["order"]
        dx, then = self._into(layer, layer.x)
        arguments = {"dy": dy, "order": order, "dx": dx}
        return [Call("permute_channels.backward", arguments, [dy, order], [dx]), *then]

    def _prepend(self, layer: Layer) -> list[Call]:
        dy, dw = self._dy(layer), layer.parameters["w"].gradient
        dx, then = self._into(layer, layer.x) if layer.producers[0].learns else (None, [])
        filled = [dw] if dx is None else [dx, dw]
        call = Call("prepend.backward", {"dy": dy, "dx": dx, "dw": dw}, [dy], filled)
        return [call, *then, *self._update(layer)]

    def _lrn(self, layer: Layer) -> list[Call]:
        x, dy = layer.x, self._dy(layer)
        arguments = {"x": x, "y": None, "dy": dy, "dx": dy, **layer.options}
        return [Call("lrn.backward", arguments, [x, *self._held(layer.y)], updates=[dy]), *self._becomes(dy, x)]

    def _batchnorm(self, layer: Layer) -> list[Call]:
        x, dy, gamma, beta = layer.x, self._dy(layer), layer.parameters["gamma"], layer.parameters["beta"]
        kept = {name: layer.statistics[name] for name in ("mean", "inverse_std")}
        given = {"x": x, "gamma": gamma.weight, **kept, "dy": dy}
        filled = {"dgamma": gamma.gradient, "dbeta": beta.gradient}
        # The kernels always compute dx: if it is not needed, it overwrites dy.
        dx, then = self._into(layer, x) if layer.producers[0].learns else (dy, [])
        arguments = {**given, **filled, "dx": dx, "workspace": self.network.scratch}
        writes = [*([] if dx is dy else [dx]), *filled.values(), *self.network.scratches]
        updates = [dy] if dx is dy else []
        reads = [tensor for tensor in given.values() if tensor not in updates]
        return [Call("batchnorm.backward", arguments, reads, writes, updates), *then, *self._update(layer)]

    def _layernorm(self, layer: Layer) -> list[Call]:
        """In place on dy."""
        return self._normalised(layer, "layernorm.backward", _of_sets(layer))

    _groupnorm = _layernorm

    def _rmsnorm(self, layer: Layer) -> list[Call]:
        return self._normalised(layer, "rmsnorm.backward", {})

    def _normalised(self, layer: Layer, function: str, options: dict[str, int]) -> list[Call]:
        x, dy, learnt = layer.x, self._dy(layer), layer.parameters
        given = {"x": x, **{name: learnt[name].weight for name in ("gamma",) if learnt}, **layer.kept}
        filled = {f"d{name}": parameter.gradient for name, parameter in learnt.items()}
        space = self.network.scratches if learnt else []
        arguments = {"gamma": None, **given, "dy": dy, "dx": dy, **filled, **options}
        arguments |= {"workspace": self.network.scratch} if learnt else {}
        then = self._becomes(dy, x) if layer.producers[0].learns else []
        call = Call(function, arguments, given.values(), [*filled.values(), *space], [dy])
        return [call, *then, *self._update(layer)]

    def _rotary(self, layer: Layer) -> list[Call]:
        dy = self._dy(layer)
        call = Call("rotary.backward", {"dy": dy, "dx": dy, **layer.options}, updates=[dy])
        return [call, *([] if layer.in_place else self._becomes(dy, layer.x))]

    def _dropout(self, layer: Layer) -> list[Call]:
        x, dy = layer.x, self._dy(layer)
        dx, then = self._into(layer, x)
        arguments = {"dy": dy, "dx": dx, **_dropout_options(layer)}
        return [Call(f"{layer.kind}.backward", arguments, [dy], [dx]), *then]

    _drop_path = _dropout

    def _softmax(self, layer: Layer) -> list[Call]:
        y, labels, weight = layer.y, self.network.output_of[layer].labels, _loss_weight(layer)
        if layer.in_place:
            dx, then = self._into(layer, y)
            return [Call("softmax.backward", {"y": y, "labels": labels, "dx": dx, **weight}, [y, labels], [dx]), *then]
        arguments = {"y": y, "labels": labels, "dx": y, **weight}
        call = Call("softmax.backward", arguments, [*self._held(layer.x), labels], updates=[y])
        return [call, *self._becomes(y, layer.x)]

    def _pixel_softmax(self, layer: Layer) -> list[Call]:
        """The gradient overwrites the probabilities, which may have overwritten the logits."""
        y, output = layer.y, self.network.output_of[layer]
        arguments = {"y": y, "labels": output.labels, "counted": output.counted, "dx": y, **layer.options}
        reads = [tensor for tensor in (output.labels, output.counted) if tensor]
        call = Call("pixel_softmax.backward", arguments | _loss_weight(layer), reads, updates=[y])
        return [call, *self._becomes(y, layer.x)]

    def _mean_loss(self, layer: Layer) -> list[Call]:
        x, targets = layer.x, self.network.output_of[layer].labels
        dx, then = self._into(layer, x)
        arguments = {"x": x, "targets": targets, "dx": dx, "error": ERRORS[layer.kind], **_loss_weight(layer)}
        return [Call("mean_loss.backward", arguments, [x, targets], [dx]), *then]

    _mean_squared_error = _binary_cross_entropy = _mean_loss

    def _mul(self, layer: Layer) -> list[Call]:
        """Both gradients are computed, needed or not: one kernel reads dy for both."""
        (x, gate), dy = layer.inputs, self._dy(layer)
        dgate, then = self._into(layer, gate)
        arguments = {"x": x, "gate": gate, "dy": dy, "dx": dy, "dgate": dgate}
        return [Call("mul.backward", arguments, [x, gate], [dgate], updates=[dy]), *then, *self._becomes(dy, x)]

    def _scale(self, layer: Layer) -> list[Call]:
        x, dy, w = layer.x, self._dy(layer), layer.parameters["w"]
        arguments = {"x": x, "w": w.weight, "dy": dy, "dx": dy, "dw": w.gradient, "workspace": self.network.scratch}
        writes = [w.gradient, *self.network.scratches]
        call = Call("scale.backward", arguments, [x, w.weight], writes, updates=[dy])
        return [call, *self._becomes(dy, x), *self._update(layer)]

    def _embedding(self, layer: Layer) -> list[Call]:
        """The gradient of its table, which that of a layer after it may be in already: the shared one's."""
        tokens, dy, w = layer.x, self._dy(layer), layer.parameters["w"]
        if w.frozen:
            return []
        added = self.parts[w] > 0
        arguments = {"tokens": tokens, "dy": dy, "dw": w.gradient, "added": added, "workspace": self.network.scratch}
        arguments |= {name: layer.options[name] for name in ("padding",) if name in layer.options}
        writes = [*([] if added else [w.gradient]), *self.network.scratches]
        call = Call("embedding.backward", arguments, [tokens, dy], writes, [w.gradient] if added else [])
        return [call, *self._update(layer)]

    def _position(self, layer: Layer) -> list[Call]:
        """The gradient of x is dy itself."""
        dy, w, calls = self._dy(layer), layer.parameters["w"], []
        if not w.frozen:
            calls = [Call("position.backward", {"dy": dy, "dw": w.gradient}, [dy], [w.gradient])]
        passed_on = layer.producers[0].learns and not layer.in_place
        return calls + (self._becomes(dy, layer.x) if passed_on else []) + self._update(layer)

    def _concat(self, layer: Layer) -> list[Call]:
        """Every input's gradient is computed, needed or not: the kernels split dy as a whole."""
        dy = self._dy(layer)
        filled = [self._into(layer, x) for x in layer.inputs]
        dxs = tuple(dx for dx, _ in filled)
        sums = [call for _, then in filled for call in then]
        return [Call("concat.backward", {"dy": dy, "dxs": dxs}, [dy], dxs), *sums]

    def _attention(self, layer: Layer) -> list[Call]:
        """Every input's gradient is computed, needed or not."""
        dy, inputs = self._dy(layer), layer.inputs
        filled = [self._into(layer, x) for x in inputs]
        dxs = tuple(dx for dx, _ in filled)
        arguments = {"inputs": tuple(inputs), "dy": dy, "dxs": dxs, **layer.options}
        call = Call("attention.backward", arguments, [*inputs, dy], dxs, flops=_attention_flops(layer, 5))
        return [call, *(one for _, then in filled for one in then)]

    def _scores(self, layer: Layer) -> list[Call]:
        """The gradient of the probabilities becomes that of the scores in place."""
        x, y, dy, options = layer.x, layer.y, self._dy(layer), layer.options
        dx, then = self._into(layer, x)
        rows = {"y": y, "dy": dy, "causal": options["causal"]}
        arguments, flops = {"x": x, "dy": dy, "dx": dx, **options}, _pair_flops(layer, y, 2 * x.shape[1])
        made = Call("scores.backward", arguments, [x, dy], [dx], flops=flops)
        return [Call("scores.softmax_backward", rows, [y], updates=[dy]), made, *then]

    def _mix(self, layer: Layer) -> list[Call]:
        """Both gradients are computed, needed or not."""
        (p, x), dy = layer.inputs, self._dy(layer)
        (dp, p_then), (dx, x_then) = self._into(layer, p), self._into(layer, x)
        arguments = {"p": p, "x": x, "dy": dy, "dp": dp, "dx": dx, **layer.options}
        call = Call("mix.backward", arguments, [p, x, dy], [dp, dx], flops=_pair_flops(layer, p, 4 * x.shape[1]))
        return [call, *p_then, *x_then]

    def _join(self, layer: Layer) -> list[Call]:
        dy = self._dy(layer)
        first, *others = (p.output_for(layer) for p in layer.producers if p.learns)
        started = [self.gradients[x] for x in others if x in self.gradients]
        fresh = [self._into(layer, x)[0] for x in others if x not in self.gradients]
        calls = [Call("join.backward", {"dy": dy, "dxs": tuple(fresh)}, [dy], fresh)] if fresh else []
        calls += [self._add(total, dy) for total in started]
        return calls + self._becomes(dy, first)  # last: from here on dy is another map's

    def _fork(self, layer: Layer) -> list[Call]:
        first, *others = (self.gradients[y] for y in layer.outputs)
        calls = [Call("join.fork_backward", {"dys": (first, *others), "dx": first}, others, updates=[first])]
        return calls + self._becomes(first, layer.x)
