"""The executor is the planner's oracle: one pass of the planner and the executor do the same, in the same order.

The same allocations and copies at the same addresses, frees, launches and waits; or both fail at the same step.  Then
bits: every setup learns what the baseline learns in all of the memory, and the freed bytes are NaN meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refimpl
from kernels.copies import NoGpu
from refimpl import superneurons, vdnn, vdnnpp
from refimpl.combined import FarthestNextUse
from refimpl.executor import Executor
from refimpl.memory import ALLOCATORS, BlockHeap, BothEnds
from refimpl.memory.tiers import HOST, PEER, Tier
from refimpl.network import VDNN, Builder, Call, Conventions, Network
from refimpl.planner import Allocate, CopyIn, CopyOut, DoesNotFit, Free, Launch, Setup, SetupError, plan
from refimpl.planner.instructions import Wait
from refimpl.planner.loop import Planner
from refimpl.slots.baseline import BufferAMap, NoCache, NoOffload, NoPrefetch, NoRecompute
from refimpl.slots.setup import BASELINE
from refimpl.superneurons import presets as stages
from tests.matrix import diagonal
from tests.messages import raises_naming
from tests.refimpl.drawn_networks import CONVENTIONS, networks
from tests.refimpl.modules import DropSome, LastUsed, OffloadSome, PooledPinned, PrefetchAhead, machine, setup
from tests.refimpl.plainly import draw_batch

ROOT = Path(__file__).resolve().parents[2]
MACHINE = machine().with_catalogue("plain")
KINDS = ("conv", "conv", "pool", "relu", "relu", "lrn", "batchnorm", "dropout", "join", "concat", "mul")

# -- what is drawn -----------------------------------------------------------------------------------------------------

WHEN = st.sampled_from(("early", "between", "late"))
CACHES = (LastUsed(), superneurons.LeastRecentlyUsed(), FarthestNextUse())
MODULES: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    recompute=st.one_of(
        st.sampled_from(
            (NoRecompute(), superneurons.SPEED_CENTRIC, superneurons.MEMORY_CENTRIC, superneurons.COST_AWARE)
        ),
        st.builds(DropSome, st.sampled_from((0.4, 1.0)), st.integers(0, 9), frugal=st.booleans()),
    ),
    offload=st.one_of(
        st.sampled_from(
            (NoOffload(), vdnn.ALL, vdnn.CONV, vdnnpp.ALL, vdnnpp.ALTERNATE_CONV, superneurons.CHECKPOINTS)
        ),
        st.builds(OffloadSome, st.sampled_from((0.5, 1.0)), st.integers(0, 9), st.booleans(), st.booleans()),
    ),
    prefetch=st.one_of(
        st.sampled_from((NoPrefetch(), vdnn.WINDOW, vdnnpp.WINDOW_LATE)),
        st.builds(superneurons.Ahead, st.integers(0, 6), WHEN),
        st.builds(PrefetchAhead, st.integers(-1, 6), WHEN),
    ),
    cache=st.sampled_from((NoCache(), *CACHES)),
    allocator=st.sampled_from(sorted(ALLOCATORS.values(), key=lambda a: a.name)),
    pinned=st.sampled_from((BufferAMap(), PooledPinned(), vdnnpp.OnDemand(), vdnnpp.OnDemand(limit=4096))),
    copy_streams=st.sampled_from(("shared", "separate")),
    join=st.booleans(),
    barrier=st.booleans(),
)
#: The papers' setups, as far as the executor has them: no search, and no compression.
PAPERS = {
    "baseline": BASELINE,
    "vdnn-all": vdnn.VDNN_ALL,
    "vdnn-conv": vdnn.VDNN_CONV,
    "vdnnpp-all": vdnnpp.static("vdnnpp-all", vdnnpp.ALL, pinned=vdnnpp.OnDemand(), allocator=BothEnds()),
    "superneurons-liveness": stages.liveness(),
    "superneurons-offload": stages.offload(),
    "superneurons-recompute": stages.recompute(),
    "superneurons-eager": stages.EAGER,
    "superneurons": stages.everything(),
}


@st.composite
def trunks(draw: st.DrawFn) -> Network:
    """A map that every branch reads: its gradient is a sum, and may be evicted between two additions."""
    b = Builder("trunk", (2, 4, 4, 4), draw(st.sampled_from(CONVENTIONS)))
    x = total = b.conv(4, 3, pad=1)
    for _ in range(draw(st.integers(2, 4))):
        y = x
        for kind in draw(st.lists(st.sampled_from(("conv", "relu", "batchnorm", "dropout")), min_size=1, max_size=3)):
            y = b.conv(4, 3, pad=1, after=y) if kind == "conv" else getattr(b, kind)(after=y)
        total = b.join(total, y) if y is not total else total  # a ReLU may be part of its convolution
    b.fc(3)
    b.softmax()
    return b.build()


@st.composite
def cases(draw: st.DrawFn) -> tuple[Network, Setup, list[int]]:
    """A network, a setup, and three budgets, the least of which is too small for most."""
    network, modules = draw(st.one_of(networks(kinds=KINDS), trunks())), draw(MODULES)
    if draw(st.booleans()):  # what does not leave by itself is evicted
        modules |= {"offload": NoOffload(), "cache": draw(st.sampled_from(CACHES))}
    if isinstance(modules["offload"], NoOffload) and isinstance(modules["cache"], NoCache | LastUsed):
        modules["prefetch"] = NoPrefetch()  # a prefetch needs maps that leave
    wanted = draw(st.one_of(*4 * [st.just(setup(**modules))], st.sampled_from([*PAPERS.values()])))
    share = draw(st.floats(0.12, 0.4))
    return network, wanted, [budget(network, share * more) for more in (1, 1.25, 2)]


def gated(conventions: Conventions) -> Network:
    """Maps that several layers read, a ReLU in place, and a gate: a step reads what was dropped and what was copied."""
    b = Builder("gated", (2, 4, 4, 4), conventions)
    x = b.conv(4, 3, pad=1)
    left = b.join(b.relu(after=x), b.batchnorm(after=x))
    b.batchnorm(after=b.lrn(after=x))
    y = b.join(left, b.dropout())
    b.conv(8, 1)
    b.relu()
    b.conv(4, 3, pad=1)
    z = b.mul(y, b.batchnorm())
    b.join(z, b.relu(after=z))
    b.fc(3)
    b.softmax()
    return b.build()


FORKED = Conventions(fork_layers=True, input_gradient=True)
#: Networks, modules and shares of memory that few draws have together; what each needs the planner to do.
RARE: dict[str, tuple[Conventions, tuple[float, ...], dict[str, Any]]] = {
    "evicted twice, and written in between; rebuilt first": (VDNN, (0.3, 0.5), {
        "cache": superneurons.LeastRecentlyUsed(), "allocator": BlockHeap(), "join": True,
        "offload": OffloadSome(early=True), "recompute": DropSome(0.4, 3, frugal=True),
    }),
    "rebuilt without its ReLU; unlocked; prefetched when it is needed no more": (FORKED, (0.3, 0.35, 0.4), {
        "cache": FarthestNextUse(), "allocator": BlockHeap(), "join": True, "barrier": True,
        "offload": OffloadSome(early=True), "recompute": DropSome(), "prefetch": PrefetchAhead(-1, "between"),
    }),
    "drained, the oldest first": (FORKED, (0.35, 0.4, 0.5), {
        "cache": LastUsed(), "allocator": BlockHeap(), "barrier": True, "offload": OffloadSome(0.5, 1, early=True),
    }),
    "written while its copy leaves": (VDNN, (0.5, 1.0), {"offload": OffloadSome(at_once=True)}),
    "placed where it stays": (VDNN, (0.25, 0.4), {
        "cache": LastUsed(), "allocator": BothEnds(), "offload": OffloadSome(0.5, 1, early=True),
    }),
}  # fmt: skip


def budget(network: Network, share: float) -> int:
    """Bytes for what is resident, and a share of those of all managed tensors."""
    return sum(-(-x.nbytes // 1024) * 1024 for x in network.resident) + int(share * network.managed_bytes)


# -- one pass of the planner -------------------------------------------------------------------------------------------


class Traced(Executor):
    """Computes nothing, and notes down what it would have done in a program's words."""

    trace: list[tuple[Any, ...]]

    def _tell(self, what: str, of: Any, at: int | None = None) -> None:
        super()._tell(what, of, at)
        if what in ("release", "revive", "join"):
            return  # a program says no more of them than frees and waits
        if isinstance(of, Call):
            self.trace.append((what, of.function, *(self.buffers[x].address for x in of.operands)))
        elif what == "allocate":
            if of.managed:
                self.trace.append((what, of.name, at))
        elif what in ("wait", "free"):
            self.trace.append((what, str(of)))
        else:
            host = -1 if of in self.fixed else self.copies[of].address
            self.trace.append((what, of.name, self.buffers[of].address, host))

    def _call(self, call: Call) -> None:
        pass


