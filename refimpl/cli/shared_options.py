"""The options that several commands have; `resolve` has the objects that they stand for."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernels.rungs import RUNGS
from refimpl.cli.parser import Parser, real, whole
from refimpl.text import offer

VDNNS_MACHINE = "titan-x"
MOST_RANKS = 1_000_000
RATE = re.compile(r"(?P<number>[0-9]{1,18}(\.[0-9]*)?|\.[0-9]+)\s*((?P<prefix>[kMGT]?)(?P<unit>bit|B)(/s)?)?")
FACTORS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

#: What can be drawn of a program.
PICTURES = {
    "memory": "what fills device memory, step by step",
    "pool": "the address of every block in the pool",
    "timeline": "what runs when on every stream",
}


def network(parser: Parser, several: bool = False, batch: bool = True, optional: bool = False) -> None:
    parser.add_argument(
        "networks" if several else "network",
        metavar="NETWORK",
        nargs="+" if several else "?" if optional else None,
        help="its name, as in vgg16, resnet:137 or alexnet:superneurons (refimpl list networks has them all), or a "
        "file of your own: my_model.onnx, my_model.onnx:NODE to end it at this node, or my_networks.py:make; its loss "
        "follows =, as in my_model.onnx:=pixel_softmax, my_networks.py:make:=softmax or, of several outputs, "
        "my_model.onnx:NODE=softmax,NODE=mean_squared_error (default: softmax)",
    )
    if batch:
        parser.add_argument(
            "--batch", type=whole(), metavar="N", help="images in a batch (default: as its paper measured it)"
        )


def setup(parser: Parser, preset: bool = True, also: str = "") -> None:
    """The options of a setup; `also` says what else this command's --set takes."""
    if preset:
        parser.add_argument(
            "--policy", metavar="PRESET", default="baseline",
            help="as in vdnn-all, or a setup of your own, as in my_modules:MINE (default: baseline)",
        )  # fmt: skip
    parser.add_argument(
        "--set", metavar="SLOT=MODULE", action="append", default=[], dest="assignments",
        help="fill a slot otherwise, as in algorithms=memory, recompute=cost-aware, prefetch=superneurons-ahead:5 or "
        f"offload=my_modules:BigMaps; or fates=FILE, a map's fate a line (see --save-fates), or effort=N and seed=N, "
        f"the plans and the draws of combined's search{also}; repeatable; see refimpl list modules",
    )  # fmt: skip


def machine(parser: Parser, default: str = f"the GPU at hand, {VDNNS_MACHINE} without one") -> None:
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help="a machine's name, as in titan-x, or titan-x:own for another catalogue of algorithms; here; or the file "
        f"of a profile or of a machine of your own (default: {default})",
    )
    parser.add_argument(
        "--tiers", metavar="TIERS",
        help="the memories to offload to, the preferred one first, as in host:32GiB@8GB/s,peer:12GiB@10GB/s "
        "(default: the host's, without a limit); presets that are not SuperNeurons' need "
        "--set pinned=superneurons-unified-pool for others than the host's",
    )  # fmt: skip


def budget(parser: Parser, several: bool = False) -> None:
    also = "; several with commas between them" * several
    parser.add_argument(
        "--budget", metavar="SIZE",
        help=f"as in 12GiB, 512MiB, or 0.4 of what the baseline needs{also} (default: the machine's memory)",
    )  # fmt: skip


def cluster(parser: Parser, simulated: bool = True) -> None:
    """Data-parallel training; `simulated`: the number of ranks and the speed of the network are options, too."""
    group = parser.add_argument_group("data-parallel training")
    if simulated:
        group.add_argument(
            "--workers", type=whole(most=MOST_RANKS), metavar="N", default=1,
            help="GPUs that train together, each on a batch of its own; their network is simulated (default: 1)",
        )  # fmt: skip
    else:
        group.add_argument("--parallel", choices=("mpi",), help="be one of the ranks that mpiexec or srun has started")
    wire(group)


@dataclass(frozen=True)
class Wire:
    """The network of a cluster, and when gradients are sent over it."""

    rate: float = 1.25e9  #: bytes a second
    latency: float = 20e-6  #: seconds
    bucket: int | None = None  #: bytes of gradients that an all-reduce waits for; None: 25 MB
    overlap: bool = True  #: no: all are reduced after the last backward step
    shares_link: bool = False  #: whether an all-reduce occupies the link that maps are copied over


def wire(group: Any) -> None:
    """The network of a cluster."""
    group.add_argument(
        "--network", type=wire_named, dest="wire", metavar="RATE", default=Wire(),
        help="10Gbit or 1.25GB/s, and what differs: 10Gbit,latency=0.00002,bucket=4MiB,overlap=no,shares_link=yes "
        "(bucket: gradients that an all-reduce waits for; overlap=no: it comes after the last backward step; "
        "shares_link: it occupies the link that maps are copied over; default: 10Gbit, 25 MB)",
    )  # fmt: skip


def wire_named(text: str) -> Wire:
    """The type of --network."""
    first, _, rest = text.partition(",")
    if "=" in first:
        first, rest = "10Gbit", text
    types = {"latency": float, "bucket": int, "overlap": bool, "shares_link": bool}
    found = Wire(rate(first), **settings("the network", types, rest))
    if found.bucket == 0 or (found.bucket and not found.overlap):
        says = "overlap=no makes one bucket of all gradients" if found.bucket else "a bucket of 0 bytes is never full"
        raise argparse.ArgumentTypeError(f"{says}: leave out bucket")
    return found


