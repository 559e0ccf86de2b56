"""Solutions of notebook 10's exercises; its checks refuse the wrong ones.

In the notebook, after all of its cells: %run -i solutions/10_from_a_plan_to_your_training_loop.py
"""


def held_solved(last: str, layers: int, channels: int, batch: int) -> float:
    unit = batch * channels * 16**2 * 4
    if last == "ReLU":
        return 2 * layers * unit  # the convolution's output, and the ReLU's output
    if last == "Sigmoid":
        return 2 * layers * unit  # backward reads its output, as of a ReLU
    if last == "SiLU":
        return (
            3 * layers - 1
        ) * unit  # its input; its output is read by the next convolution, which the last one lacks
    return (3 * layers - 1) * unit  # numbers to multiply with, and outputs


def two_a_layer(last: str, layers: int, channels: int, batch: int) -> float:
    return 2 * layers * batch * channels * 16**2 * 4


assert check_held(held_solved)
assert not check_held(two_a_layer)


def moves_solved(tensor: torch.Tensor) -> bool:
    """A batch normalisation's input has negative numbers and one reader; a ReLU's output has none and two."""
    return bool((tensor < 0).any())


assert check_moves(moves_solved)
assert not check_moves(lambda tensor: True)
assert not check_moves(lambda tensor: False)
