"""Solutions of notebook 03's exercises; its checks refuse the wrong ones.

In the notebook, after all of its cells: %run -i solutions/03_vdnn.py
"""


def who_sends_solved(network: Network) -> Mapping[str, str]:
    context = Context(network, titan)
    across = {tensor for tensor in context.maps_across() if tensor.kind == "map"}
    wanted = [x for layer in network.layers if layer.kind in ALL.kinds for x in layer.inputs if x in across]
    return {tensor.name: network.steps[context.last_forward_use(tensor) - 1].layer.name for tensor in wanted}


def the_first_sends(network: Network) -> Mapping[str, str]:
    across = {tensor for tensor in Context(network, titan).maps_across() if tensor.kind == "map"}
    found: dict[str, str] = {}
    for layer in network.layers:
        if layer.kind in ALL.kinds:
            for tensor in layer.inputs:
                if tensor in across:
                    found.setdefault(tensor.name, layer.name)
    return found


assert check_senders(who_sends_solved)
assert not check_senders(the_first_sends)


def search_windows_solved(
    layers: Sequence[Layer], sent: AbstractSet[Layer], silent: tuple[str, ...] = ("pool",)
) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for n in reversed(range(len(layers))):
        if layers[n].kind in silent:
            continue
        for layer in reversed(layers[:n]):
            if layer in sent and layer.name not in found.values():
                found[layers[n].name] = layer.name
                break
            if layer.kind == "conv":
                break
    return found


def read_literally(layers: Sequence[Layer], sent: AbstractSet[Layer]) -> Mapping[str, str]:
    return search_windows_solved(layers, sent, silent=())


assert check_window(search_windows_solved)
assert not check_window(read_literally)


@dataclass(frozen=True)
class Ahead(MyPrefetch):
    distance: int = 3

    def bind(self, context: Context) -> MyRule:
        rule = MyRule(context)
        for tensor, fate in context.fates.items():
            if fate.name == "offload":
                step = max(context.first_backward_use(tensor) - self.distance, context.network.depth + 1)
                rule.at.setdefault(step, []).append(tensor)
        return rule


# Three steps ahead, the two largest maps are copied in beside conv2_2 and conv2_1, which are long enough.
assert check_prefetch(Ahead(3))
assert not check_prefetch(Ahead(1))
assert not check_prefetch(Ahead(2))  # further is not always faster: now they are copied in beside a ReLU and a POOL


@dataclass(frozen=True)
class BesideLongEnough(MyPrefetch):
    order: ClassVar[str] = "late"

    def bind(self, context: Context) -> MyRule:
        """As late as possible, but beside a step whose kernels have time left for all of the copy."""
        rule, first = MyRule(context), context.network.depth + 1
        backward = context.network.steps[context.network.depth :]
        left = {step.number: sum(map(context.machine.seconds, step.calls)) for step in backward}
        leaving = [tensor for tensor, fate in context.fates.items() if fate.name == "offload"]
        for tensor in sorted(leaving, key=context.first_backward_use, reverse=True):
            copy = context.machine.copy_seconds(tensor.nbytes, "in")
            before = range(context.first_backward_use(tensor) - 1, first - 1, -1)
            step = next((n for n in before if left[n] >= copy), max(before, key=left.__getitem__, default=first))
            left[step] -= copy
            rule.at.setdefault(step, []).append(tensor)
        return rule


assert check_prefetch(BesideLongEnough())


# Which cost is left with the last rule? The time that forward loses, which no prefetch changes. Take the joins away
# as well, and it is what the sums promised at the beginning:


kept = refimpl.plan(network, every.replace(prefetch=BesideLongEnough()), titan, "12GiB")
free = refimpl.plan(network, every.replace(prefetch=BesideLongEnough(), join=False), titan, "12GiB")
rows = [("", "slower", "GiB in the pool")]
for name, program in (("the paper's window", paper), ("beside long enough", kept), ("and no join", free)):
    program.verify()
    rows.append((name, f"{program.simulate().seconds / before - 1:.1%}", program.peak_bytes / GIB))
table(*rows)
forward = [book for number, book in books.items() if number <= network.depth]
lost = sum(max(0.0, book.copy - book.compute) for book in forward)
print(f"\ntoo long in forward: {lost / before:.1%}")
