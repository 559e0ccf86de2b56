"""What a kind of layer is: one record each, asked whenever code needs to know "does it learn?" or "is it cheap?".

To add a kind, name it in `LayerKind`, write its record, a method of `Builder` and a file of kernels.  The calls of an
element-wise kind follow from its record, and so do its cases in the tests and in the bench; any other kind has its
calls in `refimpl.network.later_calls`.  `tests/refimpl/test_kinds.py` goes through all kinds and says what one lacks.

The kinds of the papers' networks come first, `PUBLISHED`; the others follow, `LATER`.  A paper's rule that names kinds
is a tuple in the paper's folder.  The papers knew the kinds of their own networks; `with_new` says for each rule which
of the others it is extended to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal, Protocol

from refimpl.network.shapes import (
    embedding_workspace,
    layernorm_workspace,
    loss_parts_workspace,
    normalisation_workspace,
    rmsnorm_workspace,
)
from refimpl.network.tensor import Tensor

LayerKind = Literal[
    # the kinds of the papers' networks
    "data", "conv", "pool", "fc", "relu", "lrn", "batchnorm", "dropout", "softmax", "concat", "join", "fork",
    # later ones
    "conv_transpose", "upsample", "gelu", "silu", "hardswish", "sigmoid", "hardsigmoid", "tanh", "leaky_relu",
    "mul", "scale", "embedding", "position", "layernorm", "groupnorm", "rmsnorm", "rotary", "attention", "scores",
    "mix", "drop_path", "channel_shuffle", "permute_channels", "take", "pad", "prepend", "pixel_softmax",
    "mean_squared_error", "binary_cross_entropy", "opaque", "opaque_product", "opaque_loss",
]  # fmt: skip

#: The work of a layer: a matrix product, whose time may hide a copy; one streaming pass over its maps,
#: which is cheap to repeat; a place where branches part or meet; the loss; or none, for the input batch.
Work = Literal["product", "pass", "structure", "loss", "data"]

#: The numbers of its output: of either sign; none negative and many 0; none negative and few 0; or as those of its
#: inputs, none negative where those have none, and 0 where they are.
Sign = Literal["any", "never negative", "positive", "kept"]

Shapes = Mapping[str, tuple[int, ...]]  #: name → shape


class Described(Protocol):
    """What a record asks of a layer."""

    kind: LayerKind
    shape: tuple[int, ...]
    options: Mapping[str, Any]

    @property
    def x(self) -> Tensor: ...


def nothing(layer: Described) -> Shapes:
    return {}


#: What the labels of a loss are: the number of a class, for an image or for a pixel; or the numbers wanted themselves.
Target = Literal["image", "pixel", "number"]


@dataclass(frozen=True)
class Loss:
    """What is true of all losses of one kind, beside their traits."""

    target: Target
    per_image: Callable[[Described], tuple[int, ...]]  #: the shape of an image's predictions
    shares: bool = False  #: whether a prediction is a probability of its target being 1, and so right or wrong

    def predictions(self, layer: Described) -> tuple[int, ...]:
        """The shape of a batch's predictions."""
        return (layer.x.shape[0], *self.per_image(layer))

    def labels(self, layer: Described) -> tuple[int, ...]:
        """The shape of a batch's labels."""
        predicted = self.predictions(layer)
        return predicted if self.target == "number" else (predicted[0], *predicted[2:])

    @property
    def dtype(self) -> str:
        """Of its labels."""
        return "float32" if self.target == "number" else "int32"


