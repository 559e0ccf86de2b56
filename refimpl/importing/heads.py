"""What reads heads of tokens: attention, and the rotary positions of queries and keys.

A head is a part of a layer's channels, in any order: the arrangement says which channel is number d of head h.  The
layers want the channels in an order of their own.  A linear layer that nothing else reads gets the rows of its weight
in that order, and trained ones go back to theirs; any other layer gets one after it that brings its channels there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from refimpl.importing.arrangement import CHANNEL, IMAGE, POSITION, Arrangement, Factor
from refimpl.importing.nodes import Made, Node, Value
from refimpl.network.layer import Layer, NetworkError


def _ordered(made: Made, node: Node, layer: Layer, order: np.ndarray, name: str = "order") -> Layer:
    """The channels of a layer in this order, each at most once."""
    channels = np.arange(layer.shape[1])
    if np.array_equal(order, channels):
        return layer
    if len(set(order.tolist())) < len(order):
        raise NetworkError(f"{node.name}: queries, keys and values that share channels are not supported")
    if len(order) < len(channels):
        start = int(order[0])
        if not np.array_equal(order, np.arange(start, start + len(order))):
            others = np.setdiff1d(channels, order)
            layer = made.b.permute_channels(
                [*order.tolist(), *others.tolist()], name=f"{node.name}.{name}.order", after=layer
            )
            start = 0
        return made.b.take(len(order), start, name=f"{node.name}.{name}", after=layer)
    maker = made.nodes.get(layer)
    if (
        maker is None
        or maker.operation not in ("linear", "conv")
        or maker.attributes.get("groups", 1) != 1
        or made.readers[maker.name] != {node.name}
    ):
        return made.b.permute_channels(order.tolist(), name=f"{node.name}.{name}", after=layer)
    for kind, weight in maker.weights.items():
        maker.weights[kind] = weight.in_order(0, order)
    return layer


def _of_heads(made: Made, node: Node, value: Value, transposed: bool = False) -> Arrangement:
    """Images × heads × tokens × channels of a head."""
    places = value.places
    if len(places.axes) == 3:  # images and heads are one axis
        places = places.reshaped((made.images, places.shape[0] // made.images, *places.shape[1:]))
    if transposed:
        places = places.permuted((0, 1, 3, 2))
    if len(places.axes) == 4:  # a key that several heads share
        places = places.with_axis(1, *(factor for factor in places.axes[1] if factor.step))
    tokens = prod(value.layer.shape[2:])
    if (
        len(places.axes) != 4
        or not places.in_order(IMAGE, made.images, [0])
        or not places.in_order(POSITION, tokens, [2])
        or [places.runs_through(axis) - {of} for axis, of in enumerate((IMAGE, CHANNEL, POSITION, CHANNEL))]
        != [set(), set(), set(), set()]
    ):
        raise NetworkError(
            f"{node.name}: queries, keys and values are supported as images × heads × tokens × channels of a head"
        )
    return places


def _split(made: Made, value: Value, heads: int) -> Value:
    """(images, tokens, channels) as images × heads × tokens × channels of a head."""
    places = value.places
    _, tokens, channels = places.shape
    places = places.reshaped((made.images, tokens, heads, channels // heads)).permuted((0, 2, 1, 3))
    return value._replace(places=places)


def _head_by_head(places: Arrangement, axis: int, heads: int, width: int) -> Arrangement:
    """The same axes, of a layer whose channels are in the order of the heads."""
    places = places.with_axis(axis, Factor(CHANNEL, heads, width)).with_axis(3, Factor(CHANNEL, width, 1))
    return places.begun(CHANNEL)


def rotary(made: Made, node: Node, inputs: Sequence[Value]) -> Value:
    """Of queries or keys, their tokens being the second or third axis."""
    (value,), attributes = inputs, dict(node.attributes)
    swapped = attributes.pop("tokens") == 1
    given = value._replace(places=value.places.permuted((0, 2, 1, 3))) if swapped else value
    places = _of_heads(made, node, given)
    heads, width = places.shape[1], places.shape[3]
    layer = _ordered(made, node, value.layer, places.numbers([1, 3], channel=1))
    layer = made.b.rotary(heads, packed=False, name=node.name, after=layer, **attributes)
    return Value(layer, _head_by_head(value.places, 2 if swapped else 1, heads, width))


def attention(made: Made, node: Node, inputs: Sequence[Value]) -> Value:
    """Of queries, keys and values in the order (images, heads, tokens, channels of a head)."""
    transposed = node.attributes.get("transposed", False)
    if packed := node.attributes.get("packed"):
        inputs = [_split(made, value, packed[place > 0]) for place, value in enumerate(inputs)]
    arranged = [_of_heads(made, node, value, transposed and place == 1) for place, value in enumerate(inputs)]
    heads = [places.shape[1] for places in arranged]
    channels = [places.numbers([1, 3], channel=1) for places in arranged]
    width = len(channels[0]) // heads[0]
    scale, given = node.attributes.get("scale"), prod(value.times for value in inputs)
    found = given * (width**-0.5 if scale is None else scale)
    if abs(found * width**0.5 - 1) > 1e-5 or inputs[2].times != 1:
        raise NetworkError(
            f"{node.name}: attention with scale={found:.6g} is not supported, only 1 over the root of a head's channels"
        )
    queries, keys, values = (value.layer for value in inputs)
    how: dict[str, Any] = {"causal": node.attributes["causal"], "name": node.name}
    how |= {} if heads[0] == heads[1] else {"kv_heads": heads[1]}
    whole = len(set(np.concatenate(channels).tolist())) == queries.shape[1]
    if queries is keys is values and whole:
        groups = [part.reshape(heads[1], -1) for part in channels]
        order = np.concatenate(groups, 1).reshape(-1)
        layer = made.b.attention(heads[0], after=_ordered(made, node, queries, order), **how)
    else:
        parts = _three(made, node, (queries, keys, values), channels)
        layer = made.b.attention(heads[0], after=parts[0], keys=parts[1], values=parts[2], **how)
    places = _head_by_head(arranged[0], 1, heads[0], width)
    if packed:
        places = places.permuted((0, 2, 1, 3))
    return Value(layer, places.reshaped(node.shape))


def _three(made: Made, node: Node, layers: Sequence[Layer], channels: Sequence[np.ndarray]) -> list[Layer]:
    """A layer each for queries, keys and values, which may be parts of fewer."""
    parts: dict[int, Layer] = {}
    names = "queries", "keys", "values"
    for one in dict.fromkeys(layers):
        its = [place for place in range(3) if layers[place] is one]
        order = np.concatenate([channels[place] for place in its])
        together = len(its) > 1 and len(order) == one.shape[1]
        whole = _ordered(made, node, one, order) if together else one
        start = 0
        for place in its:
            size = len(channels[place])
            if together:
                parts[place] = made.b.take(size, start, name=f"{node.name}.{names[place]}", after=whole)
            else:
                parts[place] = _ordered(made, node, one, channels[place], names[place])
            start += size
    return [parts[place] for place in range(3)]
