"""Plans beside what users of PyTorch have to save memory, in one run: lines, held, peak, bytes copied, time, bits.

    python -m tests.refimpl.torch.beside_others               # all models, and the table into the page
    python -m tests.refimpl.torch.beside_others ResNet-18     # one model, printed only

| way | what it is |
| --- | --- |
| checkpoint | `torch.utils.checkpoint` around every block: its maps are dropped, and the block runs again |
| selective checkpoint | the same with `create_selective_checkpoint_contexts`: outputs of products stay |
| save_on_cpu | `torch.autograd.graph.save_on_cpu`: all that autograd saves is copied to the host |
| OffloadActivations | torchtune's: the same without parameters, buffers and tensors of less than 1,024 bytes |
| activation_memory_budget | of `torch.compile`: a min cut of the joint graph says what is saved |

`save_on_cpu` copies nothing on a CPU, and torchtune is no dependency, so both are a pair of hooks here.  torchtune's
(https://docs.pytorch.org/torchtune, `torchtune.training.OffloadActivations`) can also copy on a stream of its own;
which tensors it moves is the same.  `torch.compile` runs its graphs by PyTorch's own operators here ("aot_eager" with
the partitioner of "inductor"), so that bits and bytes can be compared.  ResNet-18 and MobileNetV2 are written out, as
torchvision has them; GPT-2 is that of transformers.
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
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import refimpl
from refimpl.report.markdown import markdown_table, put_between
from refimpl.torch import Meter, Planned, Transfers
from refimpl.torch.transfers import storage_bytes
from tests.refimpl.torch.todays_table import at_half, mib
from tests.refimpl.torch.trained_modules import Beside

PAGE = Path(__file__).resolve().parents[3] / "docs" / "in_pytorch.md"
IMAGES = (8, 3, 64, 64)
TEXTS, TOKENS, WORDS = 8, 128, 256
#: Way → the lines that its user writes or changes.
LINES = {
    "plain PyTorch": "",
    "checkpoint": """
from torch.utils.checkpoint import checkpoint
x = checkpoint(block, x, use_reentrant=False)  # in the model's forward, where x = block(x) was""",
    "selective checkpoint": """
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
def policy(context, operator, *given, **named):
    return CheckpointPolicy.MUST_SAVE if operator in PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE
contexts = partial(create_selective_checkpoint_contexts, policy)
x = checkpoint(block, x, use_reentrant=False, context_fn=contexts)  # in the model's forward""",
    "save_on_cpu": """
with torch.autograd.graph.save_on_cpu(pin_memory=True):  # around forward""",
    "OffloadActivations": """
from torchtune.training import OffloadActivations
with OffloadActivations():  # around forward""",
    "activation_memory_budget 0.5": """
torch._functorch.config.activation_memory_budget = 0.5
module = torch.compile(module)""",
    "a plan": """
from refimpl.torch import Planned
planned = Planned(module, "plan.json")""",
}
PLANS = ("vdnn-all", "superneurons", "accudnn", "combined, effort=10")
LEAST_BYTES = 1024  #: that torchtune offloads
ROUNDS = 3
_ATEN = torch.ops.aten
#: Operators whose outputs a selective checkpoint keeps.
PRODUCTS = frozenset({
    _ATEN.convolution.default, _ATEN.mm.default, _ATEN.addmm.default, _ATEN.bmm.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
})  # fmt: skip


def normed(read: int, made: int, window: int, stride: int = 1, groups: int = 1, act: Any = None) -> nn.Sequential:
    """A convolution and batch normalisation, and maybe a function in place."""
    conv = nn.Conv2d(read, made, window, stride, window // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(made), *([act(inplace=True)] if act else []))


class Residual(nn.Module):
    """What goes through, and around it: nothing, the input, or a convolution of it; then maybe a ReLU."""

    def __init__(self, through: nn.Module, around: nn.Module | None, relu: bool) -> None:
        super().__init__()
        self.through, self.around, self.relu = through, around, relu

    def forward(self, x: Any) -> Any:
        y = self.through(x)
        if self.around is not None:
            y = y + self.around(x)
        return y.relu_() if self.relu else y


class Classifier(nn.Module):
    """A stem, blocks, and ten classes."""

    def __init__(self, stem: nn.Module, blocks: list[nn.Module], *ends: nn.Module) -> None:
        super().__init__()
        self.stem, self.blocks, self.end = stem, nn.ModuleList(blocks), nn.Sequential(*ends)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.end(x.mean((2, 3)))


def resnet18() -> Classifier:
    blocks: list[nn.Module] = []
    read = 64
    for made, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        through = nn.Sequential(normed(read, made, 3, stride, act=nn.ReLU), normed(made, made, 3))
        blocks.append(Residual(through, normed(read, made, 1, stride) if stride > 1 else nn.Identity(), relu=True))
        read = made
    stem = nn.Sequential(normed(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1))
    return Classifier(stem, blocks, nn.Linear(512, 10))


def mobilenet_v2() -> Classifier:
    blocks: list[nn.Module] = []
    read = 32
    for wider, made, times, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for stride in (first, *[1] * (times - 1)):
            wide = wider * read
            through = nn.Sequential(
                *([normed(read, wide, 1, act=nn.ReLU6)] if wider > 1 else []),
                normed(wide, wide, 3, stride, wide, nn.ReLU6), normed(wide, made, 1),
            )  # fmt: skip
            blocks.append(Residual(through, nn.Identity() if stride == 1 and read == made else None, relu=False))
            read = made
    blocks.append(normed(read, 1280, 1, act=nn.ReLU6))
    stem = normed(3, 32, 3, 2, act=nn.ReLU6)
    return Classifier(stem, blocks, nn.Dropout(0.2), nn.Linear(1280, 10))


def gpt2() -> Any:
    """That of transformers: bytes of a text, four blocks, 128 channels."""
    import transformers

    sizes = {"vocab_size": WORDS, "n_embd": 128, "n_layer": 4, "n_head": 4, "n_positions": TOKENS}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, use_cache=False)
    )


