"""Our networks trained by PyTorch, on the CPU: a rival for measurements, and an oracle for tests.

- *plain*: autograd keeps every tensor that backward needs;
- *checkpointing*: the network is cut into about √N segments, and a segment's maps are recomputed in backward
  (`torch.utils.checkpoint`);
- *on the host*: every tensor that autograd saves is copied to the host, and back in backward.  It is what
  `torch.autograd.graph.save_on_cpu` does on a GPU.  On a CPU that function copies nothing, so its two hooks are here.

PyTorch has one thread, unless more are set.  It is optional: `pip install torch`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from math import isqrt
from typing import Any

from refimpl.backend import data
from refimpl.network import Layer, Network, Output
from refimpl.network.initial_state import initial_state

PLAIN = "plain"
WAYS = (PLAIN, "checkpointing", "on the host")


def at_hand() -> bool:
    return find_spec("torch") is not None


def version() -> str:
    import torch

    return f"PyTorch {torch.__version__}"


class TorchTraining:
    """A network of ours as PyTorch trains it, from the same weights, on the same batch."""

    def __init__(self, network: Network, way: str) -> None:
        self.network, self.way = network, way
        self._bytes = counted_bytes()
        with self._bytes:
            self._prepare()

    def _prepare(self) -> None:
        import torch

        torch.set_num_threads(1)
        network = self.network
        source = data.synthetic_for(network, seed=1)
        images, labels = source.batch(network.batch, 0)
        self._images, self._labels = torch.tensor(images), torch.tensor(labels.reshape(network.labels.shape))
        trained = {parameter.weight for _, _, parameter in network.parameters()}
        kept = trained | {tensor for layer in network.layers for tensor in layer.statistics.values()}
        self._state: dict[str, Any] = {}
        for tensor, value in initial_state(network, seed=0):
            if tensor in kept:
                self._state[tensor.name] = torch.tensor(value, requires_grad=tensor in trained)
        weights = [value for value in self._state.values() if value.requires_grad]
        self._optimiser = torch.optim.SGD(weights, lr=1e-4, momentum=0.9)

    def step(self) -> float:
        """One iteration; returns the mean loss."""
        self._optimiser.zero_grad()
        with self._saving():
            x, parts = self._images, segments(self.network)
            for number, layers in enumerate(parts):
                again = self.way == "checkpointing" and number < len(parts) - 1  # the last one is used at once
                x = self._recomputed(layers, x) if again else self._run(layers, x)
            loss = loss_by_torch(self.network.output, x, self._labels)
        del x
        loss.backward()
        self._optimiser.step()
        return float(loss.detach())

    def peak(self) -> Peak:
        """The most bytes at once, in the second of two iterations: the first one creates the momentum."""
        with self._bytes:
            self.step()
            self._bytes.peak = Peak(self._bytes.live.device, self._bytes.live.host)
            self.step()
        return self._bytes.peak

    def _run(self, layers: list[Layer], x: Any) -> Any:
        """A segment's layers; all that is read from before it is `x`."""
        maps: dict[Layer, Any] = {}
        for layer in layers:
            inputs = [maps.get(producer, x) for producer in layer.producers]
            maps[layer] = by_torch(layer, inputs, self._state)
        return maps[layers[-1]]

    def _recomputed(self, layers: list[Layer], x: Any) -> Any:
        from torch.utils.checkpoint import checkpoint

        return checkpoint(partial(self._run, layers), x, use_reentrant=False)

    def _saving(self) -> AbstractContextManager[Any]:
        """On the host: the two hooks of `save_on_cpu`."""
        if self.way != "on the host":
            return nullcontext()
        from torch.autograd.graph import saved_tensors_hooks

        def pack(tensor: Any) -> Any:
            with self._bytes.on_host():
                return tensor.detach().clone()

        return saved_tensors_hooks(pack, lambda copy: copy.clone())


def loss_by_torch(output: Output, x: Any, labels: Any, each: bool = False) -> Any:
    """The mean loss by PyTorch's own functions, of what the loss reads; with `each` one an image, of that mean."""
    from torch.nn import functional

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


