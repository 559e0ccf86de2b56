"""`refimpl run`: train a network under a budget, on the GPU or on the CPU with the same kernels and program."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import time
import zlib
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from itertools import pairwise
from math import isfinite, log
from typing import TYPE_CHECKING, Any

from refimpl.accudnn.tuner import warmed_up
from refimpl.cli import resolve, shared_options
from refimpl.cli.parallel import as_rank, refuse_without_parallel, same_command
from refimpl.cli.parser import DONE, INTERRUPTED, WRONG, Fail, Parser, whole, writable
from refimpl.cli.terminal import print_json, progress, say, show_table, tell
from refimpl.cli.training_data import data_for
from refimpl.cli.tuned_file import TunedFile, tuned_file
from refimpl.machine.cpu_model import CalibratedCpu
from refimpl.machine.here import process_bytes
from refimpl.names.by_name import budget_bytes
from refimpl.names.networks import build
from refimpl.network import Network, Output
from refimpl.planner import Program
from refimpl.text import contents, counted, duration, opened, size

if TYPE_CHECKING:
    from refimpl.backend import Communicator, Evaluation, Trainer
    from refimpl.backend.data import BatchSource
    from refimpl.backend.host_thread import StoredMap

BARS = "▁▂▃▄▅▆▇█"
CURVE = 60  #: columns of the loss curve
SYNTHETIC_TESTS = 4  #: batches of new synthetic images that the trained network is tried on
MASK = "\x7f"  #: a byte that no text has, where one is masked
WRITTEN, TEMPERATURE = 64, 0.7  #: bytes that it writes at the end, and how far from the most probable ones
STEPS = 100


def add(parser: Parser) -> None:
    parser.describe(
        "Plan a network, prove the program safe, and train with it: on the GPU, on the CPU with the same kernels, or "
        "on an emulated GPU (--backend emulated), which runs the CUDA back end without one and checks every access. "
        "Ctrl-C and SIGTERM wait for the end of the iteration, save a checkpoint and say how to resume.  The networks "
        "for teaching (lenet, tiny-vgg, tiny-resnet, tiny-inception) take images of any shape, the others their own.  "
        "With --parallel mpi each process that mpiexec starts trains on its own batch, and gradients are averaged.",
        [
            "refimpl run lenet --data digits --epochs 5",
            "refimpl run tiny-resnet --data digits --set liveness=layer-wise --budget 4MiB --backend cpu",
            "refimpl run tiny-vgg --data images.npz --optimiser adamw:clip=1 --schedule cosine,warmup:20",
            "refimpl run tiny-vgg --data images.npz,validation=0.1 --set like=half.npz",
            "refimpl run tiny-gpt --data text --optimiser adamw --rate 0.002 --steps 300",
            "refimpl run tiny-vgg --data images.npz --steps 500 --save half.npz,every=100",
            "refimpl run tiny-vgg --data images.npz --steps 1000 --resume half.npz",
            "mpiexec -n 2 refimpl run tiny-resnet --data digits --batch 16 --parallel mpi --policy superneurons",
            "refimpl run lenet --backend emulated --machine h100 --policy vdnn-all",
            "refimpl run lenet --batch 4 --policy vdnn-all --backend cpu --by-hand",
            "refimpl run my_model.onnx --data images.npz --save state.npz --save trained.onnx",
        ],
    )  # fmt: skip
    shared_options.network(parser)
    parser.add_argument(
        "--data", metavar="DATA", default="synthetic",
        help="digits (scikit-learn's), synthetic, or a .npz file with images and labels, one an image or one a pixel, "
        "or with images and targets; for networks that read tokens text (the project's documentation), or a file whose "
        "bytes are the tokens (default: synthetic).  DATA,validation=FILE tests with another file, DATA,validation=0.1 "
        "with this share of the data (default: the file's test images, or else one image in five; of a text its last "
        "tenth)",
    )  # fmt: skip
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--steps", type=whole(), metavar="N", help=f"iterations in all, resumed ones too (default: {STEPS})"
    )
    length.add_argument("--epochs", type=whole(), metavar="N", help="times that all images are shown")
    shared_options.backend(parser)
    learning = shared_options.learning(parser)
    learning.add_argument(
        "--tuned", metavar="FILE", help="batch, rate and warm-up from what refimpl tune --json printed"
    )
    parser.add_argument(
        "--save", metavar="FILE", action="append", default=[], dest="saves",
        help="write a checkpoint at the end, with FILE,every=N after every N iterations, too; or a FILE.onnx: the "
        "network's ONNX file with the trained weights; repeatable",
    )  # fmt: skip
    parser.add_argument("--resume", metavar="FILE", help="go on from a checkpoint")
    parser.add_argument("--page", metavar="FILE", help="write a page with one more iteration beside the planned one")
    shared_options.setup(
        parser, also=", or like=FILE, the convolution algorithms of another run, from its checkpoint or what its "
        "--json printed (default: those of --resume; like=none: the fastest here, which another machine or calibration "
        "may find others)",
    )  # fmt: skip
    shared_options.machine(parser, default="here")
    shared_options.kernels(parser)
    shared_options.budget(parser)
    shared_options.cluster(parser, simulated=False)
    shared_options.json(parser)
    parser.add_argument(
        "--by-hand", action="store_true",
        help="plan nothing: the executor, with plain kernels, asks the policy's modules layer by layer, and one "
        "iteration prints each allocation, copy, launch and wait",
    )  # fmt: skip


# -- training ----------------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    from refimpl.backend import Alone

    take_apart(options)
    if options.by_hand:
        return by_hand(options)
    if options.parallel:
        return as_rank(options, trained)
    refuse_without_parallel()
    return trained(options, Alone())


def take_apart(options: argparse.Namespace) -> None:
    """Split the values of --data, --save and --set into options of their own."""
    options.data, _, validation = options.data.partition(",validation=")
    options.validation = validation or None
    options.save = options.export = options.save_every = None
    for text in options.saves:
        path, _, every = text.partition(",every=")
        kind = "export" if path.endswith(".onnx") else "save"
        if getattr(options, kind):
            raise Fail(f"--save {text} and --save {getattr(options, kind)}: give one of each kind")
        setattr(options, kind, path)
        if every and kind == "export":
            raise Fail(f"--save {text}: only a checkpoint is written again and again")
        options.save_every = whole_number(every, f"--save {text}") if every else options.save_every
    likes = [text for text in options.assignments if text.startswith("like=")]
    options.assignments = [text for text in options.assignments if text not in likes]
    options.like = likes[-1].removeprefix("like=") if likes else None


def whole_number(text: str, where: str) -> int:
    """A number inside an option's value."""
    try:
        return whole()(text)
    except argparse.ArgumentTypeError as error:
        raise Fail(f"{where}: {error}") from None


