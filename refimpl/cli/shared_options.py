"""The options that several commands have; `resolve` has the objects that they stand for."""

from __future__ import annotations

import argparse
import re
from typing import Any, get_args

from kernels.rungs import RUNGS
from refimpl.cli.parser import Fail, Parser, real, whole

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
        "file of your own: my_model.onnx, or my_networks.py:make",
    )
    parser.add_argument(
        "--output", metavar="NODE", help="end an ONNX file's network at this node (default: the file's only output)"
    )
    parser.add_argument(
        "--loss", metavar="LOSS", action="append",
        help="what a file's network ends in: softmax, pixel_softmax, mean_squared_error or binary_cross_entropy, or of "
        "several outputs NODE=LOSS for each; repeatable (default: softmax, the loss of classifiers)",
    )  # fmt: skip
    if batch:
        parser.add_argument(
            "--batch", type=whole(), metavar="N", help="images in a batch (default: as its paper measured it)"
        )


def setup(parser: Parser, preset: bool = True) -> None:
    if preset:
        parser.add_argument(
            "--policy", metavar="PRESET", default="baseline",
            help="as in vdnn-all, or a setup of your own, as in my_modules:MINE (default: baseline)",
        )  # fmt: skip
    parser.add_argument(
        "--set", metavar="SLOT=MODULE", action="append", default=[], dest="assignments",
        help="fill a slot otherwise, as in liveness=layer-wise, prefetch=superneurons-ahead:5 or "
        "offload=my_modules:BigMaps; repeatable; see refimpl list modules",
    )  # fmt: skip
    parser.add_argument(
        "--algorithms", choices=("memory", "performance"),
        help="convolutions with the least workspace, or the fastest ones (baseline: performance)",
    )  # fmt: skip
    if preset:
        parser.add_argument(
            "--fates", metavar="FILE",
            help="give every map the fate that FILE says, one map a line: keep, offload or drop (see --save-fates)",
        )  # fmt: skip
    effort(parser)
    parser.add_argument(
        "--recompute", choices=("speed", "memory", "cost"),
        help="drop cheap maps and rebuild them as SuperNeurons does (its presets that do: cost)",
    )  # fmt: skip


def effort(parser: Parser) -> None:
    search = parser.add_argument_group("the preset combined")
    search.add_argument(
        "--effort",
        type=whole(),
        metavar="N",
        help="plans that its search makes at most (default: by the network's depth)",
    )
    search.add_argument("--search-seed", type=whole(0), metavar="S", help="of its draws (default: 1)")


def machine(parser: Parser, default: str = f"the GPU at hand, {VDNNS_MACHINE} without one") -> None:
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help=f"a machine's name, here, or the file of a profile or of a machine of your own (default: {default})",
    )
    parser.add_argument("--catalogue", metavar="NAME", help="own or cudnn4 (default: the machine's)")
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
    ring(group)
    group.add_argument(
        "--network-shares-link", action="store_true", help="an all-reduce occupies the link that maps are copied over"
    )
    group.add_argument(
        "--bucket", metavar="SIZE", help="gradients that an all-reduce waits for, as in 4MiB (default: 25 MB)"
    )


def ring(group: Any) -> None:
    """The network of a cluster."""
    group.add_argument("--network", type=rate, dest="link", metavar="RATE", default=1.25e9,
                       help="10Gbit, 1.25GB/s, or bytes a second (default: 10Gbit)")  # fmt: skip
    group.add_argument("--latency", type=real(), metavar="S", default=20e-6, help="seconds (default: 0.00002)")
    group.add_argument("--no-overlap", action="store_false", dest="overlap", help="reduce after the last backward step")


def rate(text: str) -> float:
    """The type of --network: bytes a second."""
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


def optimiser(parser: Parser, title: str = "learning") -> Any:
    """The group of what the plan depends on: the bytes that stay, and the calls."""
    from refimpl.network.learning import OPTIMISERS, DecayOn

    group = parser.add_argument_group(title)
    group.add_argument(
        "--optimiser", choices=tuple(OPTIMISERS), default="sgd",
        help="sgd keeps a momentum of every weight, adamw two averages (default: sgd)",
    )  # fmt: skip
    group.add_argument(
        "--clip", type=real(above=0), metavar="NORM", help="clip the gradients, to this norm of all of them together"
    )
    group.add_argument(
        "--decay-on", choices=get_args(DecayOn), default="all",
        help="weights: biases and normalisations do not decay (default: all)",
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
    group.add_argument("--momentum", type=real(below=1), metavar="M", help="of sgd (default: 0.9)")
    group.add_argument("--betas", type=two_betas, metavar="B1,B2", help="of adamw (default: 0.9,0.999)")
    group.add_argument("--epsilon", type=real(above=0), metavar="E", help="of adamw (default: 1e-8)")
    group.add_argument("--decay", type=real(), metavar="D", help="weight decay (default: 0; adamw's: 0.01)")
    group.add_argument(
        "--schedule", metavar="SHAPE",
        help="of the rate: constant, step:STEP_SIZE[:GAMMA] or cosine[:T_MAX[:ETA_MIN]], in iterations (default: "
        "constant)",
    )  # fmt: skip
    group.add_argument(
        "--warmup", type=whole(), metavar="N", help="iterations in which the rate grows to its full size (default: 0)"
    )
    group.add_argument(
        "--seed", type=whole(0, (1 << 64) - 1), metavar="N", help="of weights and of all else drawn (default: 0)"
    )
    return group


def two_betas(text: str) -> tuple[float, float]:
    """The type of --betas."""
    given = text.split(",")
    if len(given) != 2:
        raise argparse.ArgumentTypeError(f"give two numbers, as in 0.9,0.999, not {text!r}")
    first, second = (real(below=1)(one) for one in given)
    return first, second


def picture(parser: Parser, kinds: bool = True) -> None:
    parser.add_argument("--picture", metavar="FILE", help="draw it into a .png or .svg file")
    if kinds:
        pictures = "; ".join(f"{kind}: {what}" for kind, what in PICTURES.items())
        parser.add_argument("--draw", choices=tuple(PICTURES), default="memory", help=f"{pictures} (default: memory)")


def json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output, and nothing else")


# -- once they are parsed ----------------------------------------------------------------------------------------------


def end_at_output(options: argparse.Namespace) -> None:
    """Make --output and --loss parts of the network's name, as in my_model.onnx:NODE, which everything else reads."""
    output, losses = getattr(options, "output", None), getattr(options, "loss", None)
    if output is None and not losses:
        return
    names = options.networks if "networks" in options else [options.network]
    for name in names:
        if output is not None and not str(name).lower().endswith(".onnx"):
            raise Fail(f"--output {output} is for ONNX files, and {name} is not one")
    ended = [f"{name}:{output}" if output is not None else str(name) for name in names]
    if losses:
        from refimpl.importing import with_losses

        ended = [with_losses(name, losses) for name in ended]
    if "networks" in options:
        options.networks = ended
    else:
        (options.network,) = ended
