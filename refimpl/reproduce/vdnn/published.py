"""The figures that vDNN published, each with its source and its mark (`refimpl.reproduce.published`)."""

from __future__ import annotations

from refimpl.reproduce.published import Published

ABSTRACT = "MICRO-49 2016, abstract and introduction"
BODY = "MICRO-49 2016, from the paper's body"

NETWORK_WIDE = Published("VGG-16(256): everything allocated once", 28, "GB", "P", ABSTRACT)
AVERAGE_SAVING = Published("AlexNet(128), all (m): average memory saved", 89, "%", "P", ABSTRACT)
SLOWDOWN = Published("VGG-16(256) on 12 GB: slower than a GPU that holds it all", 18, "%", "P", ABSTRACT)
PEAK = Published("VGG-16(128), all (m): peak of maps, gradients, W and dW", 4.8, "GB", "p", BODY)
LAYER_TIME = Published("time of a layer that offloads, over max(compute, copy)", 1, "×", "P", BODY)
