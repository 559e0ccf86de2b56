"""The figures that vDNN++ published, and those known from elsewhere, each with its mark; `published.json` has them.

P: printed in the abstract (Shriram, Garg, Kulkarni, IPDPS 2019), all of the paper that was at hand.  S: read off the
authors' public code.  C: calculated by our port of that code, whose binary never ran.  R: ours.  Only P is the paper's
own figure.

The abstract does not say of what its 60 % is a share.  It cannot be a cut of time: the best overlap, a copy under
a kernel that takes as long, takes half as long as one after the other.  So ours is beside it in three readings.
"""

from __future__ import annotations

from refimpl.studies.reproduce.published import Figures

FIGURES = Figures(__file__)
FASTER, PINNED = FIGURES.one("faster"), FIGURES.one("pinned")

#: Ways to read "relative improvement": name → letter, and how it is calculated.
READINGS = {
    "time": ("a", "T(vDNN) / T(vDNN++) - 1"),
    "cut": ("b", "1 - T(vDNN++) / T(vDNN)"),
    "overhead": ("c", "(T(vDNN) - T(vDNN++)) / (T(vDNN) - T(all in memory))"),
}
IN_WORDS = "; ".join(f"({letter}) {formula}" for letter, formula in READINGS.values())

#: S.  Shares of non-zeros, per cent, that the authors' tests assume of the CONV and POOL layers' outputs, in order.
DENSITIES_PER_CENT: dict[str, list[int]] = FIGURES.data["densities"]

#: C.  VGG-16(16), conv, MiB: the maps compressed with the input batch as it is; and uncompressed, without it.
KEPT_MIB: float = FIGURES.data["kept"]
RAW_MIB: float = FIGURES.data["raw"]

#: C.  Bytes, vDNN's synchronous order, no workspace: (network, batch, policy) → ideal, best fit, best fit and right
#: placement; and the tries of the two.
POOLS: dict[tuple[str, int, str], tuple[tuple[int, ...], tuple[int, ...]]] = {
    (network, batch, policy): (tuple(nbytes), tuple(tries))
    for network, batch, policy, nbytes, tries in FIGURES.data["pools"]
}
