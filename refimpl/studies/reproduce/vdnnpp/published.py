"""The figures that vDNN++ published, and those known from elsewhere, each with its mark.

P: printed in the abstract (Shriram, Garg, Kulkarni, IPDPS 2019), all of the paper that was at hand.  S: read off the
authors' public code.  C: calculated by our port of that code, whose binary never ran.  R: ours.  Only P is the paper's
own figure.

The abstract does not say of what its 60 % is a share.  It cannot be a cut of time: the best overlap, a copy under
a kernel that takes as long, takes half as long as one after the other.  So ours is beside it in three readings.
"""

from __future__ import annotations

from dataclasses import replace

from refimpl.studies.reproduce.published import Published

ABSTRACT = "IPDPS 2019, abstract"

FASTER = Published("up to 60 % faster than vDNN", 60, "%", "P", ABSTRACT, of="time")
PINNED = Published("up to 60 % less pinned memory", 60, "%", "P", ABSTRACT, of="bytes")

#: Ways to read "relative improvement": name → letter, and how it is calculated.
READINGS = {
    "time": ("a", "T(vDNN) / T(vDNN++) - 1"),
    "cut": ("b", "1 - T(vDNN++) / T(vDNN)"),
    "overhead": ("c", "(T(vDNN) - T(vDNN++)) / (T(vDNN) - T(all in memory))"),
}
IN_WORDS = "; ".join(f"({letter}) {formula}" for letter, formula in READINGS.values())

#: S.  Shares of non-zeros, per cent, that the authors' tests assume of the CONV and POOL layers' outputs, in order.
DENSITIES_PER_CENT = {
    "alexnet": (50, 80, 40, 60, 70, 70, 30, 60),
    "vgg16": (50, 20, 30, 20, 10, 20, 20, 20, 10, 20, 20, 10, 10, 10, 20, 20, 10, 15),
}

#: C.  VGG-16(16), conv, MiB: the maps compressed with the input batch as it is; and uncompressed, without it.
KEPT_MIB, RAW_MIB = 213.8, 545.1

#: C.  Bytes, vDNN's synchronous order, no workspace: (network, batch, policy) → ideal, best fit, best fit and right
#: placement; and the tries of the two.
POOLS = {
    ("alexnet", 128, "none"): ((634_615_296, 635_098_624, 637_208_064), (2, 2)),
    ("alexnet", 128, "conv"): ((493_058_560, 575_613_952, 540_102_656), (31, 2)),
    ("vgg16", 16, "all"): ((831_865_344, 847_773_696, 847_773_696), (2, 2)),
}


def read(published: Published, how: str, said: str = "") -> Published:
    """The figure in one reading; `said` is added to its source."""
    source = f"{published.source}, read as {said}" if said else published.source
    return replace(published, what=f"{published.what}: {how}", source=source)
