"""Memory traded for time (§4): the tensor cache (Figure 11), and the workspaces of a larger pool (Figure 12).

All times are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from refimpl.machine import Machine
from refimpl.planner import CopyIn, CopyOut, Launch, Program, Setup, plan
from refimpl.slots.baseline import NoRecompute
from refimpl.studies.reproduce.evaluation import GIB, moved_bytes
from refimpl.studies.reproduce.published import Found, Reproduced, Watch
from refimpl.studies.reproduce.superneurons import published
from refimpl.studies.reproduce.superneurons.figures import GPUS, K40C, network
from refimpl.superneurons import presets as stages
from refimpl.superneurons.presets import DynamicWorkspace
from refimpl.superneurons.recompute import COST_AWARE

EVERYTHING = stages.everything()

# -- the tensor cache --------------------------------------------------------------------------------------------------

#: All techniques but the cache: the outputs of CONV and FC are offloaded at once, room or not.
WITHOUT_CACHE = stages.offload(DynamicWorkspace()).replace(name="all but the cache", recompute=COST_AWARE)


@dataclass(frozen=True)
class CacheRow:
    """A network's iteration with the cache and without, on one GPU.  Seconds, bytes."""

    network: str
    batch: int
    machine: str
    with_seconds: float
    without_seconds: float
    with_moved_bytes: int
    without_moved_bytes: int
    without_copying_seconds: float  #: of all copies of maps, added up

    @property
    def ratio(self) -> float:
        """The speed with the cache over the speed without it."""
        return self.without_seconds / self.with_seconds

    @property
    def ratio_in_series(self) -> float:
        """The same, if no kernel ran beside a copy of the eager offload."""
        return (self.with_seconds + self.without_copying_seconds) / self.with_seconds


def cache_speed(watch: Watch) -> Found:
    """The speed with the tensor cache over the speed without it, in two readings of "without"."""
    rows: list[CacheRow] = []
    figures: list[Reproduced] = []
    for name in published.FASTER_WITH_CACHE:
        watch(name)
        mine = [cache_row(name, machine) for machine in GPUS]
        rows += mine
        overlapped, in_series = readings(mine[0])
        others = ", ".join(f"{row.ratio:.3f} on a {row.machine}" for row in mine[1:])
        figures.append(replace(overlapped, note=f"simulated on a {K40C.name}; {others}"))
        others = ", ".join(f"{row.ratio_in_series:.3f} on a {row.machine}" for row in mine[1:])
        figures.append(replace(in_series, note=f"as if no kernel ran beside a copy, on a {K40C.name}; {others}"))
    return Found(figures, rows)


def cache_row(name: str, machine: Machine) -> CacheRow:
    built = network(name, 128 if name == "alexnet" else 32)
    cached, eager = (plan(built, setup, machine, machine.memory_bytes) for setup in (EVERYTHING, WITHOUT_CACHE))
    copies = [span for span in eager.simulate().spans if isinstance(span.instruction, CopyIn | CopyOut)]
    copying = sum(span.end - span.start for span in copies if span.instruction.tensor.managed)
    return CacheRow(
        network=name, batch=built.batch, machine=machine.name,
        with_seconds=cached.planned_seconds, without_seconds=eager.planned_seconds,
        with_moved_bytes=moved_bytes(cached), without_moved_bytes=moved_bytes(eager), without_copying_seconds=copying,
    )  # fmt: skip


def readings(row: CacheRow) -> tuple[Reproduced, Reproduced]:
    """A network's bar of Figure 11 in both readings of "without": copies beside kernels, and copies in series."""
    figure = published.FASTER_WITH_CACHE[row.network]
    overlapped, in_series = (replace(figure, what=f"{figure.what}; {how}") for how in ("overlapped", "in series"))
    return Reproduced(overlapped, row.ratio, ""), Reproduced(in_series, row.ratio_in_series, "")


# -- workspaces --------------------------------------------------------------------------------------------------------

BATCHES = (100, 300)  #: images of AlexNet
POOLS = (3, 5)  #: GiB