def by_hand(options: argparse.Namespace) -> int:
    """One iteration of the executor, action by action."""
    from kernels.copies import NoGpu
    from refimpl.executor import Executor

    for name in ("parallel", "steps", "epochs", "save", "resume", "page", "json"):
        if getattr(options, name):
            raise Fail(f"--by-hand prints one iteration and nothing else: leave out --{name}")
    network, source = data_for(options, build(options.network, options.batch))
    network = resolve.trained_by(options, network)
    options.kernels = "plain"  # as the executor's are; and nothing is measured
    machine = resolve.machine(options)
    learning, nbytes = resolve.learning(options), budget_bytes(options.budget, network, machine)
    if options.budget is None:  # the executor takes all of its budget at once
        nbytes = min(nbytes, 2 * (network.resident_bytes + network.managed_bytes))
    seed = learning.pop("seed", 0)
    executor = Executor(network, resolve.setup(options), nbytes, resolve.gpu(options) or NoGpu(), machine, seed)
    for action in executor.iteration(*source.batch(network.batch, 0, seed), **learning):
        say(str(action))
    return DONE


def trained(options: argparse.Namespace, communicator: Communicator) -> int:
    """Train as one of the communicator's ranks; the first one alone saves and reports."""
    from refimpl.backend import NotFinite
    from refimpl.backend.interrupts import sigterm_as_ctrl_c

    first_rank = communicator.rank == 0
    for option, path in (("--save", options.save), ("--save", options.export), ("--page", options.page)):
        if first_rank and path:
            writable(option, path)
    tuned = tuned_of(options)
    learning = resolve.learning(options)
    network = build(options.network, options.batch)
    network, source = data_for(options, network)
    network = resolve.trained_by(options, network)
    network = resolve.data_parallel(options, network, communicator.size)
    if tuned and tuned.network != network.name:
        raise Fail(f"--tuned {options.tuned} is for {tuned.network}, not for {network.name}: tune that network")
    if options.export and network.file is None:
        raise Fail(f"--save {options.export}: {network.name} came from no ONNX file; only such a one can be written")
    everything = network.batch * network.ranks  # images of an iteration
    last = options.epochs * source.per_epoch(everything) if options.epochs else options.steps or STEPS
    schedule = resolve.schedule(options, last)
    described = {
        "network": network.name, "batch": network.batch, "policy": resolve.setup(options).name, "data": options.data,
        "iterations": last, "all-reduces": network.reduced, **learning, "checkpoint": options.resume,
        "learning": str(network.learning), "schedule": str(schedule), "warm-up": schedule and schedule.warmup,
        "algorithms like": options.like,
    }  # fmt: skip
    same_command(communicator, described)
    with communicator.preparing():
        if first_rank:
            # a CPU is measured once, and the others read what was measured
            resolve.machine(options, resolve.running_on(options))
    with ExitStack() as stack:
        with communicator.preparing():
            like, algorithms = algorithms_of(options, network)
            program = resolve.runnable(options, network, algorithms=algorithms)
            given = {**learning, "schedule": schedule}
            trainer = stack.enter_context(resolve.trainer(program, options, communicator=communicator, **given))
            if options.resume:
                resume(trainer, options, given)
        stack.enter_context(sigterm_as_ctrl_c())
        first = trainer.iteration
        if first >= last:
            raise Fail(
                f"{options.resume} is at iteration {first} already; give more than {counted(last, 'step')} in all"
            )
        try:
            saving = (options.save, options.save_every) if first_rank and options.save_every else None
            losses, seconds = train(trainer, source, last, tuned, saving)
            wire_bytes = sum(map(int, communicator.agree(str(communicator.sent_bytes)))) // len(losses)
            if communicator.size > 1 and len(set(communicator.agree(str(checksum(trainer))))) > 1:
                raise Fail("the ranks' weights differ, which is a fault: nothing is saved", WRONG)
            timeline = trainer.timeline() if options.page else None  # with all ranks
            if not first_rank:
                communicator.agree()  # the first rank saves and evaluates meanwhile
                return DONE
            if options.save:
                trainer.save(options.save)
            if options.export:
                trainer.to_onnx(options.export)
            stored = trainer.compressed
            evaluation, tested = test(trainer, source)
            sample = written(trainer, source) if evaluation else None
            if timeline is not None:
                from refimpl.report.page import write_page

                write_page(options.page, program, timeline)
            communicator.agree()
        except KeyboardInterrupt:
            return interrupted(trainer, options, last)
        except NotFinite as error:
            said = communicator.agree(saved(trainer, options) if first_rank else "")[0]
            raise Fail(f"{error}{said}") from None
        document = {
            "network": network.name, "batch": network.batch, "policy": program.setup.name, "slots": program.setup.slots,
            "data": options.data, "backend": trainer.backend, "budget_bytes": program.budget, "seed": trainer.seed,
            "optimiser": network.learning.optimiser, **trainer.numbers, "clip": network.learning.clip,
            "frozen": list(network.learning.frozen), "schedule": str(trainer.schedule),
            "warmup": trainer.schedule.warmup,
            "first_iteration": first, "iterations": last, "losses": losses, "tested": tested,
            "accuracy": finite(evaluation.accuracy) if evaluation else None,
            "tested_loss": finite(evaluation.loss) if evaluation else None,
            **(tested_each(network, evaluation) if evaluation and evaluation.each else {}),
            "counted": {"what": place_of(network, network.output), "number": evaluation.counted if evaluation else 0},
            **(in_bits(evaluation, source, sample) if evaluation and sample else {}),
            "peak_bytes": {"predicted": program.peak_bytes, "recounted": trainer.recounted_peak},
            "process_bytes": process_bytes(),
            "seconds": {"iteration": statistics.median(seconds), "predicted": program.planned_seconds},
            "host_seconds_per_instruction": trainer.host_seconds_per_instruction,
            "driver_calls": driver_calls(trainer), "checkpoint": options.save, "exported": options.export,
            "pinned_bytes": program.pinned_bytes, "compressed": [asdict(one) for one in stored],
            "ranks": network.ranks, "wire_bytes": wire_bytes, "algorithms": program.algorithms, "like": like,
        }  # fmt: skip
    if options.json:
        print_json(document)
    else:
        report(document, program, stored)
        if options.page:
            say(f"Page: {options.page}")
        resolve.say_share(options, network, program.machine)
    return DONE


