"""Networks: layers, shapes, and which tensor each call reads and writes."""

from refimpl.network.accounting import network_wide, network_wide_bytes
from refimpl.network.builder import Builder
from refimpl.network.call import CHOOSABLE, Call, Setting
from refimpl.network.conventions import SUPERNEURONS, VDNN, VDNNPP, Conventions
from refimpl.network.data_parallel import BUCKET_BYTES
from refimpl.network.layer import Layer, NetworkError, Output, Parameter, Step
from refimpl.network.network import Network
from refimpl.network.routes import depth_first
from refimpl.network.tensor import Kind, Tensor

__all__ = [
    "BUCKET_BYTES", "CHOOSABLE", "SUPERNEURONS", "VDNN", "VDNNPP", "Builder", "Call", "Conventions", "Kind", "Layer",
    "Network", "NetworkError", "Output", "Parameter", "Setting", "Step", "Tensor", "depth_first", "network_wide",
    "network_wide_bytes",
]  # fmt: skip
