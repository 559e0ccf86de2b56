"""Making a profile: every algorithm of every call of a network, timed on the GPU or the CPU at hand.

Equal calls are timed once.  A call's arrays are views of one arena, as large as the hungriest call with its workspace
needs, filled with halves first, so that no run meets infinities.  Launches are bound once and replayed.  All that can
run a call take turns, and the fastest turn of each counts: what was slower was disturbed by something else.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from refimpl.machine.catalogues import options
from refimpl.machine.cpu_model import call_arguments, launches, round_up
from refimpl.machine.devices import Device, Direction, device_at_hand
from refimpl.machine.measured_profile import Copies, Profile, key
from refimpl.machine.model import Choice, in_order
from refimpl.machine.timing import Run, least_in_turns, replay
from refimpl.machine.work import Option
from refimpl.network.call import Call
from refimpl.network.network import Network
from refimpl.network.tensor import Tensor
from refimpl.text import MachineError

ALIGNMENT = 64  #: float32 elements between the starts of two arrays: 256 bytes
SMALL_COPY, LARGE_COPY = 1 << 14, 1 << 24  #: float32 elements
IN_A_ROW = 2e-3  #: seconds that one turn of a short run is to take

#: Told after each call: how many are done, of how many, and the last one's key.
Progress = Callable[[int, int, str], None]


def measure(
    network: Network,
    device: Device | None = None,
    turns: int = 3,
    limit_seconds: float = 5.0,
    watch: Progress = lambda done, of, name: None,
) -> Profile:
    """Time every algorithm of every call of the network, in training and inference, on this device or the one at hand.

    A call gets `limit_seconds`: everything is timed once, then again as often as fits into that time, `turns` times at
    most.  Left out is what a model of the device says would take longer than that by itself, and a workspace that there
    is no room for; one algorithm with the least workspace is always there.
    """
    device = device or device_at_hand()
    bench = Bench(device, network)
    flops = 1.0
    seconds: dict[str, float] = {}
    choices: dict[str, tuple[Choice, ...]] = {}
    for done, (name, call) in enumerate(bench.calls.items(), 1):
        timed = bench.time(call, turns, limit_seconds)
        if call.choosable:
            choices[name] = in_order(Choice(o.algorithm, o.workspace_bytes, taken) for o, taken in timed if o)
        else:
            seconds[name] = timed[0][1]
        flops = max(flops, call.flops / min(taken for _, taken in timed))
        watch(done, len(bench.calls), name)
    return Profile(
        device=device.name,
        kind=device.kind,
        date=datetime.date.today().isoformat(),
        network=network.name,
        batch=network.batch,
        memory_bytes=device.machine.memory_bytes,
        flops=flops,
        bandwidth=time_bandwidth(device),
        copies={"out": time_copies(device, "out"), "in": time_copies(device, "in")},
        calls=seconds,
        choices=choices,
    )


def different_calls(network: Network) -> dict[str, Call]:
    """The calls of training and of inference by their keys, each once: what `measure` times, in this order."""
    steps = [*network.steps, *network.inference().steps]
    return {key(call): call for step in steps for call in step.calls}


class Bench:
    """A network's different calls, and the arena that all of them are timed in."""

    def __init__(self, device: Device, network: Network) -> None:
        if network.cannot_run:
            raise MachineError(network.cannot_run)
        self.device = device
        self.calls = different_calls(network)
        self.elements = self._arena_elements(network)
        self.arena = device.empty(self.elements)
        self.warm: set[str] = set()  #: kernels that have run, and so are compiled

    def time(self, call: Call, turns: int, limit_seconds: float) -> list[tuple[Option | None, float]]:
        """Seconds of every way to run the call, each in its fastest turn."""
        arguments, used = self._place(call)
        runs: dict[Option | None, Run] = {}
        for option in self._worth_timing(call, limit_seconds):
            if option is not None:
                size = option.workspace_bytes // 4
                workspace = self.arena[used : used + size] if size else None
                arguments |= {"algorithm": option.algorithm, "workspace": workspace}
            bound = launches(call.function, arguments)
            runs[option], kernels = replay(bound), {launch.kernel.name for launch in bound}
            if not kernels <= self.warm:
                runs[option]()  # compiles
                self.warm |= kernels
        best = least_in_turns(runs, self.device.seconds, turns, limit_seconds, row_seconds=IN_A_ROW)
        return list(best.items())

    def _arena_elements(self, network: Network) -> int:
        """Bytes of the largest call, with the largest workspace that there is room for."""
        room = self.device.free_bytes // 4
        most = max(elements(call) for call in self.calls.values())
        if most > room:
            raise MachineError(
                f"the arrays of one call of {network.name}, batch {network.batch}, take {4 * most} bytes, and there is "
                f"room for {4 * room} on {self.device.name}; profile a smaller batch"
            )
        wanted = (elements(call, option) for call in self.calls.values() for option in self.offered(call))
        return max([most, *(size for size in wanted if size <= room)])

    def _worth_timing(self, call: Call, limit_seconds: float) -> Sequence[Option | None]:
        if not call.choosable:
            return (None,)
        model = self.device.machine.option_seconds
        made = self.offered(call)
        least = min(made, key=lambda option: (option.workspace_bytes, model(option)))
        return [
            option
            for option in made
            if option is least or (elements(call, option) <= self.elements and model(option) <= limit_seconds)
        ]

    def offered(self, call: Call) -> tuple[Option, ...]:
        """Our own algorithms for a choosable call on this device; nothing for any other."""
        made = options("own", call) if call.choosable else ()
        return tuple(option for option in made if self.device.kind == "cpu" or not option.cpu_only)

    def _place(self, call: Call) -> tuple[dict[str, Any], int]:
        """The function's arguments, arrays (halves; labels 0) side by side in the arena, and where its rest begins."""
        run("elementwise.fill", x=self.arena, value=0.5)
        used = 0

        def part(shape: Sequence[int], dtype: str) -> Any:
            nonlocal used
            memory = self.arena[used : used + prod(shape)]
            used += round_up(prod(shape), ALIGNMENT)
            if dtype != "float32":
                run("elementwise.fill", x=memory, value=0.0)  # the integer 0 has the same bits
            return self.device.shaped(memory, tuple(shape), dtype)

        return call_arguments(call, part), used


