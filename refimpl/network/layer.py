"""Layers and steps.

A *layer* is a node of the network: its producers and consumers, the shape of its output, its parameters.  A *step* is
one layer's forward or backward: an ordered list of calls.  Steps are numbered 1..N forward and N+1..2N backward; a
number is a position in the route, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from refimpl.network.call import Call
from refimpl.network.kinds import TRAITS, LayerKind, Loss, Traits
from refimpl.network.tensor import Tensor
from refimpl.text import RefimplError

if TYPE_CHECKING:
    from refimpl.network.operation import Operation

Direction = Literal["forward", "backward"]


class NetworkError(RefimplError, ValueError):
    """An impossible network: one line that names the layer and what to write instead."""


class Layer:
    """A node of the network.  Its tensors, and its steps of training, are filled in when the network is built."""

    __slots__ = (
        "backward", "branches", "constants", "consumers", "forward", "has_relu", "kept", "kind", "learns", "name",
        "number", "operation", "options", "outputs", "own_bias", "parameters", "producers", "relu_options", "shape",
        "shares", "statistics", "uses", "weight",
    )  # fmt: skip

    backward: Step
    forward: Step

    def __init__(self, name: str, kind: LayerKind, producers: tuple[Layer, ...], options: Mapping[str, Any]) -> None:
        self.name, self.kind, self.options = name, kind, options
        self.producers, self.consumers = list(producers), list[Layer]()
        self.number = 0  #: in the order of description, from 1; the same with and without forks and fused ReLUs
        self.shape: tuple[int, ...] = ()
        self.outputs: list[Tensor] = []  #: one; a fork has one a consumer; a layer in place has its producer's
        self.branches: dict[Layer, Tensor] = {}  #: of a fork: consumer → its copy
        self.parameters: dict[str, Parameter] = {}  #: "w", "b"; "gamma", "beta"
        self.statistics: dict[str, Tensor] = {}  #: of a batch normalisation: "mean", "running_mean", …
        self.learns = False  #: whether its output depends on a parameter, so that its gradient is needed
        self.has_relu = False  #: a ReLU is part of it
        self.relu_options: Mapping[str, Any] = {}  #: of that ReLU
        self.weight = 1.0  #: of a loss: its share in the sum of all losses
        # Of layers that no paper has:
        self.shares: Layer | None = None  #: the layer whose parameters it has
        self.own_bias = False  #: it shares the weight, or its own is shared, and no layer has another's bias
        self.operation: Operation | None = None  #: of a layer as PyTorch runs it
        self.uses: list[Parameter] = []  #: of such a layer: every parameter that it reads, its own or another's
        self.constants: dict[str, Tensor] = {}  #: of a permutation of channels: "order"
        self.kept: dict[str, Tensor] = {}  #: what forward fills for backward: of a pooling "positions", …

    @property
    def traits(self) -> Traits:
        """What is true of all layers of this kind."""
        return TRAITS[self.kind]

    def output_for(self, consumer: Layer) -> Tensor:
        """The map that `consumer` reads."""
        return self.branches[consumer] if self.kind == "fork" else self.outputs[0]

    @property
    def inputs(self) -> list[Tensor]:
        """The maps this layer reads, producer by producer."""
        if self.operation is not None:
            pairs = zip(self.producers, self.operation.reads, strict=True)
            return [producer.outputs[source.part] for producer, source in pairs]
        return [producer.output_for(self) for producer in self.producers]

    @property
    def x(self) -> Tensor:
        """The map a layer with one producer reads."""
        return self.producers[0].output_for(self)

    @property
    def y(self) -> Tensor:
        """The output map of this layer (a fork's first)."""
        return self.outputs[0]

    @property
    def in_place(self) -> bool:
        """Whether the layer overwrites the map that it reads and has none of its own."""
        if self.operation is not None:
            return self.operation.overwrites is not None or self.traits.work == "loss"
        return self.y in self.inputs

    @property
    def hands_over(self) -> bool:
        """Whether its output may be overwritten by the layer that reads it: no other one does, and no backward."""
        alone = len(self.consumers) == 1 or self.kind == "fork"
        return alone and self.traits.forgets_output and not self.has_relu

    @property
    def state(self) -> list[Tensor]:
        """Parameters and buffers that a layer reads as PyTorch runs it."""
        return [*(parameter.weight for parameter in self.uses), *self.statistics.values()]

    @property
    def own(self) -> Mapping[str, Parameter]:
        """Its parameters that are named after it: those that it shares are the other layer's."""
        return {name: parameter for name, parameter in self.parameters.items() if self.owner_of(name) is self}

    def owner_of(self, name: str) -> Layer:
        """The layer that a parameter is named after."""
        return self if self.own_bias and name == "b" else self.shares or self

    @property
    def parameter_count(self) -> int:
        """Of its own: parameters that it shares are the other layer's."""
        return sum(parameter.weight.nbytes // 4 for parameter in self.own.values())

    def __repr__(self) -> str:
        return self.name


class Step:
    """One layer's forward or backward.  `reads`, `writes` and `updates` name managed tensors only, each once.

    `reads` have to be there before; `writes` come into being in this step (a sum's addend is written and read in one
    step); `updates` are there before and are changed; `states`, too, and they are the optimiser's, and come from the
    host.  `part` of `parts`: of a step that was cut (`refimpl.network.seams`).
    """

    __slots__ = "calls", "direction", "layer", "number", "part", "parts", "reads", "states", "updates", "uses", "writes"

    def __init__(
        self, number: int, layer: Layer, direction: Direction, calls: Iterable[Call], part: int = 1, parts: int = 1
    ) -> None:
        self.number, self.layer, self.direction, self.calls = number, layer, direction, tuple(calls)
        self.part, self.parts = part, parts
        reads: dict[Tensor, None] = {}
        writes: dict[Tensor, None] = {}
        updates: dict[Tensor, None] = {}
        for call in self.calls:
            for tensor in call.reads:
                if tensor.managed and tensor not in writes:
                    reads[tensor] = None
            for tensor in call.updates:
                if tensor.managed and tensor not in writes:
                    updates[tensor] = None
            for tensor in call.writes:
                if tensor.managed:
                    writes[tensor] = None
        self.reads = tuple(tensor for tensor in reads if tensor not in updates)
        self.states = tuple(tensor for tensor in updates if tensor.kind == "momentum")
        self.updates, self.writes = tuple(x for x in updates if x not in self.states), tuple(writes)
        self.uses = (*self.reads, *self.updates, *self.writes, *self.states)

    @property
    def forward(self) -> bool:
        return self.direction == "forward"

    @property
    def flops(self) -> int:
        return sum(call.flops for call in self.calls)

    @property
    def of_parts(self) -> str:
        """As in ", part 1 of 2"; empty for a whole step."""
        return f", part {self.part} of {self.parts}" if self.parts > 1 else ""

    @property
    def title(self) -> str:
        """As in "conv1 backward, part 1 of 2"."""
        return f"{self.layer.name} {self.direction}{self.of_parts}"

    def __repr__(self) -> str:
        return f"step {self.number} ({self.title})"


@dataclass(frozen=True, eq=False)
class Parameter:
    """A weight with its gradient and what the optimiser keeps of it, all resident."""

    weight: Tensor
    its_gradient: Tensor | None  #: None: no call computes it
    states: Mapping[str, Tensor]  #: the optimiser's: "momentum", or "exp_avg" and "exp_avg_sq"
    frozen: bool = False  #: it stays as it is

    @property
    def gradient(self) -> Tensor:
        """The gradient of a weight that has one."""
        assert self.its_gradient is not None, f"{self.weight} has no gradient"
        return self.its_gradient

    @property
    def momentum(self) -> Tensor:
        """What plain gradient descent keeps."""
        return self.states["momentum"]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The weight, its gradient if it has one, and the optimiser's states."""
        gradient = () if self.its_gradient is None else (self.its_gradient,)
        return (self.weight, *gradient, *self.states.values())


@dataclass(frozen=True, eq=False)
class Output:
    """An end of a network: a loss with its labels and with what it fills."""

    layer: Layer
    labels: Tensor  #: or targets: what the batch wants; resident
    losses: Tensor  #: one an image; resident
    predictions: Tensor  #: filled in inference alone
    counted: Tensor | None = None  #: the number of labels that count, where some may not; resident

    @property
    def loss(self) -> Loss:
        """What is true of all losses of this kind."""
        found = self.layer.traits.loss
        assert found is not None
        return found

    @property
    def classes(self) -> int:
        """Labels are 0 … classes - 1, if they are classes."""
        return self.predictions.shape[1]

    @property
    def ignore_index(self) -> int | None:
        """The label of what does not count; None: everything does."""
        return self.layer.options.get("ignore_index")
