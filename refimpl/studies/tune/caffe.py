"""Memory of original Caffe, the paper's baseline: two accountings, because the authors' version is unknown (R).

Caffe keeps every top (a layer's output) and its gradient for the whole iteration.  BatchNorm, Scale, ReLU, dropout and
softmax work in place and have no top of their own.  Where several layers read one map, a Split gives each a gradient of
its own.  BVLC's BatchNorm also keeps two buffers, `temp` and `x_norm`, each with its gradient.

| accounting | bytes of an image |
| --- | --- |
| `caffe-lean` | 2 × tops + gradients of the Splits |
| `caffe-bvlc` | the same + 4 × the maps that are normalised |

Whatever the batch: the resident tensors and 0.33 GiB of context.  No workspace is counted.
"""

from __future__ import annotations

from math import prod

from refimpl.network import Network

CONTEXT_BYTES = int(0.33 * (1 << 30))  #: of the CUDA context and the libraries
#: Kinds without a top of their own; a kind that Caffe did not know is counted with one.
IN_PLACE = ("batchnorm", "relu", "dropout", "softmax", "fork")
NORMALISED = 4  #: buffers of BVLC's BatchNorm beside its top


def bytes_per_image(network: Network, bvlc: bool) -> int:
    """Bytes that one more image takes.

    Args:
        network: of any batch.
        bvlc: whether BatchNorm keeps the four buffers that BVLC's does.
    """
    tops, splits, normalised = prod(network.input.shape), 0, 0
    for layer in network.layers:
        elements = prod(layer.shape)
        tops += elements * (layer.kind not in IN_PLACE)
        splits += elements * len(layer.consumers) * (len(layer.consumers) > 1)
        normalised += elements * (layer.kind == "batchnorm")
    return 4 * (2 * tops + splits + NORMALISED * normalised * bvlc) // network.batch


def fixed_bytes(network: Network) -> int:
    """Bytes whatever the batch."""
    gradients = sum(tensor.nbytes for tensor in network.managed if tensor.kind == "weight gradient")
    return network.resident_bytes + gradients + CONTEXT_BYTES
