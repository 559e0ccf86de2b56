"""A checkpoint: the state of training in one file, from which it goes on bit for bit on the same backend.

An `.npz` archive: every tensor of the state by name, and under `about` a JSON text with the iteration, the settings,
the network's name and the SHA-256 of every tensor.  A new one replaces an old one only when it is complete, and one
is read and checked to the last byte before a trainer is touched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from refimpl.backend.npz import Damaged, TooLarge, read_arrays
from refimpl.backend.run_errors import CheckpointError, RunError
from refimpl.backend.schedules import Schedule
from refimpl.files import replacing
from refimpl.network import Network
from refimpl.network.initial_state import state_tensors
from refimpl.text import shown, size

FORMAT = 2
MORE = 64 << 10  #: bytes of a tensor's header and of what `about` has of it, and of the rest of `about`, at most
ABOUT = "about"  #: no tensor of a state is named so: their names have a dot

FLOAT = float(np.finfo(np.float32).max)
#: The settings in a checkpoint that are the same for every optimiser: type, least, most.
SETTINGS: dict[str, tuple[type, float, float]] = {"seed": (int, 0, 2**64 - 1), "iteration": (int, 0, 2**63 - 1)}
NUMBER = (float, -FLOAT, FLOAT)  #: of an optimiser


def write(
    path: str | Path,
    network: Network,
    state: Mapping[str, np.ndarray],
    settings: Mapping[str, float | str],
    algorithms: Mapping[str, str],
) -> None:
    """Write a checkpoint; one that is there already stays until the new one is complete.

    A state with NaN or infinity is refused: no training can go on from it, and it would replace one that is good.
    """
    for name, array in state.items():
        if not np.isfinite(array).all():
            raise CheckpointError(f"{path} is not written: the training has diverged, {name} has NaN or infinity")
    about = {
        "format": FORMAT,
        "network": network.name,
        "optimiser": network.learning.optimiser,
        "settings": dict(settings),
        "algorithms": dict(algorithms),
        "checksums": {name: _checksum(array) for name, array in state.items()},
    }
    arrays: dict[str, Any] = {ABOUT: np.array(json.dumps(about)), **state}
    try:
        with replacing(path) as file:
            np.savez(file, **arrays)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror or error}") from None


def _opened(path: str | Path, network: Network) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """What a file says of itself (None: it is not a checkpoint), and its arrays.  Raises a `CheckpointError`, before
    anything is unpacked if that is much more than a state of this network."""
    state = state_tensors(network)
    most = sum(tensor.nbytes for tensor in state) + MORE * (len(state) + 1)
    try:
        arrays = read_arrays(path, most)
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    except TooLarge as error:
        raise CheckpointError(
            f"{path} unpacks to {size(error.held)}, and a checkpoint of {network.name} has at most {size(most)}: "
            "it is of another network, or damaged"
        ) from None
    except Damaged as error:
        raise _damaged(path, error) from None
    if ABOUT not in arrays:
        return None, arrays
    try:
        about = json.loads(str(arrays.pop(ABOUT)))
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        raise _damaged(path, f"{ABOUT} is not a JSON object")
    return about, arrays


def _damaged(path: str | Path, why: object) -> CheckpointError:
    return CheckpointError(f"{path} is incomplete or damaged: {why}")


def read(path: str | Path, network: Network) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """State and settings of a checkpoint that is complete and belongs to this network."""
    about, arrays = _opened(path, network)
    if about is None:
        raise CheckpointError(f"{path} is not a checkpoint: it has no {ABOUT!r}")
    if about.get("format") != FORMAT:
        raise CheckpointError(f"{path} is a checkpoint of another format; this version reads {FORMAT}")
    other = about.get("network")
    by = about.get("optimiser")
    if other == network.name and by != network.learning.optimiser:
        raise CheckpointError(f"{path} was trained by {shown(by)}, not by {network.learning.optimiser}")
    try:
        check(str(path), network, arrays)
    except CheckpointError:
        if other == network.name:
            raise
        raise CheckpointError(f"{path} is a checkpoint of {shown(other)}, not of {network.name}") from None
    settings = _settings(path, about, network)
    _algorithms(path, about, network)
    if about.get("checksums") != {name: _checksum(array) for name, array in arrays.items()}:
        raise CheckpointError(f"{path} is damaged: a tensor differs from what was saved")
    return arrays, settings


def algorithms(path: str | Path, network: Network) -> dict[str, str] | None:
    """The algorithms that a checkpoint's state was trained with, by the names of calls; None: it is no checkpoint."""
    about, _ = _opened(path, network)
    return None if about is None else _algorithms(path, about, network)


def without_algorithm(network: Network, found: Mapping[str, str]) -> list[str]:
    """The names of the network's calls that have a choice, and have none in `found`."""
    calls = (call for step in network.steps for call in step.calls)
    return [call.name for call in calls if call.choosable and call.name not in found]


def check(where: str, network: Network, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise a CheckpointError unless these are all tensors of a state of this network, each in its shape.

    Args:
        where: where they come from, for the message.
        arrays: by name.
    """
    expected = {tensor.name: tensor for tensor in state_tensors(network)}
    for name in expected.keys() - arrays.keys():
        raise CheckpointError(f"{where} has no {name}; it is not a whole state of {network.name}")
    for name in arrays.keys() - expected.keys():
        raise CheckpointError(f"{where} has {shown(name)}, which {network.name} does not have")
    for name, tensor in expected.items():
        found = arrays[name]
        if found.shape != tensor.shape or found.dtype != np.dtype(tensor.dtype):
            raise CheckpointError(
                f"{where}: {name} is {found.dtype} of shape {found.shape}; "
                f"{network.name} has {tensor.dtype} of shape {tensor.shape}"
            )


def _checksum(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _algorithms(path: str | Path, about: Mapping[str, Any], network: Network) -> dict[str, str]:
    found = about.get("algorithms")
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise _damaged(path, "its algorithms are not names")
    if about.get("network") == network.name and (missing := without_algorithm(network, found)):
        raise _damaged(path, f"it has no algorithm for {missing[0]}")
    return found


def _settings(path: str | Path, about: Mapping[str, Any], network: Network) -> dict[str, Any]:
    """The settings, each of its type and in its range."""
    settings = about.get("settings")
    wanted = SETTINGS | dict.fromkeys(network.learning.rule.defaults, NUMBER)
    if not isinstance(settings, dict) or settings.keys() != {*wanted, "schedule", "warmup"}:
        raise _damaged(path, f"its settings are not {', '.join(wanted)}, schedule, warmup")
    for name, (kind, least, most) in wanted.items():
        value = settings[name]
        if type(value) not in (int, kind) or not least <= value <= most:
            raise _damaged(path, f"its {name} is {shown(value)}")
    try:
        Schedule.parse(settings["schedule"], int(settings["warmup"]))
    except (RunError, ValueError, TypeError, AttributeError, OverflowError):
        raise _damaged(path, f"its schedule is {shown(settings['schedule'])}") from None
    return settings | {name: kind(settings[name]) for name, (kind, _, _) in wanted.items()}
