"""Where a network can come from: a PyTorch module, an ONNX file, a function of a Python file.

As a name, a file is `my_model.onnx`, `my_model.onnx:NODE` or `my_networks.py:make`.  A function is called with
`batch=N` and returns a network: what `from_torch` makes of a module, or what a Builder builds.  A Python file is
executed, an ONNX file never.  NumPy, onnx and PyTorch are imported when they are needed: a named network needs none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refimpl.network.builder import Builder
from refimpl.network.imported.graph import BATCH, built
from refimpl.network.imported.own_code import error_line, executed
from refimpl.network.layer import NetworkError
from refimpl.network.network import Network
from refimpl.text import offer, one_line

FILE = re.compile(r"(?P<path>.*?\.(?P<kind>onnx|py))(:(?P<part>.+))?", re.IGNORECASE | re.DOTALL)


def from_torch(module: Any, shape: Sequence[int], output: str | None = None, loss: str | None = None) -> Network:
    """A network from a `torch.nn.Module`, with the module's weights.

    The module is read as it trains: with dropout, and with the batch's statistics in batch normalisation.  It is not
    changed, and its weights are copied.  Parameters that need no gradient are frozen, and layers with the same
    parameters share them.

    Args:
        module: a network with one input; a classifier may end in logits, a softmax or a log-softmax.
        shape: of its input: (images, channels, height, width).
        output: the name of the node that the loss reads (None: the module's only output).
        loss: "softmax" (None), "pixel_softmax", "mean_squared_error" or "binary_cross_entropy", which take logits.

    Raises:
        NetworkError: one line that names the node, and what can be done.
    """
    from refimpl.network.imported.torch_module import graph_of

    return built(graph_of(module, tuple(shape)), shape[0], output, loss)


def from_onnx(path: str | Path, batch: int = BATCH, output: str | None = None, loss: str | None = None) -> Network:
    """A network from an ONNX file, with the file's weights.

    Args:
        path: of the file; weights outside it must be in files below its folder.
        batch: images; a batch in the file plays no part.
        output: the name of the node that the loss reads (None: the file's only output).
        loss: as in `from_torch`.

    Raises:
        NetworkError: one line that names the node, and what can be done.
    """
    from refimpl.network.imported.onnx_nodes import graph_of_file

    try:
        return built(graph_of_file(str(path)), batch, output, loss)
    except NetworkError:
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        # A file that the library's checker lets pass can still have an attribute of another type than its operator's.
        raise NetworkError(f"{path} is damaged: {type(error).__name__}: {one_line(str(error))}") from None


def from_file(name: str, batch: int | None) -> Network | None:
    """The network of a file; None: the name is no file's."""
    found = FILE.fullmatch(name.strip())
    if found is None:
        return None
    size = BATCH if batch is None else batch
    if found["kind"].lower() == "onnx":
        return from_onnx(found["path"], size, found["part"])
    if found["part"] is None:
        raise NetworkError(f"{name}: name the function that makes the network, as in {name}:make")
    return _called(found["path"], found["part"], size)


def _called(path: str, function: str, batch: int) -> Network:
    if not os.path.isfile(path):
        raise NetworkError(f"there is no file {path}")
    known = vars(executed(path, os.stat(path).st_mtime_ns))
    make = known.get(function)
    if not callable(make):
        functions = [name for name, value in known.items() if callable(value)]
        raise NetworkError(f"{path} has no function {function!r}{offer(function, functions)}")
    try:
        made = make(batch=batch)
    except NetworkError:
        raise
    except (Exception, SystemExit) as error:
        raise NetworkError(f"{path}: {function}(batch={batch}) failed: {error_line(error)}") from None
    if isinstance(made, Builder):
        made = made.build()
    if not isinstance(made, Network):
        hint = "return refimpl.networks.from_torch(module, (batch, channels, height, width))"
        raise NetworkError(f"{path}: {function} returned a {type(made).__name__}, not a network; {hint}")
    return made
