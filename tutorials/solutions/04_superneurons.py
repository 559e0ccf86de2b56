"""Solutions of notebook 04's exercises; its checks refuse the wrong ones.

In the notebook, after all of its cells: %run -i solutions/04_superneurons.py
"""


def frees_solved(uses: Uses) -> Sequence[Collection[Tensor]]:
    met: set[Tensor] = set()
    found = []
    for used in reversed(uses):  # from the end, the first time that a tensor is met is its last use
        found.append(set(used) - met)
        met.update(used)
    return found[::-1]


def frees_as_told(uses: Uses) -> Sequence[Collection[Tensor]]:
    return [set(used) - {tensor for later in uses[n:] for tensor in later} for n, used in enumerate(uses, 1)]


def frees_too_early(uses: Uses) -> Sequence[Collection[Tensor]]:
    """The tensors that the next step does not use."""
    return [set(used) - set(after) for used, after in zip(uses, [*uses[1:], ()], strict=True)]


assert check_frees(frees_solved)
assert not check_frees(frees_as_told)  # it is right, but it takes time in the square of the steps
assert not check_frees(frees_too_early)


class WhatFits(MyRebuild):
    """Kept is what no step, until its last use, would need too much with."""

    def stays(self, means: Tensor, step: Step) -> bool:
        until = self.steps[step.number - 1 : self.context.last_use(means)]
        return all(nbytes({*self.needs(each), means}) <= self.limit for each in until)


class Everything(MyRebuild):
    def stays(self, means: Tensor, step: Step) -> bool:
        return True


fewer = MyRecompute(WhatFits)
assert check_rebuild(fewer)
assert not check_rebuild(MyRecompute(Everything))  # that is speed-centric
draw_segment(
    {"cost-aware": ways["cost-aware"],
     "mine": refimpl.plan(alexnet, presets.superneurons_recompute().replace(recompute=fewer), k40c)},
    ["CONV1", "RELU1", "LRN1", "POOL1", "d(POOL1)", "d(LRN1)"], range(41, 47),
)  # fmt: skip


class Farthest(MyOrder):
    """Belády's: the one whose next use is farthest away."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.wanted = {
            tensor: sorted({step.number for step in steps} | set(context.rebuilt_from.get(tensor, ())))
            for tensor, steps in context.uses.items()
        }

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        free = [tensor for tensor in self.here if tensor not in locked]
        return max(free, key=lambda tensor: self.next_use(tensor, now), default=None)

    def next_use(self, tensor: Tensor, now: int) -> int:
        return next((number for number in self.wanted[tensor] if number > now), len(self.context.network.steps) + 1)


class MostRecent(MyOrder):
    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        return next((tensor for tensor in reversed(self.here) if tensor not in locked), None)


class FirstIn(MyOrder):
    def touch(self, tensor: Tensor) -> None:
        """A hit changes nothing: a list that is the paper's but for this mistake."""


assert check_cache(MyCache(Farthest))
assert not check_cache(MyCache(MostRecent))
check_cache(MyCache(FirstIn))
# Did the last one surprise you? A cache in which a hit does not move the entry is a mistake by the book. But it is
# the order in which maps were *made* that backward runs through. Where the network forks, a map may be made early and
# read late; a hit then moves it to the front, away from its place in the palindrome.
#
# Belády's rule is the best for pages that are all of one size, and if none is fetched ahead. Ours are not, and some
# are. So there may be better ones still: one large tensor in place of three small ones, a tensor whose host copy is
# still valid (it goes for nothing), one that can be rebuilt. Whatever you invent, what it trains is the same:


setup = everything.replace(cache=MyCache(Farthest), recompute=fewer, prefetch=Ahead(2))
program = refimpl.plan(small, setup, here, squeezed.budget)
say(program.verify())
for whose, each in (("the paper's", squeezed), ("mine", program)):
    print(f"{whose}: {moved(each):.2f} MiB moved, {each.counts.recomputed_layers} layers run again")
losses_mine, state_mine = trained(program)
agree = losses_mine == losses and same(state, state_mine)
print("every loss and every tensor of state is the same, bit for bit:", agree)
assert agree
