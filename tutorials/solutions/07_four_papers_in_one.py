"""Solutions of notebook 07's exercises; its checks refuse the wrong ones.

In the notebook, after all of its cells: %run -i solutions/07_four_papers_in_one.py
"""


def price_solved(maps: Maps, x: Tensor) -> float:
    if x is maps.network.input:
        return float("inf")
    makes = [step for step in maps.context.uses[x] if step.forward and x in (*step.writes, *step.updates)]
    return sum(maps.seconds[step.number - 1] for step in makes) / x.nbytes


def first_only(maps: Maps, x: Tensor) -> float:
    return maps.seconds[maps.context.uses[x][0].number - 1] / x.nbytes  # without a ReLU in place


assert check_price(price_solved)
assert not check_price(first_only)


def family_solved(maps: Maps, tau: float, q: int) -> dict[str, str]:
    fates = {x.name: "drop" for x in maps.large if maps.price[x] <= tau}
    others = sorted((x for x in maps.large if x.name not in fates), key=lambda x: (-maps.idle[x][1], x.name))
    return fates | {x.name: "offload" for x in others[: len(others) * q // 8]}


def largest_first(maps: Maps, tau: float, q: int) -> dict[str, str]:
    fates = {x.name: "drop" for x in maps.large if maps.price[x] <= tau}
    others = sorted((x for x in maps.large if x.name not in fates), key=lambda x: -x.nbytes)
    return fates | {x.name: "offload" for x in others[: len(others) * q // 8]}


assert check_family(family_solved)
assert not check_family(largest_first)


by_hand = dict(words.chosen) | {line[0]: line[1]}  # the best single line
assert check_by_hand(by_hand)
assert not check_by_hand(dict.fromkeys(maps.named, "offload"))
