"""The names and the numbers that a builder is given: a wrong one is refused in one line that says what to write."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeVar

from refimpl.network.layer import Layer, NetworkError
from refimpl.text import offer

Size = int | tuple[int, int]
Pad = int | tuple[int, ...]  #: one number, (vertical, horizontal) or (top, left, bottom, right)
Class = TypeVar("Class", bound=type)

# -- misspelt layers and options ---------------------------------------------------------------------------------------

#: What other frameworks call it → what it is called here.
ELSEWHERE = {
    "linear": "fc", "dense": "fc", "conv2d": "conv", "maxpool": "pool", "max_pool2d": "pool", "maxpool2d": "pool",
    "avgpool": "pool", "batchnorm2d": "batchnorm", "batch_norm": "batchnorm", "bn": "batchnorm", "add": "join",
    "cat": "concat", "cross_entropy": "softmax", "padding": "pad", "kernel_size": "window", "kernel": "window",
    "strides": "stride", "out_channels": "filters", "channels": "filters", "out_features": "outputs",
    "units": "outputs", "ceil_mode": "ceil", "p": "probability", "rate": "probability", "eps": "epsilon",
    "input": "after", "inputs": "after", "relu6": "relu", "swish": "silu", "multiply": "mul", "hard_swish": "hardswish",
    "hard_sigmoid": "hardsigmoid", "leakyrelu": "leaky_relu", "alpha": "negative_slope",
    "adaptive_avg_pool2d": "pool_to", "adaptive_pool": "pool_to", "adaptive_max_pool2d": "pool_to",
    "count_include_pad": "count_padding", "dilations": "dilation", "group": "groups",
    "conv_transpose2d": "conv_transpose", "convtranspose2d": "conv_transpose", "output_padding": "out_pad",
    "stochastic_depth": "drop_path", "split": "take", "slice": "take", "deconv": "conv_transpose",
    "class_token": "prepend", "cls_token": "prepend", "permute": "permute_channels", "gather": "permute_channels",
    "index_select": "permute_channels",
    "interpolate": "upsample", "resize": "upsample_to", "scale_factor": "factor",
    "mse": "mean_squared_error", "mse_loss": "mean_squared_error", "mseloss": "mean_squared_error",
    "mha": "attention", "multihead_attention": "attention", "scaled_dot_product_attention": "attention",
    "num_heads": "heads", "num_kv_heads": "kv_heads", "is_causal": "causal", "rms_norm": "rmsnorm",
    "vocabulary": "words", "num_embeddings": "words", "embedding_dim": "channels", "std": "spread",
    "rope": "rotary", "theta": "base", "rotary_embedding": "rotary",
    "bce": "binary_cross_entropy", "bcewithlogitsloss": "binary_cross_entropy",
    "binary_cross_entropy_with_logits": "binary_cross_entropy", "ignored": "ignore_index",
}  # fmt: skip


def name_advice(name: str, names: Sequence[str]) -> str:
    """Error text for a name that is not one of these: what was probably meant, then all of them."""
    here = ELSEWHERE.get(name.lower(), "")
    return f"; write {here}. There are: {', '.join(names)}." if here in names else offer(name, names)


def layer_methods(builder: type) -> tuple[str, ...]:
    """The methods of a builder that add a layer."""
    methods = {name: method for one in reversed(builder.__mro__) for name, method in vars(one).items()}
    return tuple(
        name
        for name, method in methods.items()
        if inspect.isfunction(method) and name[0] != "_" and method.__annotations__["return"] == "Layer"
        if name != "add_input"
    )


def options_checked(builder: Class) -> Class:
    """The class; its methods that add a layer refuse an option that they do not have."""
    for name in layer_methods(builder):
        if name in vars(builder):
            setattr(builder, name, _checked(vars(builder)[name]))
    return builder


def _checked(method: Callable[..., Layer]) -> Callable[..., Layer]:
    options = [*inspect.signature(method).parameters][1:]

    @functools.wraps(method)
    def checked(self: object, *values: Any, **given: Any) -> Layer:
        for name in given:
            if name not in options:
                raise NetworkError(f"{method.__name__} has no option {name!r}{name_advice(name, options)}")
        return method(self, *values, **given)

    return checked


# -- sizes -------------------------------------------------------------------------------------------------------------


def whole_number(where: Layer | str, number: Any, what: str, least: int = 1) -> int:
    try:
        whole = int(number)
    except (TypeError, ValueError, OverflowError):
        whole = least - 1
    if whole != number or whole < least:
        raise NetworkError(f"{where}: {what} is {number!r}; give a whole number of at least {least}")
    return whole


def spread_option(layer: Layer, spread: float | None) -> dict[str, float]:
    """The option of that name; without one, none."""
    if spread is not None and not 0 < spread < inf:
        raise NetworkError(f"{layer}: spread is {spread!r}; give a number above 0")
    return {} if spread is None else {"spread": float(spread)}


def pooling_mode(layer: Layer, mode: str) -> str:
    if mode not in ("max", "average"):
        raise NetworkError(f"{layer}: there is no pooling mode {mode!r}; give max or average")
    return mode


def pair_of(where: Layer | str, size: Any, what: str, least: int) -> tuple[int, int]:
    """A number for both axes, or one for each."""
    both = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(both) != 2:
        raise NetworkError(f"{where}: {what} is {size!r}; give one number, or (vertical, horizontal)")
    return whole_number(where, both[0], what, least), whole_number(where, both[1], what, least)


def sides_of(where: Layer, pad: Any) -> tuple[int, ...]:
    """Padding as a pair, or as four numbers where opposite sides differ."""
    if not isinstance(pad, tuple | list) or len(pad) != 4:
        return pair_of(where, pad, "pad", 0)
    sides = tuple(whole_number(where, side, "pad", 0) for side in pad)
    return sides[:2] if sides[:2] == sides[2:] else sides
