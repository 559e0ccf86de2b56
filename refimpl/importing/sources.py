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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from refimpl.importing.own_code import error_line, executed
from refimpl.network.builder import PapersBuilder
from refimpl.network.layer import NetworkError
from refimpl.network.network import Network
from refimpl.text import counted, offer, one_line

BATCH = 32  #: images, where no batch is given
KEEPS = ("pytorch", "pytorch-cpu")  #: what PyTorch keeps on a GPU, and on a CPU
BY_PYTORCH = "it is described as PyTorch keeps it; leave keeps out for our own kernels"
FILE = re.compile(r"(?P<path>.*?\.(?P<kind>onnx|py))(:(?P<part>.+))?", re.IGNORECASE | re.DOTALL)


Loss = str | Mapping[str, str] | None


def from_torch(
    module: Any,
    example: Any,
    output: str | None = None,
    loss: Loss | Callable[[Any], Any] = None,
    keeps: str | None = None,
    autocast: str | None = None,
    outer_loss: Callable[[Any], Any] | None = None,
) -> Network:
    """A network from a `torch.nn.Module`, with the module's weights.

    The module is read as it trains: with dropout, and with the batch's statistics in batch normalisation.  It is not
    changed, and its weights are copied.  Parameters that need no gradient are frozen, and layers with the same
    parameters share them.

    A module with an operator for which there is no kernel here is described as PyTorch itself would run it, for
    planning alone: `keeps="pytorch"` does the same with any module.  An operator's memory is known only from PyTorch,
    and a network in which some layers keep what PyTorch saves and others what our kernels read would predict neither.

    Args:
        module: a network; a classifier may end in logits, a softmax or a log-softmax.
        example: what it is called with.  The shape of its input: (images, channels, height, width).  Or a tensor, of
            which shape and type count: of whole numbers for a module that reads tokens, (windows, tokens).  Or several
            arguments, in order, by their names, or (several, named); such a module is planned and not run.
        output: the name of the node that the loss reads (None: the module's only output).
        loss: "softmax" (None), "pixel_softmax", "mean_squared_error" or "binary_cross_entropy", which take logits; or
            of several outputs the node and the loss of each, as in {"head": "softmax", "mask": "pixel_softmax"}.  A
            module that reads tokens and has classes for each of them ends in "pixel_softmax" without.  With
            `keeps="pytorch"` also a function of what the module returns; and with None the loss is left out.
        keeps: what forward keeps for backward: "own", what our kernels read, so that the network can be run;
            "pytorch", what PyTorch's autograd saves on a GPU; "pytorch-cpu", what it saves on a CPU (None: "own", or
            "pytorch" where a kernel is missing).
        autocast: with `keeps="pytorch"`, "bfloat16" or "float16": forward runs under `torch.autocast`.
        outer_loss: with `keeps="pytorch"`, a function of what the module returns: the bytes that it takes are counted,
            and it is no part of the network, so that a plan can be carried out around it (`refimpl.torch`).

    Raises:
        NetworkError: one line that names the node, and what can be done.
    """
    from refimpl.importing.graph import NoKernel, built, what_is_missing
    from refimpl.importing.torch_module import Example, exported_module, graph_of, imported_torch, quiet

    if keeps not in (None, "own", *KEEPS):
        raise NetworkError(f"there is no convention {keeps!r}; give own, {' or '.join(KEEPS)}")
    imported_torch(module)
    its = Example.of(example)
    with quiet():
        if keeps in KEEPS or callable(loss) or autocast is not None or outer_loss is not None:
            if keeps == "own":
                raise NetworkError("autocast and a loss of your own are known of PyTorch only: give keeps='pytorch'")
            return as_pytorch(module, its, output, loss, keeps or "pytorch", autocast, outer_loss=outer_loss)
        if its.alone is None:
            why = f"no layer here reads an input of {its}: give (images, channels, height, width)"
            if keeps == "own":
                raise NetworkError(why)
            return as_pytorch(module, its, output, loss, "pytorch", why=why)
        graph = None
        try:
            graph = graph_of(module, exported_module(module, its), *its.alone)
            return built(graph, its.alone[0][0], output, loss)
        except NetworkError as error:
            why = str(error) if graph is None or isinstance(error, NoKernel) else what_is_missing(graph)
            if not why or keeps == "own" or output is not None or isinstance(loss, Mapping):
                raise
            return as_pytorch(module, its, output, loss, "pytorch", why=why)


