"""Solutions of notebook 05's exercises; its checks refuse the wrong ones.

In the notebook, after all of its cells: %run -i solutions/05_vdnn_plus_plus.py
"""

from refimpl.combined.fixed import fixed_addresses
from refimpl.combined.fixed_pool import Fixed
from refimpl.planner import Setup


def forward_takes_solved(compute: Seconds, copies: Seconds, room: int | None) -> float:
    computed, done = 0.0, [0.0]  # `done`: when each copy ends, in order
    for kernel, copy in zip(compute, copies, strict=True):
        start = computed if room is None else max(computed, done[max(len(done) - 1 - room, 0)])
        if copy:
            done.append(max(done[-1], start) + copy)
        computed = start + kernel
    return max(computed, done[-1])


def larger_sum(compute: Seconds, copies: Seconds, room: int | None) -> float:
    """A bound, and no more: no copy can start before its map exists."""
    return max(sum(compute), sum(copies)) if room != 0 else with_join(compute, copies)


def no_pressure(compute: Seconds, copies: Seconds, room: int | None) -> float:
    return without_join(compute, copies) if room != 0 else with_join(compute, copies)


def one_too_many(compute: Seconds, copies: Seconds, room: int | None) -> float:
    return forward_takes_solved(compute, copies, room and room + 1)


assert check_recurrence(forward_takes_solved)
assert not check_recurrence(larger_sum)
assert not check_recurrence(no_pressure)
assert not check_recurrence(one_too_many)
assert not check_recurrence(lambda compute, copies, room: 1 / 0)  # an error is an answer, too


def lowest(life: Life, placed: Sequence[tuple[Life, int]]) -> int:
    """The lowest address that is free over the whole life."""
    address = 0
    for other, at in sorted(placed, key=lambda each: each[1]):
        if other.begin < life.end and life.begin < other.end:
            if at - address >= life.nbytes:
                return address
            address = max(address, at + other.nbytes)
    return address


def in_order(known: Mapping[int, Life], order: Sequence[int]) -> dict[int, int]:
    addresses: dict[int, int] = {}
    for block in order:
        addresses[block] = lowest(known[block], [(known[each], at) for each, at in addresses.items()])
    return addresses


def largest_first(known: Mapping[int, Life]) -> dict[int, int]:
    return in_order(known, sorted(known, key=lambda block: (-known[block].nbytes, known[block].begin)))


def my_places_solved(known: Mapping[int, Life]) -> Mapping[int, int]:
    """The largest first; and what sticks out at the top is placed before all others, some times over."""
    order = list(largest_first(known))
    best, least = {}, float("inf")
    for _ in range(8):
        addresses = in_order(known, order)
        highest = max(order, key=lambda block: addresses[block] + known[block].nbytes)
        if addresses[highest] + known[highest].nbytes < least:
            best, least = addresses, addresses[highest] + known[highest].nbytes
        order.insert(0, order.pop(order.index(highest)))
    return best


def as_they_come(known: Mapping[int, Life]) -> Mapping[int, int]:
    """First fit, in effect."""
    return in_order(known, sorted(known, key=lambda block: known[block].begin))


def all_at_zero(known: Mapping[int, Life]) -> Mapping[int, int]:
    return dict.fromkeys(known, 0)


assert check_places(my_places_solved)
assert not check_places(largest_first)  # nearly: on AlexNet one sticks out
assert not check_places(as_they_come)
assert not check_places(all_at_zero)


# The last maps of forward are needed first in backward: an offload gains nothing, and no kernel can hide its copy.
def who_leaves_solved(layers: Sequence[Layer]) -> Sequence[Layer]:
    return layers[:-2]


assert check_choice(who_leaves_solved)
assert not check_choice(lambda layers: layers)  # the paper's own
assert not check_choice(lambda layers: [])  # fast, and large
assert not check_choice(lambda layers: layers[::2])  # alternate-conv, nearly
assert not check_choice(lambda layers: layers[2:])  # the first ones would have had all the time of the world


# The last maps may stay because they are gone again when backward comes to its largest step. vDNN's authors knew only
# "conv" or "all", and those of vDNN++ have `alternate-conv` (S) to spare half of the copies; but what counts is
# *which*, and not how many.
#
# Last of all, train with everything of yours: your choice of what leaves, your addresses, compressed maps, no join.
# Your addresses serve one program, the one that asks for exactly these blocks in this order; `fixed_addresses` hands
# them to the planner as an allocator. Compare with a training that keeps everything.


def trained(program: Program) -> tuple[list[float], Mapping[str, np.ndarray]]:
    """Losses of an epoch, and all state after them."""
    with refimpl.Trainer(program, backend="cpu", rate=0.05) as trainer:
        losses = [trainer.step(images, labels) for images, labels in data.batches(digits, BATCH, epoch=0)]
        assert trainer.recounted_peak == program.peak_bytes
        return losses, trainer.state()


def with_places(network: Network, wanted: Setup, places: Callable[[Mapping[int, Life]], Mapping[int, int]]) -> Program:
    """The program at the reader's addresses, in a pool of exactly their size."""
    roomy = planned(network, wanted, here, 2**30)
    events = roomy.allocation_trace()
    addresses = places(lives(events))
    size, wrong = top_of(lives(events), addresses)
    assert not wrong, wrong
    allocator = fixed_addresses(roomy, Fixed(size, ideal(events), 1, addresses))
    resident = sum(-(-tensor.nbytes // UNIT) * UNIT for tensor in network.resident)
    return planned(network, wanted.replace(allocator=allocator), here, resident + size)


mine = presets.vdnnpp_all().replace(name="mine", offload=of_mine(ALL, who_leaves_solved))
everything = planned(tiny, presets.baseline(algorithms="memory"), here, 2**30)
program = with_places(tiny, mine, my_places_solved)
say(program.verify())
table(
    ("", "bytes in the pool", "leave", "pinned"),
    ("everything kept", everything.peak_bytes, 0, everything.pinned_bytes),
    ("vDNN++", compressing.peak_bytes, compressing.counts.offloaded_bytes, compressing.pinned_bytes),
    ("mine", program.peak_bytes, program.counts.offloaded_bytes, program.pinned_bytes),
)
losses, state = trained(everything)
losses_mine, state_mine = trained(program)
agree = losses_mine == losses and all(state[name].tobytes() == each.tobytes() for name, each in state_mine.items())
print(f"loss {losses[0]:.3f} → {losses[-1]:.3f}")
print(f"every loss and all {len(state)} tensors of state are the same, bit for bit:", agree)
assert agree
