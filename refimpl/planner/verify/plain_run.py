"""Rule 3, values: what every call reads when the network is run plainly, all its steps in order, nothing ever moved.

A value is a number that nothing else has: every write of every call makes a new one, and so does everything that is
there at the start.  A call that reads the same numbers as in the plain run writes the plain run's values, bit for bit:
kernels are deterministic.  So the program's launches need only be compared with the plain run's, call by call, and a
rebuild, whose inputs must be those of the call's one run, against that same run.
"""

from __future__ import annotations

from collections.abc import Iterable

from refimpl.network import Call, Network, Step, Tensor


class Role:
    """A call of the network: what it does to which of its operands, by their index."""

    __slots__ = ("call", "reads", "repeatable", "step", "writes")

    def __init__(self, step: Step, call: Call) -> None:
        self.step, self.call = step, call
        index = {tensor: i for i, tensor in enumerate(call.operands)}
        self.reads = tuple(index[tensor] for tensor in dict.fromkeys((*call.reads, *call.updates)))
        self.writes = tuple(index[tensor] for tensor in dict.fromkeys((*call.updates, *call.writes)))
        #: Whether a rebuild may run it: it is a forward call, and changes nothing that outlives the iteration.
        self.repeatable = step.forward and not call.once and all(tensor.managed for tensor in call.updates)


Numbers = tuple[int, ...]


class PlainRun:
    """The network's state, tensor by tensor, as numbers; every `iteration` takes it one further."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.batch, self.on_host = network.given, {*network.on_host}
        self.roles = {call: Role(step, call) for step in network.steps for call in step.calls}
        self._made: list[str | Call] = []  #: number → who made that value
        self.numbers: dict[Tensor, int] = {}
        for tensor in (*network.resident, *network.on_host):
            self.numbers[tensor] = self._new(f"{tensor} as it was before training")
        self.initial = dict(self.numbers)

    def _new(self, maker: str | Call) -> int:
        self._made.append(maker)
        return len(self._made) - 1

    def iteration(self) -> dict[Call, tuple[Numbers, Numbers]]:
        """Run every step once, on a new batch: call → the numbers it reads, and the numbers it writes."""
        numbers, made = self.numbers, self._made
        for tensor in [tensor for tensor in numbers if tensor.managed and tensor not in self.on_host]:
            del numbers[tensor]
        for tensor in self.batch:
            numbers[tensor] = self._new(f"the batch's {tensor}")
        table = {}
        for call, role in self.roles.items():
            operands = call.operands
            read = tuple([numbers[operands[i]] for i in role.reads])
            written = tuple(range(len(made), len(made) + len(role.writes)))
            for i, number in zip(role.writes, written, strict=True):
                numbers[operands[i]] = number
                made.append(call)
            table[call] = read, written
        return table

    def results(self) -> Iterable[Tensor]:
        """The tensors that the user wants from an iteration."""
        written = {tensor for call in self.roles for tensor in call.writes}
        return [tensor for tensor in self.network.results if tensor in written]

    def outlives(self) -> Iterable[Tensor]:
        """The tensors that must be right after an iteration; a scratch has no content to keep."""
        return [*(tensor for tensor in self.network.resident if tensor.kind != "scratch"), *self.network.on_host]

    def maker(self, number: int | None) -> str:
        """The name of the call that made a value."""
        if number is None:
            return "nothing at all"
        made = self._made[number]
        return made if isinstance(made, str) else f"what {made} of {self.roles[made].step} wrote"
