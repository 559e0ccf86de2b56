"""Solutions of notebook 06's exercises; its checks refuse the wrong ones.

In the notebook, after all of its cells: %run -i solutions/06_accudnn.py
"""


def late_solved(deadlines: Sequence[float], copies: Sequence[float]) -> list[float]:
    begins: list[float] = []
    free = float("inf")  # when the link is needed again
    for deadline, seconds in zip(reversed(deadlines), reversed(copies), strict=True):
        free = min(deadline, free) - seconds
        begins.insert(0, free)
    return begins


def each_alone(deadlines: Sequence[float], copies: Sequence[float]) -> list[float]:
    return [deadline - seconds for deadline, seconds in zip(deadlines, copies, strict=True)]


assert check_late(late_solved)
assert not check_late(each_alone)


def needed_solved(model: Model, order: Sequence[Candidate], budget: int) -> list[Candidate]:
    chosen: list[Candidate] = []
    given_up: set[int] = set()
    while True:
        held = model.held(chosen)
        held[[*given_up]] = 0
        fullest = int(held.argmax())
        if held[fullest] <= budget:
            return chosen
        one = next((one for one in order if one not in chosen and one.last_use < fullest < one.next_use), None)
        if one:
            chosen.append(one)
        else:
            given_up.add(fullest)


def the_first_in_order(model: Model, order: Sequence[Candidate], budget: int) -> list[Candidate]:
    chosen: list[Candidate] = []
    while model.held(chosen).max() > budget and len(chosen) < len(order):
        chosen.append(order[len(chosen)])  # whether it is idle at the fullest step or not
    return chosen


assert check_needed(needed_solved)
assert not check_needed(the_first_in_order)


def best_solved(curve: dict[int, float], objective: str) -> int:
    near = [batch for batch, rate in curve.items() if rate >= 0.99 * max(curve.values())]
    return min(near) if objective == "single" else max(near)


def the_maximum(curve: dict[int, float], objective: str) -> int:
    return max(curve, key=curve.__getitem__)


assert check_best(best_solved)
assert not check_best(the_maximum)
single, cluster = best_solved(curve, "single"), best_solved(curve, "cluster")
print(f"VGG-16 in 12 GiB: {single} images on one GPU, {cluster} on each of many")