def elements(call: Call, option: Option | None = None) -> int:
    """Elements of the arena for a call's arrays and its workspace."""
    given = call.arguments.values()
    parts = [part for value in given for part in (value if isinstance(value, tuple) else (value,))]
    arrays = {part for part in parts if isinstance(part, Tensor)}
    return sum(round_up(prod(one.shape), ALIGNMENT) for one in arrays) + (option.workspace_bytes // 4 if option else 0)


def run(function: str, **arguments: Any) -> None:
    """`kernels.<function>`"""
    replay(launches(function, arguments))()


def time_bandwidth(device: Device) -> float:
    """Bytes a second, read and written, of a copy within the device's memory."""
    arena = device.empty(2 * LARGE_COPY)
    copy = replay(launches("elementwise.copy", {"x": arena[:LARGE_COPY], "y": arena[LARGE_COPY:]}))
    copy()
    return 8 * LARGE_COPY / least_in_turns({"copy": copy}, device.seconds, turns=5)["copy"]


def time_copies(device: Device, direction: Direction) -> Copies:
    """Two sizes of copies, and the straight line through them."""
    runs = {size: device.copy(direction, size) for size in (SMALL_COPY, LARGE_COPY)}
    for run in runs.values():
        run()
    taken = least_in_turns(runs, device.seconds, turns=5, row_seconds=IN_A_ROW)
    rate = 4 * (LARGE_COPY - SMALL_COPY) / max(taken[LARGE_COPY] - taken[SMALL_COPY], 1e-9)
    return Copies(max(taken[SMALL_COPY] - 4 * SMALL_COPY / rate, 1e-9), rate)
