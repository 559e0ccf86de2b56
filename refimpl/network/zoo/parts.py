"""What several families are built of."""

from __future__ import annotations

from refimpl.network.builder import Builder
from refimpl.network.conventions import SUFFIXES, Conventions
from refimpl.network.layer import Layer


def spelled(name: str, conventions: Conventions) -> str:
    """The network's name as the command takes it."""
    return name + next((suffix for suffix, theirs in SUFFIXES.items() if conventions == theirs), "")


def conv_relu(
    b: Builder,
    name: str,
    filters: int,
    window: int | tuple[int, int],
    stride: int = 1,
    pad: int = 0,
    after: Layer | None = None,
) -> Layer:
    """A convolution with a bias, and a ReLU."""
    b.conv(filters, window, stride, pad, name=name, after=after)
    return b.relu(name=f"{name}.relu")


def conv_norm(
    b: Builder,
    name: str,
    filters: int,
    window: int | tuple[int, int],
    stride: int = 1,
    pad: int | tuple[int, int] = 0,
    after: Layer | None = None,
) -> Layer:
    """A convolution without a bias, for the batch normalisation behind it would take it off again."""
    b.conv(filters, window, stride, pad, bias=False, name=name, after=after)
    return b.batchnorm(name=f"{name}.norm")


def conv_norm_relu(
    b: Builder,
    name: str,
    filters: int,
    window: int | tuple[int, int],
    stride: int = 1,
    pad: int | tuple[int, int] = 0,
    after: Layer | None = None,
) -> Layer:
    """A convolution without a bias, a batch normalisation and a ReLU."""
    conv_norm(b, name, filters, window, stride, pad, after)
    return b.relu(name=f"{name}.relu")