def algorithms_of(options: argparse.Namespace, network: Network) -> tuple[str | None, dict[str, str] | None]:
    """The run whose algorithms are taken, and they; None: the fastest here."""
    from refimpl.backend import checkpoint

    path = options.like or (options.resume if options.kernels == "fast" else None)
    if path is None or path == "none":
        return None, None
    if options.like is None or is_zip(path):
        found = checkpoint.algorithms(path, network)
    else:
        try:
            found = dict(json.loads(contents(path))["algorithms"])
        except (ValueError, TypeError, LookupError, RecursionError):
            raise Fail(f"like={path}: this is neither a checkpoint nor what refimpl run --json prints") from None
    missing = ["anything"] if found is None else checkpoint.without_algorithm(network, found)
    if missing and options.like:
        raise Fail(f"like={path}: it has no algorithm for {missing[0]} of {network.name}")
    return (None, None) if missing else (path, found)


def is_zip(path: str) -> bool:
    with opened(path, sys.maxsize) as file:
        return file.read(2) == b"PK"


def checksum(trainer: Trainer) -> int:
    """Of all weights."""
    found = 0
    for _, _, parameter in trainer.network.parameters():
        weight = parameter.weight
        values = trainer.device.read(trainer.program.resident[weight], weight.shape, weight.dtype)
        found = zlib.crc32(values.tobytes(), found)
    return found


