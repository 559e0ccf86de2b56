"""Networks from elsewhere, an ONNX file or a PyTorch module, and trained weights back into it."""

from refimpl.network.imported.onnx_nodes import from_onnx, written_onnx
from refimpl.network.imported.torch_module import fill_module, from_torch

__all__ = ["fill_module", "from_onnx", "from_torch", "written_onnx"]
