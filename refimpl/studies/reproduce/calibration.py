"""How far the model of Titan X is from what was measured on one: how it is fitted, and the error of every figure.

The measurements are public: convnet-benchmarks (github.com/soumith/convnet-benchmarks), NVIDIA Titan X (Maxwell), fp32,
each convolution by the fastest algorithm that the library found.  Convolution, pooling, ReLU and fully connected layers
were timed; dropout, softmax and the optimiser were not, and the first layer computes no dX.

* cuDNN R4, `torch7/imagenet_winners/output.log`: forward, gradients of the maps, gradients of the weights.  The sums of
  the last two are the table's "backward" (AlexNet 27 / 53 ms, VGG-A 162 / 366 ms, …).
* cuDNN R2, the table in `README.md`: forward and backward.  That release has no FFT, so it says what the algorithms
  without transforms reach; those of R4 are taken to be as fast.

One set of four efficiencies serves every network and both releases: the least sum of squared logarithms of modelled
over measured, found by a pattern search, which gives the same answer every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import log

from refimpl.machine.catalogues import options
from refimpl.machine.gpus import TITAN_X
from refimpl.machine.model import Efficiency, Machine
from refimpl.machine.work import Option, Work
from refimpl.network.call import Call
from refimpl.network.network import Network

R4, R2 = "cuDNN R4", "cuDNN R2"
PARTS = ("forward", "maps", "weights")


@dataclass(frozen=True)
class MeasuredConvolution:
    """A timing: a network's forward, or the gradients of its maps or of its weights, or both together ("backward")."""

    library: str
    network: str
    batch: int
    part: str
    milliseconds: float


def _measured(library: str, network: str, batch: int, **milliseconds: float) -> list[MeasuredConvolution]:
    return [MeasuredConvolution(library, network, batch, part, value) for part, value in milliseconds.items()]


MEASURED = (
    *_measured(R4, "alexnet", 128, forward=27.65, maps=24.32, weights=28.99),
    *_measured(R4, "overfeat", 128, forward=94.28, maps=81.17, weights=93.07),
    *_measured(R4, "vgg11", 64, forward=162.74, maps=167.05, weights=199.49),
    *_measured(R4, "googlenet", 128, forward=130.76, maps=197.86, weights=142.15),
    *_measured(R2, "alexnet", 128, forward=70, backward=161),
    *_measured(R2, "overfeat", 128, forward=234, backward=576),
    *_measured(R2, "vgg11", 64, forward=342, backward=757),
)

#: `streaming` is not: that Tesla K40's copies on the device reach 202.7 of 288 GB/s is public (microway.com, "NVIDIA
#: Tesla K40 up close"), and left free it would follow the error of everything else.
FITTED = ("forward", "backward", "products", "transforms")

NOT_TIMED = ("sgd", "softmax", "dropout")
OF_WEIGHTS = ("backward_filter", "backward_bias")
BY_FFT = ("FFT", "FFT_TILING")


@dataclass(frozen=True)
class CalibrationRow:
    """One figure.  `error` is a share of what was measured."""

    measured: MeasuredConvolution
    modelled: float  #: milliseconds

    @property
    def error(self) -> float:
        return self.modelled / self.measured.milliseconds - 1


Ways = list[tuple[Option, ...]]  #: of each call, all ways to run it


def ways(network: Network, library: str) -> dict[str, Ways]:
    """Part → every timed call with all ways to run it."""
    found: dict[str, Ways] = {part: [] for part in PARTS}
    for step in network.steps:
        for call in step.calls:
            if call.family not in NOT_TIMED:
                found[part_of(call, step.forward)].append(_offered(call, library))
    return found | {"backward": found["maps"] + found["weights"]}


def part_of(call: Call, forward: bool) -> str:
    """Which of the three timings a call belongs to."""
    if forward:
        return "forward"
    return "weights" if call.function.endswith(OF_WEIGHTS) else "maps"


def _offered(call: Call, library: str) -> tuple[Option, ...]:
    if not call.choosable:
        return (Option("", 0, (Work("products", call.flops, call.nbytes),)),)
    made = options("cudnn4", call)
    return tuple(option for option in made if library == R4 or option.algorithm not in BY_FFT)


def prepare(measured: Iterable[MeasuredConvolution] = MEASURED) -> dict[MeasuredConvolution, Ways]:
    """Every figure with the calls that it is the time of."""
    from refimpl.names import networks as zoo

    built: dict[tuple[str, int, str], dict[str, Ways]] = {}
    prepared = {}
    for figure in measured:
        which = figure.network, figure.batch, figure.library
        if which not in built:
            built[which] = ways(zoo.build(figure.network, figure.batch), figure.library)
        prepared[figure] = built[which][figure.part]
    return prepared


def milliseconds(machine: Machine, calls: Ways) -> float:
    """Of all calls, each run the fastest way."""
    return 1000 * sum(min(map(machine.option_seconds, offered)) for offered in calls)


def misfit(efficiency: Efficiency, prepared: Mapping[MeasuredConvolution, Ways]) -> float:
    """Sum of the squared logarithms of modelled over measured."""
    machine = replace(TITAN_X, efficiency=efficiency)
    return sum(log(milliseconds(machine, calls) / figure.milliseconds) ** 2 for figure, calls in prepared.items())


def fit(prepared: Mapping[MeasuredConvolution, Ways], start: Efficiency = TITAN_X.efficiency) -> Efficiency:
    """The efficiencies, none above 1, with the least misfit: each in turn up or down, by smaller and smaller steps."""
    best, least, stride = start, misfit(start, prepared), 0.2
    while stride > 0.002:
        before = least
        for name in FITTED:
            for factor in (1 + stride, 1 / (1 + stride)):
                tried = replace(best, **{name: min(1.0, getattr(best, name) * factor)})
                if (found := misfit(tried, prepared)) < least:
                    best, least = tried, found
                    break
        if least == before:
            stride /= 2
    return best


def calibration() -> list[CalibrationRow]:
    """Every figure beside the model's."""
    return [CalibrationRow(figure, milliseconds(TITAN_X, calls)) for figure, calls in prepare().items()]


def unseen() -> list[CalibrationRow]:
    """Every figure as modelled by a fit that has seen no figure of that network: how far to trust a new one."""
    prepared = prepare()
    rows = []
    for network in dict.fromkeys(figure.network for figure in prepared):
        others = {figure: calls for figure, calls in prepared.items() if figure.network != network}
        machine = replace(TITAN_X, efficiency=fit(others))
        rows += [
            CalibrationRow(figure, milliseconds(machine, calls))
            for figure, calls in prepared.items()
            if figure.network == network
        ]
    return rows
