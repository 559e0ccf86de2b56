"""Schedules: how the learning rate changes from iteration to iteration, by PyTorch's rules and names.

    constant                            the rate
    step:STEP_SIZE[:GAMMA]              times gamma (0.1) after every step_size iterations
    cosine[:T_MAX[:ETA_MIN]]            along half a cosine from the rate to eta_min (0), in t_max iterations
    SHAPE,warmup:ITERATIONS             one of them, after a warm-up

A warm-up comes first: the rate grows in equal steps, and reaches its full size in the last iteration of the warm-up.
The others count their iterations from there, but t_max has the warm-up's, too: it is the last iteration of all.  After
that the rate stays eta_min.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from refimpl.backend.run_errors import RunError
from refimpl.text import offer


def constant(iteration: int, rate: float, warmup: int = 0) -> float:
    """The rate, after a warm-up."""
    return rate * min(1, (iteration + 1) / warmup) if warmup else rate


def step(iteration: int, rate: float, step_size: int, gamma: float = 0.1, warmup: int = 0) -> float:
    """The rate times gamma after every step_size iterations."""
    if iteration < warmup:
        return rate * (iteration + 1) / warmup
    return rate * gamma ** ((iteration - warmup) // step_size)


def cosine(iteration: int, rate: float, t_max: int, eta_min: float = 0.0, warmup: int = 0) -> float:
    """Half a cosine from the rate to eta_min, which iteration t_max has."""
    if iteration < warmup:
        return rate * (iteration + 1) / warmup
    share = min(1.0, (iteration - warmup) / (t_max - warmup))
    return eta_min + (rate - eta_min) * (1 + math.cos(math.pi * share)) / 2


#: Name → the function, and its options in the order in which a text has them.
SHAPES: dict[str, tuple[Callable[..., float], tuple[str, ...]]] = {
    "constant": (constant, ()),
    "step": (step, ("step_size", "gamma")),
    "cosine": (cosine, ("t_max", "eta_min")),
}
WHOLE = ("step_size", "t_max")  #: options that are numbers of iterations


@dataclass(frozen=True)
class Schedule:
    """A schedule: its shape, that shape's options, and the iterations of a warm-up before it."""

    shape: str = "constant"
    options: Mapping[str, float] = field(default_factory=dict)
    warmup: int = 0

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise RunError(f"there is no schedule {self.shape!r}{offer(self.shape, SHAPES)}")
        for name in WHOLE:
            if name in SHAPES[self.shape][1] and self.options.get(name, 0) < 1:
                raise RunError(
                    f"the schedule {self.shape} needs a {name} of at least 1 iteration, as in {self.shape}:100"
                )
        if self.options.get("gamma", 1) <= 0 or self.options.get("eta_min", 0) < 0 or self.warmup < 0:
            raise RunError(f"the schedule {self}: give a gamma above 0, and an eta_min and a warm-up of at least 0")
        if self.shape == "cosine" and self.options["t_max"] <= self.warmup:
            raise RunError(
                f"the schedule {self} ends before it begins: its warm-up takes {self.warmup} iterations, and t_max is "
                f"{self.options['t_max']:g}; give a longer t_max, or a shorter warm-up"
            )

    @classmethod
    def parse(cls, text: str, warmup: int = 0, iterations: int | None = None) -> Schedule:
        """The schedule of a text, as in "step:30:0.1" or "cosine,warmup:20".

        Args:
            text: its shape, and that shape's options in their order; and perhaps the iterations of a warm-up.
            warmup: iterations before it, if the text does not say.
            iterations: of the whole training: the t_max of a cosine that has none.
        """
        text, comma, before = text.strip().partition(",")
        name, _, number = before.partition(":")
        if comma and (name.strip() != "warmup" or not number.isdecimal()):
            raise RunError(f"the schedule {text!r} is followed by {before!r}; give warmup:ITERATIONS, as in warmup:20")
        warmup = int(number[:9]) if comma else warmup
        shape, *given = text.split(":")
        names = SHAPES[shape][1] if shape in SHAPES else ()
        options: dict[str, float] = {}
        if shape in SHAPES and len(given) > len(names):
            raise RunError(f"the schedule {text!r} has too many numbers; give {':'.join((shape, *names)).upper()}")
        for name, value in zip(names, given, strict=False):
            try:
                options[name] = int(value) if name in WHOLE else float(value)
            except ValueError:
                kind = "a whole number" if name in WHOLE else "a number"
                raise RunError(f"the schedule {text!r} has {value!r} for {name}; give {kind}") from None
            if not math.isfinite(options[name]):
                raise RunError(f"the schedule {text!r} has {value!r} for {name}; give a finite number")
        if shape == "cosine" and iterations is not None:
            options.setdefault("t_max", iterations)
        return cls(shape, options, warmup)

    def rate(self, base: float, iteration: int) -> float:
        """The rate of an iteration, counted from 0."""
        return float(SHAPES[self.shape][0](iteration, base, **self.arguments))

    @property
    def arguments(self) -> dict[str, float]:
        """The options of the shape's function."""
        return {**self.options, **({"warmup": self.warmup} if self.warmup else {})}

    def __str__(self) -> str:
        """What `parse` reads; a warm-up is not in it."""
        given = [repr(self.options[name]) for name in SHAPES[self.shape][1] if name in self.options]
        return ":".join((self.shape, *given))
