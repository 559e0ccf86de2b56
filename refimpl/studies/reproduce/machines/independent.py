"""Times that others measured on GPUs, beside the model's: whole networks, and single convolutions.

`networks.csv` has milliseconds of a network's parts: `forward`; `maps` and `weights`, the gradients of each;
`backward`, both of these; `total`, a whole iteration.  `fit` marks the rows that the model was fitted to.
`convolutions.csv` has the three passes of single convolutions.

Prediction: each call takes the fastest algorithm that the row's release of cuDNN has, and the times are added.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from refimpl.machine.catalogues import options_of
from refimpl.machine.convolution import Convolution
from refimpl.machine.gpus import K40C, P100, T4, TITAN_X, TITAN_XP, V100
from refimpl.machine.model import Machine, work_of
from refimpl.machine.work import Option
from refimpl.network.call import Call
from refimpl.network.network import Network
from refimpl.studies.reproduce.machines.measured_networks import benchmarked

Offered: TypeAlias = "tuple[Option, ...]"  #: all ways to run a call
Offers: TypeAlias = "Counter[Offered]"  #: of many calls: how often each

FOLDER = Path(__file__).parent

#: Algorithm → the first release of cuDNN that has it; every other one is in all of them.
SINCE = {
    "IMPLICIT_PRECOMP_GEMM": 3.0, "ALGO_1": 3.0, "ALGO_3": 3.0, "GEMM": 3.0, "FFT": 3.0, "FFT_TILING": 3.0,
    "WINOGRAD": 5.0, "WINOGRAD_NONFUSED": 5.1,
}  # fmt: skip


class Timing(NamedTuple):
    """What a benchmark timed."""

    where: str
    input_gradient: bool = False  #: the first layer's gradient of the images is computed, too
    untimed: tuple[str, ...] = ("sgd", "softmax", "dropout")  #: families of calls


WHOLE_ITERATION = ()
SOURCES = {
    "convnet-benchmarks": Timing("soumith/convnet-benchmarks@2888b23, @d6177f9, @7c13895, @511f5e1, @1ca1fe8"),
    "cnn-benchmarks": Timing("jcjohnson/cnn-benchmarks@83d441f, @b4f821e", input_gradient=True),
    "caffe2": Timing("facebookarchive/caffe2@0f82f56", input_gradient=True, untimed=("sgd",)),
    "chainer": Timing("yuyu2172/chainer-performance-improvements"),
    "mxnet": Timing("knjcode/mxnet-finetuner@f5947a5; its cuDNN is not named", untimed=WHOLE_ITERATION),
    "tensorflow": Timing("tensorflow/tensorflow@5984ffe", untimed=WHOLE_ITERATION),
    "nvidia": Timing("NVIDIA/DeepLearningExamples@291f0d0", untimed=WHOLE_ITERATION),
    "nvidia-inference": Timing("NVIDIA/DeepLearningExamples@291f0d0, inference"),
    "pytorch": Timing("sandeepkumar-skb/pytorch_experiments", untimed=WHOLE_ITERATION),
    "rtx2080": Timing("ggg17226/rtx2080-dl-benchmark", untimed=WHOLE_ITERATION),
    "deepbench": Timing("baidu-research/DeepBench@da81ba7"),
}  # fmt: skip


def _card(like: Machine, name: str, flops: float, bandwidth: float, multiprocessors: int) -> Machine:
    """A GPU that has no name in `refimpl.machines`: its data sheet's peaks, and another GPU's shares of them."""
    catalogue = "cudnn4" if like is K40C else "cudnn5"
    return replace(
        like, name=name, catalogue=catalogue, flops=flops, bandwidth=bandwidth, multiprocessors=multiprocessors
    )


#: The measured GPUs by their names in the files.
GPUS = {
    **{machine.name: machine.with_catalogue("cudnn5") for machine in (TITAN_X, TITAN_XP, P100, V100, T4)},
    "k40c": K40C,  # Kepler, for which the library has no later kernels
    "m40": _card(TITAN_X, "m40", 6.84e12, 288e9, 24),
    "k80": _card(K40C, "k80", 4.37e12, 240e9, 13),  # one of its two chips
    "titan-x-pascal": _card(TITAN_XP, "titan-x-pascal", 10.97e12, 480e9, 28),
    "gtx-1080": _card(TITAN_XP, "gtx-1080", 8.87e12, 320e9, 20),
    "gtx-1080ti": _card(TITAN_XP, "gtx-1080ti", 11.34e12, 484e9, 28),
    "rtx-2080": _card(V100, "rtx-2080", 10.07e12, 448e9, 46),
}


class Measured(NamedTuple):
    """A row of a file: milliseconds by part."""

    gpu: str
    cudnn: float
    subject: str  #: "vgg16(16)", or a convolution's shapes
    source: str
    parts: tuple[tuple[str, float], ...]
    fitted: bool
    offers: Callable[[], dict[str, Offers]]  #: part → its calls


@dataclass(frozen=True)
class Prediction:
    """A measured time beside the model's."""

    measured: Measured
    part: str
    milliseconds: float
    predicted: float

    @property
    def off(self) -> float:
        """0.1: predicted 10 % too long."""
        return self.predicted / self.milliseconds - 1


