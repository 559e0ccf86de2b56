"""What goes wrong in structure layers when SuperNeurons is built: both pitfalls made on purpose, and noticed.

Its other pitfalls are where their modules are tested: the cache's in `test_cache`, the copies' in `test_offload`.
"""

from __future__ import annotations

import numpy as np
import pytest

from kernels.fast import concat
from refimpl.machine import MACHINES
from refimpl.network import Builder, Network
from refimpl.planner import Launch, Program, plan
from refimpl.superneurons import presets as stages
from tests.refimpl.planner.mutations import changed, find, refused

pytestmark = pytest.mark.superneurons


# -- concatenating whole buffers, and not channels, image by image -----------------------------------------------------


def whole_buffers(parts: list[np.ndarray]) -> np.ndarray:
    """All of the first input, then all of the second: as right as any where there is one image."""
    images, _, *maps = parts[0].shape
    return np.concatenate([part.ravel() for part in parts]).reshape(images, -1, *maps)


@pytest.mark.parametrize(("images", "right"), [(1, True), (2, False), (5, False)])
def test_whole_buffers_are_no_concatenation_of_channels(images: int, right: bool) -> None:
    shapes = [(images, channels, 3, 2) for channels in (2, 1, 3)]
    parts = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 100 * i for i, shape in enumerate(shapes)]
    y = np.empty((images, 6, 3, 2), np.float32)
    concat.forward(parts, y)
    assert all(np.array_equal(y[i], np.concatenate([part[i] for part in parts])) for i in range(images))
    assert np.array_equal(y, whole_buffers(parts)) == right


# -- a JOIN that sums into an input that is still read -----------------------------------------------------------------


def read_twice() -> Network:
    """Two branches and their sum; the first is read again after it."""
    b = Builder("read twice", (2, 3, 4, 4))
    trunk = b.conv(4, 1, name="trunk")
    left = b.conv(4, 1, name="left")
    right = b.conv(4, 1, name="right", after=trunk)
    b.concat(left, b.join(left, right, name="join"))
    b.fc(3)
    b.softmax()
    return b.build()


def joined_into(program: Program, name: str) -> tuple[int, Program]:
    """The address of one of the JOIN's inputs, and the program whose JOIN writes there."""
    index = find(program, "launch", "join.forward")
    launch = program.instructions[index]
    assert isinstance(launch, Launch)
    addresses = {tensor.name: address for tensor, address in zip(launch.call.operands, launch.addresses, strict=True)}
    wrong = addresses | {"join": addresses[name]}
    return addresses[name], changed(program, index, addresses=tuple(wrong.values()))


def test_a_join_has_a_map_of_its_own() -> None:
    network = read_twice()
    (call,) = network.layer("join").forward.calls
    assert call.updates == () and [str(tensor) for tensor in call.writes] == ["join"]
    program = plan(network, stages.liveness(), MACHINES["k40c"], 1 << 30)
    program.verify()
    for name in ("left", "right"):
        address, spoilt = joined_into(program, name)
        assert refused(spoilt, "join.forward", address, name).rule == 2
