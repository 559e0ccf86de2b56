"""What must hold of every network, on networks drawn at random."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given

from refimpl.network import Builder, Call, Network, Step, Tensor
from tests.refimpl.drawn_networks import networks


def everything_is_written_once_before_it_is_read_or_updated(network: Network) -> None:
    written = {network.input} if network.input.managed else set()
    for step in network.steps:
        inside = set(written)
        for call in step.calls:
            for tensor in (*call.reads, *call.updates):
                assert not tensor.managed or tensor in inside, f"{step}: {call} comes before {tensor} is written"
            for tensor in call.writes:
                assert not tensor.managed or tensor not in inside, f"{step}: {call} writes {tensor} a second time"
            inside.update(tensor for tensor in call.writes if tensor.managed)
        assert set(step.reads) | set(step.updates) <= written
        assert inside - written == set(step.writes)
        written = inside
    assert written == set(network.managed)


def a_steps_tensors_follow_from_its_calls(network: Network) -> None:
    """The obvious twin of how `Step` collects them."""
    for step in network.steps:
        assert len(set(step.uses)) == len(step.uses)
        roles = {tensor: role(step, tensor) for call in step.calls for tensor in touched(call)}
        for name in ("reads", "writes", "updates"):
            expected = {tensor for tensor, given in roles.items() if given == name and tensor.managed}
            assert set(getattr(step, name)) == expected


def touched(call: Call) -> tuple[Tensor, ...]:
    return (*call.reads, *call.writes, *call.updates)


def role(step: Step, tensor: Tensor) -> str:
    """What the step as a whole does to a tensor: the first call that touches it decides, an update outweighs a read."""
    first = next(call for call in step.calls if tensor in touched(call))
    if tensor in first.writes:
        return "writes"
    return "updates" if any(tensor in call.updates for call in step.calls) else "reads"


def test_what_a_step_makes_itself_it_only_writes() -> None:
    a, b, c = (Tensor(name, (1,), "map", managed=True) for name in "abc")
    layer = Builder("net", (1, 1, 1, 1)).relu()
    step = Step(
        1, layer, "forward", [Call("f", {}, [a], [b]), Call("g", {}, [b], [c], [a]), Call("h", {}, [], [], [c])]
    )
    assert (step.reads, step.updates, step.writes, step.uses) == ((), (a,), (b, c), (a, b, c))


def what_is_passed_is_declared(network: Network) -> None:
    """Every array that a kernel is given is read, written or updated; in place means updated, and nothing else."""
    for step in [*network.steps, *network.inference().steps]:
        for call in step.calls:
            values = [x for value in call.arguments.values() for x in (value if isinstance(value, tuple) else [value])]
            passed = {value for value in values if isinstance(value, Tensor)}
            assert passed <= set(touched(call)), call
            assert all(count == 1 for count in Counter(touched(call)).values()), call


def every_parameter_is_learnt_once_behind_its_gradient(network: Network) -> None:
    weights = {parameter.weight for _, _, parameter in network.parameters()}
    updated = []
    for step in network.steps:
        fresh: set[Any] = set()
        for call in step.calls:
            if call.function == "sgd.update":
                (gradient,) = call.reads
                assert gradient in fresh
                updated.append(call.updates[0])
            fresh.update(call.writes)
    assert Counter(updated) == Counter(weights)
    first = {
        weight: min(k for k, step in enumerate(network.steps) if weight in step_updates(step)) for weight in weights
    }
    for step in network.steps:
        for call in step.calls:
            for weight in weights.intersection(call.reads):
                assert step.number - 1 <= first[weight]  # no call reads a weight that was updated already


def step_updates(step: Step) -> set[Tensor]:
    return {tensor for call in step.calls for tensor in call.updates}


def every_gradient_map_is_like_a_map_and_somebody_wants_it(network: Network) -> None:
    """Except the concats' gradients on the way, and the input's."""
    shapes = {tensor.shape for layer in network.layers for tensor in layer.outputs} | {network.input.shape}
    read = {tensor for step in network.steps for call in step.calls for tensor in (*call.reads, *call.updates)}
    unwanted = {f"d({tensor})" for layer in network.layers if not layer.learns for tensor in layer.outputs}
    for tensor in network.managed:
        if tensor.kind == "gradient map":
            assert tensor.shape in shapes
            assert tensor in read or tensor.name in unwanted | {"d(input)"}


def names_and_sizes(network: Network) -> None:
    tensors = [*network.managed, *network.resident]
    assert len({tensor.name for tensor in tensors}) == len(tensors)
    assert all(tensor.managed for tensor in network.managed) and not any(tensor.managed for tensor in network.resident)
    used = {tensor for step in network.steps for call in step.calls for tensor in touched(call)}
    unused = {tensor for tensor in tensors if tensor not in used}
    assert unused <= {network.predictions, network.input}
    assert network.managed_bytes == sum(tensor.nbytes for tensor in network.managed)


@pytest.mark.slow
@given(networks(layers=40))
def test_what_holds_of_every_network(network: Network) -> None:
    everything_is_written_once_before_it_is_read_or_updated(network)
    a_steps_tensors_follow_from_its_calls(network)
    what_is_passed_is_declared(network)
    every_parameter_is_learnt_once_behind_its_gradient(network)
    every_gradient_map_is_like_a_map_and_somebody_wants_it(network)
    names_and_sizes(network)
