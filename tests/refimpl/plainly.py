"""A network run plainly: in program order, with unlimited memory, every tensor in a NumPy array of its own.

No planner is involved, so this is what the CPU backend is compared with.  It also holds every call to its word: what
a call reads must have been written, what it only reads must stay as it was, and what it writes must be filled, whatever
was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from kernels.rungs import function_of
from refimpl.machine.catalogues import options
from refimpl.network import Call, Network, Output, Setting, Tensor
from refimpl.network.initial_state import constants

Arrays = dict[str, np.ndarray]

#: What nothing may read: a NaN that no arithmetic makes.
POISON = np.uint32(0x7FC0DEAD)

SETTINGS = {"seed": 2026, "iteration": 0, "rate": 0.05, "momentum": 0.9, "decay": 1e-3}
#: AdamW's.
ADAMW = {name: value for name, value in SETTINGS.items() if name != "momentum"} | {
    "rate": 0.01, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6, "decay": 0.1,
}  # fmt: skip


def new_state(network: Network, seed: int = 0) -> Arrays:
    """An array for all that outlives an iteration, by name: weights drawn (He's rule, biases too), others 0 or 1."""
    random = np.random.default_rng(seed)
    state = {tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in (*network.resident, *network.on_host)}
    state |= {tensor.name: values for tensor, values in constants(network)}
    for layer, name, parameter in network.parameters():
        shape = parameter.weight.shape
        spread = (2 / prod(shape[1:])) ** 0.5 if name == "w" else 0.1
        drawn = spread * random.standard_normal(shape) + (name == "gamma")
        state[parameter.weight.name] = drawn.astype(np.float32)
        if "running_variance" in layer.statistics:
            state[layer.statistics["running_variance"].name][:] = 1
    return state


def draw_batch(network: Network, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels, some of which do not count; or targets.  Of several inputs or outputs a tuple each."""
    random = np.random.default_rng((seed, 1))
    images = [drawn_input(random, network, x) for x in network.inputs]
    labels = [draw_labels(random, output) for output in network.outputs]
    one: Any = images[0] if len(images) == 1 else tuple(images)
    return one, labels[0] if len(labels) == 1 else tuple(labels)  # type: ignore[return-value]


def drawn_input(random: np.random.Generator, network: Network, x: Tensor) -> np.ndarray:
    """Images; or tokens that every embedding which reads them knows."""
    if x.dtype == "float32":
        return random.standard_normal(x.shape).astype(np.float32)
    return random.integers(0, network.words(x), x.shape).astype(np.int32)


def draw_labels(random: np.random.Generator, output: Output) -> np.ndarray:
    if output.loss.target == "number":
        return random.random(output.labels.shape).astype(np.float32)
    labels = random.integers(0, output.classes, output.labels.shape).astype(np.int32)
    if output.ignore_index is not None:
        labels[random.random(labels.shape) < 0.3] = output.ignore_index
    return labels


def arrays_of(network: Network, images: Any, labels: Any) -> dict[str, np.ndarray]:
    """What a batch fills, by tensor."""
    both = [list(one) if isinstance(one, tuple) else [one] for one in (images, labels)]
    return {tensor.name: array for tensor, array in zip(network.given, both[0] + both[1], strict=True)}


def usual_algorithm(call: Call) -> str:
    """One that serves every call of the family."""
    return "implicit_gemm" if call.family == "conv" else "tiled"


def run_plainly(
    network: Network,
    state: Arrays,
    images: np.ndarray,
    labels: np.ndarray,
    settings: Mapping[str, float],
    algorithm: Callable[[Call], str] = usual_algorithm,
    rung: str = "fast",
) -> Arrays:
    """One iteration (or one inference).  `state` is changed, losses included; the managed tensors are returned."""
    arrays = dict(state)
    for name, given in arrays_of(network, images, labels).items():
        if name in arrays:
            arrays[name][:] = given
        else:
            arrays[name] = np.array(given)
    for step in network.steps:
        for call in step.calls:
            run_call(call, arrays, settings, algorithm, rung)
    return {name: array for name, array in arrays.items() if name not in state}


def run_call(
    call: Call,
    arrays: Arrays,
    settings: Mapping[str, float],
    algorithm: Callable[[Call], str] = lambda call: "",
    rung: str = "fast",
) -> None:
    """One call, held to its word."""
    for tensor in (*call.reads, *call.updates):
        assert tensor.name in arrays, f"{call} reads {tensor}, which has not been written"
    for tensor in call.writes:
        arrays.setdefault(tensor.name, np.empty(tensor.shape, tensor.dtype))
        arrays[tensor.name].view(np.uint32)[...] = POISON
    before = {tensor: arrays[tensor.name].copy() for tensor in call.reads}
    given = {name: _array(value, arrays, settings) for name, value in call.arguments.items()}
    if call.choosable:
        given |= {"algorithm": algorithm(call), "workspace": _workspace(call, algorithm(call))}
    function_of(call.function, rung)(**given)
    for tensor, was in before.items():
        assert arrays[tensor.name].tobytes() == was.tobytes(), f"{call} changed {tensor}, which it only reads"
    for tensor in call.writes:
        left = tensor.kind != "scratch" and np.any(arrays[tensor.name].view(np.uint32) == POISON)
        assert not left, f"{call} did not fill {tensor}"


def _workspace(call: Call, algorithm: str) -> np.ndarray:
    """As large as the algorithm can use."""
    offered = [option.workspace_bytes for option in options("own", call) if option.algorithm == algorithm]
    return np.zeros(max(offered) // 4, np.float32)


def _array(value: Any, arrays: Arrays, settings: Mapping[str, float]) -> Any:
    if isinstance(value, Tensor):
        return arrays[value.name]
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return [arrays[tensor.name] for tensor in value]
    return settings[value.name] if isinstance(value, Setting) else value
