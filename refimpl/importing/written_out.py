"""What a module writes out in arithmetic, and we have as one layer: GELU, an RMS normalisation, a rotary position.

There are many ways to write such a function, so no way is looked for.  The part of the graph between one map and what
is made of it is *executed* on a few numbers, as views are on arrangements, and what comes out is compared with what
our layers compute.  The comparison also finds what the layer is given: the epsilon of a normalisation is computed from
tiny numbers, the base of a rotary position from how far the second token is turned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from refimpl.importing.graph import HIDDEN, UNSUPPORTED, Translated

Function = Callable[[np.ndarray], np.ndarray]  #: of a map's numbers; may raise anything where a shape is not the map's
TINY = 1e-4  #: numbers that an epsilon changes
CLOSE = 1e-5  #: of results: two formulas for GELU are 5e-4 apart
MOST_SOURCES = 6  #: maps that what is written out may be a function of, one after another
LARGEST = 1 << 24  #: numbers that a function is tried on


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(value) for value in x])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


COMPUTING = {"mul", "div", "pow", "exp", "erf", "tanh", "sigmoid", "rsqrt", "reciprocal"}

#: What is computed of each number alone: our operation, its attributes, and the function.
OF_NUMBERS: tuple[tuple[str, dict[str, Any], Function], ...] = (
    ("gelu", {"approximate": "none"}, lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2),
    ("gelu", {"approximate": "tanh"}, lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2),
    ("silu", {}, lambda x: x * _sigmoid(x)),
    ("sigmoid", {}, _sigmoid),
    ("tanh", {}, np.tanh),
)


def computes(operators: Sequence[str]) -> bool:
    """Whether operators can be more than a product, a sum, or a move of numbers."""
    several = len(operators) > 1 and any(name.lower() in COMPUTING for name in operators)
    return several or [*operators] == ["RotaryEmbedding"]


def recognised(function: Function, shape: Sequence[int], tables: bool = False) -> Translated | None:
    """The one layer that computes this of a map of this shape, and its attributes; None: none does.

    A function that has tables can be a rotary position only: numbers that are learnt may look like no others.
    """
    if len(shape) < 2 or shape[-1] > LARGEST:
        return None
    for recognise in (_rotary,) if tables else (_of_each_number, _rms, _rotary):
        found = recognise(function, tuple(shape))
        if found is not None:
            return found
    return None


def _made(function: Function, x: np.ndarray) -> np.ndarray | None:
    """What the function makes of numbers, if it has their shape."""
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(function(x), np.float64)
    except Exception:  # of many classes: its parts want numbers of another shape
        return None
    return made if made.shape == x.shape else None


def _close(made: np.ndarray | None, wanted: np.ndarray, close: float = CLOSE) -> bool:
    return made is not None and bool(np.all(np.abs(made - wanted) <= close * (1 + np.abs(wanted))))


def _of_each_number(function: Function, shape: tuple[int, ...]) -> Translated | None:
    x = np.linspace(-8, 8, 331)
    made = _made(function, x)
    for kind, attributes, wanted in OF_NUMBERS:
        if _close(made, wanted(x)):
            return kind, attributes
    return None


def _rms(function: Function, shape: tuple[int, ...]) -> Translated | None:
    """Rows divided by the root of their mean square and an epsilon."""
    x = np.random.default_rng(0).standard_normal((3, shape[-1]))
    made, tiny = _made(function, x), _made(function, np.full((1, shape[-1]), TINY))
    if made is None or tiny is None or not np.all(tiny > 0):
        return None
    epsilon = max(0.0, float((TINY / tiny[0, 0]) ** 2 - TINY**2))
    epsilon = float(f"{epsilon:.5g}") if epsilon > 1e-6 * TINY**2 else 0.0
    wanted = x / np.sqrt((x * x).mean(1, keepdims=True) + epsilon)
    return ("rmsnorm", {"epsilon": epsilon, "affine": False}) if _close(made, wanted) else None


def turned(x: np.ndarray, rotated: int, neighbours: bool, base: float) -> np.ndarray:
    """A rotary position of (…, tokens, channels of a head), as `kernels.rotary` has it."""
    pairs = rotated // 2
    return turned_by(x, neighbours, base ** (-np.arange(pairs) / pairs))


def turned_by(x: np.ndarray, neighbours: bool, steps: np.ndarray) -> np.ndarray:
    """The same by an angle of its own for each pair, from one token to the next."""
    pairs = len(steps)
    angles = np.arange(x.shape[-2])[:, None] * steps
    first = np.arange(pairs) * 2 if neighbours else np.arange(pairs)
    second = first + (1 if neighbours else pairs)
    y = np.array(x)
    y[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    y[..., second] = x[..., second] * np.cos(angles) + x[..., first] * np.sin(angles)
    return y


def _rotary(function: Function, shape: tuple[int, ...]) -> Translated | None:
    """Heads whose tokens are turned; the tokens are the third axis, or the second."""
    if len(shape) != 4:
        return None
    for axis in (2, 1):
        small = tuple(size if one in (axis, 3) else 1 for one, size in enumerate(shape))
        for given in dict.fromkeys((small, shape)):
            if math.prod(given) > LARGEST:
                break

            def of_heads(x: np.ndarray, given: tuple[int, ...] = given, axis: int = axis) -> np.ndarray | None:
                """(tokens, channels), alike in all heads."""
                whole = np.broadcast_to(x if axis == 2 else x[:, None], given).copy()
                made = _made(function, whole)
                return None if made is None else made[0, 0] if axis == 2 else made[0, :, 0]

            found = _turn(of_heads, shape[axis], shape[3])
            if found is not None and "why" in found:
                return UNSUPPORTED, found
            if found is not None:
                return "rotary", {**found, "tokens": axis}
    return None


def _turn(function: Callable[[np.ndarray], np.ndarray | None], tokens: int, width: int) -> dict[str, Any] | None:
    """How a function turns tokens, whose numbers are (tokens, width)."""
    x = np.random.default_rng(0).standard_normal((tokens, width))
    same = np.broadcast_to(x[0], x.shape)
    made, still = function(x), function(same)
    if tokens < 2 or made is None or still is None or not _close(still[0], x[0]):
        return None
    changed = np.flatnonzero(np.abs(still[1] - x[0]) > 1e-9)
    if not changed.size or changed[-1] % 2 == 0:
        return None
    rotated = int(changed[-1]) + 1
    pairs = rotated // 2
    for neighbours in (False, True):
        one = np.zeros_like(x)
        one[:, np.arange(pairs) * 2 if neighbours else np.arange(pairs)] = 1
        ahead = function(one)
        assert ahead is not None
        cosines, sines = (
            (ahead[1, :rotated:2], ahead[1, 1:rotated:2]) if neighbours else ahead[1, :rotated].reshape(2, -1)
        )
        angles = np.arctan2(sines, cosines)
        close = CLOSE + 1e-6 * tokens  # the module's angles are float32
        for base in _bases(angles):
            if _close(made, turned(x, rotated, neighbours, base), close):
                return {"rotated": rotated, "neighbours": neighbours, "base": base}
        if _close(made, turned_by(x, neighbours, angles), close):
            return {"why": "rotary positions are supported with the powers of one base as angles", "operator": ""}
    return None


def _bases(angles: np.ndarray) -> Iterator[float]:
    """Of the angles of pairs, from the shortest number on."""
    if len(angles) == 1:
        yield 10000.0
    elif angles[1] > 0:
        for digits in range(1, 8):
            yield float(f"{float(angles[1]) ** -len(angles):.{digits}g}")


def scores(function: Function, shape: Sequence[int]) -> tuple[float, np.ndarray] | None:
    """Factor and summands that a function gives attention's scores of this shape; None: it does other things.

    Where a summand is far below 0 it hides a token, and no factor is seen.
    """
    small = (*(1 for _ in shape[:-2]), *shape[-2:])
    for given in dict.fromkeys((small, tuple(shape))):
        if math.prod(given) > LARGEST:
            break
        try:
            nothing, one, two = (np.asarray(function(np.full(given, number)), np.float64) for number in (0.0, 1.0, 2.0))
        except Exception:  # as in _made
            continue
        seen = nothing > HIDDEN
        factor = float((one - nothing)[seen][0]) if seen.any() else 0.0
        alike = np.all(np.abs((one - nothing)[seen] - factor) <= CLOSE * factor)
        if factor > 0 and alike and np.all(np.abs((two - one)[seen] - factor) <= CLOSE * factor):
            return factor, nothing
    return None