def resume(trainer: Trainer, options: argparse.Namespace, learning: dict[str, Any]) -> None:
    """Go on from a checkpoint; what the command says of the optimiser's numbers and the schedule counts from now on."""
    trainer.restore(options.resume)
    if learning.get("seed", trainer.seed) != trainer.seed:
        raise Fail(f"{options.resume} was started with --seed {trainer.seed}; leave out --seed, or --resume")
    if "betas" in learning:
        trainer.beta1, trainer.beta2 = learning["betas"]
    for name in ("rate", "momentum", "decay", "epsilon", "schedule"):
        if learning.get(name) is not None:
            setattr(trainer, name, learning[name])


def tuned_of(options: argparse.Namespace) -> TunedFile | None:
    """Apply --tuned as if --batch and --rate had been given."""
    if options.tuned is None:
        return None
    for name in ("batch", "rate", "schedule"):
        if getattr(options, name) is not None:
            raise Fail(f"--tuned {options.tuned} gives batch, rate and warm-up: leave out --{name}")
    tuned = tuned_file(options.tuned)
    options.batch, options.rate = tuned.batch, tuned.rate
    return tuned


def train(
    trainer: Trainer,
    source: BatchSource,
    last: int,
    tuned: TunedFile | None = None,
    saving: tuple[str, int] | None = None,
) -> tuple[list[float], list[float]]:
    """The loss and the seconds of every iteration; the first epochs warm up as `tuned` says.

    `saving` is a file, and after how many iterations a checkpoint is written there.
    """
    losses: list[float] = []
    seconds: list[float] = []
    batch, rank = trainer.network.batch, trainer.communicator.rank
    everything = batch * trainer.network.ranks  # of which each rank has its part
    warmup = tuned.warmup_epochs * source.per_epoch(everything) if tuned else 0
    with progress(trainer.network.name, last, trainer.iteration) as advance:
        while trainer.iteration < last:
            images, labels = source.batch(everything, trainer.iteration, trainer.seed)
            if tuned:
                trainer.rate = warmed_up(tuned.rate, tuned.base_rate, warmup, trainer.iteration)
            start = time.perf_counter()
            mine = slice(rank * batch, (rank + 1) * batch)
            losses.append(trainer.step(part_of(images, mine), part_of(labels, mine)))
            seconds.append(time.perf_counter() - start)
            advance(f"loss {losses[-1]:.3f}")
            if saving and trainer.iteration % saving[1] == 0 and trainer.iteration < last:
                trainer.save(saving[0])
    return losses, seconds


