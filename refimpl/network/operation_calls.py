"""The calls of layers that PyTorch runs, each described by its `Operation`.

| | reads | writes | updates |
| --- | --- | --- | --- |
| forward | its inputs and its parameters | its storages: outputs, then what only backward reads | what it overwrites |
| backward | what autograd saved, and dy | the gradient of each input and of each parameter | |
| the last backward step, too | the gradients of all parameters | | all parameters, and the optimiser's states |

No backward works in place, as PyTorch's do not; what a sum or a copy hands on has no new storage.  What an operator
takes only while it runs is its call's scratch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from refimpl.network.call import PYTORCH, Call
from refimpl.network.calls import applied
from refimpl.network.layer import Layer, Output, Parameter
from refimpl.network.learning import Optimisation
from refimpl.network.operation import Operation
from refimpl.network.tensor import Kind, Tensor


class Operated(Protocol):
    """What the calls ask of a network."""

    layers: list[Layer]
    learning: Optimisation
    output_of: dict[Layer, Output]


def operation_of(layer: Layer) -> Operation:
    """The operation of a layer that has one."""
    assert layer.operation is not None, f"{layer} has no operation"
    return layer.operation


def made_tensors(layer: Layer) -> list[Tensor]:
    """The storages of a layer: where it works in place the one that it changes, then those that it makes.

    A loss makes none, and has the first that it reads.
    """
    op = operation_of(layer)
    first = op.overwrites if op.overwrites is not None else 0 if layer.traits.work == "loss" else None
    has = [] if first is None else [layer.inputs[first]]
    names = [layer.name, *(f"{layer.name}.saved{number}" for number in range(1, len(op.makes) + 1))][len(has) :]
    made = zip(names, op.makes, strict=False)
    return has + [Tensor(name, one.shape, "map", managed=True, dtype=one.dtype) for name, one in made]


def own_tensors(layer: Layer) -> list[Tensor]:
    """The storages that a layer makes."""
    return layer.outputs[len(layer.outputs) - len(operation_of(layer).makes) :]


def held_until(layers: Iterable[Layer]) -> dict[Tensor, int]:
    """Map → the number of the last forward step at which a variable of the module still holds it."""
    found: dict[Tensor, int] = {}
    for layer in layers:
        held = layer.operation.held if layer.operation is not None else ()
        found |= {y: layer.forward.number + more for y, more in zip(layer.outputs, held, strict=False) if more}
    return found


def forward(network: Operated, layer: Layer) -> list[Call]:
    """The call of a layer's forward step."""
    op = operation_of(layer)
    changed = [] if op.overwrites is None else layer.outputs[:1]
    reads = dict.fromkeys((*(x for x in layer.inputs if x not in changed), *layer.state))
    results = own_tensors(layer)
    if output := network.output_of.get(layer):
        reads[output.labels], results = None, [output.losses]
    return [
        Call(
            f"{PYTORCH}.{op.operator}.forward",
            {},
            reads,
            results,
            changed,
            op.forward_flops,
            scratch=op.forward_scratch,
        )
    ]


