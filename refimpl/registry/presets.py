"""Presets: named setups, each what one paper does.  A preset is a function; its parameters are its options.

    setup = baseline(liveness="layer-wise", algorithms="memory").replace(allocator=FirstFit())

To add one, write the function and name it in PRESETS.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from refimpl import vdnn, vdnnpp
from refimpl.planner import Search, Setup, SetupError
from refimpl.registry.modules import module, modules
from refimpl.superneurons import presets as stages
from refimpl.text import offer

#: Options of a preset that are named like a slot: they choose the module in it.
OPTIONS = ("algorithms", "liveness", "recompute", "pinned")


def baseline(liveness: str = "network-wide", algorithms: str = "performance") -> Setup:
    """Nothing is offloaded, dropped or evicted: what a framework does that knows no memory policy.

    `liveness` "network-wide" keeps every map for the whole iteration and releases gradient maps and workspaces after
    their last use; "layer-wise" releases maps too.  `algorithms` "performance" takes the fastest convolutions whatever
    their workspace, as the baseline does that vDNN is measured against; "memory" those with the least workspace.
    """
    return Setup(
        name="baseline",
        recompute=module("recompute", "none"),
        offload=module("offload", "none"),
        liveness=module("liveness", liveness),
        prefetch=module("prefetch", "none"),
        cache=module("cache", "none"),
        algorithms=module("algorithms", algorithms),
        allocator=module("allocator", "best-fit"),
        pinned=module("pinned", "buffer-a-map"),
    )


def vdnn_all(algorithms: str = "memory") -> Setup:
    """vDNN: the inputs of every CONV and POOL leave, and come back through the paper's window.

    `algorithms`: the paper's (m), "memory", or (p), "performance"; "vdnn-greedy" too.
    """
    return vdnn.static("vdnn-all", vdnn.ALL, module("algorithms", algorithms))


def vdnn_conv(algorithms: str = "memory") -> Setup:
    """vDNN: the inputs of every CONV leave, and come back through the paper's window."""
    return vdnn.static("vdnn-conv", vdnn.CONV, module("algorithms", algorithms))


def vdnn_dyn() -> Search:
    """vDNN's dynamic policy: the first of its candidates, from fast to frugal, that fits the budget."""
    return vdnn.Dynamic()


def vdnnpp_all(algorithms: str = "memory", pinned: str = "vdnnpp-compressed") -> Setup:
    """vDNN++: no join, what stays at the pool's right end, maps compressed on the host; all but ReLU, FC and softmax.

    `pinned`: "vdnnpp-on-demand" leaves the maps as they are.
    """
    return vdnnpp.static("vdnnpp-all", vdnnpp.ALL, module("algorithms", algorithms), module("pinned", pinned))


def vdnnpp_conv(algorithms: str = "memory", pinned: str = "vdnnpp-compressed") -> Setup:
    """vDNN++, with the inputs of every CONV."""
    return vdnnpp.static("vdnnpp-conv", vdnnpp.CONV, module("algorithms", algorithms), module("pinned", pinned))


def vdnnpp_alternate_conv(algorithms: str = "memory", pinned: str = "vdnnpp-compressed") -> Setup:
    """vDNN++, with the inputs of every second CONV, from the first."""
    offload = vdnnpp.ALTERNATE_CONV
    return vdnnpp.static("vdnnpp-alternate-conv", offload, module("algorithms", algorithms), module("pinned", pinned))


def vdnnpp_dyn() -> Search:
    """vDNN++'s dynamic policy: the first of its candidates that fits the budget."""
    return vdnnpp.Dynamic()


def superneurons_liveness(algorithms: str = "memory") -> Setup:
    """SuperNeurons' liveness analysis alone: a tensor goes behind its last use."""
    return stages.liveness(module("algorithms", algorithms))


def superneurons_offload(algorithms: str = "memory") -> Setup:
    """SuperNeurons: what CONV and FC put out leaves at once, and is back three steps ahead."""
    return stages.offload(module("algorithms", algorithms))


def superneurons_recompute(recompute: str = "cost-aware", algorithms: str = "memory") -> Setup:
    """SuperNeurons: cheap maps are dropped and rebuilt; the checkpoints' outputs stay.

    `recompute`: "speed-centric", "memory-centric" or "cost-aware".
    """
    return stages.recompute(module("recompute", recompute), module("algorithms", algorithms))


def superneurons(recompute: str = "cost-aware", algorithms: str = "superneurons-dynamic") -> Setup:
    """SuperNeurons, all of it: cheap maps are rebuilt, the others move only when the device is full."""
    return stages.everything(module("recompute", recompute), module("algorithms", algorithms))


#: Every preset: its name → the function that makes the setup, or the policy that searches for one.
PRESETS: dict[str, Callable[..., Setup | Search]] = {
    "baseline": baseline,
    "vdnn-all": vdnn_all,
    "vdnn-conv": vdnn_conv,
    "vdnn-dyn": vdnn_dyn,
    "vdnnpp-all": vdnnpp_all,
    "vdnnpp-conv": vdnnpp_conv,
    "vdnnpp-alternate-conv": vdnnpp_alternate_conv,
    "vdnnpp-dyn": vdnnpp_dyn,
    "superneurons-liveness": superneurons_liveness,
    "superneurons-offload": superneurons_offload,
    "superneurons-recompute": superneurons_recompute,
    "superneurons": superneurons,
}


def setup(preset: str, named: Mapping[str, str] | None = None) -> Setup | Search:
    """A preset with some slots filled otherwise, all by name.  Raises `SetupError`.

    A slot that the preset has an option for (`algorithms`, `liveness`) is given to the preset; the others are exchanged
    afterwards, all at once: modules that need each other may come in any order.
    """
    make = PRESETS.get(preset)
    if make is None:
        raise SetupError(f"there is no preset {preset!r}{offer(preset, PRESETS)}")
    named = dict(named or {})
    takes = inspect.signature(make).parameters
    options = {name: named.pop(name) for name in OPTIONS if name in named and name in takes}
    for name, value in options.items():
        module(name, value)  # a wrong name is reported as any other slot's
    return make(**options).replace(**modules(named))


def about(preset: str) -> str:
    """One line on what the preset does."""
    return (inspect.getdoc(PRESETS[preset]) or "").splitlines()[0]