def in_words(planner: Planner) -> list[tuple[Any, ...]]:
    """What a draft allocates, frees, copies, launches and waits for."""
    names = ("compute", "copies") if planner.streams[1] == "memory" else ("compute", "out", "in")
    numbers: dict[int, tuple[int, int]] = {}  # position of a piece of work → its number and stream
    words = {"on demand": "fetch", "evicted": "evict"}
    fixed = {*planner.network.given, *planner.context.results}
    found: list[tuple[Any, ...]] = []
    for position, one in enumerate(planner.order.draft):
        if isinstance(one, Allocate):
            found.append(("allocate", one.tensor.name, one.address))
        elif isinstance(one, Free):
            found.append(("free", one.tensor.name))
        elif isinstance(one, Wait):
            number, stream = numbers[one.event]
            found.append(("wait", f"{names[one.stream]} for #{number} of {names[stream]}"))
        elif isinstance(one, CopyIn | CopyOut):
            host = -1 if one.tensor in fixed else one.pinned_address - planner.pinned.fixed_bytes
            found.append((words.get(one.why, one.why), one.tensor.name, one.address, host))
        elif isinstance(one, Launch):
            found.append(("launch again" if one.rebuild else "launch", one.call.function, *one.addresses))
        if isinstance(one, CopyIn | CopyOut | Launch):
            numbers[position] = len(numbers) + 1, one.stream
    return found