def part_of(given: Any, part: slice) -> Any:
    """Some images of a batch, or of each of its arrays."""
    return tuple(array[part] for array in given) if isinstance(given, tuple) else given[part]


def interrupted(trainer: Trainer, options: argparse.Namespace, last: int) -> int:
    """Ctrl-C or SIGTERM: save what was learnt, and say what is saved, even if a second signal comes meanwhile.

    Of several ranks the first one alone does.
    """
    from refimpl.backend import RunError
    from refimpl.backend.interrupts import held_interrupts

    if trainer.communicator.rank:
        trainer.communicator.agree()
        return INTERRUPTED
    path = options.save or f"{trainer.network.name.replace(':', '-')}-interrupted.npz"
    whole, said = False, "not saved"
    try:
        with held_interrupts():
            trainer.save(path)
            whole, said = True, f"saved: {path}"
    except KeyboardInterrupt:
        pass
    except RunError as error:
        said = f"not saved: {error}"
    if not whole and os.path.exists(path):
        said += f"; {path} is as it was before this run"
    trainer.communicator.agree()
    stopped = trainer.interrupted
    ranks = f" (rank{'s' * (len(stopped) > 1)} {', '.join(map(str, stopped))})" if trainer.communicator.size > 1 else ""
    tell(f"{options.parser.prog}: interrupted{ranks} after iteration {trainer.iteration}; {said}")
    if whole and trainer.iteration < last:
        again = without_option(options.arguments, "--resume")
        ranks = f"mpiexec -n {trainer.communicator.size} " if options.parallel else ""
        tell(f"resume with: {ranks}refimpl {shlex.join([*again, '--resume', str(path)])}")
    return INTERRUPTED


def saved(trainer: Trainer, options: argparse.Namespace) -> str:
    """Save the state before the batch that failed, if a checkpoint is wanted; never over an older one."""
    from refimpl.backend import RunError

    if not options.save:
        return ""
    if os.path.exists(options.save):
        return f"; {options.save} is not written: the training has diverged"
    try:
        trainer.save(options.save)
    except RunError as error:
        return f"; {error}"
    return f"; saved as it was before: {options.save}"