@dataclass(frozen=True, eq=False)
class Traits:
    """What is true of all layers of one kind."""

    work: Work
    #: Its own maps that its backward reads, "x" and "y", beside the gradient dy.
    backward_reads: tuple[str, ...]
    #: What the published systems' library reads besides: held where the network's conventions say so.
    library_reads: tuple[str, ...] = ()
    #: Whether its output may overwrite its input, where no other step needs that.
    in_place: bool = False
    #: Whether a ReLU after it can be part of it, where the network's conventions say so.
    fuses_relu: bool = False
    sign: Sign = "any"
    parameters: Callable[[Described], Shapes] = nothing  #: what it learns
    statistics: Callable[[Described], Shapes] = nothing  #: what else lives as long as training
    kept: Callable[[Described], Shapes] = nothing  #: resident too: what forward fills for backward, beside maps
    #: Resident too: whole numbers that nothing changes, such as a table of channels.
    constants: Callable[[Described], Mapping[str, tuple[int, ...]]] = nothing
    #: Parameter or statistic → its first value, the same everywhere; None: drawn by He's rule.  A layer's own option
    #: "first" comes before it.
    first: Mapping[str, float | None] = field(default_factory=dict)
    #: Terms of the sum that an output is, by which weights are drawn; by default all axes of "w" but the first.
    terms: Callable[[Described], float] | None = None
    scratch_bytes: Callable[[Described], int] | None = None  #: of a workspace that all layers of this kind share
    gradients_apart: bool = False  #: whether those of frozen parameters are left out, as a product's are
    choosable: tuple[str, ...] = ()  #: the functions of `kernels` whose algorithm, and so workspace, a plan chooses
    #: y = f(x), element by element: `kernels.KIND.forward(x, y, **options)`, and in place on dy the gradient,
    #: `kernels.KIND.backward(x or y, dy, dx, **options)`.
    elementwise: bool = False
    forms: tuple[Mapping[str, Any], ...] = ({},)  #: options, a set for each of its kernels
    opaque: bool = False  #: whether there is no kernel of it
    published: bool = False  #: whether the papers' networks have it, so that their rules name it or leave it out
    loss: Loss | None = None  #: of a loss

    @property
    def learns(self) -> bool:
        """Whether it has parameters."""
        return self.parameters is not nothing

    @property
    def forgets_output(self) -> bool:
        """Whether no backward of its own reads its output, ours or the library's: a ReLU after it may overwrite it."""
        return "y" not in (*self.backward_reads, *self.library_reads)


# -- what layers learn -------------------------------------------------------------------------------------------------