def settings(what: str, types: dict[str, Any], text: str) -> dict[str, Any]:
    """Settings written as name=value,name=value, by name."""
    from refimpl.names.parameters import read
    from refimpl.slots.errors import SetupError

    try:
        return read(what, types, text)
    except SetupError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix(f"{what}: ")) from None


def rate(text: str) -> float:
    """Bytes a second."""
    found = RATE.fullmatch(text.strip())
    bytes_a_second = 0.0
    if found:
        bytes_a_second = float(found["number"]) * FACTORS[found["prefix"] or ""] / (8 if found["unit"] == "bit" else 1)
    if bytes_a_second < 1:
        raise argparse.ArgumentTypeError(f"give a rate such as 10Gbit, 1.25GB/s or 1250000000, not {text!r}")
    return bytes_a_second


def backend(parser: Parser) -> None:
    parser.add_argument(
        "--backend", choices=("auto", "cpu", "cuda", "emulated"), default="auto",
        help="default: cuda with a GPU, else cpu; emulated: the CUDA back end on an emulated GPU, every access checked",
    )  # fmt: skip


def kernels(parser: Parser) -> None:
    parser.add_argument(
        "--kernels", choices=RUNGS, default="fast",
        help="plain: those to read, without workspaces and many times slower (default: fast)",
    )  # fmt: skip


def optimiser(parser: Parser, title: str = "learning", in_pytorch: bool = False) -> Any:
    """The group of what the plan depends on: the bytes that stay, and the calls; or as PyTorch's optimisers keep."""
    group, default = parser.add_argument_group(title), "adamw" if in_pytorch else "sgd"
    also = "; sgd:momentum=0 keeps nothing, adam as much as adamw" * in_pytorch
    group.add_argument(
        "--optimiser", type=of_pytorch if in_pytorch else optimiser_named, metavar="NAME", default=Learner(default),
        help="sgd keeps a momentum of every weight, adamw two averages; and its numbers: sgd:momentum=0.9,decay=0.0005 "
        "or adamw:beta1=0.9,beta2=0.999,epsilon=1e-8,decay=0.01,decay_on=weights,clip=1 (decay_on=weights: biases and "
        f"normalisations do not decay; clip: gradients are clipped to this norm of all of them together{also}; "
        f"default: {default})",
    )  # fmt: skip
    group.add_argument(
        "--freeze", metavar="PATTERN", action="append", default=[],
        help="parameters or layers that stay as they are, as in 'conv*' or '*.b', or with ! that learn; repeatable: "
        "the last one that fits decides",
    )  # fmt: skip
    return group


def learning(parser: Parser, title: str = "learning") -> Any:
    """The group of all that the optimiser takes; the trainer has a default for each number."""
    group = optimiser(parser, title)
    group.add_argument("--rate", type=real(above=0), metavar="R", help="learning rate (default: 0.01; adamw's: 0.001)")
    group.add_argument(
        "--schedule", metavar="SHAPE",
        help="of the rate: constant, step:STEP_SIZE[:GAMMA] or cosine[:T_MAX[:ETA_MIN]], in iterations; cosine,warmup:"
        "20 grows to the full rate in 20 iterations (default: constant)",
    )  # fmt: skip
    group.add_argument(
        "--seed", type=whole(0, (1 << 64) - 1), metavar="N", help="of weights and of all else drawn (default: 0)"
    )
    return group


@dataclass(frozen=True)
class Learner:
    """An optimiser, and what it is given."""

    name: str = "sgd"
    decay_on: Any = "all"  #: as `refimpl.network.learning.DecayOn` has it
    clip: float | None = None  #: the norm that gradients are clipped to
    numbers: Mapping[str, float] = field(default_factory=dict)  #: momentum, beta1, …


def optimiser_named(text: str, like: tuple[tuple[str, str], ...] = ()) -> Learner:
    """The type of --optimiser; `like` are further names, each with the one whose numbers it has."""
    from refimpl.network.learning import OPTIMISERS, DecayOn

    known = {one: one for one in OPTIMISERS} | dict(like)
    name, _, rest = text.partition(":")
    if name not in known:
        raise argparse.ArgumentTypeError(f"there is no optimiser {name!r}{offer(name, known)}")
    numbers = {number: float for number in OPTIMISERS[known[name]].defaults if number != "rate"}
    given = settings(name, {**numbers, "decay_on": DecayOn, "clip": float}, rest)
    decay_on, clip = given.pop("decay_on", "all"), given.pop("clip", None)
    if clip is not None and not 0 < clip < math.inf:
        raise argparse.ArgumentTypeError(f"clip cannot be {clip:g}; give a number above 0")
    for number, value in given.items():
        if (number in ("momentum", "beta1", "beta2") and value >= 1) or (number == "epsilon" and not value):
            raise argparse.ArgumentTypeError(f"{number} cannot be {value:g}; give a number above 0 and less than 1")
    return Learner(name, decay_on, clip, given)


def of_pytorch(text: str) -> Learner:
    """The type of --optimiser where PyTorch's own optimiser runs."""
    return optimiser_named(text, (("adam", "adamw"),))


def picture(parser: Parser, kinds: bool = True) -> None:
    parser.add_argument("--picture", metavar="FILE", help="draw it into a .png or .svg file")
    if kinds:
        pictures = "; ".join(f"{kind}: {what}" for kind, what in PICTURES.items())
        parser.add_argument("--draw", choices=tuple(PICTURES), default="memory", help=f"{pictures} (default: memory)")


def json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output, and nothing else")
