"""Logits in pieces: a language model's last product, its softmax and its loss by blocks of tokens.

The logits have a number for each word of the vocabulary and each token, and are the largest map of a language model.
Only the loss reads them, and the loss of a token needs that token's alone.  So the backward step of the last product
computes them for `TOKENS` tokens at a time, and from them the losses, dx and what these tokens add to dw; then the next
tokens' logits overwrite them.  Nothing is computed twice (`kernels.pieces`).  The forward steps of the product and of
the loss, and the loss's backward step, have no calls.

With plain kernels every sum has the order of the plain network, and so the same bits.  Fast kernels add up dw piece by
piece, which rounds it in another way.

This is the fused linear cross-entropy of Liger Kernel (Hsu and others, 2024).  "Cut your losses" (Wijmans and others,
2024) goes on to keep no piece of the logits in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from refimpl.network import calls
from refimpl.network.call import Call
from refimpl.network.calls import Backward, loss_weight, multiply_adds, weights_of, window_walk
from refimpl.network.later_calls import LOSSES
from refimpl.network.layer import Layer
from refimpl.network.network import Network
from refimpl.network.tensor import Tensor

ABOUT = "a language model's logits, losses and their gradients are computed for 512 tokens at a time"
LACKS = "1×1 convolution to more channels than it reads, for several windows, whose one reader is a pixel_softmax"
TOKENS = 512  #: of a piece, which are of one window, at most


def applies(network: Network) -> bool:
    return any(loss_of(layer) for layer in network.layers)


def loss_of(layer: Layer) -> Layer | None:
    """The loss of a layer whose output is computed in pieces; None: it is not."""
    options, alone = layer.options, {"window": (1, 1), "stride": (1, 1), "groups": 1}
    if layer.kind != "conv" or any(options[name] != one for name, one in alone.items()) or any(options["pad"]):
        return None
    ends = [reader for reader in layer.consumers if reader.kind == "pixel_softmax"]
    several = layer.shape[0] > 1 or prod(layer.shape[2:]) > TOKENS
    larger = several and layer.shape[1] > layer.producers[0].shape[1]
    return ends[0] if larger and len(layer.consumers) == 1 == len(ends) and not layer.has_relu else None


def without(layer: Layer) -> bool:
    """Whether a layer has no map, and no calls in its forward step: the product of logits, or their loss."""
    return any(map(loss_of, [layer, *layer.producers] if layer.kind == "pixel_softmax" else [layer]))


def inference(network: Network, loss: Layer) -> list[Call]:
    """The calls of the loss's step: its predictions are the softmax of all logits, in place."""
    head, y = loss.producers[0], network.output_of[loss].predictions
    given = {"x": head.x, **weights_of(head)}
    logits = {"b": None, **given, "y": y, **window_walk(head)}
    return [
        Call("conv.forward", logits, given.values(), [y], flops=multiply_adds(head)),
        Call("pixel_softmax.forward", {"x": y, "y": y}, updates=[y]),
        LOSSES[loss.kind](network, loss, y)[-1],
    ]


class PiecewiseBackward(Backward):
    """The losses and all gradients of the two layers in the step of the product."""

    def calls(self, layer: Layer) -> list[Call]:
        if loss := loss_of(layer):
            return self._learn(layer, loss)
        return [] if without(layer) else super().calls(layer)

    def _learn(self, layer: Layer, loss: Layer) -> list[Call]:
        output, x, weights = self.network.output_of[loss], layer.x, {"b": None, **weights_of(layer)}
        shape = 1, layer.shape[1], min(TOKENS, prod(layer.shape[2:])), 1
        piece = Tensor(f"piece of {layer.name}", shape, "gradient map", managed=True)
        self.managed.append(piece)
        filled: dict[str, Tensor | None] = {"dx": None, "dw": None, "db": None}
        then: list[Call] = []
        if layer.producers[0].learns:
            filled["dx"], then = self._into(layer, x)
        for name, parameter in layer.parameters.items():
            if not parameter.frozen:
                filled[f"d{name}"], more = self._into_gradient(layer, parameter)
                then += more
        given = {"x": x, **weights, "labels": output.labels, "losses": output.losses, "counted": output.counted}
        reads = [x, *(one for one in weights.values() if one), output.labels]
        writes = [one for one in (output.losses, output.counted, piece, *filled.values()) if one]
        arguments = {**given, "piece": piece, **filled, **loss.options, **loss_weight(loss)}
        timed = self._by_window(layer, loss, filled["dx"], filled["dw"])
        flops = sum(call.flops for call in timed)
        return [
            Call("pieces.learn", arguments, reads, writes, flops=flops, timed_as=timed),
            *then,
            *self._update(layer),
        ]

    def _by_window(self, layer: Layer, loss: Layer, dx: Tensor | None, dw: Tensor | None) -> list[Call]:
        """The calls of a network that has the logits of one window at a time, for a machine's model of time."""
        x, y, w, flops, walk = layer.x, layer.y, layer.parameters["w"].weight, multiply_adds(layer), window_walk(layer)
        output = self.network.output_of[loss]
        read = [one for one in (output.labels, output.counted) if one]
        made = [*calls.forward(self.network, layer), *LOSSES[loss.kind](self.network, loss, y)]
        made.append(Call("pixel_softmax.backward", {"dx": y}, read, updates=[y]))
        if dx:
            made.append(Call("conv.backward_data", {"dy": y, "w": w, "dx": dx, **walk}, [y, w], [dx], flops=flops))
        if dw:
            made.append(Call("conv.backward_filter", {"x": x, "dy": y, "dw": dw, **walk}, [x, y], [dw], flops=flops))
        windows = layer.shape[0]
        ones = {
            x: Tensor(x.name, (1, *x.shape[1:]), x.kind, dtype=x.dtype)
            for x in (x, y, dx, output.labels, output.losses)
            if x
        }
        return [of_a_window(call, ones, windows) for call in made] * windows


def of_a_window(call: Call, ones: Mapping[Tensor, Tensor], windows: int) -> Call:
    """The call on one of several windows; `ones`: tensor → one window's of it."""
    arguments = {name: ones.get(x, x) if isinstance(x, Tensor) else x for name, x in call.arguments.items()}
    reads, writes, updates = ([ones.get(x, x) for x in some] for some in (call.reads, call.writes, call.updates))
    return Call(call.function, arguments, reads, writes, updates, flops=call.flops // windows)


BACKWARD = PiecewiseBackward
