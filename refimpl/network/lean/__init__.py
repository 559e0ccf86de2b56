"""Conventions with which a network needs less memory, and learns the same bits.  No paper has them.

Of `:pieces` the bits are the same under plain kernels; fast ones round a sum in another way.

Each is a word that follows a network's name, as in `vgg16:positions`, or that `network.leaner("positions")` takes.
`:lean` stands for all words that the network can have.  A word's module has

- `ABOUT`, for lists, and `LACKS`, what a network lacks that is refused it;
- `applies(network)`, whether it changes anything;
- perhaps `tensors(network, layer)`, what it keeps of a layer: name → tensor, with the reason that listings give;
- perhaps `overwritten(network, layer)`, the input of a layer whose place its output takes, or none;
- perhaps `forward(network, layer)`, the calls of a layer's forward step; none where they are the usual ones;
- perhaps `without(layer)`, whether a layer has no map and no call in its forward step, as another step makes both, and
  then `inference(network, loss)`, the calls of such a loss's step in inference;
- perhaps `BACKWARD`, a class with methods in place of those of `calls.Backward`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from refimpl.network.call import Call
from refimpl.network.calls import Backward
from refimpl.network.layer import Layer, NetworkError
from refimpl.network.tensor import Tensor
from refimpl.text import closest, offer

if TYPE_CHECKING:
    from refimpl.network.network import Network

#: Word → its module here.  Names of networks have them in this order.
WORDS = {
    "positions": "positions",
    "signs": "signs",
    "in-place": "in_place",
    "gradients": "gradients",
    "pieces": "logits",
    "state-on-host": "state_on_host",
}
ALL = "lean"  #: the word for all that a network can have


def module(word: str) -> ModuleType:
    return import_module(f"{__name__}.{WORDS[word]}")


def modules(network: Network) -> list[ModuleType]:
    """Those of the words that a network has."""
    return [module(word) for word in network.conventions.lean]


def split(name: str) -> tuple[str, list[str]]:
    """A network's name without the words at its end, and these; a slip in one of them is a `NetworkError`."""
    stem, _, last = name.strip().rpartition(":")
    if not stem or last.lower() not in (*WORDS, ALL):
        if stem and "." not in name and (near := closest(last.lower(), [*WORDS, ALL])):
            raise NetworkError(f"there is no network {name!r}; did you mean {stem}:{near}?")
        return name, []
    stem, words = split(stem)
    return stem, [*words, last.lower()]


def leaner(network: Network, words: Iterable[str]) -> Network:
    """`Network.leaner`: the same layers, described again.  Raises `NetworkError`."""
    network = network.whole or network
    asked = list(words)
    for word in asked:
        if word not in (*WORDS, ALL):
            raise NetworkError(f"there is no convention {word!r}{offer(word, [*WORDS, ALL])}")
        if network.conventions.as_pytorch:
            raise NetworkError(f"{network.name} is planned as PyTorch runs it; leave out :{word}")
        if network.ranks > 1:
            raise NetworkError(f"{network.name} is trained by {network.ranks} ranks: call leaner before data_parallel")
    for word in WORDS:  # what one leaves, the next may find to spare
        applies = module(word).applies(network)
        if word in asked and not applies:
            raise NetworkError(f"{network.name} has no {module(word).LACKS}; leave out :{word}")
        if applies and not {word, ALL}.isdisjoint(asked):
            network = _with(network, word)
    return network


def _with(network: Network, word: str) -> Network:
    """The network with one more word."""
    from refimpl.network.derived import described_again, of_layers

    has = network.conventions.lean
    if word in has:
        return network
    wanted = tuple(one for one in WORDS if one in (*has, word))
    again = described_again((*network.data, *network.layers))
    other = of_layers(network, again, network.learning, replace(network.conventions, lean=wanted))
    plain = network.name.removesuffix(spelled(has))
    other.name, other.script = plain + spelled(wanted), network.script
    return other


def spelled(words: Iterable[str]) -> str:
    """The end of a network's name: ":positions"."""
    return "".join(f":{word}" for word in words)


def without(network: Network, layer: Layer) -> ModuleType | None:
    """The convention by which a layer has no map and no call in its forward step; None: it has."""
    return next((one for one in modules(network) if hasattr(one, "without") and one.without(layer)), None)


def add_tensors(network: Network, layer: Layer) -> None:
    """Give a layer what the network's conventions keep of it, and the map that it shall overwrite."""
    if without(network, layer):
        layer.outputs = [Tensor(layer.name, layer.shape, "map")]  # in no memory
    for one in modules(network):
        if hasattr(one, "overwritten") and (x := one.overwritten(network, layer)):
            layer.outputs = [x]
        if hasattr(one, "tensors") and any(producer.learns for producer in layer.producers):
            for name, (tensor, reason) in one.tensors(network, layer).items():
                layer.kept[name] = tensor
                network.managed.append(tensor)
                network.reasons[tensor] = reason


def forward(network: Network, layer: Layer) -> list[Call] | None:
    """The calls of a layer's forward step in training; None: the usual ones."""
    if without(network, layer):
        return []
    found = (one.forward(network, layer) for one in modules(network) if hasattr(one, "forward"))
    return next((calls for calls in found if calls), None)


def inference(network: Network, loss: Layer) -> list[Call] | None:
    """The calls of a loss's step in inference; None: the usual ones."""
    own = without(network, loss)
    return own.inference(network, loss) if own else None


def backward(network: Network, usual: type[Backward]) -> type[Backward]:
    """The class that makes the backward calls, before it the conventions' own."""
    own = tuple(one.BACKWARD for one in modules(network) if hasattr(one, "BACKWARD"))
    return type("LeanBackward", (*own, usual), {}) if own else usual