class GradientCalls:
    """Makes the backward calls, layer by layer from the last one, and keeps every map's gradient."""

    def __init__(self, network: Operated) -> None:
        self.network = network
        self.managed: list[Tensor] = []  #: every gradient made
        self._gradients: dict[Tensor, Tensor] = {}  #: map → its gradient, as far as it has been summed
        self._parts: dict[Tensor, list[Tensor]] = {}  #: map → gradients of parts of it, which make no whole yet
        self._begun: dict[Parameter, None] = {}  #: whose gradients are there
        self._last = next((layer for layer in network.layers if layer.learns), None)

    def calls(self, layer: Layer) -> list[Call]:
        """The calls of a layer's backward step; none if nothing below it learns."""
        if not layer.learns:
            return []
        calls = self._of_loss(layer) if layer.traits.work == "loss" else self._of(layer)
        return calls + (self._updates() if layer is self._last else [])

    def at_the_end(self) -> list[Call]:
        """Clipping: PyTorch scales the gradients where they are, which takes no memory worth counting."""
        return []

    def _of_loss(self, layer: Layer) -> list[Call]:
        """The gradients of all that the loss reads."""
        made = {x: self._new(f"d({x.name})", x) for x in self._learning(layer)}
        self._gradients |= made
        filled = sum(one.nbytes for one in made.values())
        scratch = max(0, operation_of(layer).backward_bytes - filled)
        return [Call(f"{PYTORCH}.loss.backward", {}, (), made.values(), scratch=scratch)] if made else []

    def _of(self, layer: Layer) -> list[Call]:
        op, sources = operation_of(layer), self._learning(layer)
        before = [call for y in dict.fromkeys(layer.outputs) for call in self._whole(y, layer)]
        dys = [self._gradients.pop(y) for y in dict.fromkeys(layer.outputs) if y in self._gradients]
        parameters = [parameter for parameter in layer.uses if not parameter.frozen]
        if not dys:  # the loss depends on nothing that it makes
            return []
        if op.hands_on and len(dys) == 1 and not parameters:
            return [*before, *(call for x, part in sources.items() for call in self._arrives(x, dys[0], bool(part)))]
        filled, then = [], []
        for x, part in sources.items():
            dx = self._new(f"d({x.name}) by {layer.name}", x, nbytes=part)
            filled.append(dx)
            then += self._arrives(x, dx, part is not None)
        for parameter in parameters:
            dw, sums = self._of_parameter(layer, parameter)
            filled.append(dw)
            then += sums
        saved = [x for x, source in zip(layer.inputs, op.reads, strict=True) if source.saved]
        saved += [y for y, kept in zip(own_tensors(layer), op.saved, strict=True) if kept]
        reads = dict.fromkeys((*saved, *dys, *(parameter.weight for parameter in layer.uses)))
        scratch = max(0, op.backward_bytes - sum(one.nbytes for one in filled))
        backward = Call(
            f"{PYTORCH}.{op.operator}.backward", {}, reads, filled, flops=op.backward_flops, scratch=scratch
        )
        return [*before, backward, *then]

    def _learning(self, layer: Layer) -> dict[Tensor, int | None]:
        """The inputs that a gradient goes back to → the bytes of what is read, where that is a part."""
        pairs = zip(layer.producers, layer.inputs, operation_of(layer).reads, strict=True)
        return {x: source.part_bytes for producer, x, source in pairs if source.learns and producer.learns}

    def _new(self, name: str, like: Tensor, kind: Kind = "gradient map", nbytes: int | None = None) -> Tensor:
        shape, dtype = (like.shape, like.dtype) if nbytes is None else ((nbytes,), "uint8")
        made = Tensor(name, shape, kind, managed=True, dtype=dtype)
        self.managed.append(made)
        return made

    def _whole(self, x: Tensor, layer: Layer) -> list[Call]:
        """The gradients of parts of x become one of x, before the backward of a layer that makes it or writes over it.

        PyTorch has one more of x's size for a moment, and no longer has the parts before; a step has all it uses.
        """
        parts = self._parts.pop(x, None)
        if parts is None:
            return []
        whole = self._new(f"d({x.name}) of its parts" + f" by {layer.name}" * layer.in_place, x)
        return [Call(f"{PYTORCH}.part.backward", {}, dict.fromkeys(parts), [whole]), *self._arrives(x, whole)]

    def _arrives(self, x: Tensor, gradient: Tensor, part: bool = False) -> list[Call]:
        """A gradient of x: the first one, or one more, which is added in place where no other map has the sum, too."""
        if part:
            self._parts.setdefault(x, []).append(gradient)
            return []
        so_far = self._gradients.get(x)
        if so_far is None:
            self._gradients[x] = gradient
            return []
        if sum(one is so_far for one in self._gradients.values()) == 1:
            return [Call(f"{PYTORCH}.add_", {}, [gradient], updates=[so_far])]
        self._gradients[x] = total = self._new(f"d({x.name}) from {gradient.name}", x)
        return [Call(f"{PYTORCH}.add", {}, [so_far, gradient], [total])]

    def _of_parameter(self, layer: Layer, parameter: Parameter) -> tuple[Tensor, list[Call]]:
        """The tensor that takes a layer's gradient of a parameter, and the calls that follow."""
        whole = parameter.gradient
        if parameter not in self._begun:
            self._begun[parameter] = None
            self.managed.append(whole)
            return whole, []
        part = self._new(f"{whole.name} by {layer.name}", whole, "weight gradient")
        return part, [Call(f"{PYTORCH}.add_", {}, [part], updates=[whole])]

    def _updates(self) -> list[Call]:
        """The optimiser's calls, after all gradients: they stay until then."""
        return [applied(self.network.learning, parameter) for parameter in self._begun]
