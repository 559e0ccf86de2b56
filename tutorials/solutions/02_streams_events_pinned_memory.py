"""Solutions of notebook 02's exercises, and wrong ones that its checks must refuse."""

from __future__ import annotations

from typing import Any

from kernels.fast import relu


def two_maps(first: Any, second: Any, buffer: Any, compute: Any, memory: Any, event: Any) -> None:
    """One wait for each change of stream; between the two copies none, they are on one stream."""
    relu.forward(first, first, stream=compute)
    event["first clamped"].record(compute)
    event["first clamped"].wait(memory)
    first.copy_to_host(buffer, stream=memory)
    second.copy_to_device(buffer, stream=memory)
    event["second copied in"].record(memory)
    event["second copied in"].wait(compute)
    relu.forward(second, second, stream=compute)


def recorded_too_early(first: Any, second: Any, buffer: Any, compute: Any, memory: Any, event: Any) -> None:
    """The second moment comes before the copy that it should follow."""
    relu.forward(first, first, stream=compute)
    event["first clamped"].record(compute)
    event["first clamped"].wait(memory)
    first.copy_to_host(buffer, stream=memory)
    event["second copied in"].record(memory)
    second.copy_to_device(buffer, stream=memory)
    event["second copied in"].wait(compute)
    relu.forward(second, second, stream=compute)


def on_one_stream(first: Any, second: Any, buffer: Any, compute: Any, memory: Any, event: Any) -> None:
    """Right, and nothing runs beside anything."""
    relu.forward(first, first, stream=compute)
    first.copy_to_host(buffer, stream=compute)
    second.copy_to_device(buffer, stream=compute)
    relu.forward(second, second, stream=compute)


#: Either "softmax backward" or "pool2 forward" has to stay: the copies of step 13 write over bytes that pooling read.
FEWEST = [
    "pool1 copied out", "conv2 forward", "pool2 forward", "conv2 copied in", "fc4 backward", "relu1 backward",
    "losses copied out", "conv1 backward",
]  # fmt: skip

#: Check → its right answers and its wrong ones.
ANSWERS: dict[str, tuple[list[Any], list[Any]]] = {
    "check_two_maps": ([two_maps], [recorded_too_early, on_one_stream]),
    "check_fewest": ([FEWEST], [FEWEST[:-1], [*FEWEST, "softmax backward"], [*FEWEST, "relu1 forward"], ["relu 1"]]),
}
