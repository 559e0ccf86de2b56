"""A network of any module, as PyTorch keeps it: for planning, not for running.

Every operator that makes a storage, or changes one in place, becomes a layer with an `Operation`; a view becomes none.
Where we know the operator, the layer has our kind of it, and the papers' rules treat it as such.  Any other one is
*opaque*.  No kernel of ours runs any of them: what PyTorch saves for backward is often not what our kernels read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernels.targets.collector import collector_paused
from refimpl.importing.torch_parts import Names
from refimpl.network.conventions import PYTORCH
from refimpl.network.kinds import LayerKind
from refimpl.network.layer import Layer, NetworkError
from refimpl.network.network import Network
from refimpl.network.operation import Learnt, Operation, OperationInput, Storage
from refimpl.text import offer

if TYPE_CHECKING:
    from refimpl.importing.observed import Key, Observed, Seen

#: Operator → our kind of layer.
KINDS: Mapping[str, Any] = {
    "conv1d": "conv", "conv2d": "conv", "conv_transpose1d": "conv_transpose", "conv_transpose2d": "conv_transpose",
    "linear": "fc", "addmm": "fc", "scaled_dot_product_attention": "attention", "embedding": "embedding",
    "batch_norm": "batchnorm", "layer_norm": "layernorm", "group_norm": "groupnorm", "instance_norm": "groupnorm",
    "rms_norm": "rmsnorm", "dropout": "dropout", "constant_pad_nd": "pad", "channel_shuffle": "channel_shuffle",
    "relu6": "relu", "hardtanh": "relu", "upsample_nearest2d": "upsample", "upsample_bilinear2d": "upsample",
} | {
    f"{size}_pool{axes}{more}": "pool"
    for size in ("max", "avg", "adaptive_avg", "adaptive_max")
    for axes in ("1d", "2d")
    for more in ("", "_with_indices")
} | {
    kind: kind
    for kind in ("relu", "gelu", "silu", "hardswish", "sigmoid", "hardsigmoid", "tanh", "leaky_relu", "pad")
}  # fmt: skip
#: Operator → our kind of layer where it reads two maps, and where it reads a map and a parameter.
OF_TWO: Mapping[str, tuple[LayerKind, LayerKind]] = {
    "add": ("join", "position"), "mul": ("mul", "scale"), "cat": ("concat", "prepend"), "concat": ("concat", "prepend"),
}  # fmt: skip


def network_of(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    keeps: str,
    autocast: Any = None,
    loss: Callable[[Any], Any] | None = None,
    outer_loss: Callable[[Any], Any] | None = None,
) -> Network:
    """The network of a module.

    Args:
        module: any.
        args, kwargs: what it is called with.
        keeps: "pytorch" on a GPU, or "pytorch-cpu".
        autocast: a type of numbers, as in `torch.bfloat16`; None: as the module has them.
        loss: a function of what the module returns, which is a part of the network.
        outer_loss: one that is no part of it.
    """
    from refimpl.importing.observed import Observed

    observed = Observed(module, args, kwargs, autocast, loss, outer_loss)
    network = _Description(observed, keeps == "pytorch").network(type(module).__name__)
    network.script = {} if loss is not None else observed.script  # `Planned` runs the module alone
    return network


def named_loss(torch: Any, name: str) -> Callable[[Any], Any]:
    """One of our losses as PyTorch's own, of labels or targets that are made for it."""
    functional = torch.nn.functional

    def of_classes(out: Any) -> Any:
        rows = out.flatten(1)
        return functional.cross_entropy(rows, torch.zeros(len(rows), dtype=torch.int64, device=out.device))

    def of_places(out: Any) -> Any:
        rows = out.flatten(0, -2) if out.dim() == 3 else out  # tokens have their classes last, pixels second
        labels = rows.shape[:1] + rows.shape[2:]
        return functional.cross_entropy(rows, torch.zeros(labels, dtype=torch.int64, device=out.device))

    def of_numbers(function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        return lambda out: function(out, torch.zeros(out.shape, dtype=out.dtype, device=out.device))

    losses: Mapping[str, Callable[[Any], Any]] = {
        "softmax": of_classes, "pixel_softmax": of_places,
        "mean_squared_error": of_numbers(functional.mse_loss),
        "binary_cross_entropy": of_numbers(functional.binary_cross_entropy_with_logits),
    }  # fmt: skip
    if name not in losses:
        raise NetworkError(f"there is no loss {name!r}{offer(str(name), [*losses])}")
    return losses[name]


class _Description:
    """The layers of a module, in the order in which they run."""

    def __init__(self, observed: Observed, on_gpu: bool) -> None:
        self.observed, self.on_gpu = observed, on_gpu
        self.names = Names()
        self.layers: list[Layer] = []
        self.data: list[Layer] = []
        self.holder: dict[Key, tuple[Layer, int]] = {}  #: storage → the layer that wrote it last, and which of its own
        self.origins: dict[str, str] = {}  #: node → the layer that has its storage
        self.opaque: Counter[str] = Counter()  #: operator → layers
        for key, name in observed.inputs.items():
            self._input(name, key)
        used: set[str] = set()
        numbers = [0]  #: of layers before each node, and after the last
        for seen in observed.seen:
            self._add(seen)
            numbers.append(len(self.layers))
            used |= {observed.state[key] for key in seen.reads if key in observed.state}
        self._hold({key: numbers[observed.until.get(key, 0)] for key in self.holder})
        self._end([key for key, source in observed.state.items() if source not in used])

    def network(self, name: str) -> Network:
        with collector_paused():
            network = Network(name, self.data, self.layers[-1:], PYTORCH, described=self.layers)
        network.origins = self.origins
        network.opaque = dict(self.opaque)
        return network

    def _input(self, name: str, key: Key) -> None:
        layer = Layer(self.names.free(name) if self.data else "input", "data", (), {})
        storage = self.observed.storages[key]
        layer.shape = storage.shape
        if storage.dtype != "float32":
            layer.options = {"dtype": storage.dtype}
        self.data.append(layer)
        self.holder[key] = layer, 0
        self.origins[name] = layer.name

    def _add(self, seen: Seen) -> None:
        """The layer of a node; a view has none, and neither has what changes the batch or a buffer only."""
        changed = [key for key in seen.overwrites if key in self.holder and self.holder[key][0] not in self.data]
        if seen.makes or changed:
            self._layer(seen, changed[:1])
        if seen.outputs and seen.outputs[0] in self.holder:
            self.origins[seen.name] = self.holder[seen.outputs[0]][0].name

    def _layer(self, seen: Seen, changed: Sequence[Key]) -> None:
        observed = self.observed
        sources = [key for key in dict.fromkeys((*seen.reads, *seen.saves)) if key in self.holder]
        operator = seen.operator
        kind = self._kind(operator, seen)
        saved, makes = set(seen.saves), seen.makes
        if changed and makes:
            # Described as if it were not in place, so that what it makes for backward can be recomputed: it holds as
            # many bytes, the storage that it overwrites being saved in place of a clone of it.
            clones = self._clones(operator, seen, changed[0])
            makes = [*changed, *(key for key in makes if key not in clones)]
            saved, changed = saved - {*clones} | ({*changed} if clones else set()), []
        operation = Operation(
            operator,
            makes=tuple(self._kept(operator, seen, key) for key in makes),
            saved=tuple(key in saved and key not in sources for key in makes),
            reads=tuple(
                OperationInput(
                    self.holder[key][1], seen.reads.get(key, False), key in saved, self._part_bytes(seen, key)
                )
                for key in sources
            ),
            state=self._state(key for key in seen.reads if key in observed.state),
            overwrites=sources.index(changed[0]) if changed else None,
            hands_on=seen.hands_on,
            learns=seen.learns,
            forward_flops=seen.forward_flops,
            backward_flops=self._backward_flops(operator, seen),
            made_bytes=sum(observed.nbytes[key] for key in seen.makes),
            forward_levels=seen.forward_levels,
            backward_levels=seen.backward_levels,
        )
        name = self.names(seen.path, seen.kind, operator)
        layer = self._described(name, kind, operation, [self.holder[key][0] for key in sources])
        layer.shape = observed.storages[(*seen.outputs, *seen.makes)[0]].shape
        if layer.traits.opaque:
            self.opaque[operator] += 1
        for part, key in enumerate((*changed, *makes)):
            self.holder[key] = layer, part

    def _hold(self, until: Mapping[Key, int]) -> None:
        """Say of each layer's storages while how many more layers variables of the module hold them."""
        for key, (layer, part) in self.holder.items():
            if (operation := layer.operation) is not None:
                held = [*operation.held, *[0] * (part + 1 - len(operation.held))]
                held[part] = max(0, until[key] - layer.number)
                layer.operation = replace(operation, held=tuple(held))

    def _backward_flops(self, operator: str, seen: Seen) -> int:
        """A convolution's are those of forward for each gradient: PyTorch's count of backward knows no groups."""
        if not operator.startswith("conv"):
            return seen.backward_flops
        return seen.forward_flops * sum(seen.reads[key] for key in seen.factors)  # the maps and the filters

    def _part_bytes(self, seen: Seen, key: Key) -> int | None:
        """Bytes of what a node reads of a storage, if that is a part."""
        nbytes = seen.read_bytes.get(key)
        return nbytes if nbytes and nbytes < self.observed.nbytes[key] else None

    def _clones(self, operator: str, seen: Seen, changed: Key) -> list[Key]:
        """The copy of what a node overwrites that it saves before, as ReLU6 does; dropout's noise is no copy."""
        storages = self.observed.storages
        alike = [key for key in seen.makes if key in seen.saves and storages[key] == storages[changed]]
        return alike if len(alike) == 1 and changed not in seen.saves and operator != "dropout" else []

    def _described(self, name: str, kind: LayerKind, operation: Operation, producers: Sequence[Layer]) -> Layer:
        layer = Layer(name, kind, tuple(producers), {})
        layer.operation = operation
        for producer in producers:
            producer.consumers.append(layer)
        self.layers.append(layer)
        layer.number = len(self.layers)
        return layer

    def _kind(self, operator: str, seen: Seen) -> LayerKind:
        """Our kind of layer, or that it is opaque, a product or not."""
        maps = sum(key in self.holder for key in seen.reads)
        weights = sum(key in self.observed.state for key in seen.reads)
        if operator in KINDS:
            wide = operator == "linear" and maps and len(seen.shape) > 2
            return "conv" if wide else KINDS[operator]  # of every position, as a convolution of one by one
        if operator in ("cat", "concat") and maps == 1 and not weights:  # of one map, or of several parts of one
            return "concat"
        if operator in OF_TWO and maps and maps + weights > 1:
            return OF_TWO[operator][maps == 1]
        return "opaque_product" if seen.forward_flops else "opaque"

    def _kept(self, operator: str, seen: Seen, key: Key) -> Storage:
        """A storage that a node makes; a GPU keeps of dropout a byte a number, and a CPU its noise."""
        storage = self.observed.storages[key]
        if self.on_gpu and operator == "dropout" and key in seen.saves and key not in seen.outputs:
            return Storage(storage.shape, "bool")
        return storage

    def _state(self, keys: Any) -> tuple[Learnt, ...]:
        observed = self.observed
        found = []
        for key in keys:
            source = observed.state[key]
            learns = source in observed.learning
            frozen = source in observed.parameters
            kind: Any = "parameter" if learns else "frozen" if frozen else "buffer"
            found.append(Learnt(source, observed.storages[key], kind))
        return tuple(found)

    def _end(self, unused: Sequence[Key]) -> None:
        """The loss: it reads all outputs."""
        read = {key: learns for key, learns in self.observed.outputs.items() if key in self.holder}
        if not any(read.values()):
            raise NetworkError("no output of the module depends on a parameter that learns; there is nothing to plan")
        reads = tuple(OperationInput(self.holder[key][1], learns, False) for key, learns in read.items())
        seen = self.observed.loss
        own = sum(self.observed.nbytes[key] for key in seen.makes) if seen else 0
        operation = Operation(
            "loss",
            reads=reads,
            state=self._state(unused),
            forward_levels=seen.forward_levels if seen else (),
            # Its backward comes at once, so that what it keeps for that is never there without it.
            backward_levels=tuple(own + level for level in seen.backward_levels) if seen else (),
        )
        end = self._described("loss", "opaque_loss", operation, [self.holder[key][0] for key in read])
        end.shape = (self.data[0].shape[0],)