PASSES = {"conv.forward": "Y", "conv.backward_data": "dX", "conv.backward_filter": "dW"}

#: Recomputation leaves so much room that 3 GiB are enough for every workspace; so the figure is drawn without it.
SETUPS: dict[str, Setup] = {
    "all": EVERYTHING,
    "all but recompute": EVERYTHING.replace(name="all but recompute", recompute=NoRecompute()),
}


@dataclass(frozen=True)
class WorkspaceRow:
    """A convolution call of AlexNet in a pool: the workspace that it has, and the one it would be fastest with."""

    setup: str
    batch: int
    pool_bytes: int
    images_a_second: float  #: of the whole iteration
    call: str  #: such as "CONV2 dX"
    algorithm: str
    workspace_bytes: int
    fastest_bytes: int


def workspaces(watch: Watch) -> Found:
    """AlexNet's workspaces in two pools, call by call, and the speed that the larger pool buys."""
    rows: list[WorkspaceRow] = []
    for setup_name, setup in SETUPS.items():
        for batch in BATCHES:
            watch(f"alexnet({batch}), {setup_name}")
            for pool in POOLS:
                rows += _workspaces(setup_name, plan(network("alexnet", batch), setup, K40C, pool * GIB))
    figures = []
    for panel, figure in zip(published.PANELS, published.SERVED, strict=True):
        batch = panel.batch or BATCHES[-1]
        found = {name: served(chosen(rows, name, batch, panel.pool)) for name in SETUPS}
        note = f"{batch} images, without recomputation; with it {found['all']}"
        figures.append(Reproduced(figure, found["all but recompute"], note))
    speeds = {name: [chosen(rows, name, BATCHES[-1], pool)[0].images_a_second for pool in POOLS] for name in SETUPS}
    little, much = speeds["all but recompute"]
    note = (
        f"simulated, {BATCHES[-1]} images, without recomputation: {little:.0f} and {much:.0f} images a second; "
        f"with it {speeds['all'][0]:.0f} and {speeds['all'][1]:.0f}"
    )
    return Found([*figures, Reproduced(published.FASTER_WITH_MEMORY, much / little, note)], rows)


def chosen(rows: Sequence[WorkspaceRow], setup: str, batch: int, pool: int) -> list[WorkspaceRow]:
    """The calls of one plan, in a pool of a number of GiB."""
    wanted = (setup, batch, pool * GIB)
    return [row for row in rows if (row.setup, row.batch, row.pool_bytes) == wanted]


def by_step(run: Sequence[WorkspaceRow]) -> dict[str, tuple[int, int]]:
    """Step of the panels → its workspace and the fastest one, bytes; the calls of a step share one."""
    found = dict.fromkeys(published.WORKSPACE_STEPS, (0, 0))
    for row in run:
        layer, what = row.call.split()
        step = f"{layer} {'forward' if what == PASSES['conv.forward'] else 'backward'}"
        if step in found:
            given, fastest = found[step]
            found[step] = max(given, row.workspace_bytes), max(fastest, row.fastest_bytes)
    return found


def served(run: Sequence[WorkspaceRow]) -> int:
    """Steps of the panels that have the workspace of their fastest algorithm."""
    return sum(given == fastest for given, fastest in by_step(run).values())


def _workspaces(setup: str, program: Program) -> Iterator[WorkspaceRow]:
    for instruction in program.instructions:
        if isinstance(instruction, Launch) and instruction.choice is not None and not instruction.rebuild:
            layer = program.network.steps[instruction.step - 1].layer
            yield WorkspaceRow(
                setup=setup,
                batch=program.network.batch,
                pool_bytes=program.budget,
                images_a_second=program.network.batch / program.planned_seconds,
                call=f"{layer.name.upper()} {PASSES[instruction.call.function]}",
                algorithm=instruction.choice.algorithm,
                workspace_bytes=instruction.choice.workspace_bytes,
                fastest_bytes=K40C.choices(instruction.call)[0].workspace_bytes,
            )
