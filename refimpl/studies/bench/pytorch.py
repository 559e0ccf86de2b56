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
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from math import isqrt
from typing import Any

from refimpl.backend import data
from refimpl.network import Layer, Network
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
        from refimpl.studies.bench.pytorch_twins import loss_by_torch

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
        from refimpl.studies.bench.pytorch_twins import by_torch

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
