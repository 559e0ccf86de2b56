"""PyTorch's twin of each kind of layer, by its own operators: a rival for measurements, and an oracle for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from refimpl.network import Layer, Output

#: A layer, its input maps, and its weights and running statistics by their names in it → its output.
Twin = Callable[[Layer, list[Any], Mapping[str, Any]], Any]
Dropout = Callable[[Layer, Any], Any]


def by_torch(layer: Layer, inputs: list[Any], state: Mapping[str, Any], dropout: Dropout | None = None) -> Any:
    """A layer's output by PyTorch's own operators; of a loss its input, which PyTorch's functions take.

    Args:
        layer: of one of our networks.
        inputs: its input maps, as tensors of PyTorch.
        state: name → weights and running statistics.
        dropout: layer and input → output of a dropout; None: PyTorch's own, drawn by PyTorch.
    """
    if layer.kind in ("dropout", "drop_path") and dropout:
        y = dropout(layer, inputs[0])
    elif layer.kind in TWINS:
        given = {name: parameter.weight for name, parameter in layer.parameters.items()} | dict(layer.statistics)
        y = TWINS[layer.kind](layer, inputs, {name: state.get(tensor.name) for name, tensor in given.items()})
    else:
        y = elementwise(layer.kind, inputs[0], layer.options)
    return rectified(y, layer.relu_options, may_be_overwritten(layer)) if layer.has_relu else y


def loss_by_torch(output: Output, x: Any, labels: Any, each: bool = False) -> Any:
    """The mean loss by PyTorch's own functions, of what the loss reads; with `each` one an image, of that mean."""
    reduction: Any = {"reduction": "none" if each else "mean"}
    if output.loss.target == "number":
        function = functional.binary_cross_entropy_with_logits if output.loss.shares else functional.mse_loss
        found = function(x, labels.to(x.dtype), **reduction)
        return found.flatten(1).mean(1) if each else found
    given: Any = {} if output.ignore_index is None else {"ignore_index": output.ignore_index}
    found = functional.cross_entropy(x, labels.long(), **given, **reduction)
    if each and output.loss.target == "pixel":
        counted = (labels != output.ignore_index).sum()
        return found.flatten(1).sum(1) * (len(x) / counted)
    return found


def may_be_overwritten(layer: Layer) -> bool:
    """Whether a layer's output is a tensor of its own in PyTorch, and none that its backward reads."""
    return layer.kind in ("conv", "fc", "batchnorm", "pool", "concat") or len(layer.producers) > 1


def elementwise(kind: str, x: Any, options: Mapping[str, Any]) -> Any:
    """An element-wise kind, out of place: what PyTorch calls by the same name, with the same options."""
    return rectified(x, options, False) if kind == "relu" else getattr(functional, kind)(x, **options)


def rectified(x: Any, options: Mapping[str, Any], in_place: bool) -> Any:
    if "at_most" in options:
        return functional.hardtanh(x, 0.0, options["at_most"], in_place)
    return functional.relu(x, in_place)


def padded(x: Any, pad: tuple[int, ...], value: float) -> Any:
    top, left, bottom, right = pad
    return functional.pad(x, (left, right, top, bottom), value=value)


def a_channel(weights: Any, x: Any) -> Any:
    """A number a channel, in the shape that multiplies a map."""
    return weights.reshape(-1, *(1 for _ in x.shape[2:]))


