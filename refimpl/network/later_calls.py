"""The calls of the kinds of layer that no paper has, forward and backward.

| layer | forward | backward reads | its gradient map dx |
| --- | --- | --- | --- |
| conv_transpose | x, w, b → y | x, dy (not y) | new |
| upsample, channel_shuffle, permute_channels, take, pad | x → y | dy | new |
| prepend | x, w → y | dy | new |
| rotary | x → y, or in place | dy | in place on dy |
| attention | x or queries, keys and values → y | x, dy: its probabilities are computed again | one new an input |
| scores | x, queries and keys → y, probabilities | x, y, dy | new; dy is overwritten |
| mix | probabilities, values → y | both, dy | one new an input |
| layernorm, groupnorm, rmsnorm | x → y | x, dy (not y) | in place on dy |
| drop_path | x → y | dy; the mask follows from seed, layer and iteration | new |
| mul | x, gate → y | x, gate, dy | x's in place on dy, the gate's new |
| scale | x, w → y | x, dy | in place on dy |
| embedding | tokens, w → y | tokens, dy | none |
| position | x, w → y, or in place | dy | dy itself |
| pixel_softmax | x → y, or in place | y | in place on y |
| the other losses | x | x, the targets | new |
| element-wise kinds, by their records (`calls`) | x → y, or in place | x or y, dy | in place on dy |
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from refimpl.network.call import Call
from refimpl.network.calls import (
    Backward,
    Shared,
    dropout_forward,
    elementwise_forward,
    loss_weight,
    multiply_adds,
    weights_of,
    window_walk,
)
from refimpl.network.layer import Layer
from refimpl.network.tensor import Tensor


def _transposed_forward(network: Shared, layer: Layer) -> list[Call]:
    """The gradient of the data of a convolution that reads y and makes x; the bias comes after it."""
    x, y, weights = layer.x, layer.y, weights_of(layer)
    arguments = {"dy": x, "w": weights["w"], "dx": y, **window_walk(layer)}
    calls = [Call("conv.backward_data", arguments, [x, weights["w"]], [y], flops=multiply_adds(layer))]
    if "b" in weights:
        calls.append(Call("conv.add_bias", {"b": weights["b"], "y": y}, [weights["b"]], updates=[y]))
    return calls


def _given_forward(network: Shared, layer: Layer) -> list[Call]:
    """What it reads, learns and never changes → y, and what its backward reads beside maps."""
    given = {"tokens" if layer.kind == "embedding" else "x": layer.x, **weights_of(layer), **layer.constants}
    made = {"y": layer.y, **layer.kept}
    arguments = {**dict.fromkeys(NORMS.get(layer.kind, ())), **given, **made}
    if layer.kind in NORMS:
        arguments |= {name: layer.options[name] for name in ("groups", "epsilon") if name in layer.options}
    return [Call(f"{_family(layer)}.forward", arguments, given.values(), made.values())]


#: Normalisation → what it learns, if it does.
NORMS = {"layernorm": ("gamma", "beta"), "groupnorm": ("gamma", "beta"), "rmsnorm": ("gamma",)}


def _family(layer: Layer) -> str:
    """The kernels' family: that of group normalisation is layer normalisation's."""
    return "layernorm" if layer.kind == "groupnorm" else layer.kind


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


#: Kind → the `error` of `kernels.mean_loss`.
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


def _mul_forward(network: Shared, layer: Layer) -> list[Call]:
    x, gate = layer.inputs
    return [Call("mul.forward", {"x": x, "gate": gate, "y": layer.y}, [x, gate], [layer.y])]


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


def _position_forward(network: Shared, layer: Layer) -> list[Call]:
    x, y, w = layer.x, layer.y, layer.parameters["w"].weight
    arguments, (reads, writes, updates) = {"x": x, "w": w, "y": y}, ([w], [], [y]) if x is y else ([x, w], [y], [])
    return [Call("position.forward", arguments, reads, writes, updates)]


#: Kind of loss → its calls, which fill the losses and the given map.
LOSSES: dict[str, Callable[[Shared, Layer, Tensor], list[Call]]] = {
    "pixel_softmax": _pixel_softmax,
    "mean_squared_error": _mean_loss,
    "binary_cross_entropy": _mean_loss,
}

#: Kind → its calls.
FORWARD: dict[str, Callable[[Shared, Layer], list[Call]]] = {
    "conv_transpose": _transposed_forward,
    **dict.fromkeys(("upsample", "channel_shuffle", "take", "pad", "rotary"), elementwise_forward),
    **dict.fromkeys(("permute_channels", "prepend", "scale", "embedding", *NORMS), _given_forward),
    "drop_path": dropout_forward, "mul": _mul_forward, "attention": _attention_forward, "scores": _scores_forward,
    "mix": _mix_forward, "position": _position_forward,
}  # fmt: skip


def forward(network: Shared, layer: Layer) -> list[Call]:
    """The calls of a layer's forward step in training."""
    if layer.kind in LOSSES:
        return LOSSES[layer.kind](network, layer, layer.y)
    return FORWARD[layer.kind](network, layer)


