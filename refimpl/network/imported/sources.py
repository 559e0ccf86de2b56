"""Where a network can come from: a PyTorch module, an ONNX file, a function of a Python file.

As a name, a file is `my_model.onnx`, `my_model.onnx:NODE` or `my_networks.py:make`, and after any of these may be its
losses: `my_model.onnx:=LOSS`, or of several outputs `my_model.onnx:NODE=LOSS,NODE=LOSS`.  A function is called with
`batch=N`, and with `loss` where it is given one, and returns a network: what `from_torch` makes of a module, or what a
Builder builds.  A Python file is
executed, an ONNX file never.  NumPy, onnx and PyTorch are imported when they are needed: a named network needs none.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from refimpl.network.builder import Builder
from refimpl.network.imported.graph import BATCH, built
from refimpl.network.imported.own_code import error_line, executed
from refimpl.network.layer import NetworkError
from refimpl.network.network import Network
from refimpl.text import offer, one_line

FILE = re.compile(r"(?P<path>.*?\.(?P<kind>onnx|py))(:(?P<part>.+))?", re.IGNORECASE | re.DOTALL)


Loss = str | Mapping[str, str] | None


def from_torch(module: Any, shape: Any, output: str | None = None, loss: Loss = None) -> Network:
    """A network from a `torch.nn.Module`, with the module's weights.

    The module is read as it trains: with dropout, and with the batch's statistics in batch normalisation.  It is not
    changed, and its weights are copied.  Parameters that need no gradient are frozen, and layers with the same
    parameters share them.

    Args:
        module: a network with one input; a classifier may end in logits, a softmax or a log-softmax.
        shape: of its input: (images, channels, height, width).  For a module that reads tokens, an example of them: a
            tensor of whole numbers, (windows, tokens).
        output: the name of the node that the loss reads (None: the module's only output).
        loss: "softmax" (None), "pixel_softmax", "mean_squared_error" or "binary_cross_entropy", which take logits; or
            of several outputs the node and the loss of each, as in {"head": "softmax", "mask": "pixel_softmax"}.  A
            module that reads tokens and has classes for each of them ends in "pixel_softmax" without.

    Raises:
        NetworkError: one line that names the node, and what can be done.
    """
    from refimpl.network.imported.torch_module import graph_of

    dtype = "int32" if str(getattr(shape, "dtype", "")) in ("torch.int64", "torch.int32") else "float32"
    given = tuple(shape.shape) if dtype == "int32" else tuple(shape)
    return built(graph_of(module, given, dtype), given[0], output, loss)


def from_onnx(path: str | Path, batch: int = BATCH, output: str | None = None, loss: Loss = None) -> Network:
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
        return from_onnx(found["path"], size, *_ends(found["part"]))
    function, _, losses = (found["part"] or "").partition(":")
    if not function:
        raise NetworkError(f"{name}: name the function that makes the network, as in {found['path']}:make")
    return _called(found["path"], function, size, _ends(losses)[1])


def with_losses(name: str, losses: Sequence[str]) -> str:
    """A file's name with losses: one, or NODE=LOSS of every output."""
    found = FILE.fullmatch(name.strip())
    if found is None:
        raise NetworkError(f"a loss is given for a file's network, and {name} has its own: leave out --loss")
    if len(losses) > 1 and not all("=" in loss for loss in losses):
        raise NetworkError(f"--loss {' --loss '.join(losses)}: of several losses each is one output's, as in NODE=LOSS")
    given = ",".join(losses) if "=" in losses[0] else f"={losses[0]}"
    if found["part"] is None or found["kind"].lower() == "py":
        return f"{name}:{given}" if found["part"] or found["kind"].lower() == "onnx" else name
    if "=" in losses[0]:
        raise NetworkError(f"--loss {losses[0]} names its output: leave out --output {found['part']}")
    return f"{name}{given}"


def _ends(part: str | None) -> tuple[str | None, Loss]:
    """The node where a file's network ends, and its loss, or the losses of several nodes."""
    if not part or "=" not in part:
        return part or None, None
    pairs = [each.rpartition("=")[::2] for each in part.split(",")]
    if len(pairs) == 1:
        return pairs[0][0] or None, pairs[0][1]
    if len({node for node, _ in pairs}) < len(pairs):
        raise NetworkError(f"{part}: an output has one loss; name each once")
    return None, dict(pairs)


def _called(path: str, function: str, batch: int, loss: Loss = None) -> Network:
    if not os.path.isfile(path):
        raise NetworkError(f"there is no file {path}")
    known = vars(executed(path, os.stat(path).st_mtime_ns))
    make = known.get(function)
    if not callable(make):
        functions = [name for name, value in known.items() if callable(value)]
        raise NetworkError(f"{path} has no function {function!r}{offer(function, functions)}")
    given = {"batch": batch} | ({} if loss is None else {"loss": loss})
    if loss is not None and not _takes(make, "loss"):
        raise NetworkError(f"{path}: {function} takes no loss; give it the parameter loss, and hand that to from_torch")
    try:
        made = make(**given)
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


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of that name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(parameter.name == name or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