def filters(layer: Described) -> Shapes:
    """The weights of a convolution or of a fully connected layer."""
    options = layer.options
    if layer.kind == "conv":
        outputs, inputs = options["filters"], (layer.x.shape[1] // options["groups"], *options["window"])
    else:
        outputs, inputs = options["outputs"], (prod(layer.x.shape[1:]),)
    return {"w": (outputs, *inputs)} | ({"b": (outputs,)} if options["bias"] else {})


def each_channel(*names: str) -> Callable[[Described], Shapes]:
    """A number of each name for every channel."""
    return lambda layer: dict.fromkeys(names, (layer.shape[1],))


# -- the kinds of the papers' networks ---------------------------------------------------------------------------------

PUBLISHED: Mapping[LayerKind, Traits] = {
    "data": Traits("data", backward_reads=("y",), published=True),  # a convolution's backward reads the batch
    "conv": Traits(
        "product", backward_reads=("x",), fuses_relu=True, parameters=filters, first={"w": None, "b": 0.0},
        choosable=("conv.forward", "conv.backward_data", "conv.backward_filter"), published=True,
    ),
    "fc": Traits(
        "product", backward_reads=("x",), fuses_relu=True, parameters=filters, first={"w": None, "b": 0.0},
        published=True,
    ),
    "pool": Traits("pass", backward_reads=("x", "y"), sign="kept", published=True),
    "relu": Traits(
        "pass", backward_reads=("y",), library_reads=("x",), in_place=True, sign="never negative",
        elementwise=True, forms=({}, {"at_most": 0.5}), published=True,
    ),
    "lrn": Traits("pass", backward_reads=("x",), library_reads=("y",), sign="kept", published=True),
    "batchnorm": Traits(
        "pass", backward_reads=("x",), parameters=each_channel("gamma", "beta"),
        statistics=each_channel("mean", "inverse_std", "running_mean", "running_variance"),
        first=dict.fromkeys(("beta", "mean", "inverse_std", "running_mean"), 0.0)
        | dict.fromkeys(("gamma", "running_variance"), 1.0),
        scratch_bytes=lambda layer: normalisation_workspace(layer.shape), published=True,
    ),
    "dropout": Traits("pass", backward_reads=(), sign="kept", published=True),
    "softmax": Traits(
        "loss", backward_reads=("y",), library_reads=("x",), in_place=True, sign="never negative", published=True,
        loss=Loss("image", lambda layer: (prod(layer.x.shape[1:]),)),
    ),
    "concat": Traits("structure", backward_reads=(), sign="kept", published=True),
    "join": Traits("structure", backward_reads=(), sign="kept", published=True),
    "fork": Traits("structure", backward_reads=(), sign="kept", published=True),
}  # fmt: skip


def with_new(named: Sequence[LayerKind], rule: Callable[[Traits], bool]) -> tuple[LayerKind, ...]:
    """The kinds that a paper's rule names, and those that no paper knew to which the rule is extended.

    Args:
        named: by the paper.
        rule: whether the paper's rule is extended to a kind; asked of kinds alone that are not `published`.
    """
    return (*named, *(kind for kind, traits in TRAITS.items() if not traits.published and rule(traits)))


# -- later kinds, which no paper has: a first reader stops here --------------------------------------------------------


def transposed_filters(layer: Described) -> Shapes:
    """The weights of the convolution whose gradient a transposed convolution is: its filters are our input channels."""
    options = layer.options
    w = (layer.x.shape[1], options["filters"] // options["groups"], *options["window"])
    return {"w": w} | ({"b": (options["filters"],)} if options["bias"] else {})


def transposed_terms(layer: Described) -> float:
    """An output is read by every stride-th tap of the filters of its group, in both axes."""
    options = layer.options
    terms = layer.x.shape[1] // options["groups"] * prod(options["window"])
    return max(1.0, float(terms / prod(options["stride"])))


def token(layer: Described) -> Shapes:
    """A number for every channel, as a token has them."""
    return {"w": (layer.shape[1], 1)}


def positions(layer: Described) -> Shapes:
    """A number for every channel of every position, or for every channel."""
    return {"w": layer.shape[1:2] if layer.options.get("alike") else layer.shape[1:]}


def mean_loss(shares: bool) -> Traits:
    """A loss that is a mean over numbers: it has no map of its own, and leaves its input as it is."""
    return Traits(
        "loss", backward_reads=("x", "y"), in_place=True,
        scratch_bytes=lambda layer: loss_parts_workspace(layer.shape[0], prod(layer.shape[1:])),
        loss=Loss("number", lambda layer: layer.x.shape[1:], shares),
    )  # fmt: skip


def opaque(work: Work) -> Traits:
    """An operator of PyTorch for which there is no kernel here: an operation says what its backward reads.

    One with matrix products in it is treated as a product, any other as one pass; both rules are this project's.
    """
    return Traits(work, backward_reads=("x",), opaque=True)


def affine(layer: Described) -> Shapes:
    """A factor and a summand for every channel, if the layer has them."""
    return _affine(layer, "gamma", "beta")


def _affine(layer: Described, *names: str) -> Shapes:
    return dict.fromkeys(names, (layer.shape[1],)) if layer.options.get("affine", True) else {}


def each_set(layer: Described) -> Shapes:
    """Mean and inverse deviation of what is normalised together: a position's channels, or a group of an image."""
    sets = layer.options.get("groups") or prod(layer.shape[2:])
    return dict.fromkeys(("mean", "inverse_std"), (layer.shape[0], sets))


def normalised_sets() -> Traits:
    """Of layer and of group normalisation."""
    return Traits(
        "pass", backward_reads=("x",), parameters=affine, kept=each_set, first={"gamma": 1.0, "beta": 0.0},
        scratch_bytes=lambda layer: layernorm_workspace(layer.shape) if affine(layer) else 0,
        forms=({}, {"affine": False}),
    )  # fmt: skip


LATER: Mapping[LayerKind, Traits] = {
    "conv_transpose": Traits(
        "product", backward_reads=("x",), parameters=transposed_filters, first={"w": None, "b": 0.0},
        terms=transposed_terms, choosable=("conv.forward", "conv.backward_data", "conv.backward_filter"),
    ),
    "upsample": Traits("pass", backward_reads=(), sign="kept", forms=({}, {"mode": "bilinear"})),
    "gelu": Traits("pass", backward_reads=("x",), sign="kept", elementwise=True, forms=({}, {"approximate": "tanh"})),
    "silu": Traits("pass", backward_reads=("x",), sign="kept", elementwise=True),
    "hardswish": Traits("pass", backward_reads=("x",), sign="kept", elementwise=True),
    "sigmoid": Traits("pass", backward_reads=("y",), in_place=True, sign="positive", elementwise=True),
    "hardsigmoid": Traits("pass", backward_reads=("y",), in_place=True, sign="positive", elementwise=True),
    "tanh": Traits("pass", backward_reads=("y",), in_place=True, sign="kept", elementwise=True),
    "leaky_relu": Traits(
        "pass", backward_reads=("y",), in_place=True, sign="kept", elementwise=True, forms=({"negative_slope": 0.2},)
    ),
    "mul": Traits("pass", backward_reads=("x",), sign="kept"),
    "scale": Traits(
        "pass", backward_reads=("x",), parameters=each_channel("w"), first={"w": 1.0},
        scratch_bytes=lambda layer: 4 * prod(layer.shape[:2]),
    ),
    "embedding": Traits(
        "pass", backward_reads=("x",),
        parameters=lambda layer: {"w": (layer.options["words"], layer.shape[1], 1, 1)}, first={"w": None},
        scratch_bytes=lambda layer: embedding_workspace(layer.x.shape), gradients_apart=True,
        forms=({}, {"padding": 2}),
    ),
    "position": Traits(
        "pass", backward_reads=(), in_place=True, parameters=positions, first={"w": None}, gradients_apart=True,
        forms=({}, {"alike": True}),
    ),
    "layernorm": normalised_sets(),
    "groupnorm": normalised_sets(),
    "rmsnorm": Traits(
        "pass", backward_reads=("x",), parameters=lambda layer: _affine(layer, "gamma"),
        kept=lambda layer: {"inverse_rms": (layer.shape[0], prod(layer.shape[2:]))}, first={"gamma": 1.0},
        scratch_bytes=lambda layer: rmsnorm_workspace(layer.shape) if _affine(layer, "gamma") else 0,
        forms=({}, {"affine": False}),
    ),
    "rotary": Traits(
        "pass", backward_reads=(), in_place=True,
        forms=({"heads": 2}, {"heads": 2, "neighbours": True}, {"heads": 3, "packed": False, "rotated": 2}),
    ),
    "attention": Traits(
        "product", backward_reads=("x",), choosable=("attention.forward", "attention.backward"),
        forms=({"heads": 2}, {"heads": 2, "causal": True}, {"heads": 2, "kv_heads": 1}),
    ),
    "scores": Traits(
        "product", backward_reads=("x", "y"), sign="never negative", forms=({"heads": 2}, {"heads": 2, "causal": True})
    ),
    "mix": Traits("product", backward_reads=("x",)),
    "drop_path": Traits("pass", backward_reads=(), sign="kept"),
    "channel_shuffle": Traits("pass", backward_reads=(), sign="kept"),
    "permute_channels": Traits(
        "pass", backward_reads=(), sign="kept", constants=lambda layer: {"order": layer.options["order"]}
    ),
    "take": Traits("pass", backward_reads=(), sign="kept"),
    "pad": Traits("pass", backward_reads=(), sign="kept"),
    "prepend": Traits("pass", backward_reads=(), parameters=token, first={"w": 0.0}),
    "pixel_softmax": Traits(
        "loss", backward_reads=("y",), in_place=True, sign="never negative",
        scratch_bytes=lambda layer: loss_parts_workspace(layer.shape[0], prod(layer.shape[2:]), 2),
        loss=Loss("pixel", lambda layer: layer.x.shape[1:]),
    ),
    "mean_squared_error": mean_loss(shares=False),
    "binary_cross_entropy": mean_loss(shares=True),
    "opaque": opaque("pass"),
    "opaque_product": opaque("product"),
    # A loss that is the user's own: it reads the module's outputs and makes their gradients.
    "opaque_loss": replace(opaque("loss"), loss=Loss("image", lambda layer: (1,))),
}  # fmt: skip

#: Every kind, those of the papers' networks first.
TRAITS: Mapping[LayerKind, Traits] = {**PUBLISHED, **LATER}