def as_pytorch(
    module: Any,
    example: Any,
    output: str | None,
    loss: Any,
    keeps: str,
    autocast: str | None = None,
    why: str = "",
    outer_loss: Any = None,
) -> Network:
    """The network as PyTorch keeps it; `why`: the reason why our own kernels cannot run it."""
    from refimpl.importing.any_module import named_loss, network_of
    from refimpl.importing.torch_module import cannot_follow, imported_torch

    torch = imported_torch(module)
    if output is not None or isinstance(loss, Mapping):
        raise NetworkError("a network as PyTorch keeps it ends where the module does; give loss= a function of that")
    if outer_loss is not None and loss is not None:
        raise NetworkError("a loss is part of the network or outside of it: give loss= or outer_loss=")
    if autocast not in (None, "bfloat16", "float16"):
        raise NetworkError(f"autocast is {autocast!r}; give bfloat16 or float16")
    function = loss if loss is None or callable(loss) else named_loss(torch, loss)
    numbers = autocast and getattr(torch, autocast)
    try:
        network = network_of(module, example.args, example.kwargs, keeps, numbers, function, outer_loss)
    except NetworkError:
        raise
    except Exception as error:  # whatever the module's own code raises
        raise cannot_follow(module, example, error) from None
    network.cannot_run = f"{network.name} can be planned and not run: {why or BY_PYTORCH}"
    return network


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
    from refimpl.importing.graph import built
    from refimpl.importing.onnx_nodes import graph_of_file

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


def module_from_file(name: str, batch: int | None) -> tuple[Any, Any]:
    """A PyTorch module and an example of what it is called with, as `my_file.py:make` returns them.

    The function is called with `batch=N` if it takes that.
    """
    path, function = _named(name)
    own = own_batch(name)
    if batch is not None and own is None:
        raise NetworkError(f"{name} takes no batch; leave out --batch, or give the function that parameter")
    made = _made(_function(path, function), path, function, {} if own is None else {"batch": batch or own})
    if not isinstance(made, tuple) or len(made) != 2:
        what = (
            f"returned {counted(len(made), 'value')}"
            if isinstance(made, tuple)
            else f"returned a {type(made).__name__}"
        )
        raise NetworkError(f"{name} {what}; return (module, example), of what the module is called with or its shape")
    return made


def own_batch(name: str) -> int | None:
    """The batch that `my_file.py:make` has where none is given: the parameter's own, or 32; None: it takes none."""
    make = _function(*_named(name))
    if not _takes(make, "batch"):
        return None
    parameter = inspect.signature(make).parameters.get("batch")
    own = parameter.default if parameter else None
    return own if isinstance(own, int) and own > 0 else BATCH


def _named(name: str) -> tuple[str, str]:
    """The file and the function of a name."""
    found = FILE.fullmatch(name.strip())
    if found is None or found["kind"].lower() != "py" or not found["part"]:
        raise NetworkError(f"{name}: name a Python file and its function that returns a module, as in my_file.py:make")
    return found["path"], found["part"]


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


def _function(path: str, function: str) -> Callable[..., Any]:
    """A function of a Python file, which is executed."""
    if not os.path.isfile(path):
        raise NetworkError(f"there is no file {path}")
    known = vars(executed(path, os.stat(path).st_mtime_ns))
    make = known.get(function)
    if not callable(make):
        functions = [name for name, value in known.items() if callable(value)]
        raise NetworkError(f"{path} has no function {function!r}{offer(function, functions)}")
    return make  # type: ignore[no-any-return]


def _made(make: Callable[..., Any], path: str, function: str, given: Mapping[str, Any]) -> Any:
    """What a function of a user's own returns."""
    try:
        return make(**given)
    except NetworkError:
        raise
    except (Exception, SystemExit) as error:
        said = f"batch={given['batch']}" if "batch" in given else ""
        raise NetworkError(f"{path}: {function}({said}) failed: {error_line(error)}") from None


def _called(path: str, function: str, batch: int, loss: Loss = None) -> Network:
    make = _function(path, function)
    given = {"batch": batch} | ({} if loss is None else {"loss": loss})
    if loss is not None and not _takes(make, "loss"):
        raise NetworkError(f"{path}: {function} takes no loss; give it the parameter loss, and hand that to from_torch")
    made = _made(make, path, function, given)
    if isinstance(made, PapersBuilder):
        made = made.build()
    if isinstance(made, tuple) and len(made) == 2 and hasattr(made[0], "named_parameters"):
        made = from_torch(*made)  # a module and its example, as for `refimpl torch`
    if not isinstance(made, Network):
        hint = "return (module, example), or refimpl.networks.from_torch(module, (batch, channels, height, width))"
        raise NetworkError(f"{path}: {function} returned a {type(made).__name__}, not a network; {hint}")
    return made


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of that name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(parameter.name == name or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
