"""Solutions of notebook 09's exercises; its checks refuse the wrong ones.

In the notebook, after all of its cells: %run -i solutions/09_the_four_papers_on_a_transformer.py
"""


def units_solved(width: int, wide: int, heads: int, keys: int) -> float:
    qkv = 1 + 2 * keys / heads
    return 1 + 1 + qkv + 1 + 1 + 1 + 4 * wide / width  # two outputs of convolutions, SiLU's, and the product


def without_gate(width: int, wide: int, heads: int, keys: int) -> float:
    return units_solved(width, wide, heads, keys) - wide / width


assert check_units(units_solved)
assert not check_units(without_gate)


def hides_solved(machine: refimpl.Machine, width: int, tokens: int) -> bool:
    return (24 * width + 2 * tokens) / (machine.efficiency.forward * machine.flops) > 64 / machine.link


def at_its_peak(machine: refimpl.Machine, width: int, tokens: int) -> bool:
    return (24 * width + 2 * tokens) / machine.flops > 64 / machine.link


assert check_hides(hides_solved)
assert not check_hides(at_its_peak)


assert check_dropped({"norm1", "norm2", "widen", "gelu"})
assert not check_dropped({"norm1", "norm2", "gelu"})
assert not check_dropped({"qkv", "attention"})