def without_option(arguments: list[str], option: str) -> list[str]:
    """A command's arguments without an option and its value."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument != option and not argument.startswith(option + "="):
            kept.append(argument)
        skip = not skip and argument == option
    return kept


def finite(number: float) -> float | None:
    """The number; None for NaN and infinity, which JSON does not have."""
    return number if isfinite(number) else None


def tested_each(network: Network, evaluation: Evaluation) -> dict[str, Any]:
    """Of several losses: their weighted sum, and what each found by its name."""
    found = {}
    for one in network.outputs:
        result = evaluation.each[one.layer.name]
        found[one.layer.name] = {
            "loss": finite(result.loss), "weight": one.layer.weight, "accuracy": finite(result.accuracy),
            "what": place_of(network, one), "number": result.counted,
        }  # fmt: skip
    return {"weighted_loss": finite(evaluation.weighted), "each_loss": found}


def driver_calls(trainer: Trainer) -> dict[str, Any] | None:
    """Times of the allocating and freeing calls of the last iteration, where the program makes any."""
    calls = trainer.driver_calls
    return asdict(calls) | {"seconds": calls.seconds} if calls else None


def test(trainer: Trainer, source: Any) -> tuple[Evaluation | None, int]:
    """Test loss and accuracy, and the number of test images; None if there is no memory for evaluating."""
    import numpy as np

    from refimpl.backend import RunError

    if hasattr(source, "test_images"):
        images, labels = source.test_images, source.test_labels
    else:
        batch, first = trainer.network.batch, trainer.iteration
        batches = (source.batch(batch, first + i, trainer.seed) for i in range(SYNTHETIC_TESTS))
        images, labels = (
            tuple(map(np.concatenate, zip(*parts, strict=True)))
            if isinstance(parts[0], tuple)
            else np.concatenate(parts)
            for parts in zip(*batches, strict=True)
        )
    count = len(images[0]) if isinstance(images, tuple) else len(images)
    try:
        return trainer.evaluate(images, labels, keep=False), count
    except RunError as error:
        tell(f"not tested: {error}")
        return None, 0


def place_of(network: Network, output: Output) -> str:
    """The word for what a loss counts: images, pixels or tokens, or numbers."""
    return network.place if output.loss.target == "pixel" else output.loss.target


def written(trainer: Trainer, source: Any) -> dict[str, str] | None:
    """What a network that learnt from a text makes of the part that it has not learnt from; None: it learnt from none.

    It writes on, or fills in what is masked.
    """
    import numpy as np

    from refimpl.backend.windows import TextWindows
    from refimpl.backend.writing import fill_in, write_on

    if not isinstance(source, TextWindows):
        return None
    window = source.test_images[0]
    if source.task.masked:
        masked = np.where(window == source.task.words, ord(MASK), window)
        found = {"masked": masked, "filled in": fill_in(trainer, window)}
        texts = {what: bytes(tokens.astype(np.uint8)) for what, tokens in found.items()}
    else:
        count = min(WRITTEN, trainer.iteration)  # each takes a forward pass, of a whole batch
        begun = bytes(window[: len(window) // 2 + 1].astype(np.uint8))
        texts = {"after": begun, "writes": write_on(trainer, begun, count, TEMPERATURE, trainer.seed)}
    return {what: text.decode(errors="replace").replace(MASK, "█") for what, text in texts.items()}


def in_bits(evaluation: Evaluation, source: Any, sample: dict[str, str]) -> dict[str, Any]:
    """Of a text: the bits that a byte takes in a code by the network's probabilities, and what it wrote."""
    bits_of = "a masked byte" if source.task.masked else "a byte"
    return {"bits": finite(evaluation.loss / log(2)), "bits_of": bits_of, "sample": sample}


