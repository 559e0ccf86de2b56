"""How a network learns, as far as its tensors and calls depend on it: the optimiser, clipping, what is frozen.

    network.trained_by(optimiser="adamw", clip=1.0, decay_on="weights", frozen=("conv*",))

The numbers that an optimiser takes, such as the rate, are the trainer's and may change from step to step.  What is here
belongs to the network: it decides how many bytes stay resident, and which calls an iteration makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import inf
from typing import Literal, get_args

from refimpl.network.call import BETA1, BETA2, DECAY, EPSILON, ITERATION, MOMENTUM, RATE, Setting
from refimpl.network.layer import NetworkError
from refimpl.text import counted, offer

DecayOn = Literal["all", "weights"]


@dataclass(frozen=True)
class Optimiser:
    """An optimiser's function in `kernels`, what it keeps of every weight, and the numbers that it takes."""

    function: str
    states: Mapping[str, str]  #: the start of a state's name → the function's argument
    arguments: Mapping[str, Setting]  #: the function's other arguments
    defaults: Mapping[str, float]  #: of the numbers that the trainer supplies, as PyTorch's optimiser has them


OPTIMISERS: Mapping[str, Optimiser] = {
    "sgd": Optimiser(
        "sgd.update", {"momentum": "momentum_buffer"}, {"rate": RATE, "momentum": MOMENTUM, "decay": DECAY},
        {"rate": 0.01, "momentum": 0.9, "decay": 0.0},
    ),
    "adamw": Optimiser(
        "adamw.update", {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"},
        {"iteration": ITERATION, "rate": RATE, "beta1": BETA1, "beta2": BETA2, "epsilon": EPSILON, "decay": DECAY},
        {"rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "decay": 0.01},
    ),
}  # fmt: skip
#: With what PyTorch alone applies, and no kernel here: SGD that keeps nothing.
PLANNED: Mapping[str, Optimiser] = {**OPTIMISERS, "sgd:momentum=0": replace(OPTIMISERS["sgd"], states={})}

#: The functions that change weights.
UPDATES = tuple(optimiser.function for optimiser in OPTIMISERS.values())


@dataclass(frozen=True)
class Optimisation:
    """How a network learns."""

    optimiser: str = "sgd"
    clip: float | None = None  #: the largest norm of all gradients together; None: whatever it is
    decay_on: DecayOn = "all"  #: the parameters that decay: all, or no biases and none of a normalisation
    #: Patterns of the parameters that stay as they are, as in "conv*" or "*.b", or with "!" that learn; the last one
    #: that fits decides.  A layer's name stands for all its parameters.
    frozen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.optimiser not in PLANNED:
            raise NetworkError(f"there is no optimiser {self.optimiser!r}{offer(self.optimiser, OPTIMISERS)}")
        if self.clip is not None and not 0 < self.clip < inf:
            raise NetworkError(f"gradients cannot be clipped to a norm of {self.clip}; give a number above 0")
        if self.decay_on not in get_args(DecayOn):
            raise NetworkError(f"weights cannot decay on {self.decay_on!r}; give {' or '.join(get_args(DecayOn))}")

    @property
    def rule(self) -> Optimiser:
        return PLANNED[self.optimiser]

    def decays(self, shape: tuple[int, ...]) -> bool:
        """Whether a parameter of this shape decays: a bias, or a normalisation's, is one number a channel."""
        return self.decay_on == "all" or len(shape) > 1

    def freezes(self, layer: str, parameter: str) -> bool:
        """Whether this parameter stays as it is."""
        return self._last(layer, parameter, self.frozen)

    @staticmethod
    def _last(layer: str, parameter: str, patterns: Iterable[str]) -> bool:
        found = False
        for pattern in patterns:
            if fits(pattern, layer, parameter):
                found = not pattern.startswith("!")
        return found

    def check(self, parameters: Iterable[tuple[str, str]]) -> None:
        """Raise a NetworkError unless every pattern names a parameter, and one is left to learn.

        Args:
            parameters: layer and name of every one.
        """
        if not self.frozen:
            return
        every = list(parameters)
        for pattern in self.frozen:
            if not any(fits(pattern, *one) for one in every):
                names = ", ".join(f"{layer}.{name}" for layer, name in every[:3])
                raise NetworkError(f"no parameter is named {pattern.removeprefix('!')!r}; there are {names}, …")
        if all(self.freezes(*one) for one in every):
            several = counted(len(every), "parameter")
            raise NetworkError(
                f"all {several} are frozen, so there is nothing to learn; leave one, as with the pattern "
                f"'!{every[-1][0]}'"
            )


def fits(pattern: str, layer: str, parameter: str) -> bool:
    """Whether a pattern of `Optimisation.frozen` names this parameter."""
    wanted = pattern.removeprefix("!")
    return fnmatchcase(layer, wanted) or fnmatchcase(f"{layer}.{parameter}", wanted)