def segments(network: Network) -> list[list[Layer]]:
    """About √N runs of layers; a run reads one map of the run before, its last one.

    A run cannot end before a layer that works in place: it would change the map from which the run after it begins.
    """
    layers = network.layers
    places = {layer: place for place, layer in enumerate(layers)}
    last_use = [max((places[consumer] for consumer in layer.consumers), default=place)
                for place, layer in enumerate(layers)]  # fmt: skip
    length = isqrt(len(layers))
    runs: list[list[Layer]] = [[]]
    furthest = 0  # the last use of a map that is not the newest
    for place, layer in enumerate(layers):
        runs[-1].append(layer)
        following = layers[place + 1] if place + 1 < len(layers) else None
        if following and len(runs[-1]) >= length and furthest <= place and not following.in_place:
            runs.append([])
        furthest = max(furthest, last_use[place])
    return runs


def by_torch(layer: Layer, inputs: list[Any], state: Mapping[str, Any], dropout: Dropout | None = None) -> Any:
    """A layer's output by PyTorch's own operators; of a loss its input, which PyTorch's functions take.

    Args:
        layer: of one of our networks.
        inputs: its input maps, as tensors of PyTorch.
        state: name → weights and running statistics.
        dropout: layer and input → output of a dropout; None: PyTorch's own, drawn by PyTorch.
    """
    y = _own(layer, inputs, state, dropout)
    return _rectified(y, layer.relu_options, may_be_overwritten(layer)) if layer.has_relu else y


def may_be_overwritten(layer: Layer) -> bool:
    """Whether a layer's output is a tensor of its own in PyTorch, and none that its backward reads."""
    return layer.kind in ("conv", "fc", "batchnorm", "pool", "concat") or len(layer.producers) > 1


Dropout = Callable[[Layer, Any], Any]


def _own(layer: Layer, inputs: list[Any], state: Mapping[str, Any], dropout: Dropout | None) -> Any:
    if layer.kind in ("dropout", "drop_path") and dropout:
        return dropout(layer, inputs[0])
    if layer.kind in TWINS:
        return TWINS[layer.kind](layer, inputs, state)
    return elementwise(layer.kind, inputs[0], layer.options)


def _weights(layer: Layer, state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: state[parameter.weight.name] for name, parameter in layer.parameters.items()}


