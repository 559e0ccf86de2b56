"""vDNN's listing as a twin: forward and backward layer by layer, with a reference count for every tensor.

It knows neither budgets nor streams, and shares no code with the planner.  It is given a network, the kinds of layers
whose X is offloaded, and the kinds whose backward does not search.  Its counters are the paper's `refcount`; the
planner's liveness looks up last uses.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from refimpl.network import Layer, Network, Step, Tensor


class Event(NamedTuple):
    """A copy: its step's number, the map's name, and "out", "prefetch" or "on demand"."""

    step: int
    tensor: str
    what: str


class Listing:
    """One iteration of vDNN: its copies, and the tensors alive just before each step's kernels."""

    def __init__(self, network: Network, kinds: Iterable[str], silent: Iterable[str] = ("pool",)) -> None:
        self.network, self.kinds, self.silent = network, set(kinds), set(silent)
        self.events: list[Event] = []
        self.alive_before: list[set[Tensor]] = []
        self.alive = {network.input} if network.input.managed else set[Tensor]()
        self.sent: defaultdict[Layer, list[Tensor]] = defaultdict(list)
        self.prefetched: set[Layer] = set()
        steps = network.steps
        self.forward_left = Counter(x for step in steps if step.forward for x in step.uses)
        self.backward_left = Counter(x for step in steps if not step.forward for x in step.uses)
        for step in steps:
            self.forward(step) if step.forward else self.backward(step)

    def forward(self, step: Step) -> None:
        self.alive |= set(step.writes)
        self.alive_before.append(set(self.alive))
        for x in step.uses:
            self.forward_left[x] -= 1
        for x in [x for x in step.uses if not self.forward_left[x]]:  # this layer was the last consumer
            if self.offloads(x):
                self.sent[step.layer].append(x)
                if x is not self.network.input:  # its host copy is there already
                    self.events.append(Event(step.number, x.name, "out"))
                self.alive.discard(x)
            elif not self.backward_left[x]:
                self.alive.discard(x)

    def offloads(self, x: Tensor) -> bool:
        """A feature map that some layer of the chosen kinds reads as its X, and that backward needs."""
        chosen = any(x in layer.inputs for layer in self.network.layers if layer.kind in self.kinds)
        return chosen and x.kind in ("map", "input") and self.backward_left[x] > 0

    def backward(self, step: Step) -> None:
        if step.layer.kind not in self.silent:
            for x in self.sent.get(self.find_prefetch_layer(step.layer), ()):  # type: ignore[arg-type]
                if x not in self.alive and self.backward_left[x]:
                    self.fetch(step, x, "prefetch")
        for x in (*step.reads, *step.updates):
            if x not in self.alive:
                self.fetch(step, x, "on demand")
        self.alive |= set(step.writes)
        self.alive_before.append(set(self.alive))
        for x in step.uses:
            self.backward_left[x] -= 1
            if not self.backward_left[x]:
                self.alive.discard(x)

    def fetch(self, step: Step, x: Tensor, what: str) -> None:
        self.alive.add(x)
        self.events.append(Event(step.number, x.name, what))

    def find_prefetch_layer(self, n: Layer) -> Layer | None:
        """The paper's Figure 10."""
        layers = self.network.layers
        for layer in layers[: layers.index(n)][::-1]:
            if self.sent[layer] and layer not in self.prefetched:
                self.prefetched.add(layer)
                return layer
            if layer.kind == "conv":
                break
        return None
