"""Building blocks that several families share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from refimpl.network.builder import PapersBuilder
from refimpl.network.conventions import SUFFIXES, VDNN, Conventions
from refimpl.network.layer import Layer
from refimpl.network.network import Network
from refimpl.network.spelling import Size


def spelled(name: str, conventions: Conventions) -> str:
    """The network's name as the command takes it."""
    plain = replace(conventions, lean=())
    suffix = next((suffix for suffix, theirs in SUFFIXES.items() if plain == theirs), "")
    return ":".join((name + suffix, *conventions.lean))


def conv_relu(b: PapersBuilder, name: str, filters: int, window: Size, stride: int = 1, **more: Any) -> Layer:
    """A convolution with a bias, and a ReLU; `pad` and `after` as `PapersBuilder.conv` takes them."""
    b.conv(filters, window, stride, name=name, **more)
    return b.relu(name=f"{name}.relu")


def conv_norm(b: PapersBuilder, name: str, filters: int, window: Size, stride: int = 1, **more: Any) -> Layer:
    """A convolution without a bias, which the batch normalisation after it would cancel."""
    b.conv(filters, window, stride, bias=False, name=name, **more)
    return b.batchnorm(name=f"{name}.norm")


def conv_norm_relu(b: PapersBuilder, name: str, filters: int, window: Size, stride: int = 1, **more: Any) -> Layer:
    """A convolution, batch normalisation and a ReLU."""
    conv_norm(b, name, filters, window, stride, **more)
    return b.relu(name=f"{name}.relu")


def classified(b: PapersBuilder, classes: int, name: str = "fc") -> Network:
    """The network with its end: a fully connected layer of this name and a softmax."""
    b.fc(classes, name=name)
    b.softmax(name="softmax")
    return b.build()


def of_depth(family: Callable[..., Network], depth: int, images: int, about: str) -> Callable[..., Network]:
    """The function that makes one network of a family, such as `vgg16`; `images`: its batch by default."""

    def make(batch: int = images, conventions: Conventions = VDNN) -> Network:
        return family(depth, batch, conventions)

    make.__name__, make.__doc__ = f"{family.__name__}{depth}", about
    return make