def _conv(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    from torch.nn import functional

    (x,), given, options = inputs, _weights(layer, state), layer.options
    pad = options["pad"]
    if len(pad) == 4:
        x, pad = _padded(x, pad, 0), (0, 0)
    walk = options["stride"], pad, options["dilation"], options["groups"]
    return functional.conv2d(x, given["w"], given.get("b"), *walk)


def _conv_transpose(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    """Whole, then cut at all sides; what is added at the end is the bias alone."""
    from torch.nn import functional

    (x,), given, options = inputs, _weights(layer, state), layer.options
    whole = functional.conv_transpose2d(
        x, given["w"], None, options["stride"], groups=options["groups"], dilation=options["dilation"]
    )
    top, left = options["pad"][:2]
    below, right = (size - there for size, there in zip(layer.shape[2:], whole.shape[2:], strict=True))
    y = functional.pad(whole, (-left, right + left, -top, below + top))
    return y + given["b"].view(1, -1, 1, 1) if "b" in given else y


def _fc(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    from torch.nn import functional

    given = _weights(layer, state)
    return functional.linear(inputs[0].flatten(1), given["w"], given.get("b"))


def _pool(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    return _pooled(inputs[0], layer.options)[..., : layer.shape[2], : layer.shape[3]]  # there may be a window too many


def _upsample(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    from torch.nn import functional

    mode, aligned = layer.options["mode"], layer.options.get("align_corners", False)
    how = {"align_corners": aligned} if mode == "bilinear" else {}
    return functional.interpolate(inputs[0], layer.shape[2:], mode=mode, **how)


def _relu(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    return _rectified(inputs[0], layer.options, layer.in_place and may_be_overwritten(layer.producers[0]))


def _lrn(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    from torch.nn import functional

    (x,), options = inputs, layer.options
    how = options["size"], options["alpha"], options["beta"], options["k"]
    if options.get("ahead", 0) > (options["size"] - 1) // 2:  # ONNX's even size is PyTorch's from the other side
        return functional.local_response_norm(x.flip(1), *how).flip(1)
    return functional.local_response_norm(x, *how)


def _batchnorm(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    from torch.nn import functional

    given, options = _weights(layer, state), layer.options
    mean, variance = (state[layer.statistics[name].name] for name in ("running_mean", "running_variance"))
    moved: dict[str, Any] = {"training": True, "momentum": options["momentum"], "eps": options["epsilon"]}
    return functional.batch_norm(inputs[0], mean, variance, given["gamma"], given["beta"], **moved)


def _set_norm(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    """Layer normalisation, or with groups group normalisation."""
    import torch
    from torch.nn import functional

    (x,), given, options = inputs, _weights(layer, state), layer.options
    weights = given.get("gamma"), given.get("beta"), options["epsilon"]
    if "groups" in options:
        if x.shape[1] == 1:  # if its strides are those of channels last, PyTorch 2.13 ends in a segmentation fault
            x = x.clone(memory_format=torch.contiguous_format)
        return functional.group_norm(x, options["groups"], *weights)
    return functional.layer_norm(x.movedim(1, -1), x.shape[1:2], *weights).movedim(-1, 1)


def _rmsnorm(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    (x,) = inputs
    normal = x * (x.square().mean(1, keepdim=True) + layer.options["epsilon"]).rsqrt()
    given = _weights(layer, state)
    return normal * given["gamma"].reshape(-1, *(1 for _ in x.shape[2:])) if given else normal


def _rotary(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    import torch

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


def _attention(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    from torch.nn import functional

    heads, groups, causal = (layer.options[name] for name in ("heads", "kv_heads", "causal"))
    rows = [x.reshape(len(x), groups, -1, x[0, 0].numel()).transpose(-1, -2) for x in inputs]
    if len(rows) == 1:
        width = rows[0].shape[-1] // (heads // groups + 2)
        rows = list(rows[0].split([width * (heads // groups), width, width], dim=-1))
    queries = rows[0].unflatten(-1, (heads // groups, -1)).transpose(2, 3).flatten(1, 2)
    keys, values = (x.repeat_interleave(heads // groups, 1) for x in rows[1:])
    made = functional.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
    return made.transpose(-1, -2).reshape(layer.shape)


def _scores(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    (x,), heads = inputs, layer.options["heads"]
    queries, keys = x.reshape(len(x), heads, 2, -1, layer.shape[-1]).unbind(2)
    found = queries.transpose(-1, -2) @ keys / queries.shape[2] ** 0.5
    if layer.options["causal"]:
        found = found.masked_fill(found.new_ones(layer.shape[2:]).triu(1).bool(), -float("inf"))
    return found.softmax(-1)


def _mix(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    p, x = inputs
    return (x.reshape(*p.shape[:2], -1, p.shape[3]) @ p.transpose(-1, -2)).reshape(x.shape)


def _dropout(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    from torch.nn import functional

    return functional.dropout(inputs[0], layer.options["probability"])


def _drop_path(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    """As torchvision's stochastic depth."""
    (x,), stays = inputs, 1 - layer.options["probability"]
    return x * x.new_empty(len(x), *(1 for _ in x.shape[1:])).bernoulli_(stays).div_(stays)


def _channel_shuffle(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    from torch.nn import functional

    return functional.channel_shuffle(inputs[0], layer.options["groups"])


def _permute_channels(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    return inputs[0][:, list(layer.options["order"])]


def _prepend(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    import torch

    tokens, w = inputs[0].flatten(2), _weights(layer, state)["w"]
    return torch.cat([w.expand(len(tokens), -1, 1), tokens], 2).unsqueeze(3)


def _take(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    axis = layer.options["axis"]
    return inputs[0].narrow(axis, layer.options["start"], layer.shape[axis])


def _mul(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    x, gate = inputs
    return x * (gate if gate.shape == x.shape else gate.reshape(*x.shape[:2], *(1 for _ in x.shape[2:])))


def _scale(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    (x,) = inputs
    return x * _weights(layer, state)["w"].reshape(-1, *(1 for _ in x.shape[2:]))


def _embedding(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    from torch.nn import functional

    table = _weights(layer, state)["w"].flatten(1)
    found = functional.embedding(inputs[0].long(), table, layer.options.get("padding"))
    return found.movedim(-1, 1).unsqueeze(-1).contiguous()


def _position(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    (x,), w = inputs, _weights(layer, state)["w"]
    return x + (w[:, None, None] if layer.options.get("alike") else w)


def _concat(layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    import torch

    return torch.cat(inputs, 1)


#: Kind → its output: of a layer, its inputs, and the state of training by name.
TWINS: Mapping[str, Callable[[Layer, list[Any], Mapping[str, Any]], Any]] = {
    "conv": _conv, "conv_transpose": _conv_transpose, "fc": _fc, "pool": _pool,
    "relu": _relu, "lrn": _lrn, "batchnorm": _batchnorm, "dropout": _dropout,
    "upsample": _upsample, "layernorm": _set_norm, "groupnorm": _set_norm, "mul": _mul, "scale": _scale,
    "rmsnorm": _rmsnorm, "rotary": _rotary, "attention": _attention, "scores": _scores, "mix": _mix,
    "drop_path": _drop_path, "channel_shuffle": _channel_shuffle, "take": _take,
    "permute_channels": _permute_channels, "prepend": _prepend,
    "pad": lambda layer, inputs, state: _padded(inputs[0], layer.options["pad"], layer.options["value"]),
    "embedding": _embedding, "position": _position,
    "concat": _concat, "join": lambda layer, inputs, state: sum(inputs[1:], inputs[0]),
    "fork": lambda layer, inputs, state: inputs[0], "softmax": lambda layer, inputs, state: inputs[0].flatten(1),
    "pixel_softmax": lambda layer, inputs, state: inputs[0],
    "mean_squared_error": lambda layer, inputs, state: inputs[0],
    "binary_cross_entropy": lambda layer, inputs, state: inputs[0],
}  # fmt: skip


def elementwise(kind: str, x: Any, options: Mapping[str, Any]) -> Any:
    """An element-wise kind, out of place: what PyTorch calls by the same name, with the same options."""
    from torch.nn import functional

    return _rectified(x, options, False) if kind == "relu" else getattr(functional, kind)(x, **options)


def _rectified(x: Any, options: Mapping[str, Any], in_place: bool) -> Any:
    from torch.nn import functional

    if "at_most" in options:
        return functional.hardtanh(x, 0.0, options["at_most"], in_place)
    return functional.relu(x, in_place)


def _padded(x: Any, pad: tuple[int, ...], value: float) -> Any:
    from torch.nn import functional

    top, left, bottom, right = pad
    return functional.pad(x, (left, right, top, bottom), value=value)


def _pooled(x: Any, options: Mapping[str, Any]) -> Any:
    """A pooling; padding that differs from side to side is done before, so rounding up may add a window."""
    import torch
    from torch.nn import functional

    if "out" in options:
        adaptive: Any = functional.adaptive_max_pool2d if options["mode"] == "max" else functional.adaptive_avg_pool2d
        return adaptive(x, options["out"])
    window, stride, pad, ceil = (options[name] for name in ("window", "stride", "pad", "ceil"))
    counted = options.get("count_padding", True)
    if options["mode"] == "max":
        if len(pad) == 4:
            x, pad = _padded(x, pad, float("-inf")), (0, 0)
        return functional.max_pool2d(x, window, stride, pad, ceil_mode=ceil)
    if len(pad) == 2:
        return functional.avg_pool2d(x, window, stride, pad, ceil, counted)
    mean = functional.avg_pool2d(_padded(x, pad, 0), window, stride, 0, ceil)
    if counted:
        return mean
    return mean / functional.avg_pool2d(_padded(torch.ones_like(x), pad, 0), window, stride, 0, ceil)


# -- its memory --------------------------------------------------------------------------------------------------------


@dataclass
class Peak:
    """Bytes of tensors, on the device and on the host."""

    device: int = 0
    host: int = 0


def counted_bytes() -> Any:
    """A context in which the storages of all tensors that operators create are counted, until they are freed."""
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map_only

    class CountedBytes(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.live, self.peak = Peak(), Peak()
            self._place = "device"
            self._known: set[int] = set()

        @contextmanager
        def on_host(self) -> Iterator[None]:
            """Tensors that are created meanwhile are on the host."""
            self._place = "host"
            yield
            self._place = "device"

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = function(*args, **(kwargs or {}))
            tree_map_only(Tensor, self._count, out)
            return out

        def _count(self, tensor: Any) -> None:
            storage = tensor.untyped_storage()
            if id(storage) in self._known:
                return
            self._known.add(id(storage))
            self._change(self._place, storage.nbytes())
            weakref.finalize(storage, self._freed, id(storage), self._place, storage.nbytes())

        def _freed(self, key: int, place: str, nbytes: int) -> None:
            self._known.discard(key)
            self._change(place, -nbytes)

        def _change(self, place: str, nbytes: int) -> None:
            now = getattr(self.live, place) + nbytes
            setattr(self.live, place, now)
            setattr(self.peak, place, max(now, getattr(self.peak, place)))

    return CountedBytes()
