"""Plans beside what PyTorch's users have to save memory, in one run: peak, bytes moved, bits, processor time.

    python -m tests.refimpl.torch.beside_others               # all models, and the table into the page
    python -m tests.refimpl.torch.beside_others decoder       # one model, printed only

| way | what it is |
| --- | --- |
| checkpoint | `torch.utils.checkpoint` around every block: its maps are dropped, and the block runs again |
| save_on_cpu | `torch.autograd.graph.save_on_cpu`: all that autograd saves is copied to the host |
| OffloadActivations | torchtune's: the same without parameters, buffers and tensors of less than 1,024 bytes |
| activation_memory_budget | of `torch.compile`: a min cut of the joint graph says what is saved |

`save_on_cpu` copies nothing on a CPU, and torchtune is no dependency, so both are a pair of hooks here.  torchtune's
(https://docs.pytorch.org/torchtune, `torchtune.training.OffloadActivations`) can also copy on a stream of its own;
which tensors it moves is the same.  `torch.compile` runs its graphs by PyTorch's own operators here ("aot_eager" with
the partitioner of "inductor"), so that bits and bytes can be compared.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import refimpl
from refimpl.report.markdown import markdown_table, put_between
from refimpl.torch import Meter, Planned, Transfers
from refimpl.torch.transfers import storage_bytes
from tests.refimpl.torch.todays_models import Decoder, ViT, encoder, images, words
from tests.refimpl.torch.todays_table import at_half, mib
from tests.refimpl.torch.trained_modules import Beside

PAGE = Path(__file__).resolve().parents[3] / "docs" / "in_pytorch.md"
#: Model → how it is made with a batch, and the list of its blocks ("": itself).
MODELS: dict[str, tuple[Callable[[], tuple[Any, ...]], str]] = {
    "convolutions": (lambda: (encoder(10).train(), images()), ""),
    "ViT": (lambda: (ViT(rate=0.0).train(), images()), "blocks"),
    "decoder": (lambda: (Decoder().train(), words(), words()), "blocks"),
}
PLANS = ("vdnn-all", "superneurons", "accudnn", "combined, effort=10")
LEAST_BYTES = 1024  #: that torchtune offloads
ROUNDS = 3


class Way(NamedTuple):
    """One way to train a model."""

    name: str
    model: Any  #: what is called
    around: Callable[[], AbstractContextManager[Any]] = nullcontext  #: of forward
    transfers: Transfers | None = None  #: that have counted what was copied
    counted_inside: bool = False  #: the meter is entered by what is called


class HostHooks:
    """Saved tensors are copied to the host, and back when backward needs them."""

    def __init__(self, transfers: Transfers, least: int = 0, left_out: frozenset[int] = frozenset()) -> None:
        """Args:
        transfers: counts the bytes.
        least: bytes of a tensor that is moved.
        left_out: identities of tensors that stay.
        """
        self._transfers, self._least, self._left_out = transfers, least, left_out

    def pack(self, tensor: Any) -> Any:
        if tensor.nbytes < self._least or id(tensor) in self._left_out:
            return tensor, None
        host = self._transfers.host_buffer(tensor.nbytes)
        copy = storage_bytes(host, "cpu").view(tensor.dtype).view(tensor.shape)
        copy.copy_(tensor.detach())
        self._transfers.out_bytes += tensor.nbytes
        return copy, tensor.stride()

    def unpack(self, packed: Any) -> Any:
        saved, stride = packed
        if stride is None:
            return saved
        self._transfers.in_bytes += saved.nbytes
        return torch.empty_strided(saved.shape, stride, dtype=saved.dtype).copy_(saved)

    def __call__(self) -> AbstractContextManager[Any]:
        return saved_tensors_hooks(self.pack, self.unpack)


@contextmanager
def checkpointed(blocks: Any) -> Iterator[None]:
    """Each of these blocks runs under `torch.utils.checkpoint`."""
    own = [block.forward for block in blocks]
    for block, forward in zip(blocks, own, strict=True):
        block.forward = partial(checkpoint, forward, use_reentrant=False)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


def compiled(module: Any, meter_of: Callable[[], AbstractContextManager[Any]], share: float) -> Any:
    """The module under `torch.compile`, whose forward graph enters a meter, and which saves this share of bytes."""
    import torch._inductor.lowering  # which the decompositions below expect to be there
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    def forward(graph: Any, inputs: Any) -> Any:
        run = boxed_nop(graph, inputs)

        def counted(given: Any) -> Any:
            with meter_of():
                return run(given)

        counted._boxed_call = True  # type: ignore[attr-defined]
        return counted

    backend = aot_autograd(
        fw_compiler=forward,
        bw_compiler=boxed_nop,
        decompositions=select_decomp_table(),
        partition_fn=partial(min_cut_rematerialization_partition, compiler="inductor"),
    )
    made = torch.compile(module, backend=backend)

    def run(x: Any) -> Any:
        with patch.object(config, "activation_memory_budget", share):
            return made(x)

    return run


def beside(name: str) -> Beside:
    torch.manual_seed(0)
    return Beside(*MODELS[name][0]())


def rows_of(name: str) -> list[list[str]]:
    """The rows of the table."""
    pair = beside(name)
    blocks = pair.module.get_submodule(MODELS[name][1])
    module, state = pair.module, {id(one) for one in (*pair.module.parameters(), *pair.module.buffers())}
    meters: list[Meter] = []  #: the one that counts now

    def meter() -> AbstractContextManager[Any]:
        return meters[-1] if meters else nullcontext()

    saving, tuned = Transfers(), Transfers()
    ways = [
        Way("plain PyTorch", module),
        Way("checkpoint", module, partial(checkpointed, blocks)),
        Way("save_on_cpu", module, HostHooks(saving), saving),
        Way("OffloadActivations", module, HostHooks(tuned, LEAST_BYTES, frozenset(state)), tuned),
        Way("activation_memory_budget 0.5", compiled(module, meter, 0.5), counted_inside=True),
    ]
    network = refimpl.networks.from_torch(module, pair.x, keeps="pytorch-cpu")
    for policy in PLANS:
        program, share = at_half(network, policy)
        planned = Planned(module, program)
        ways.append(Way(f"{policy.partition(',')[0]}, {share:.0%}", planned, transfers=planned.transfers))
    seconds: dict[str, list[float]] = {way.name: [] for way in ways}
    bits: dict[str, Any] = {}
    for _ in range(ROUNDS):
        for way in ways:
            start = time.process_time()
            bits[way.name] = pair.iteration(partial(step, pair, way, None), way.model)
            seconds[way.name].append(time.process_time() - start)
    right, rows = bits[ways[0].name], []
    weights = dict(module.named_parameters())
    for way in ways:
        before = (way.transfers.out_bytes, way.transfers.in_bytes) if way.transfers else (0, 0)
        meters.append(Meter((), way.transfers))
        pair.iteration(partial(step, pair, way, meters[-1]), way.model)
        counted = meters.pop()
        out, back = (way.transfers.out_bytes, way.transfers.in_bytes) if way.transfers else (0, 0)
        time_ratio = min(seconds[way.name]) / min(seconds[ways[0].name])
        rows.append(
            [
                way.name, mib(counted.peak), mib(counted.held), mib(out - before[0]), mib(back - before[1]),
                alike(right, bits[way.name], lambda one: one in weights or one == "loss"),
                alike(right, bits[way.name], lambda one: one not in weights and one != "loss"),
                f"{time_ratio:.2f}",
            ]
        )  # fmt: skip
    torch.compiler.reset()
    return rows


def step(pair: Beside, way: Way, meter: Meter | None, model: Any) -> Any:
    """An iteration, which this meter counts."""
    counting: AbstractContextManager[Any] = meter or nullcontext()
    if way.counted_inside:
        outputs = model(pair.x)
        with counting:
            return finished(pair, outputs, meter)
    with counting:
        with way.around():
            outputs = model(pair.x)
        return finished(pair, outputs, meter)


def finished(pair: Beside, outputs: Any, meter: Meter | None) -> Any:
    loss = pair.loss(lambda _: outputs)
    if meter is not None:
        meter.turn()
    loss.backward()
    return loss


def alike(right: dict[str, Any], found: dict[str, Any], asked: Callable[[str], bool]) -> str:
    """Whether these tensors have the same bits."""
    names = [name for name in right if asked(name)]
    other = sum(name not in found or not torch.equal(right[name], found[name]) for name in names)
    return "–" if not names else "the same" if not other else f"{other} of {len(names)} differ"


def page(rows: dict[str, list[list[str]]]) -> str:
    """All rows in Markdown."""
    head = ["way", "peak", "held", "copied out", "back", "loss and gradients", "buffers", "processor time"]
    lines: list[str] = []
    for name, its in rows.items():
        shape = beside(name).x.shape
        size = f"{shape[0]} × {shape[1]} tokens" if len(shape) == 2 else f"{shape[0]} of {shape[-1]}²"
        lines.append(markdown_table([f"{name}, {size}", *head[1:]], its))
    return "\n\n".join(lines)


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    made = page({name: rows_of(name) for name in arguments or MODELS})
    print(made)
    if not arguments:
        PAGE.write_text(put_between(PAGE.read_text(encoding="utf-8"), "beside others", made), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
