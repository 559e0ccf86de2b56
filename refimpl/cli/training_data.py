"""The data that `refimpl run` trains on, and the network for data of this shape."""

from __future__ import annotations

import argparse
import inspect
import os
import warnings
from math import prod
from typing import TYPE_CHECKING, Any

from refimpl.cli.parser import Fail
from refimpl.cli.terminal import tell
from refimpl.names.networks import NETWORKS
from refimpl.network import Network
from refimpl.text import counted, offer

if TYPE_CHECKING:
    from refimpl.backend.data import BatchSource, Data
    from refimpl.backend.named_data import NamedSynthetic

#: What labels are → the data's words.
LABELS = {"image": "a label an image", "pixel": "labels a pixel", "number": "targets"}
TEXT = "text"  #: the project's own documentation


def data_for(options: argparse.Namespace, network: Network) -> tuple[Network, Any]:
    """The network that was named, for data of the shape that --data has, and the data."""
    if is_several(network):
        return network, several_for(options, network)
    if network.input.dtype == "int32":
        return network, windows_for(options, network)
    if options.data == TEXT or options.data.endswith(".txt"):
        raise Fail(f"--data {options.data} is for networks that read tokens, as tiny-gpt; {network.name} takes images")
    return network_for(options, network, source_of(options.data, validation_of(options)))


def windows_for(options: argparse.Namespace, network: Network) -> BatchSource:
    """The data of a network that reads tokens: a text, or windows and their labels from an .npz file."""
    from refimpl.backend.named_data import named_npz
    from refimpl.backend.windows import SyntheticTokens, text_windows

    name, validation = options.data, validation_of(options)
    if name == "synthetic":
        return SyntheticTokens.of(network)
    if name == "digits":
        raise Fail(f"the digits are images, and {network.name} reads tokens; give --data text, FILE.txt or synthetic")
    if name.endswith(".npz"):
        return named_npz(network, name, validation=validation)
    if name != TEXT and not os.path.exists(name):
        raise Fail(f"there is no data {name!r}{offer(name, (TEXT, 'synthetic', 'FILE.txt', 'FILE.npz'))}")
    return text_windows(network, name, validation)


def validation_of(options: argparse.Namespace) -> str | float | None:
    """validation= of --data as a file or as a share."""
    given = options.validation
    if given is None:
        return None
    if options.data == "synthetic":
        raise Fail(f"validation={given}: of synthetic data there are always new ones; leave it out")
    try:
        return float(given)
    except ValueError:
        if options.data == "digits":
            raise Fail(f"validation={given}: of the digits give a share, as in 0.1") from None
        return str(given)


def source_of(name: str, validation: str | float | None = None) -> Any:
    """Digits, or a user's own; None for synthetic images, whose shape is the network's."""
    from refimpl.backend import data

    if name == "synthetic":
        return None
    if name == "digits":
        return data.digits(share=validation if isinstance(validation, float) else None)
    if not name.endswith(".npz") and not os.path.exists(name):
        raise Fail(f"there is no data {name!r}{offer(name, ('digits', TEXT, 'synthetic', 'FILE.npz'))}")
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always", data.DataWarning)
        found = data.load_npz(name, validation=validation)  # the same split when a run is resumed
    for doubt in doubts:
        tell(f"warning: {name}: {doubt.message}")
    return found


def is_several(network: Network) -> bool:
    """Whether data files name an array for each of its inputs and losses."""
    return len(network.inputs) > 1 or len({(one.loss, one.labels.shape) for one in network.outputs}) > 1


def several_for(options: argparse.Namespace, network: Network) -> Data | NamedSynthetic:
    """The data of a network of several inputs or losses."""
    from refimpl.backend.named_data import NamedSynthetic, named_npz, names_of

    validation = validation_of(options)
    if options.data == "synthetic":
        return NamedSynthetic.of(network)
    if options.data == "digits":
        inputs, losses = (", ".join(names) for names in names_of(network))
        what = f"the inputs {inputs} and the losses {losses}"
        raise Fail(f"{network.name} has {what}: the digits do not fit; give --data FILE.npz with an array for each")
    if not options.data.endswith(".npz") and not os.path.exists(options.data):
        raise Fail(f"there is no data {options.data!r}{offer(options.data, ('synthetic', 'FILE.npz'))}")
    return named_npz(network, options.data, validation=validation)


def network_for(options: argparse.Namespace, network: Network, source: Any) -> tuple[Network, BatchSource]:
    """The network that was named, for images like the source's; only those for teaching take any.  And the source.

    The digits, and synthetic images, have the labels that the network's loss compares with.
    """
    from refimpl.backend import data

    if source is None:
        return network, data.synthetic_for(network)
    target = network.output.loss.target
    if options.data == "digits" and target != "image":
        source = data.digits(target=target, share=validation_of(options))  # type: ignore[arg-type]
    if source.target != target:
        raise Fail(f"{options.data} has {LABELS[source.target]}, and {network.name} compares with {LABELS[target]}")
    words = network.conventions.lean
    recipe = NETWORKS.get(network.name.removesuffix("".join(f":{word}" for word in words)))
    if recipe and "shape" in inspect.signature(recipe.make).parameters:
        made = recipe.make(batch=network.batch, shape=source.shape, classes=source.classes or network.output.classes)
        network = made.leaner(*words)
    wanted, given, classes = network.input.shape[1:], source.shape, network.output.classes
    by = ["×".join(map(str, shape)) for shape in (given, wanted)]
    if tuple(given) != tuple(wanted):
        raise Fail(f"{options.data} has images of {by[0]}, and {network.name} takes {by[1]}; --data synthetic fits any")
    if target != "image" and prod(source.label_shape) != prod(network.labels.shape[1:]):
        by = ["×".join(map(str, shape)) for shape in (source.label_shape, network.labels.shape[1:])]
        raise Fail(f"{options.data} has {LABELS[target]} of {by[0]}, and {network.name} compares with {by[1]}")
    if source.classes > classes:
        raise Fail(f"{options.data} has {counted(source.classes, 'class')}, and {network.name} tells {classes} apart")
    return network, source
