"""The figures of AccUDNN's abstracts, all about ResNet-152 (P).  Nothing else of the paper could be read.

The abstracts do not say which GPU, link or network these hold for, nor the batches, nor how Caffe's memory is counted.
Each figure is therefore shown in every reading, and none is chosen by its fit.
"""

from __future__ import annotations

from dataclasses import replace

from refimpl.studies.reproduce.published import Published

ABSTRACT = "arXiv 1901.06773 and ICCD 2019, abstracts"
ICCD = "ICCD 2019, abstract"

BEFORE_GB = 24  #: what ResNet-152 needs without AccUDNN, "more than"
MEMORY = Published("from 24 GB without loss of speed", 8, "GB", "P", ABSTRACT)
BATCH = Published("in 12 GB, best minibatch over Caffe's", 4.2, "×", "P", ABSTRACT, of="counts")
CLUSTER = Published("speed-up on 8 GPUs", 7.7, "×", "P", ABSTRACT, of="time")
#: In the reading that shows it, it is the figure above over the same number, so no median counts it.
SCALED = Published("8 GPUs scale better", 1.9, "×", "P", ICCD, of="time", in_medians=False)
#: "Without loss of speed", as a figure: an iteration in 8 GB over the one with unlimited memory.
LOSSLESS = Published(
    "from 24 GB to 8: an iteration over the unlimited one", 1, "×", "P", ABSTRACT, within=0.01, of="time",
    in_medians=False,
)  # fmt: skip


def read(published: Published, how: str) -> Published:
    """The figure in one reading."""
    return replace(published, what=f"{published.what}; {how}")
