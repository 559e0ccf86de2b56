"""A network: its layers along two routes, the steps of one iteration, and every tensor that they touch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from math import prod
from typing import TYPE_CHECKING, Any

from refimpl.network import calls
from refimpl.network.call import Call
from refimpl.network.conventions import Conventions
from refimpl.network.layer import Direction, Layer, NetworkError, Output, Parameter, Step
from refimpl.network.learning import DecayOn, Optimisation
from refimpl.network.routes import from_several
from refimpl.network.shapes import clip_parts
from refimpl.network.tensor import Kind, Tensor
from refimpl.text import counted

if TYPE_CHECKING:
    from refimpl.network.first_values import FirstValues
    from refimpl.network.operation import Operation
    from refimpl.network.operation_calls import GradientCalls

BUCKET_BYTES = 25_000_000  #: of gradients; the one that reaches it closes the bucket


class Network:
    """Built by a builder's `build`, and not changed afterwards; `trained_by` and `data_parallel` make others.

    `layers` are in the order of the forward route.  `steps[k - 1]` is step k: the forward steps, then the backward
    ones.
    """

    def __init__(
        self,
        name: str,
        data: Sequence[Layer],
        ends: Sequence[Layer],
        conventions: Conventions,
        learning: Optimisation | None = None,
        described: Sequence[Layer] | None = None,
    ) -> None:
        """`described`: all layers in the order in which they run (None: the depth-first route from the data)."""
        self.name, self.conventions, self.data = name, conventions, tuple(data)
        self.learning = learning or Optimisation()  #: how its parameters learn
        self.batch = self.data[0].shape[0]  #: images of one rank
        self.ranks = 1  #: that train together
        self.whole: Network | None = None  #: the network whose steps were cut (`seams`) to make this one's
        self.file: str | None = None  #: the ONNX file that it came from
        self.origins: dict[str, str] = {}  #: operator that a PyTorch module calls → the layer with its numbers
        self.script: Mapping[str, Any] = {}  #: of that module
        self.initial: dict[str, FirstValues] = {}  #: tensor → values from a file or a module; the others' are drawn
        route = described or from_several(self.data, lambda layer: layer.producers, lambda layer: layer.consumers)
        self.layers = [layer for layer in route if layer not in self.data]
        self.cannot_run = ""  #: why it can be planned and not run: one line
        self.opaque: Mapping[str, int] = {}  #: operator without a kernel → layers
        self.managed: list[Tensor] = []  #: every managed tensor, in the order of its first use, workspaces excepted
        self.resident: list[Tensor] = []  #: every resident tensor
        self.on_host: list[Tensor] = []  #: managed tensors that are on the host from one iteration to the next
        self.reasons: dict[Tensor, str] = {}  #: managed tensor → why one of `lean` has made it
        self._make_tensors(ends)
        self.steps: list[Step] = []
        for layer in self.layers:
            layer.forward = self.add_step(layer, self.forward_calls(layer))
        self.depth = len(self.layers)  #: N: the number of the last forward step
        backward = self._backward_calls()
        route = self._backward_route(ends)
        listed = [backward.calls(layer) for layer in route]
        if self.learning.clip is not None:
            listed[max(number for number, made in enumerate(listed) if made)] += backward.at_the_end()
        for layer, made in zip(route, listed, strict=True):
            layer.backward = self.add_step(layer, made, "backward")
        self.managed += backward.managed
        self._refuse_equal_names()

    def trained_by(
        self,
        optimiser: str = "sgd",
        clip: float | None = None,
        decay_on: DecayOn = "all",
        frozen: Sequence[str] = (),
    ) -> Network:
        """The same network, described again, that learns in another way; its figures compare with no other's.

        Args:
            optimiser: "sgd" or "adamw".
            clip: the largest norm of all gradients together (None: whatever it is).
            decay_on: the parameters that decay: "all", or "weights": no biases, and none of a normalisation.
            frozen: patterns of the parameters that stay as they are, as in "conv*" or "*.b", or with "!" that learn;
                the last one that fits decides, after what is frozen already.  They have no gradient and no state.
        """
        from refimpl.network import derived

        learning = Optimisation(optimiser, clip, decay_on, (*self.learning.frozen, *frozen))
        return derived.trained_by(self, learning)

    def leaner(self, *words: str) -> Network:
        """The same network, described again, with conventions of `refimpl.network.lean`: `NAME:positions`."""
        from refimpl.network import lean

        return lean.leaner(self, words)

    def inference(self) -> Network:
        """The same layers and the same resident tensors, forward only: running statistics, no dropout.

        It fills `predictions` and `losses`.  Its steps are in `steps`; the layers' own are still those of training.
        """
        from refimpl.network import derived

        return derived.inference(self)

    def data_parallel(self, ranks: int, bucket_bytes: int | None = BUCKET_BYTES) -> Network:
        """The same layers and tensors, trained by several ranks on a batch each: gradients are averaged, then applied.

        Args:
            ranks: how many train together; one trains alone, call for call as this network.
            bucket_bytes: of gradients that an all-reduce waits for; None: one all-reduce after the last backward step.
        """
        from refimpl.network import derived

        return derived.data_parallel(self, ranks, bucket_bytes)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """One for each loss, in the order of description."""
        return tuple(self.output_of.values())

    @property
    def given(self) -> tuple[Tensor, ...]:
        """What a batch fills: the inputs, then the labels of every output."""
        return (*self.inputs, *(output.labels for output in self.outputs))

    @property
    def results(self) -> tuple[Tensor, ...]:
        """What an iteration, or an inference, fills for the user."""
        found = [(output.losses, output.predictions) for output in self.outputs]
        return tuple(tensor for both in found for tensor in both)

    def forward_calls(self, layer: Layer) -> list[Call]:
        """The calls of a layer's forward step in training."""
        if self.conventions.lean:
            from refimpl.network import lean

            if (made := lean.forward(self, layer)) is not None:
                return made
        if layer.operation is not None:
            from refimpl.network import operation_calls

            return operation_calls.forward(self, layer)
        if calls.is_later(layer):
            from refimpl.network import later_calls

            return later_calls.forward(self, layer)
        return calls.forward(self, layer)

    def _backward_calls(self) -> calls.Backward | GradientCalls:
        if self.conventions.as_pytorch:
            from refimpl.network.operation_calls import GradientCalls

            return GradientCalls(self)
        found = calls.Backward
        if any(calls.is_later(layer) for layer in self.layers):
            from refimpl.network.later_calls import LaterBackward as found
        if self.conventions.lean:
            from refimpl.network import lean

            found = lean.backward(self, found)
        return found(self)

    def _backward_route(self, ends: Sequence[Layer]) -> list[Layer]:
        if not self.conventions.backward_depth_first:
            return self.layers[::-1]
        route = from_several(ends, lambda layer: layer.consumers, lambda layer: layer.producers)
        return [layer for layer in route if layer not in self.data]

    def add_step(
        self, layer: Layer, made: Sequence[Call], direction: Direction = "forward", part: int = 1, parts: int = 1
    ) -> Step:
        """The next step, of these calls."""
        step = Step(len(self.steps) + 1, layer, direction, made, part, parts)
        self.steps.append(step)
        return step

    # -- tensors -------------------------------------------------------------------------------------------------------

    def _make_tensors(self, ends: Sequence[Layer]) -> None:
        self.inputs: list[Tensor] = []  #: one for each data layer; the first is named "input"
        for data in self.data:
            dtype = data.options.get("dtype", "float32")
            batch = Tensor(data.name, data.shape, "input", managed=self.conventions.input_managed, dtype=dtype)
            data.outputs = [batch]
            data.learns = self.conventions.input_gradient and not self.learning.frozen and dtype == "float32"
            self.inputs.append(batch)
            (self.managed if batch.managed else self.resident).append(batch)
        self.input = self.inputs[0]
        self._shared: dict[Layer, dict[str, Parameter]] = {}  #: by the layer that they are named after
        self._learnt: dict[str, Parameter] = {}  #: of operations, by their names in the module
        self._buffers: dict[str, Tensor] = {}
        for layer in self.layers:
            self._make_maps(layer)
            self._make_parameters(layer)
        self.learning.check((layer.name, name) for layer, name, _ in self.parameters())
        self.output_of = {end: self._make_output(end, f" of {end}" * (end is not ends[-1])) for end in ends}
        self.output = self.outputs[-1]  #: the one that is evaluated
        self.labels, self.losses, self.predictions = self.output.labels, self.output.losses, self.output.predictions
        parts = sum(clip_parts(prod(p.weight.shape)) for _, _, p in self.parameters() if not p.frozen)
        if self.learning.clip is not None and parts:
            self.squares = self._resident("squares of gradients", (parts,), "scratch")
            self.gradient_norm = self._resident("norm of gradients", (1,), "scratch")
        self.scratch = self._make_scratch()
        self.scratches = [] if self.scratch is None else [self.scratch]

    def _make_output(self, end: Layer, of: str) -> Output:
        loss = end.traits.loss
        assert loss is not None
        labels = self._resident(f"labels{of}", loss.labels(end), "labels", loss.dtype)
        losses = self._resident(f"losses{of}", end.shape[:1], "loss")
        counted = self._resident(f"counted{of}", (1,), "loss") if "ignore_index" in end.options else None
        predictions = Tensor(f"predictions{of}", loss.predictions(end), "loss")
        if end.traits.published:  # the other losses have them in `inference` alone
            self.resident.append(predictions)
        return Output(end, labels, losses, predictions, counted)

    def _resident(self, name: str, shape: tuple[int, ...], kind: Kind, dtype: str = "float32") -> Tensor:
        made = Tensor(name, shape, kind, dtype=dtype)
        self.resident.append(made)
        return made

    def _make_maps(self, layer: Layer) -> None:
        if layer.operation is not None:
            from refimpl.network import operation_calls

            layer.outputs = operation_calls.made_tensors(layer)
            self.managed += operation_calls.own_tensors(layer)
            return
        if self.conventions.lean:
            from refimpl.network import lean

            lean.add_tensors(self, layer)
        if layer.outputs or (layer.traits.in_place and not layer.kept and self._overwrites(layer)):
            layer.outputs = layer.outputs or [layer.x]
            return
        copies = len(layer.consumers) if layer.kind == "fork" else 1
        names = [layer.name] if copies == 1 else [f"{layer.name}.{i}" for i in range(1, copies + 1)]
        layer.outputs = [Tensor(name, layer.shape, "map", managed=True) for name in names]
        if layer.kind == "fork":
            layer.branches = dict(zip(layer.consumers, layer.outputs, strict=True))
        self.managed += layer.outputs

    def _overwrites(self, layer: Layer) -> bool:
        """Whether a layer that may has no map of its own."""
        if layer.kind == "softmax":
            return self._takes_over(layer)
        if layer.kind == "pixel_softmax":  # its input is as large as a vocabulary: one buffer also has the gradient
            return self._in_place(layer)
        return layer.traits.work == "loss" or self._in_place(layer)

    def _in_place(self, layer: Layer) -> bool:
        """Whether no step needs the input of this ReLU, or the like, after it has run."""
        return self.conventions.relu_in_place and layer.producers[0].hands_over

    def _takes_over(self, softmax: Layer) -> bool:
        """Whether a softmax overwrites its input: no other layer reads it, and a ReLU before it does not need it."""
        producer = softmax.producers[0]
        return self.conventions.softmax_in_place and producer.kind == "fc" and producer.hands_over

    def _make_parameters(self, layer: Layer) -> None:
        if layer.operation is not None:
            self._make_state(layer, layer.operation)
            return
        shapes, owner = layer.traits.parameters(layer), layer.shares or layer
        trained = any(not self.learning.freezes(layer.owner_of(name).name, name) for name in shapes)
        layer.learns = trained or any(producer.learns for producer in layer.producers)
        if shared := self._shared.get(owner):
            found = {name: parameter.weight.shape for name, parameter in shared.items()}
            wanted = {name: shape for name, shape in shapes.items() if not (layer.own_bias and name == "b")}
            if found != wanted:
                first = next(one for one in self.layers if (one.shares or one) is owner)
                raise NetworkError(f"{layer} has parameters {wanted}, and {first}, which shares them, has {found}")
            layer.parameters = dict(shared)
            shapes = {name: shape for name, shape in shapes.items() if name not in shared}
        for name, shape in shapes.items():
            whose = layer.owner_of(name).name
            full, frozen = f"{whose}.{name}", self.learning.freezes(whose, name)
            weight = self._resident(full, shape, "weight")
            # A normalisation computes its gradients together, frozen or not; a product leaves out what it need not.
            apart = layer.traits.work == "product" or layer.traits.gradients_apart
            computed = not frozen or (layer.learns and not apart)
            gradient = self._weight_gradient(f"d({full})", shape) if computed else None
            kept = () if frozen else self.learning.rule.states
            states = {state: self._resident(f"{state} of {full}", shape, "momentum") for state in kept}
            layer.parameters[name] = Parameter(weight, gradient, states, frozen)
        shared = {name: p for name, p in layer.parameters.items() if not (layer.own_bias and name == "b")}
        self._shared[owner] = shared
        for name, shape in layer.traits.statistics(layer).items():
            layer.statistics[name] = self._resident(f"{layer.name}.{name}", shape, "statistic")
        for name, values in layer.traits.constants(layer).items():
            layer.constants[name] = self._resident(f"{layer.name}.{name}", (len(values),), "constant", "int32")
        for name, shape in layer.traits.kept(layer).items():
            layer.kept[name] = self._resident(f"{layer.name}.{name}", shape, "kept")

    def _make_state(self, layer: Layer, op: Operation) -> None:
        """The parameters and buffers that an operation reads: its own, unless one before it reads them, too."""
        for learnt in op.state:
            name, (shape, dtype) = learnt.source.rpartition(".")[2], (learnt.storage.shape, learnt.storage.dtype)
            name = learnt.source if name in (*layer.parameters, *layer.statistics) else name
            if learnt.kind == "buffer":
                if learnt.source not in self._buffers:
                    self._buffers[learnt.source] = self._resident(learnt.source, shape, "statistic", dtype)
                layer.statistics[name] = self._buffers[learnt.source]
                continue
            if learnt.source not in self._learnt:
                frozen = learnt.kind == "frozen" or self.learning.freezes(layer.name, name)
                weight = self._resident(learnt.source, shape, "weight", dtype)
                grown = f"d({learnt.source})"
                gradient = None if frozen else Tensor(grown, shape, "weight gradient", managed=True, dtype=dtype)
                kept = () if frozen else self.learning.rule.states
                states = {one: self._resident(f"{one} of {learnt.source}", shape, "momentum", dtype) for one in kept}
                layer.parameters[name] = self._learnt[learnt.source] = Parameter(weight, gradient, states, frozen)
            layer.uses.append(self._learnt[learnt.source])
        trained = any(not parameter.frozen for parameter in layer.uses)
        layer.learns = op.learns and (trained or any(producer.learns for producer in layer.producers))

    def _weight_gradient(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if not (self.conventions.weight_gradients_managed or "gradients" in self.conventions.lean):
            return self._resident(name, shape, "weight gradient")
        if self.learning.clip is not None:
            raise NetworkError(
                f"{name} is freed after its layer's backward step, and its norm is needed later: clip the gradients of "
                "a network without :vdnnpp and :gradients"
            )
        made = Tensor(name, shape, "weight gradient", managed=True)
        self.managed.append(made)
        return made

    def _make_scratch(self) -> Tensor | None:
        """One workspace for all layers that need a small one of fixed size: they run one after another."""
        ours = [layer for layer in self.layers if layer.operation is None]
        needed = [size for layer in ours if (of := layer.traits.scratch_bytes) and (size := of(layer))]
        return self._resident("scratch", (max(needed) // 4,), "scratch") if needed else None

    def _refuse_equal_names(self) -> None:
        """Tensors are stored by name, so names must differ."""
        names = Counter(tensor.name for tensor in (*self.resident, *self.managed))
        for name, count in names.items():
            if count > 1:
                raise NetworkError(f"{self.name}: two tensors would be named {name!r}; give that layer another name")

    # -- tokens --------------------------------------------------------------------------------------------------------

    def words(self, x: Tensor) -> int:
        """How many tokens all embeddings know that read this input: its numbers are 0 … words - 1."""
        readers = (layer for layer in self.layers if layer.kind == "embedding" and layer.x is x)
        return min(int(layer.options["words"]) for layer in readers)

    @property
    def example(self) -> str:
        """The word for one of a batch: an image, or a window of tokens."""
        return "window" if self.input.dtype.startswith("int") else "image"

    @property
    def place(self) -> str:
        """The word for what has a label of its own, where an image has several."""
        return "token" if self.input.dtype.startswith("int") else "pixel"

    # -- figures -------------------------------------------------------------------------------------------------------

    def parameters(self) -> Iterator[tuple[Layer, str, Parameter]]:
        """Each once: under the layer that it is named after."""
        for layer in self.layers:
            own = layer.parameters if not (layer.shares or layer.own_bias) else layer.own
            for name, parameter in own.items():
                yield layer, name, parameter

    @property
    def parameter_count(self) -> int:
        return sum(layer.parameter_count for layer in self.layers)

    @property
    def resident_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.resident)

    @property
    def managed_bytes(self) -> int:
        """Bytes of all managed tensors together, workspaces excepted; no step needs all of them at once."""
        return sum(tensor.nbytes for tensor in self.managed)

    @property
    def reduced(self) -> list[int]:
        """Bytes of gradients of each all-reduce, in order."""
        return [sum(t.nbytes for t in call.updates) for step in self.steps for call in step.calls if call.collective]

    @property
    def flops(self) -> int:
        """Multiplications and additions of an iteration's convolutions and fully connected layers."""
        return sum(step.flops for step in self.steps)

    def layer(self, name: str) -> Layer:
        """The layer of that name."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        close = get_close_matches(name, [layer.name for layer in self.layers], 1)
        near = f"; did you mean {close[0]!r}?" if close else ""
        raise NetworkError(f"{self.name} has no layer {name!r}{near}")

    def __repr__(self) -> str:
        return (
            f"{self.name}, batch {self.batch}: {counted(len(self.layers), 'layer')}, {counted(len(self.steps), 'step')}"
        )
