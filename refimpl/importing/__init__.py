"""Networks from elsewhere, an ONNX file or a PyTorch module, and trained weights back into it."""

from refimpl.importing.sources import from_file, from_onnx, from_torch

__all__ = ["from_file", "from_onnx", "from_torch"]