def failure(run: Callable[[], Any]) -> tuple[Any, ...] | None:
    """What did not fit, and where."""
    try:
        run()
    except DoesNotFit as error:
        return type(error), error.step, error.tensor, error.asked, error.free
    return None


def compare(network: Network, setup: Setup, nbytes: int) -> bool:
    """Assert that both do the same; whether the network fits."""
    planner = Planner(network, setup, MACHINE, nbytes)
    planner.order.close = lambda resident: (planner.order.draft, 0)  # type: ignore[method-assign]  # no address moves
    failed = failure(planner.plan)
    Traced.trace = []
    batch = [np.zeros(x.shape, x.dtype) for x in network.given]
    assert failure(lambda: Traced(network, setup, nbytes, NoGpu()).train(*batch)) == failed
    assert Traced.trace == in_words(planner)
    return failed is None


@given(cases())
@settings(max_examples=100)
def test_one_pass_of_the_planner_does_the_same(case: tuple[Network, Setup, list[int]]) -> None:
    network, setup, budgets = case
    for nbytes in budgets:
        compare(network, setup, nbytes)


@pytest.mark.parametrize("need", [*RARE])
def test_one_pass_of_the_planner_does_the_same_where_few_draws_lead(need: str) -> None:
    conventions, shares, modules = RARE[need]
    network = gated(conventions)
    for share in shares:
        assert compare(network, setup(**modules), budget(network, share))


# -- bits --------------------------------------------------------------------------------------------------------------


@cache
def network_of(name: str) -> Network:
    return getattr(refimpl.networks, name.replace("-", "_"))(batch=2, shape=(1, 8, 8))  # type: ignore[no-any-return]


def least(network: Network, setup: Setup) -> int:
    """Bytes within which the setup trains the network, and in a few less it does not."""
    batch, low, high = [np.zeros(x.shape, x.dtype) for x in network.given], 0.0, 1.5
    for _ in range(6):
        Traced.trace, share = [], (low + high) / 2
        misfit = failure(lambda: Traced(network, setup, budget(network, share), NoGpu()).train(*batch))  # noqa: B023
        low, high = (share, high) if misfit else (low, share)
    return budget(network, high)


def learnt(network: Network, setup: Setup, nbytes: int, gpu: Any = None) -> tuple[list[float], dict[str, bytes]]:
    """The losses of two iterations, and the state after them."""
    executor = Executor(network, setup, nbytes, gpu or NoGpu(), poison=True)
    losses = [executor.train(*draw_batch(network, seed)) for seed in range(2)]
    assert executor.device.array.size <= nbytes
    arrays = {
        x.name: executor.buffers[x].array for x in network.resident if x.kind not in ("labels", "loss", "scratch")
    }
    return losses, {name: (x.copy_to_host() if gpu else x).tobytes() for name, x in arrays.items()}


@cache
def by_baseline(network: Network) -> tuple[list[float], dict[str, bytes]]:
    return learnt(network, BASELINE, budget(network, 1.5))


@pytest.mark.parametrize(
    ("name", "preset"),
    diagonal(["lenet", "tiny-resnet"], ["vdnn-all", "vdnnpp-all", "superneurons-offload", "superneurons"]),
)
def test_with_the_least_memory_the_bits_are_the_same(name: str, preset: str) -> None:
    network = network_of(name)
    assert learnt(network, PAPERS[preset], least(network, PAPERS[preset])) == by_baseline(network)