# -- what was measured -------------------------------------------------------------------------------------------------


def networks() -> Iterator[Measured]:
    """Whole networks."""
    for row in rows_of("networks.csv"):
        batch, cudnn = int(row["batch"]), float(row["cudnn"])
        times = _times(row, ("forward", "maps", "weights", "backward", "total"))
        catalogue = GPUS[row["gpu"]].catalogue
        offers = partial(network_offers, row["network"], batch, row["source"], cudnn, catalogue)
        yield Measured(row["gpu"], cudnn, f"{row['network']}({batch})", row["source"], times, bool(row["fit"]), offers)


def convolutions() -> Iterator[Measured]:
    """Single convolutions."""
    for row in rows_of("convolutions.csv"):
        cudnn = float(row["cudnn"])
        sizes = {name: tuple(map(int, row[name].split("x"))) for name in ("x", "w", "stride", "pad")}
        offers = partial(convolution_offers, sizes, cudnn, GPUS[row["gpu"]].catalogue)
        subject = f"{row['x']} by {row['w']}, stride {row['stride']}, pad {row['pad']}"
        times = _times(row, ("forward", "maps", "weights"))
        yield Measured(row["gpu"], cudnn, subject, row["source"], times, bool(row["fit"]), offers)


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a file of this folder."""
    with (FOLDER / name).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _times(row: dict[str, str], parts: Sequence[str]) -> tuple[tuple[str, float], ...]:
    return tuple((part, float(row[part])) for part in parts if row[part])


# -- what the model says -----------------------------------------------------------------------------------------------


@cache
def network_offers(name: str, batch: int, source: str, cudnn: float, catalogue: str) -> dict[str, Offers]:
    """Part → the calls that the source timed, each with all ways to run it."""
    timing = SOURCES[source]
    network: Network = benchmarked(name, batch, timing.input_gradient)
    found: dict[str, Offers] = {part: Counter() for part in ("forward", "maps", "weights")}
    for step in network.steps:
        for call in step.calls:
            if call.family not in timing.untimed:
                ways, times = offered(call, cudnn, catalogue)
                found[part_of(call, step.forward)][ways] += times
    backward = found["maps"] + found["weights"]
    return found | {"backward": backward, "total": found["forward"] + backward}


def part_of(call: Call, forward: bool) -> str:
    """Which of the three timings a call belongs to."""
    if forward:
        return "forward"
    return "weights" if call.function.endswith(("backward_filter", "backward_bias")) or call.family == "sgd" else "maps"


def offered(call: Call, cudnn: float, catalogue: str) -> tuple[Offered, int]:
    """All ways to run a call, with that release, and how often: frameworks made a call for each group of channels."""
    if not call.choosable:
        return (Option("", 0, (work_of(call),)),), 1
    conv = Convolution.of(call)
    group = conv._replace(channels=conv.group_channels, filters=conv.group_filters, groups=1)
    return released(options_of(catalogue, "conv", group), cudnn), conv.groups


def released(made: Iterable[Option], cudnn: float) -> Offered:
    return tuple(option for option in made if SINCE.get(option.algorithm, 0) <= cudnn)


def convolution_offers(sizes: dict[str, tuple[int, ...]], cudnn: float, catalogue: str) -> dict[str, Offers]:
    """Part → the pass of one convolution.  `sizes` are shapes of x and w, stride and pad."""
    (down, right), x, w, pad = sizes["stride"], sizes["x"], sizes["w"], sizes["pad"]
    passes = {"forward": "forward", "maps": "backward_data", "weights": "backward_filter"}
    convolutions = {part: Convolution.made(name, x, w, (down, right), pad) for part, name in passes.items()}
    return {
        part: Counter([released(options_of(catalogue, "conv", conv), cudnn)]) for part, conv in convolutions.items()
    }


def fastest_seconds(machine: Machine, ways: Offered) -> float:
    """Of one call."""
    return min(map(machine.option_seconds, ways))


def milliseconds(seconds: Callable[[Offered], float], offers: Offers) -> float:
    """Of all calls, each run the fastest way."""
    return 1000 * sum(times * seconds(ways) for ways, times in offers.items())


def compared(measured: Iterable[Measured], gpus: dict[str, Machine] = GPUS) -> list[Prediction]:
    """A line for each part of each row."""
    seconds = {name: cache(partial(fastest_seconds, machine)) for name, machine in gpus.items()}
    rows = []
    for one in measured:
        offers = one.offers()
        rows += [Prediction(one, part, time, milliseconds(seconds[one.gpu], offers[part])) for part, time in one.parts]
    return rows
