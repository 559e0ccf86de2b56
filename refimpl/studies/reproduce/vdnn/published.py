"""The figures that vDNN published, each with its mark and its source.

| mark | source |
| --- | --- |
| P | abstract or introduction of MICRO-49 2016; or abstract of arXiv 1602.08124v1: other figures, of another GPU |
| p | the body of the MICRO version, which was not at hand: recalled, and not checked again |
| C | a convention of this project, chosen because the published savings fit it best: `figures` names each |

GB is 2^30 bytes: with 10^9, the total of VGG-416 would be 6.9 % off in place of 0.5 %.  "Performance lost" is
1 - T(all in memory) / T(vDNN): a GPU that takes 1.25 times as long has lost 20 %.

Of the paper's figures 6, 11, 12, 13, 14 and 15 some numbers are known.  For the other figures, and for single bars of
these, no number was at hand.
"""

from __future__ import annotations

from refimpl.studies.reproduce.published import Published, Quantity

ABSTRACT = "MICRO-49 2016, abstract"
FIRST = "arXiv v1, abstract"
INTRODUCTION = "MICRO-49 2016, introduction"
BODY = "MICRO-49 2016, body"


def figure(number: int) -> str:
    return f"MICRO-49 2016, Figure {number}"


# -- memory ------------------------------------------------------------------------------------------------------------

NETWORK_WIDE = Published("VGG-16(256): everything allocated once", 28, "GB", "P", ABSTRACT)
#: Network → average memory saved.
SAVED = {
    network: Published(f"{title}: average memory saved", saved, "%", "P", ABSTRACT, of="bytes")
    for network, title, saved in (
        ("alexnet", "AlexNet(128)", 89),
        ("overfeat", "OverFeat(128)", 91),
        ("googlenet", "GoogLeNet(128)", 95),
    )
}
SAVED_FIRST = {
    network: Published(f"{title}: average memory saved, in v1", saved, "%", "P", FIRST, of="bytes")
    for network, title, saved in (("alexnet", "AlexNet", 61), ("overfeat", "OverFeat", 83))
}
PEAK = Published("VGG-16(128), all (m): peak of maps, gradients, W and dW", 4.8, "GB", "p", BODY)
#: Policy → of the most and of the average memory, the mean share saved over six networks.
MEAN_SAVED = {
    policy: tuple(
        Published(f"six networks, {policy}: mean {what} saved", saved, "%", "p", figure(11), of="bytes")
        for what, saved in zip(("peak", "average"), both, strict=True)
    )
    for policy, both in {"all (m)": (73, 93), "all (p)": (64, 90), "conv (p)": (52, 76), "dyn": (49, 69)}.items()
}
#: (network, batch) → the feature extraction's share of everything allocated once.
FEATURES = {
    (network, batch): Published(
        f"{title}({batch}): the feature extraction's share of the memory", share, "%", "p", BODY, of="bytes"
    )
    for network, title, batch, share in (("alexnet", "AlexNet", 128, 81), ("vgg16", "VGG-16", 256, 96))
}
OFFLOADED = Published("VGG-16(256), all: offloaded, up to", 16, "GB", "p", figure(12))

# -- performance -------------------------------------------------------------------------------------------------------

LOST = Published("VGG-16(256) on a Titan X: performance lost", 18, "%", "P", ABSTRACT, of="time")
LOST_FIRST = Published("VGG-16(256) on a K40: performance lost, in v1", 22, "%", "P", FIRST, of="time")
MEAN_LOST = {
    policy: Published(f"six networks, {policy}: mean performance lost", lost, "%", "p", figure(14), of="time")
    for policy, lost in (("all (m)", 58), ("conv (m)", 55))
}
#: Policy → the most that one of the six networks loses.
MOST_LOST = {
    policy: Published(f"six networks, {policy}: most performance lost", lost, "%", "p", figure(14), of="time")
    for policy, lost in (("all (m)", 65), ("conv (m)", 63))
}
LOST_MIDDLE = Published("VGG-16(128), all (m): performance lost", 61, "%", "p", BODY, of="time")
REACHED = Published("six networks, dyn: mean performance reached", 97, "%", "p", figure(14), of="time")
WORST = Published("six networks, dyn: least performance reached", 82, "%", "p", figure(14), of="time")
#: 16 of 336 GB/s: what a full link takes of the device memory's bandwidth.
COPIES = Published("copies: at most, of the device memory's bandwidth", 4.7, "%", "p", figure(13), of="time")

# -- ten networks ------------------------------------------------------------------------------------------------------

FAIL = Published("ten networks: fail on 12 GB, everything allocated once", 6, "", "P", INTRODUCTION, within=0)


def least_and_most(what: str, unit: str, least: float, most: float, of: Quantity) -> tuple[Published, Published]:
    """Both ends of a range over the networks that fail."""
    low, high = (f"these: {which} {what}" for which in ("least", "most"))
    ends = (low, least), (high, most)
    first, second = (Published(what, value, unit, "P", INTRODUCTION, of=of) for what, value in ends)
    return first, second


NEEDED = least_and_most("memory needed", "GB", 14, 67, "bytes")
RANGE_SAVED = least_and_most("average memory saved", "%", 73, 98, "bytes")
RANGE_LOST = least_and_most("performance lost", "%", 1, 18, "time")

# -- the wait of a map -------------------------------------------------------------------------------------------------

#: (network, batch) → the time between the two uses of the first layer's X.
REUSE = {
    ("alexnet", 128): Published("AlexNet(128): wait of the first layer's X", 60, "ms", "p", figure(6), above=True),
    ("vgg16", 64): Published("VGG-16(64): wait of the first layer's X", 1200, "ms", "p", figure(6), above=True),
}

# -- very deep networks ------------------------------------------------------------------------------------------------

DEEP_TOTAL = Published("VGG-416(32): everything allocated once", 67.1, "GB", "p", figure(15))
DEEP_GROWTH = Published("VGG-416(32): of VGG-16(32)'s total", 14, "×", "p", figure(15), of="bytes")
DEEP_HELD = Published("VGG-416(32), dyn: held on the GPU", 4.2, "GB", "p", figure(15))
#: Network → share of the memory that is on the host, the least and the largest.
DEEP_HOST = {
    network: Published(f"{title}(32), dyn: on the host", share, "%", "p", figure(15), of="bytes")
    for network, title, share in (("vgg116", "VGG-116", 81), ("vgg416", "VGG-416", 92))
}