def conv(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    (x,), options = inputs, layer.options
    pad = options["pad"]
    if len(pad) == 4:
        x, pad = padded(x, pad, 0), (0, 0)
    walk = options["stride"], pad, options["dilation"], options["groups"]
    return functional.conv2d(x, given["w"], given.get("b"), *walk)


def conv_transpose(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    """Whole, then cut at all sides; what is added at the end is the bias alone."""
    options = layer.options
    how: Any = {name: options[name] for name in ("stride", "groups", "dilation")}
    whole = functional.conv_transpose2d(inputs[0], given["w"], None, **how)
    top, left = options["pad"][:2]
    below, right = (size - there for size, there in zip(layer.shape[2:], whole.shape[2:], strict=True))
    y = functional.pad(whole, (-left, right + left, -top, below + top))
    return y + given["b"].view(1, -1, 1, 1) if "b" in given else y


def pool(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    """Padding that differs from side to side is done before, so rounding up may add a window, which is cut off."""
    (x,), options = inputs, layer.options
    if "out" in options:
        adaptive: Any = functional.adaptive_max_pool2d if options["mode"] == "max" else functional.adaptive_avg_pool2d
        return adaptive(x, options["out"])
    window, stride, pad, ceil = (options[name] for name in ("window", "stride", "pad", "ceil"))
    counted = options.get("count_padding", True)
    if options["mode"] == "max":
        if len(pad) == 4:
            x, pad = padded(x, pad, float("-inf")), (0, 0)
        y = functional.max_pool2d(x, window, stride, pad, ceil_mode=ceil)
    elif len(pad) == 2:
        y = functional.avg_pool2d(x, window, stride, pad, ceil, counted)
    else:
        y = functional.avg_pool2d(padded(x, pad, 0), window, stride, 0, ceil)
        if not counted:
            y = y / functional.avg_pool2d(padded(torch.ones_like(x), pad, 0), window, stride, 0, ceil)
    return y[..., : layer.shape[2], : layer.shape[3]]


def upsample(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    mode, aligned = layer.options["mode"], layer.options.get("align_corners", False)
    how: Any = {"align_corners": aligned} if mode == "bilinear" else {}
    return functional.interpolate(inputs[0], layer.shape[2:], mode=mode, **how)


def lrn(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    (x,), options = inputs, layer.options
    how = options["size"], options["alpha"], options["beta"], options["k"]
    if options.get("ahead", 0) > (options["size"] - 1) // 2:  # ONNX's even size is PyTorch's from the other side
        return functional.local_response_norm(x.flip(1), *how).flip(1)
    return functional.local_response_norm(x, *how)


def batchnorm(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    moved: Any = {"training": True, "momentum": layer.options["momentum"], "eps": layer.options["epsilon"]}
    running = given["running_mean"], given["running_variance"]
    return functional.batch_norm(inputs[0], *running, given["gamma"], given["beta"], **moved)


def set_norm(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    """Layer normalisation, or with groups group normalisation."""
    (x,), options = inputs, layer.options
    weights = given.get("gamma"), given.get("beta"), options["epsilon"]
    if "groups" in options:
        if x.shape[1] == 1:  # if its strides are those of channels last, PyTorch 2.13 ends in a segmentation fault
            x = x.clone(memory_format=torch.contiguous_format)
        return functional.group_norm(x, options["groups"], *weights)
    return functional.layer_norm(x.movedim(1, -1), x.shape[1:2], *weights).movedim(-1, 1)


def rmsnorm(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    (x,) = inputs
    weights = given.get("gamma"), layer.options["epsilon"]
    return functional.rms_norm(x.movedim(1, -1), x.shape[1:2], *weights).movedim(-1, 1)


def rotary(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    (x,), options = inputs, layer.options
    groups, count, packed = options["kv_heads"], options["rotated"], options["packed"]
    members = options["heads"] // groups + 2 if packed else 1
    heads = x.reshape(len(x), groups, members, x.shape[1] // groups // members, -1)
    slower = options["base"] ** (-2 * torch.arange(count // 2, dtype=x.dtype, device=x.device) / count)
    angles = torch.outer(slower, torch.arange(heads.shape[4], dtype=x.dtype, device=x.device))
    pairs = [slice(0, count, 2), slice(1, count, 2)]
    if not options["neighbours"]:
        pairs = [slice(0, count // 2), slice(count // 2, count)]
    turned = slice(0, members - 1 if packed else 1)
    across, along = (heads[:, :, turned, pair] for pair in pairs)
    y = heads.clone()
    y[:, :, turned, pairs[0]] = across * angles.cos() - along * angles.sin()
    y[:, :, turned, pairs[1]] = along * angles.cos() + across * angles.sin()
    return y.reshape(x.shape)


def attention(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    heads, groups, causal = (layer.options[name] for name in ("heads", "kv_heads", "causal"))
    rows = [x.reshape(len(x), groups, -1, x[0, 0].numel()).transpose(-1, -2) for x in inputs]
    if len(rows) == 1:
        width = rows[0].shape[-1] // (heads // groups + 2)
        rows = list(rows[0].split([width * (heads // groups), width, width], dim=-1))
    queries = rows[0].unflatten(-1, (heads // groups, -1)).transpose(2, 3).flatten(1, 2)
    keys, values = (x.repeat_interleave(heads // groups, 1) for x in rows[1:])
    made = functional.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
    return made.transpose(-1, -2).reshape(layer.shape)


def scores(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    (x,), heads = inputs, layer.options["heads"]
    queries, keys = x.reshape(len(x), heads, 2, -1, layer.shape[-1]).unbind(2)
    found = queries.transpose(-1, -2) @ keys / queries.shape[2] ** 0.5
    if layer.options["causal"]:
        found = found.masked_fill(found.new_ones(layer.shape[2:]).triu(1).bool(), -float("inf"))
    return found.softmax(-1)


def mix(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    p, x = inputs
    return (x.reshape(*p.shape[:2], -1, p.shape[3]) @ p.transpose(-1, -2)).reshape(x.shape)


def drop_path(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    """As torchvision's stochastic depth."""
    (x,), stays = inputs, 1 - layer.options["probability"]
    return x * x.new_empty(len(x), *(1 for _ in x.shape[1:])).bernoulli_(stays).div_(stays)


def prepend(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    tokens = inputs[0].flatten(2)
    return torch.cat([given["w"].expand(len(tokens), -1, 1), tokens], 2).unsqueeze(3)


def take(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    axis = layer.options["axis"]
    return inputs[0].narrow(axis, layer.options["start"], layer.shape[axis])


def mul(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    x, gate = inputs
    return x * (gate if gate.shape == x.shape else gate.reshape(*x.shape[:2], *(1 for _ in x.shape[2:])))


def embedding(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    found = functional.embedding(inputs[0].long(), given["w"].flatten(1), layer.options.get("padding"))
    return found.movedim(-1, 1).unsqueeze(-1).contiguous()


def the_input(layer: Layer, inputs: list[Any], given: Mapping[str, Any]) -> Any:
    return inputs[0]


TWINS: Mapping[str, Twin] = {
    "conv": conv, "conv_transpose": conv_transpose, "pool": pool, "upsample": upsample, "lrn": lrn,
    "fc": lambda layer, inputs, given: functional.linear(inputs[0].flatten(1), given["w"], given.get("b")),
    "relu": lambda layer, inputs, given: rectified(
        inputs[0], layer.options, layer.in_place and may_be_overwritten(layer.producers[0])
    ),
    "batchnorm": batchnorm, "layernorm": set_norm, "groupnorm": set_norm, "rmsnorm": rmsnorm, "rotary": rotary,
    "attention": attention, "scores": scores, "mix": mix, "prepend": prepend, "take": take, "mul": mul,
    "scale": lambda layer, inputs, given: inputs[0] * a_channel(given["w"], inputs[0]),
    "dropout": lambda layer, inputs, given: functional.dropout(inputs[0], layer.options["probability"]),
    "drop_path": drop_path,
    "channel_shuffle": lambda layer, inputs, given: functional.channel_shuffle(inputs[0], layer.options["groups"]),
    "permute_channels": lambda layer, inputs, given: inputs[0][:, list(layer.options["order"])],
    "pad": lambda layer, inputs, given: padded(inputs[0], layer.options["pad"], layer.options["value"]),
    "embedding": embedding,
    "position": lambda layer, inputs, given: (
        inputs[0] + (given["w"][:, None, None] if layer.options.get("alike") else given["w"])
    ),
    "concat": lambda layer, inputs, given: torch.cat(inputs, 1),
    "join": lambda layer, inputs, given: sum(inputs[1:], inputs[0]),
    "softmax": lambda layer, inputs, given: inputs[0].flatten(1),
    "fork": the_input, "pixel_softmax": the_input, "mean_squared_error": the_input, "binary_cross_entropy": the_input,
}  # fmt: skip
