"""A checkpoint: the state of training in one file, from which it goes on bit for bit.

An `.npz` archive: every tensor of the state by name, and under `about` a JSON text with the iteration, the settings,
the network's name and its parameters' shapes.  It is written beside its place and then moved there, so that there is
always a whole one; it is read and checked from end to end before a trainer is touched.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from refimpl.backend.errors import CheckpointError
from refimpl.backend.parameters import state_tensors
from refimpl.network import Network

FORMAT = 1
SETTINGS = ("seed", "iteration", "rate", "momentum", "decay")
ABOUT = "about"  #: no tensor of a state is named so: their names have a dot

About = dict[str, Any]


def write(path: str | Path, network: Network, state: Mapping[str, np.ndarray], settings: Mapping[str, float]) -> None:
    """Write a checkpoint; one that is there already stays until the new one is whole."""
    place = Path(path)
    about = {"format": FORMAT, "network": network.name, "settings": dict(settings), "shapes": _shapes(network)}
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix=f".{place.name}.", delete=False) as file:
            temporary = Path(file.name)
            arrays: dict[str, Any] = {ABOUT: np.array(json.dumps(about)), **state}
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except OSError as error:
        raise CheckpointError(f"{place} cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def read(path: str | Path, network: Network) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """State and settings of a checkpoint that is whole and belongs to this network."""
    place = Path(path)
    try:
        with np.load(place, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        about = json.loads(str(arrays.pop(ABOUT)))
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {place}") from None
    except KeyError:
        raise CheckpointError(f"{place} is no checkpoint: it says nothing about itself") from None
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise CheckpointError(f"{place} is no whole checkpoint: it ends too early or is damaged ({error})") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise CheckpointError(f"{place} is a checkpoint of another format; this version reads format {FORMAT}")
    _compare(place, network, about)
    settings = about.get("settings", {})
    if sorted(settings) != sorted(SETTINGS):
        raise CheckpointError(f"{place} is no checkpoint: its settings are not {', '.join(SETTINGS)}")
    check(str(place), network, arrays)
    return arrays, settings


def check(where: str, network: Network, arrays: Mapping[str, np.ndarray]) -> None:
    """These are the arrays of a state of this network: every one, no other, each in its shape."""
    expected = {tensor.name: tensor for tensor in state_tensors(network)}
    for name in expected.keys() - arrays.keys():
        raise CheckpointError(f"{where} has no {name}; it is not a whole state of {network.name}")
    for name in arrays.keys() - expected.keys():
        raise CheckpointError(f"{where} has {name}, which {network.name} does not know")
    for name, tensor in expected.items():
        array = np.asarray(arrays[name])
        if array.shape != tensor.shape or array.dtype != np.dtype(tensor.dtype):
            raise CheckpointError(
                f"{where}: {name} is {array.dtype} of shape {array.shape}; "
                f"{network.name} has {tensor.dtype} of shape {tensor.shape}"
            )


def _shapes(network: Network) -> dict[str, list[int]]:
    return {parameter.weight.name: list(parameter.weight.shape) for _, _, parameter in network.parameters()}


def _compare(place: Path, network: Network, about: About) -> None:
    there, here = about.get("shapes", {}), _shapes(network)
    if there == here:
        return
    other = about.get("network")
    if other != network.name:
        raise CheckpointError(f"{place} is a checkpoint of {other}, not of {network.name}")
    name = next(name for name in (*here, *there) if here.get(name) != there.get(name))
    raise CheckpointError(
        f"{place} is of another {network.name}: {name} has the shape {there.get(name)} there and {here.get(name)} here"
    )
