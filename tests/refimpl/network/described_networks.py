"""Every named network as one line: images, layers of each kind, parameters, and a checksum of all of its layers.

    python -m tests.refimpl.network.described_networks --write    writes tests/data/networks.txt
    python -m tests.refimpl.network.described_networks lenet      prints the layers that a checksum is of, to compare

A network's checksum changes with the name, the options or the shape of any layer.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from refimpl.network import Network
from refimpl.network.zoo import FAMILIES, NETWORKS, build

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


def described(name: str) -> str:
    """One line, for the network's own number of images."""
    network = build(name)
    kinds = Counter(layer.kind for layer in network.layers)
    layers = " ".join(f"{kind}:{kinds[kind]}" for kind in sorted(kinds))
    images = "×".join(map(str, network.input.shape))
    checksum = zlib.crc32("\n".join(layer_lines(network)).encode())
    return f"{network.name}  {images}  {layers}  {network.parameter_count} parameters  {checksum:08x}"


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        TABLE.write_text("".join(f"{described(name)}\n" for name in NAMES), encoding="utf-8")
    for name in sys.argv[1:]:
        if name != "--write":
            print("\n".join(layer_lines(build(name))))


if __name__ == "__main__":
    main()