def on_one_line(text: str) -> str:
    """A text with what breaks a line written out."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


# -- the report --------------------------------------------------------------------------------------------------------


def report(document: dict[str, Any], program: Program, stored: list[StoredMap]) -> None:
    """The result, for people."""
    losses, peak, seconds = document["losses"], document["peak_bytes"], document["seconds"]
    where = {"cpu": "on the CPU", "cuda": "on the GPU", "emulated": "emulated"}[document["backend"]]
    batch = f"batch {document['batch']}" + f" on each of {document['ranks']} ranks" * (document["ranks"] > 1)
    say(f"{document['network']}, {batch}, {where}: {counted(len(losses), 'iteration')} on {document['data']}.")
    say(f"Loss      {curve(losses)}  {losses[0]:.3f} → {losses[-1]:.3f}")
    tested = counted(document["tested"], program.network.example) + " that it has not learnt from"
    if "each_loss" in document:
        sums = [f"{loss['weight']:g} × " * (loss["weight"] != 1) + name for name, loss in document["each_loss"].items()]
        say(f"Tested    loss {document['weighted_loss']:.3f} = {' + '.join(sums)}, on {tested}")
        for name, loss in document["each_loss"].items():
            right = f", accuracy {loss['accuracy']:.1%}" if loss["accuracy"] is not None else ""
            say(f"  {name}: loss {loss['loss']:.3f}{right}, of {counted(loss['number'], loss['what'])}")
    what, number = document["counted"]["what"], document["counted"]["number"]
    of = tested if what == "image" else f"{counted(number, what)} of {tested}"
    if "each_loss" in document:
        pass
    elif document["accuracy"] is not None:
        say(f"Accuracy  {document['accuracy']:.1%} of {of}")
    elif document["tested_loss"] is not None:
        say(f"Tested    loss {document['tested_loss']:.3f}, the mean over {of}")
    if "sample" in document:
        say(f"Bits      {document['bits']:.3f} {document['bits_of']}: the loss, {document['tested_loss']:.3f} / log 2")
        for what, text in document["sample"].items():
            say(f"{what.capitalize():<9} {on_one_line(text)}")
    again = "recounted from the executed instructions"
    same = f"as {again}" if peak["predicted"] == peak["recounted"] else f"but {size(peak['recounted'])} {again}"
    say(f"Memory    peak {size(peak['predicted'])}, {same}; budget {size(program.budget)}")
    if program.pool_bytes < program.budget:
        say(f"Pool      {size(program.pool_bytes)}: no more of the budget is taken")
    if document["process_bytes"]:
        say(f"Process   {size(document['process_bytes'])} of main memory at most, planning included")
    modelled = program.machine.name == "here" and not isinstance(program.machine, CalibratedCpu)
    rough = "; a rough model: refimpl profile measures" if modelled else ""
    if document["backend"] == "emulated":
        rough = "; this is the emulation's own time, and no GPU's"
    say(
        f"Time      {duration(seconds['iteration'])} an iteration; planned for {program.machine.name}: "
        f"{duration(seconds['predicted'])}{rough}"
    )
    if document["algorithms"]:
        say(
            f"Chosen    {algorithms_line(document['algorithms'])}"
            + f", as in {document['like']}" * bool(document["like"])
        )
    if document["ranks"] > 1:
        reduces = counted(len(program.network.reduced), "all-reduce")
        say(f"Network   {reduces} an iteration; all ranks together send {size(document['wire_bytes'])}")
    if document["host_seconds_per_instruction"] is not None:
        say(f"Host      {duration(document['host_seconds_per_instruction'])} an instruction")
    if document["backend"] == "emulated":
        say(
            "Checked   every access of every kernel and copy, and the order between streams and the host: nothing found"
        )
    if calls := document["driver_calls"]:
        say(
            f"Driver    {calls['allocations']} allocations and {calls['frees']} frees an iteration, "
            f"{duration(calls['seconds'])} in the calls"
        )
    elif program.setup.allocator.driver_calls:
        say("Driver    no calls: on the CPU there is none, and every allocation's bytes are the arena's")
    if program.setup.pinned.uses_store:
        from refimpl.cli.compressed import compressed_line, compressed_table

        say(f"On host   {compressed_line(stored)}")
        if stored:
            show_table(compressed_table(stored))
    if document["checkpoint"]:
        say(f"Saved     {document['checkpoint']}")
    if document["exported"]:
        say(f"Exported  {document['exported']}")


def algorithms_line(algorithms: dict[str, str]) -> str:
    """The algorithms of a run, how many calls have each."""
    each = ", ".join(f"{name} {number}" for name, number in Counter(algorithms.values()).most_common())
    return f"{counted(len(algorithms), 'convolution call')}: {each}"


def curve(losses: list[float]) -> str:
    """The losses as a line of bars, each the mean of as many."""
    columns = min(CURVE, len(losses))
    cuts = [len(losses) * i // columns for i in range(columns + 1)]
    means = [statistics.fmean(losses[a:b]) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    return "".join(BARS[round((mean - low) / (high - low or 1) * (len(BARS) - 1))] for mean in means)