# -- backward ----------------------------------------------------------------------------------------------------------


class LaterBackward(Backward):
    """Backward calls of a network with kinds that no paper has."""

    def _conv_transpose(self, layer: Layer) -> list[Call]:
        """Those of the convolution that reads dy and makes dx."""
        x, dy, w, flops = layer.x, self._dy(layer), layer.parameters["w"], multiply_adds(layer)
        walk = window_walk(layer)

        def to_data(dx: Tensor) -> Call:
            data = {"x": dy, "w": w.weight, "b": None, "y": dx, **walk}
            return Call("conv.forward", data, [dy, w.weight], [dx], flops=flops)

        def to_filter(dw: Tensor) -> Call:
            return Call("conv.backward_filter", {"x": dy, "dy": x, "dw": dw, **walk}, [dy, x], [dw], flops=flops)

        return self._product(layer, "conv", to_filter, to_data)

    def _moved(self, layer: Layer) -> list[Call]:
        """x's gradient from dy alone, in a map of its own, with the layer's options, or a table of them."""
        dy, tables = self._dy(layer), layer.constants
        dx, then = self._into(layer, layer.x)
        arguments = {"dy": dy, **tables, "dx": dx, **({} if tables else layer.options)}
        return [Call(f"{layer.kind}.backward", arguments, [dy, *tables.values()], [dx]), *then]

    _upsample = _channel_shuffle = _permute_channels = _take = _pad = _moved

    def _prepend(self, layer: Layer) -> list[Call]:
        dy, dw = self._dy(layer), layer.parameters["w"].gradient
        dx, then = self._into(layer, layer.x) if layer.producers[0].learns else (None, [])
        filled = [dw] if dx is None else [dx, dw]
        call = Call("prepend.backward", {"dy": dy, "dx": dx, "dw": dw}, [dy], filled)
        return [call, *then, *self._update(layer)]

    def _layernorm(self, layer: Layer) -> list[Call]:
        """In place on dy."""
        x, dy, learnt, options = layer.x, self._dy(layer), layer.parameters, layer.options
        given = {"x": x, **{name: learnt[name].weight for name in ("gamma",) if learnt}, **layer.kept}
        filled = {f"d{name}": parameter.gradient for name, parameter in learnt.items()}
        space = self.network.scratches if learnt else []
        how = {name: options[name] for name in ("groups",) if name in options}
        arguments = {"gamma": None, **given, "dy": dy, "dx": dy, **filled, **how}
        arguments |= {"workspace": self.network.scratch} if learnt else {}
        then = self._becomes(dy, x) if layer.producers[0].learns else []
        call = Call(f"{_family(layer)}.backward", arguments, given.values(), [*filled.values(), *space], [dy])
        return [call, *then, *self._update(layer)]

    _groupnorm = _rmsnorm = _layernorm

    def _rotary(self, layer: Layer) -> list[Call]:
        dy = self._dy(layer)
        call = Call("rotary.backward", {"dy": dy, "dx": dy, **layer.options}, updates=[dy])
        return [call, *([] if layer.in_place else self._becomes(dy, layer.x))]

    _drop_path = Backward._dropout

    def _pixel_softmax(self, layer: Layer) -> list[Call]:
        """The gradient overwrites the probabilities, which may have overwritten the logits."""
        y, output = layer.y, self.network.output_of[layer]
        arguments = {"y": y, "labels": output.labels, "counted": output.counted, "dx": y, **layer.options}
        reads = [tensor for tensor in (output.labels, output.counted) if tensor]
        call = Call("pixel_softmax.backward", arguments | loss_weight(layer), reads, updates=[y])
        return [call, *self._becomes(y, layer.x)]

    def _mean_loss(self, layer: Layer) -> list[Call]:
        x, targets = layer.x, self.network.output_of[layer].labels
        dx, then = self._into(layer, x)
        arguments = {"x": x, "targets": targets, "dx": dx, "error": ERRORS[layer.kind], **loss_weight(layer)}
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
