"""A smaller model of the CPU at hand, beside the one that there is: rates without shapes.

    python -m tests.refimpl.machine.cpu_rates        # a minute and a half, on a machine that does nothing else

One small network is profiled.  *Rates*: every call takes as long as its operations do at the best rate of its pass.
*By algorithm*: at the median rate of its pass and its algorithm.  The networks of `refimpl bench --training` are
planned with each model, with all their maps kept, and trained in turns; printed are the simulated seconds over the
measured ones, and the measured milliseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

from refimpl.backend import Trainer, data
from refimpl.machine import Machine, cpu_costs
from refimpl.machine.catalogues import options
from refimpl.machine.devices import Cpu
from refimpl.machine.here import available_bytes, rough_cpu
from refimpl.machine.measure import measure
from refimpl.machine.measured_profile import key
from refimpl.machine.model import Choice, Efficiency, in_order
from refimpl.machine.timing import by, least_in_turns
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.network import Builder, Call, Network
from refimpl.planner import plan
from refimpl.report.markdown import markdown_table
from refimpl.studies.bench.training import NETWORKS

SECONDS = 10.0  #: of training, for each network


@dataclass(frozen=True)
class Rates(Machine):
    """Every algorithm reaches the same rate, or its own where `by_algorithm` has it."""

    by_algorithm: Mapping[tuple[str, str], float] = field(default_factory=dict, compare=False)

    def _make_choices(self, call: Call) -> tuple[Choice, ...]:
        made = []
        for option in options("own", call):
            rate = self.by_algorithm.get((call.function, option.algorithm))
            seconds = call.flops / rate if rate else self.option_seconds(option)
            made.append(Choice(option.algorithm, option.workspace_bytes, seconds))
        return in_order(made)


def profiled() -> Network:
    """Convolutions of several sizes, and products."""
    b = Builder("rates", (8, 16, 32, 32))
    for channels in (16, 64):
        b.conv(channels, 3, pad=1)
        b.relu()
    b.pool(2, 2)
    b.conv(128, 5, pad=2)
    b.fc(512)
    b.fc(100)
    b.softmax()
    return b.build()


def fitted() -> tuple[Rates, Rates]:
    """The machine with rates, and the one with rates by algorithm."""
    network, rough = profiled(), rough_cpu()
    profile = measure(network, Cpu(), turns=5, limit_seconds=0.5)
    best, every = dict.fromkeys(("forward", "backward", "products"), 0.0), defaultdict(list)
    for call in (call for step in network.steps for call in step.calls if call.flops):
        chosen = profile.choices[key(call)] if call.choosable else ()
        for choice in chosen:
            every[call.function, choice.algorithm].append(call.flops / choice.seconds)
        seconds = chosen[0].seconds if chosen else profile.calls[key(call)]
        kind = "products" if not chosen else "forward" if call.function.endswith("forward") else "backward"
        best[kind] = max(best[kind], call.flops / seconds)
    peak = max(best.values())
    shares = {kind: rate / peak for kind, rate in best.items()}
    rates = Rates(
        name="here", memory_bytes=rough.memory_bytes, flops=peak, bandwidth=profile.bandwidth,
        link=profile.copies["out"].bytes_per_second, multiprocessors=rough.multiprocessors,
        efficiency=Efficiency(**shares, transforms=1.0, streaming=1.0), launch_seconds=rough.launch_seconds,
    )  # fmt: skip
    return rates, replace(rates, by_algorithm={name: median(found) for name, found in every.items()})


def row(name: str, batch: int, machines: Mapping[str, Machine]) -> list[str]:
    """The network, then of each machine the simulated seconds over the measured ones."""
    with ExitStack() as opened:
        programs, runs = {}, {}
        for model, each in machines.items():
            program = programs[model] = plan(build(name, batch), setup("baseline"), each, available_bytes() // 2)
            source = data.synthetic_for(program.network, seed=1)
            trainer = opened.enter_context(Trainer(program, rate=1e-4))
            runs[model] = partial(trainer.step, *source.batch(batch, 0))
            for _ in range(2):
                runs[model]()
        taken = least_in_turns(runs, by(), limit_seconds=SECONDS, at_least=5)
    return [f"{name}({batch})"] + [
        f"{programs[model].simulate().seconds / taken[model]:.2f} ({1e3 * taken[model]:.0f})" for model in machines
    ]


def main() -> None:
    cpu_costs.measure_and_keep()
    rates, by_algorithm = fitted()
    machines = {"units": machine("here"), "rates": rates, "rates by algorithm": by_algorithm}
    print(markdown_table(["network", *machines], [row(name, batch, machines) for name, batch in NETWORKS]))


if __name__ == "__main__":
    main()
