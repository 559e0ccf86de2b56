"""Solutions of notebook 01's exercises; its checks refuse the wrong ones.

In the notebook, after all of its cells: %run -i solutions/01_where_the_memory_goes.py
"""


def network_wide_of_vgg16_solved(images: int) -> int:
    # Weights and their gradients do not grow; maps and the two buffers do.
    return 2 * 4 * weights + images * (maps + 2 * first) // 256


def gradients_forgotten(images: int) -> int:
    return 4 * weights + images * (maps + 2 * first) // 256


assert check_network_wide(network_wide_of_vgg16_solved)
assert not check_network_wide(gradients_forgotten)


def last_uses_solved(steps: Sequence[Step]) -> Mapping[Tensor, int]:
    return {tensor: step.number for step in steps for tensor in step.uses}  # the last one written stays


def last_reads(steps: Sequence[Step]) -> Mapping[Tensor, int]:
    return {tensor: step.number for step in steps for tensor in step.reads}  # what is changed in place is used, too


assert check_last_uses(last_uses_solved)
assert not check_last_uses(last_reads)


def live_bytes_solved(network: Network) -> Sequence[int]:
    last = last_uses_solved(network.steps)
    alive, curve = {network.input}, []
    for step in network.steps:
        alive |= set(step.writes)
        curve.append(sum(tensor.nbytes for tensor in alive))
        alive = {tensor for tensor in alive if last[tensor] > step.number}
    return curve


def released_too_early(network: Network) -> Sequence[int]:
    last = last_uses_solved(network.steps)
    alive, curve = {network.input}, []
    for step in network.steps:
        alive = {tensor for tensor in alive | set(step.writes) if last[tensor] > step.number}
        curve.append(sum(tensor.nbytes for tensor in alive))
    return curve


assert check_live_bytes(live_bytes_solved)
assert not check_live_bytes(released_too_early)


# 4.402 GiB, the least: what is alive at the peak, 16.24 GiB, must lose 4.24, and no choice is nearer. It is faster than
# conv1_1 and conv2_1, which are 4.594 GiB.
assert check_offload(["conv1_1", "pool1", "pool3", "conv4_1"])
assert check_offload(["conv1_1", "conv2_1"])
assert not check_offload(["conv1_1"])

# Fragmentation: as many bytes leave, more are free than d(conv4_3) needs, and no hole is large enough.
assert not check_offload(["conv1_1", "pool1", "pool2", "pool3"])
