"""Every named network as one line: images, layers of each kind, parameters, bytes, and checksums of all that it is.

    python -m tests.refimpl.importing.described_networks          writes tests/data/networks.txt
    python -m tests.refimpl.importing.described_networks lenet    prints what the checksums are of, to compare

One checksum is of the layers: names, options and shapes.  The other is of the tensors, their first values, and the
calls of every step.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from refimpl.names.networks import FAMILIES, NETWORKS, build
from refimpl.network import Network
from refimpl.network.accounting import network_wide, summary, total
from refimpl.network.call import Call
from refimpl.network.initial_state import first_values

TABLE = Path(__file__).parents[2] / "data" / "networks.txt"


NAMES = (*NETWORKS, *(name.replace("DEPTH", "137") for name in FAMILIES))


def layer_lines(network: Network) -> Iterator[str]:
    """Each layer: what it is, what it reads, its options, the shapes of its output and its parameters."""
    for layer in network.layers:
        reads = " + ".join(producer.name for producer in layer.producers)
        shapes = {name: parameter.weight.shape for name, parameter in layer.parameters.items()}
        relu = dict(layer.relu_options) if layer.has_relu else None
        shares = f" shares {layer.shares}" if layer.shares else ""
        yield f"{layer}: {layer.kind} of {reads} {dict(layer.options)}{shares} relu {relu}: {layer.shape} {shapes}"


def call_line(call: Call) -> str:
    """A call: its function and arguments, what it reads, writes and updates, and what it costs."""
    given = {name: value for name, value in call.arguments.items() if name != "layer"}
    costs = f"{call.flops} operations, scratch {call.scratch}, once {call.once}"
    return f"    {call.function} {given} reads {call.reads} writes {call.writes} updates {call.updates}: {costs}"


def step_lines(network: Network) -> Iterator[str]:
    """Each tensor with its kind, bytes and first values; each step with its calls; the sums of the summary."""
    firsts = {tensor: values for tensor, *values in first_values(network)}
    for tensor in (*network.resident, *network.managed):
        where = "managed" if tensor.managed else "resident"
        yield f"{tensor}: {where} {tensor.kind} {tensor.dtype} {tensor.shape} {tensor.nbytes} {firsts.get(tensor, '')}"
    for step in network.steps:
        yield f"{step}: {step.reads} {step.writes} {step.updates} {step.flops}"
        yield from map(call_line, step.calls)
    yield f"{total(summary(network))} {network_wide(network, 1000)}"


def checksum(lines: Iterator[str]) -> str:
    return f"{zlib.crc32(chr(10).join(lines).encode()):08x}"


def described(network: Network) -> str:
    kinds = Counter(layer.kind for layer in network.layers)
    layers = " ".join(f"{kind}:{kinds[kind]}" for kind in sorted(kinds))
    images = "×".join(map(str, network.input.shape))
    sums = [f"{network.parameter_count} parameters", f"{network.managed_bytes} + {network.resident_bytes} B"]
    return "  ".join(
        [network.name, images, layers, *sums, checksum(layer_lines(network)), checksum(step_lines(network))]
    )


def main() -> None:
    if not sys.argv[1:]:
        TABLE.write_text("".join(f"{described(build(name))}\n" for name in NAMES), encoding="utf-8")
        sys.stdout.write("1 file written\n")
    for name in sys.argv[1:]:
        network = build(name)
        print("\n".join((*layer_lines(network), *step_lines(network))))


if __name__ == "__main__":
    main()