#: Model → how it is made, and the list of its blocks.
MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "ResNet-18": (resnet18, "blocks"), "MobileNetV2": (mobilenet_v2, "blocks"), "GPT-2": (gpt2, "transformer.h"),
}  # fmt: skip


def beside(name: str) -> Beside:
    """A model and its batch, beside plain PyTorch."""
    torch.manual_seed(0)
    module = MODELS[name][0]().train()
    texts = [torch.randint(0, WORDS, (TEXTS, TOKENS)) for _ in range(2)]
    return Beside(module, *texts) if name == "GPT-2" else Beside(module, IMAGES)


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
def checkpointed(blocks: Any, **options: Any) -> Iterator[None]:
    """Each of these blocks runs under `torch.utils.checkpoint`."""
    own = [block.forward for block in blocks]
    for block, forward in zip(blocks, own, strict=True):
        block.forward = partial(checkpoint, forward, use_reentrant=False, **options)
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


def rows_of(name: str) -> list[list[str]]:
    """The rows of the table."""
    pair = beside(name)
    blocks = pair.module.get_submodule(MODELS[name][1])
    module, state = pair.module, {id(one) for one in (*pair.module.parameters(), *pair.module.buffers())}
    meters: list[Meter] = []  #: the one that counts now

    def meter() -> AbstractContextManager[Any]:
        return meters[-1] if meters else nullcontext()

    saving, tuned = Transfers(), Transfers()

    def saves(context: Any, operator: Any, *given: Any, **named: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if operator in PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, saves)
    ways = [
        Way("plain PyTorch", module),
        Way("checkpoint", module, partial(checkpointed, blocks)),
        Way("selective checkpoint", module, partial(checkpointed, blocks, context_fn=contexts)),
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
        before = sides(way)
        meters.append(Meter((), way.transfers))
        pair.iteration(partial(step, pair, way, meters[-1]), way.model)
        counted = meters.pop()
        moved = sum(sides(way)) - sum(before)
        time_ratio = min(seconds[way.name]) / min(seconds[ways[0].name])
        lines = LINES.get(way.name, LINES["a plan"]).strip()
        rows.append(
            [
                way.name, str(len(lines.splitlines())), mib(counted.held), mib(counted.peak), mib(moved),
                f"{time_ratio:.2f}", same(right, bits[way.name], weights),
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


def sides(way: Way) -> tuple[int, int]:
    """Bytes copied to the host and back so far."""
    return (way.transfers.out_bytes, way.transfers.in_bytes) if way.transfers else (0, 0)


def same(right: dict[str, Any], found: dict[str, Any], weights: dict[str, Any]) -> str:
    """Whether the loss, gradients and buffers have the same bits."""
    trained = [name for name in right if name in weights or name == "loss"]
    said = []
    for kind, names in ("loss and gradients", trained), ("buffers", [name for name in right if name not in trained]):
        if other := sum(name not in found or not torch.equal(right[name], found[name]) for name in names):
            said.append(f"{other} of {len(names)} {kind} differ")
    return "; ".join(said) or "the same"


def page(rows: dict[str, list[list[str]]]) -> str:
    """All rows in Markdown."""
    head = ["way", "lines", "held", "peak", "copied", "processor time", "bits"]
    lines: list[str] = []
    for name, its in rows.items():
        size = f"{TEXTS} × {TOKENS} tokens" if name == "GPT-2" else f"{IMAGES[0]} of {IMAGES[-1]}²"
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