def test_a_trainer_with_plain_kernels_has_the_same_bits() -> None:
    network = network_of("tiny-resnet")
    losses, state = by_baseline(network)
    program = refimpl.plan(network, "vdnn-all", MACHINE, "64MiB")
    with refimpl.Trainer(program, "cpu", kernels="plain") as trainer:
        assert [trainer.step(*draw_batch(network, seed)) for seed in range(2)] == losses
        for tensor, at in program.resident.items():
            if tensor.name in state:
                assert trainer.device.read(at, tensor.shape, tensor.dtype).tobytes() == state[tensor.name]


@pytest.mark.slow
@settings(max_examples=12)
@given(cases())
def test_bits_of_drawn_networks(case: tuple[Network, Setup, list[int]]) -> None:
    """The setup learns what the baseline does, and its plan is safe."""
    network, setup, budgets = case
    wanted = learnt(network, BASELINE, 1 << 20)
    for nbytes in budgets:
        with suppress(DoesNotFit):
            assert learnt(network, setup, nbytes) == wanted
            plan(network, setup, MACHINE, nbytes).verify()


# -- what is refused, and what is printed ------------------------------------------------------------------------------


COMPRESSED = vdnnpp.static("compressed", vdnnpp.ALL, pinned=vdnnpp.Compressed(), allocator=BothEnds())


@pytest.mark.parametrize(("wanted", "tier", "named"), [
    (vdnn.VDNN_DYN, HOST, "vdnn-conv"), (vdnnpp.VDNNPP_ALL, HOST, "best-fit"), (COMPRESSED, HOST, "buffer-a-map"),
    (stages.everything(), PEER, "peer"),
])  # fmt: skip
def test_what_it_cannot_do_is_refused(wanted: Setup, tier: str, named: str) -> None:
    on = SimpleNamespace(memory_bytes=1 << 24, tiers=[Tier(name) for name in {HOST, tier}])
    with raises_naming(SetupError, named):
        Executor(network_of("lenet"), wanted, 1 << 24, NoGpu(), on)


def test_ranks_several_inputs_and_calls_without_a_plain_kernel_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with raises_naming(SetupError, "2"):
        Executor(network_of("lenet").data_parallel(2), BASELINE, 1 << 24, NoGpu())
    b = Builder("two", (2, 1, 4, 4))
    b.concat(b.input, b.add_input("other", (2, 1, 4, 4)))
    b.softmax(after=b.fc(3))
    with raises_naming(SetupError, "two", "more inputs"):
        Executor(b.build(), BASELINE, 1 << 24, NoGpu())
    monkeypatch.setattr("refimpl.executor.find_spec", lambda name: None if name == "kernels.dropout" else name)
    with raises_naming(SetupError, "lenet", "dropout"):
        Executor(network_of("lenet"), BASELINE, 1 << 24, NoGpu())


def test_what_does_not_fit_says_where() -> None:
    network = network_of("lenet")
    with raises_naming(DoesNotFit, "pool2", "d(conv2)"):
        Executor(network, vdnn.VDNN_ALL, network.resident_bytes + 20_000, NoGpu()).train(*draw_batch(network))


@pytest.mark.slow
def test_numbas_own_simulator_runs_the_same_lines_on_a_mac() -> None:
    mac = {
        "NUMBA_ENABLE_CUDASIM": "1",
        "REFIMPL_ELSEWHERE": "mac",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "tests" / "elsewhere"), str(ROOT))),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SIMULATED],
        env=os.environ | mac,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


SIMULATED = """
import sys
sys.modules["torch"] = sys.modules["onnx"] = sys.modules["kernels.targets.cpu"] = None
import numpy as np
from numba import cuda
assert "numba_cuda" not in sys.modules and "numba_cuda" not in cuda.__file__
from refimpl.executor import Executor
from refimpl.network import Builder
from refimpl.slots.setup import BASELINE
from refimpl.superneurons import presets

b = Builder("small", (1, 1, 4, 4))
b.conv(1, 3, pad=1)
b.relu()
b.pool(2)
b.fc(3)
b.softmax()
network = b.build()
for setup in (BASELINE, presets.everything()):
    executor = Executor(network, setup, 20_000, cuda, poison=True)
    executor.train(np.ones((1, 1, 4, 4), np.float32), np.array([1], np.int32))
    learnt = [executor.buffers[x].array.copy_to_host().tobytes() for x in network.resident if x.kind == "weight"]
    assert learnt == (wanted if setup is not BASELINE else (wanted := learnt)), setup.name
"""
