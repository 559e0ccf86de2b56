"""What each kind of layer reads, writes and updates, forward and backward, with the published conventions."""

from __future__ import annotations

import pytest

from refimpl.network import SUPERNEURONS, VDNN, Builder, Conventions, Layer, Network, Step
from refimpl.network.conventions import VDNNPP


def said(step: Step) -> str:
    """What a step does to managed tensors, in a line: reads → writes, with ! before what it updates."""
    given = [*map(str, step.reads), *(f"!{tensor}" for tensor in step.updates)]
    return f"{' '.join(given)} → {' '.join(map(str, step.writes))}".strip()


def chain(conventions: Conventions) -> Network:
    """A chain with every kind of layer that has one producer."""
    b = Builder("chain", (2, 3, 8, 8), conventions)
    b.conv(4, 3, name="conv")
    b.relu(name="relu")
    b.lrn(name="lrn")
    b.pool(2, name="pool")
    b.conv(4, 1, bias=False, name="bare")
    b.batchnorm(name="norm")
    b.dropout(name="drop")
    b.fc(5, name="fc")
    b.softmax(name="softmax")
    return b.build()


TABLE = {
    # layer: vDNN forward, vDNN backward, SuperNeurons forward, SuperNeurons backward.  The gradients of LRN and ReLU go
    # over that of their output and keep its name: d(lrn) ends as the convolution's.
    "conv": ("input → conv", "input d(lrn) →", "→ conv", "d(lrn) → d(input)"),
    "relu": ("!conv →", "conv !d(lrn) →", "conv → relu", "conv relu !d(lrn) →"),
    "lrn": ("conv → lrn", "conv !d(lrn) →", "relu → lrn", "relu lrn !d(lrn) →"),
    "pool": ("lrn → pool", "lrn pool d(pool) → d(lrn)", "lrn → pool", "lrn pool d(pool) → d(lrn)"),
    "bare": ("pool → bare", "pool d(bare) → d(pool)", "pool → bare", "pool d(bare) → d(pool)"),
    "norm": ("bare → norm", "bare d(norm) → d(bare)", "bare → norm", "bare d(norm) → d(bare)"),
    "drop": ("norm → drop", "d(drop) → d(norm)", "norm → drop", "d(drop) → d(norm)"),
    "fc": ("drop → fc", "drop softmax → d(drop)", "drop → fc", "drop softmax → d(drop)"),
    "softmax": ("fc → softmax", "!softmax →", "fc → softmax", "fc !softmax →"),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_chain(name: str) -> None:
    steps = [step for network in (VDNN_CHAIN, SN_CHAIN) for step in both(network.layer(name))]
    assert tuple(map(said, steps)) == TABLE[name]


def both(layer: Layer) -> tuple[Step, Step]:
    return layer.forward, layer.backward


VDNN_CHAIN, SN_CHAIN = chain(VDNN), chain(SUPERNEURONS)


def functions(step: Step) -> list[str]:
    return [call.function for call in step.calls]


def test_the_calls_of_a_chain() -> None:
    found = {layer.name: (functions(layer.forward), functions(layer.backward)) for layer in VDNN_CHAIN.layers}
    update = "sgd.update"
    assert found == {
        "conv": (["conv.forward"], ["conv.backward_filter", "conv.backward_bias", update, update]),
        "relu": (["relu.forward"], ["relu.backward"]),
        "lrn": (["lrn.forward"], ["lrn.backward"]),
        "pool": (["pool.forward"], ["pool.backward"]),
        "bare": (["conv.forward"], ["conv.backward_filter", "conv.backward_data", update]),
        "norm": (["batchnorm.forward", "batchnorm.update_running"], ["batchnorm.backward", update, update]),
        "drop": (["dropout.forward"], ["dropout.backward"]),
        "fc": (["fc.forward"], ["fc.backward_filter", "fc.backward_data", "fc.backward_bias", update, update]),
        "softmax": (["softmax.forward", "softmax.cross_entropy"], ["softmax.backward"]),
    }
    once = [call.function for step in VDNN_CHAIN.steps for call in step.calls if call.once]
    assert once == ["batchnorm.update_running"]
    # With SuperNeurons' conventions only the first convolution's unwanted gradient comes to them.
    more = functions(SN_CHAIN.layer("conv").backward)
    assert more == ["conv.backward_filter", "conv.backward_data", "conv.backward_bias", update, update]
    rest = {layer.name: (functions(layer.forward), functions(layer.backward)) for layer in SN_CHAIN.layers[1:]}
    assert rest == {name: calls for name, calls in found.items() if name != "conv"}


#: vDNN++ forward and backward.  The ReLU is part of conv, softmax works in place on fc's output, conv and fc hold that
#: until their backward, and the gradients of weights are allocated last.
VDNNPP_TABLE = {
    "conv": ("input → conv", "conv input !d(lrn) → d(conv.w) d(conv.b)"),
    "lrn": ("conv → lrn", "conv !d(lrn) →"),
    "pool": ("lrn → pool", "lrn pool d(pool) → d(lrn)"),
    "bare": ("pool → bare", "d(bare) pool bare → d(pool) d(bare.w)"),
    "norm": ("bare → norm", "bare d(norm) → d(bare) d(norm.gamma) d(norm.beta)"),
    "drop": ("norm → drop", "d(drop) → d(norm)"),
    "fc": ("drop → fc", "d(fc) drop fc → d(drop) d(fc.w) d(fc.b)"),
    "softmax": ("!fc →", "fc → d(fc)"),
}


@pytest.mark.vdnnpp
def test_a_chain_of_vdnnpp() -> None:
    network = chain(VDNNPP)
    assert {layer.name: tuple(map(said, both(layer))) for layer in network.layers} == VDNNPP_TABLE
    assert [layer.name for layer in network.layers if layer.has_relu] == ["conv"]


def layers(network: Network) -> dict[str, Layer]:
    return {layer.name: layer for layer in network.layers}


def forked(conventions: Conventions) -> Network:
    """One map read by three layers: two branches that a join adds, and a concat beside it."""
    b = Builder("forked", (2, 3, 4, 4), conventions)
    x = b.conv(4, 1, name="trunk")
    left = b.conv(4, 1, name="left")
    right = b.pool(1, name="right", after=x)
    added = b.join(left, right, name="join")
    b.concat(x, added, name="concat")
    b.fc(5, name="fc")
    b.softmax(name="softmax")
    return b.build()


def test_gradients_of_a_map_with_several_readers_are_summed_as_they_come() -> None:
    network = forked(VDNN)
    assert [said(layer.backward) for layer in network.layers[::-1]] == [
        "!softmax →",
        "concat softmax → d(concat)",
        "d(concat) → d(trunk) d(join)",
        "d(join) → d(right)",  # a copy; left's gradient is d(join) itself
        "trunk right d(right) !d(trunk) → d(trunk) by right",
        "trunk d(join) !d(trunk) → d(trunk) by left",
        "input d(trunk) →",
    ]
    (_, add) = network.layer("right").backward.calls
    total, part = add.arguments["dys"]
    assert add.function == "join.fork_backward" and add.arguments["dx"] is total
    assert (str(total), str(part), add.updates, add.reads) == ("d(trunk)", "d(trunk) by right", (total,), (part,))


@pytest.mark.parametrize(
    ("before", "readers", "in_place"),
    [
        ("conv", 1, True), ("batchnorm", 1, True), ("join", 1, True), ("concat", 1, True), ("dropout", 1, True),
        ("fc", 1, True), ("conv", 2, False),  # another layer reads it
        ("pool", 1, False), ("lrn", 1, False), ("relu", 1, False), ("data", 1, False),  # its backward, or the host
    ],
)  # fmt: skip
def test_when_a_relu_may_be_in_place(before: str, readers: int, in_place: bool) -> None:
    for conventions, expected in ((VDNN, in_place), (SUPERNEURONS, False)):
        b = Builder("relu", (2, 3, 4, 4), conventions)
        if before == "join":
            b.join(b.input, b.conv(3, 1))
        elif before == "concat":
            b.concat(b.input, b.conv(3, 1))
        elif before != "data":
            given = {"conv": (3, 1), "pool": (1,), "fc": (3,)}.get(before, ())
            getattr(b, before)(*given)
        x = b.last
        relu = b.relu(name="the relu")
        if readers > 1:
            b.join(relu, b.conv(3, 1, after=x))
        b.fc(2)
        b.softmax()
        layer = b.build().layer("the relu")
        assert layer.in_place is expected
        assert (layer.y is layer.x) is expected


def test_nothing_is_computed_below_the_first_layer_that_learns() -> None:
    b = Builder("late", (2, 3, 8, 8))
    first = b.pool(2, name="pool")
    b.batchnorm(name="norm")
    b.join(first, b.conv(3, 1, name="conv"), name="join")
    b.concat(b.last, first, name="concat")
    b.fc(2, name="fc")
    b.softmax(name="softmax")
    network = b.build()
    assert [layer.learns for layer in network.layers] == [False] + [True] * 6
    assert network.layer("pool").backward.calls == ()
    assert said(network.layer("concat").backward) == "d(concat) → d(join) d(pool)"  # concat splits as a whole
    assert said(network.layer("join").backward) == "→"  # its gradient is that of its only input that learns
    assert said(network.layer("conv").backward) == "norm d(join) → d(norm)"
    assert said(network.layer("norm").backward) == "pool !d(norm) →"  # the kernel's dx goes over dy


def test_inference_shares_all_but_what_it_changes() -> None:
    network = VDNN_CHAIN
    other = network.inference()
    assert other.layers == network.layers and other.resident == network.resident
    assert [step.number for step in other.steps] == list(range(1, network.depth + 1))
    assert [functions(step) for step in other.steps] == [
        ["conv.forward"], ["relu.forward"], ["lrn.forward"], ["pool.forward"], ["conv.forward"],
        ["batchnorm.inference"], ["elementwise.copy"], ["fc.forward"], ["softmax.forward", "softmax.cross_entropy"],
    ]  # fmt: skip
    last = other.steps[-1]
    assert last.calls[0].writes == (network.predictions,) and network.predictions in other.resident
    assert last.calls[1].reads == (network.predictions, network.labels) and last.writes == ()
    changed = {tensor for step in other.steps for call in step.calls for tensor in (*call.writes, *call.updates)}
    assert {tensor.kind for tensor in changed} == {"map", "loss"}
    assert [str(tensor) for tensor in other.managed] == ["input", "conv", "lrn", "pool", "bare", "norm", "drop", "fc"]
    assert network.layers[0].forward.calls[0].function == "conv.forward" and len(network.steps) == 2 * network.depth
