"""Training: one program, replayed on a device, with everything around it that a user needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from refimpl.backend import checkpoint
from refimpl.backend.alone import Alone, Communicator, seed_of_rank
from refimpl.backend.batches import checked_batch, counting, whole_batches
from refimpl.backend.bound_program import Settings, refuse_foreign, rung_of
from refimpl.backend.device import CallTimes, Device, Replay, Sizes, recounted_peak
from refimpl.backend.diagnosis import diagnose
from refimpl.backend.forward_only import inference_program
from refimpl.backend.host_thread import StoredMap
from refimpl.backend.interrupts import held_interrupts
from refimpl.backend.orders import LegalOrder
from refimpl.backend.run_errors import DeviceFailed, NotFinite, RankFailed, RunError
from refimpl.backend.schedules import Schedule
from refimpl.files import replacing
from refimpl.machine import Timeline
from refimpl.memory.tiers import pinned_size
from refimpl.network import Output, Tensor
from refimpl.network.initial_state import constants, initial_state, state_tensors
from refimpl.network.learning import Optimisation
from refimpl.planner import DoesNotFit, Launch, Program

Batch = Sequence[np.ndarray]  #: an array for each of `Network.given`

BACKENDS = ("cpu", "cuda", "emulated")


@dataclass(frozen=True)
class Evaluation:
    """The network's results on images that it is not trained on."""

    loss: float  #: the mean over all images, pixels or numbers that count; of several losses the last one's
    accuracy: float  #: the share whose most probable class is their label; NaN: the loss has no classes
    predictions: np.ndarray  #: images × classes: probabilities; or what the loss compares with its targets
    counted: int = 0  #: images, pixels or numbers that loss and accuracy are means over
    each: Mapping[str, Evaluation] = field(default_factory=dict)  #: of several losses every one's, by their names
    weighted: float = math.nan  #: of several losses the sum, each times its weight


def numbers_of(learning: Optimisation, given: Mapping[str, float | None]) -> dict[str, float]:
    """The numbers that a network's optimiser takes: those that are given, and else its defaults."""
    defaults = learning.rule.defaults
    for name, value in given.items():
        if value is not None and name not in defaults:
            raise RunError(f"{name} is no option of {learning.optimiser}, which takes {', '.join(defaults)}")
    for name in ("beta1", "beta2"):
        if not 0 <= (given.get(name) or 0) < 1:
            raise RunError(f"{name} is {given[name]}; give at least 0 and less than 1")
    return {name: default if (value := given.get(name)) is None else value for name, default in defaults.items()}


def _agreed(output: Output, predicted: np.ndarray, labels: np.ndarray) -> int:
    """How many of the labels that count are predicted; of probabilities: are on the side of 1/2 of their target."""
    if output.loss.target == "number":
        return int(np.count_nonzero((predicted >= 0.5) == (labels >= 0.5)))
    return int(np.count_nonzero((predicted.argmax(1) == labels) & counting(output, labels)))


class _Tested:
    """What one loss has found so far, of images that the network is not trained on."""

    def __init__(self, output: Output, labels: np.ndarray, keep: bool) -> None:
        self.output, self.keep, self.images = output, keep, len(labels)
        self.counted = int(counting(output, labels).sum())
        self.losses: list[np.ndarray] = []
        self.predictions: list[np.ndarray] = []
        self.agreed = 0

    def add(self, losses: np.ndarray, predicted: np.ndarray, labels: np.ndarray, count: int) -> None:
        """Add a batch, of which the first `count` images are no filling."""
        found: np.ndarray = losses[:count].copy()
        if self.output.counted is not None:  # the losses are per pixel of the batch that counts, not of all batches
            counted = np.count_nonzero(counting(self.output, labels))
            share = np.float64(counted * self.images / (len(labels) * self.counted))
            found = found * share if counted else np.zeros(count)
        self.losses.append(found)
        self.agreed += _agreed(self.output, predicted[:count], labels[:count])
        if self.keep:
            self.predictions.append(predicted[:count].copy())

    def result(self) -> Evaluation:
        output = self.output
        loss = float(np.mean(np.concatenate(self.losses), dtype=np.float64))
        classes = output.loss.target != "number" or output.loss.shares
        none = np.empty((0, *output.predictions.shape[1:]), np.float32)
        predictions = np.concatenate(self.predictions) if self.keep else none
        return Evaluation(loss, self.agreed / self.counted if classes else math.nan, predictions, self.counted)


class _Diverged(Exception):
    """A rank's loss is NaN or infinity; raised between forward and backward."""


def not_finite(loss: float) -> str:
    return "not a number" if math.isnan(loss) else "infinite"


class Trainer:
    """Trains `program.network` as the program says.

    `seed` decides the first weights, if the network brought none with it, and what dropout drops.  `rate`, `momentum`
    and `decay`, or AdamW's `rate`, `betas`, `epsilon` and `decay` (PyTorch's rules), may be changed between steps; None
    is the optimiser's default.  A `schedule` says how the rate changes from iteration to iteration.  On the CPU `order`
    says in which order instructions are executed, and `poison` makes what must not be read unreadable; both change
    nothing in the result of a right program.

    With `guard` the host looks at the losses before anything is learnt from them, which lets a GPU run empty for a
    moment; without, it never waits inside an iteration, and a loss of NaN or infinity is found when it has been learnt
    from.

    With a `communicator` of several ranks this trainer is one of them: each has a program of the same data-parallel
    network, and gives `step` its own part of the batch.  All start from the same weights, and their gradients are
    averaged, so their weights stay equal; what dropout drops and the running statistics are each rank's own.  If one
    finds NaN or is told to stop, all raise the same.

    Device memory is taken once, here, and is at most the program's budget.  A program whose allocator is `driver-calls`
    takes it a second time on a GPU, allocation by allocation (`refimpl.backend.driver_calls`).
    """

    def __init__(
        self,
        program: Program,
        backend: str = "cpu",
        seed: int = 0,
        rate: float | None = None,
        momentum: float | None = None,
        decay: float | None = None,
        order: LegalOrder | None = None,
        poison: bool = False,
        guard: bool = True,
        communicator: Communicator | None = None,
        betas: tuple[float, float] | None = None,
        epsilon: float | None = None,
        schedule: Schedule | None = None,
        kernels: str | None = None,
    ) -> None:
        refuse_foreign(program)
        rung = rung_of(program, kernels)
        if not 0 <= seed < 2**64:
            raise RunError(f"the seed is {seed}; give a whole number of at least 0 and below 2**64")
        self.program, self.network, self.backend = program, program.network, backend
        self.communicator = communicator or Alone()
        if self.network.ranks != self.communicator.size:
            raise RunError(
                f"this program is that of one of {self.network.ranks} ranks, and there are {self.communicator.size}; "
                f"plan the network's data_parallel({self.communicator.size}), or start as many ranks"
            )
        beta1, beta2 = betas or (None, None)
        given = {"rate": rate, "momentum": momentum, "decay": decay, "beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        self.seed, self.schedule = seed, schedule or Schedule()
        self.rate = self.momentum = self.decay = self.beta1 = self.beta2 = self.epsilon = 0.0
        for name, value in numbers_of(self.network.learning, given).items():
            setattr(self, name, value)
        self.guard = guard
        self.iteration = 0  #: iterations done so far; the number of the next one
        self._whole = True  #: no iteration was cut off half way
        self._losses: list[float] = []  #: every rank's, of the running iteration
        self.interrupted: list[int] = []  #: the ranks that were told to stop
        self._closed = False
        self._last: Batch | None = None
        self.inference: Program | None = None  #: forward only; None where that does not fit
        try:
            self.inference = inference_program(program)
        except DoesNotFit as error:
            self._no_inference = f"training fits, but evaluating does not: {error}"
        except RunError as error:
            self._no_inference = str(error)
        self._inference_replay: Replay | None = None
        sizes = Sizes.of([one for one in (program, self.inference) if one is not None])
        self._place_statistics(sizes.pinned)
        self.device = self._open(replace(sizes, pinned=self._statistics_end), order, poison)
        try:
            self.device.communicator, self.device.rung = self.communicator, rung
            self.replay = self.device.replay(program, self._launched())
            self._gate = self._find_gate()
            for tensor, values in chain(constants(self.network), initial_state(self.network, seed)):
                self._write(tensor, values)
        except BaseException:
            self.close()
            raise

    def _open(self, sizes: Sizes, order: LegalOrder | None, poison: bool) -> Device:
        if self.backend == "cpu":
            from refimpl.backend.cpu import CpuDevice

            return CpuDevice(sizes, order, poison)
        if self.backend not in BACKENDS:
            raise RunError(f"there is no backend {self.backend!r}; give {', '.join(BACKENDS[:-1])} or {BACKENDS[-1]}")
        if order is not None or poison:
            raise RunError("order and poison are the CPU's; a GPU takes what order it likes")
        from kernels.targets import gpu

        if gpu.absent:
            raise DeviceFailed(gpu.absent)
        if self.backend == "emulated":
            from refimpl.backend.emulated import EmulatedDevice

            return EmulatedDevice(sizes)
        from refimpl.backend.cuda import CudaDevice

        return CudaDevice(sizes)

    # -- training ------------------------------------------------------------------------------------------------------

    def step(self, images: Any, labels: Any) -> float:
        """Learn from one batch: float32 images, whole-number labels or float32 targets; the mean loss, over all ranks.

        Of tokens, int32, a batch is (windows, tokens), and its labels are of the same shape.

        A network of several inputs takes a tuple of images; one of several losses takes a tuple of labels, or labels
        that all of them compare with.  Their losses are added up, each times its weight.

        If a loss is NaN or infinity, nothing is learnt (with `guard`), and `NotFinite` names the first layer that shows
        it.  Ctrl-C waits for the end of the iteration.
        """
        self._require_whole()
        batch = checked_batch(self.network, images, labels, whole=True)
        with held_interrupts():
            try:
                loss = self._iterate(batch)
            except BaseException as error:
                if not self._whole and not isinstance(error, RankFailed):
                    self.communicator.abort(" ".join(str(error).split()) or type(error).__name__)
                raise
        if self.interrupted:
            raise KeyboardInterrupt
        return loss

    def _iterate(self, batch: Batch) -> float:
        self.replay.set(self._launched())  # what a kernel refuses is refused here, before anything has run
        self._upload(self.program, batch)
        self._last = batch
        if self.guard:
            self._copy_statistics(out=True)
        self._whole = False
        try:
            self.replay.issue({self._gate: self._judge} if self.guard else {})
            self.replay.set(self._launched(self.iteration + 1))  # while the device works
        except _Diverged:
            self.replay.finish()
            raise self._diverged(batch) from None
        self.replay.finish()
        self._whole = True
        self.iteration += 1
        own = self._summed(lambda losses: self._shared(self.program, losses))
        if not self.guard:
            self._meet(own)
        self._losses[self.communicator.rank] = own
        loss = float(np.mean(self._losses))
        if not math.isfinite(loss):
            layer = self.network.layers[-1].name
            found = f"iteration {self.iteration - 1}: the loss is {not_finite(loss)}, and it has been learnt from"
            raise NotFinite(layer, f"{found}; restore a checkpoint, and train with guard=True to see which layer it is")
        return loss

    def repeat(self) -> float:
        """Learn from the last batch again, with no look at the losses; the seconds of the program alone."""
        self._require_whole()
        if self._last is None:
            raise RunError("there is no last batch yet; step(images, labels) gives one")
        self.replay.set(self._launched())
        self._upload(self.program, self._last)
        with held_interrupts():
            self._whole = False
            start = perf_counter()
            self.replay.issue({})
            self.replay.finish()
            seconds = perf_counter() - start
            self._whole = True
            self.iteration += 1
        return seconds

    def evaluate(self, images: Any, labels: Any, keep: bool = True) -> Evaluation:
        """Loss, accuracy and predictions for any number of images, by the running statistics and without dropout.

        Without `keep` the predictions are not kept: those of many images with a label a pixel take much memory.
        """
        self._require_whole()
        if self.inference is None:
            raise RunError(self._no_inference)
        given = checked_batch(self.network, images, labels, whole=False)
        if self._inference_replay is None:
            self._inference_replay = self.device.replay(self.inference, self._launched())
        outputs, batch = self.network.outputs, self.network.batch
        tested = [_Tested(one, labels, keep) for one, labels in zip(outputs, given[-len(outputs) :], strict=True)]
        fillings = [0] * len(self.network.inputs) + [one.ignore_index or 0 for one in self.network.outputs]
        for some, count in whole_batches(given, batch, fillings):
            self._upload(self.inference, some)
            try:
                self._inference_replay.issue({})
            finally:
                self._inference_replay.finish()
            for one, labels in zip(tested, some[-len(outputs) :], strict=True):
                losses, predicted = (
                    self._shared(self.inference, x) for x in (one.output.losses, one.output.predictions)
                )
                one.add(losses, predicted, labels, count)
        if len(tested) == 1:
            return tested[0].result()
        each = {one.output.layer.name: one.result() for one in tested}
        weighted = sum(one.output.layer.weight * each[one.output.layer.name].loss for one in tested)
        return replace(each[self.network.output.layer.name], each=each, weighted=weighted)

    def _settings(self, iteration: int | None = None) -> Settings:
        return {"seed": self.seed, "iteration": self.iteration if iteration is None else iteration, **self.numbers}

    @property
    def numbers(self) -> dict[str, float]:
        """What the optimiser takes: the rate before its schedule, and the others."""
        found = {name: getattr(self, name) for name in self.network.learning.rule.defaults}
        for name, value in found.items():
            if not abs(value) <= checkpoint.FLOAT:
                raise RunError(f"the {name} is {value}; give a finite number of float32")
        return found

    def _launched(self, iteration: int | None = None) -> Settings:
        """The settings as kernels get them: every rank drops out what it likes."""
        settings = self._settings(iteration)
        rate = self.schedule.rate(self.rate, int(settings["iteration"]))
        return {**settings, "seed": seed_of_rank(self.seed, self.communicator.rank), "rate": rate}

    # -- the batch, and the results ------------------------------------------------------------------------------------

    def _upload(self, program: Program, batch: Batch) -> None:
        for tensor, values in zip(self.network.given, batch, strict=True):
            np.copyto(self._shared(program, tensor, writes=True), values)

    def _shared(self, program: Program, tensor: Tensor, writes: bool = False) -> np.ndarray:
        """The pinned memory that a batch comes from, a result goes to, or a state is in."""
        start = program.pinned[tensor]
        self.device.host_access(start, tensor.nbytes, writes, f"{'writing' if writes else 'reading'} {tensor}")
        return self.device.pinned[start : start + tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)

    # -- NaN and infinity ----------------------------------------------------------------------------------------------

    def _find_gate(self) -> int:
        """Position of the launch after which the losses are known and no weight has changed yet."""
        losses = {output.losses for output in self.network.outputs}
        for position, instruction in enumerate(self.program.instructions):
            if isinstance(instruction, Launch):
                losses -= {*instruction.call.writes}
                if not losses:
                    return position
        raise RunError(f"the program of {self.network.name} computes no {' and no '.join(map(str, losses))}")

    def _judge(self) -> None:
        self._meet(self._summed(self._read))
        if not np.isfinite(self._losses).all():
            raise _Diverged

    def _summed(self, values: Callable[[Tensor], np.ndarray]) -> float:
        """The sum over the outputs of their mean losses, each times its weight."""
        return sum(
            output.layer.weight * float(np.mean(values(output.losses), dtype=np.float64))
            for output in self.network.outputs
        )

    def _meet(self, loss: float) -> None:
        """Tell the other ranks this one's mean loss, and whether it was told to stop, and hear theirs."""
        words = [word.split() for word in self.communicator.agree(f"{loss!r} {self.communicator.interrupted}")]
        self._losses = [float(loss) for loss, _ in words]
        self.interrupted = [rank for rank, (_, interrupted) in enumerate(words) if interrupted == "True"]

    def _place_statistics(self, start: int) -> None:
        """Room in pinned memory, from `start` on, for the running statistics as they were before an iteration."""
        self._statistics: list[tuple[int, int, int]] = []  #: device address, pinned address, bytes
        self._statistics_end = start
        for layer in self.network.layers:
            for name, tensor in layer.statistics.items():
                if name.startswith("running"):
                    self._statistics.append((self.program.resident[tensor], self._statistics_end, tensor.nbytes))
                    self._statistics_end += pinned_size(tensor.nbytes)

    def _copy_statistics(self, out: bool) -> None:
        """Keep them, or put them back."""
        for place in self._statistics:
            self.device.copy(out, *place)

    def _diverged(self, batch: Batch) -> NotFinite:
        """The error of the first rank whose loss is not finite, on every rank; all are as before the iteration."""
        mine, first = self._losses[self.communicator.rank], [math.isfinite(loss) for loss in self._losses].index(False)
        found = NotFinite("", "")
        if math.isfinite(mine):
            self._copy_statistics(out=False)
        else:
            found = self._find_culprit(batch, mine)
        self._whole = True
        layer, _, message = self.communicator.agree(f"{found.layer}\n{found}")[first].partition("\n")
        return NotFinite(layer, f"rank {first}: {message}" if self.communicator.size > 1 else message)

    def _find_culprit(self, batch: Batch, loss: float) -> NotFinite:
        """Forward again from the same state, looking at every number; afterwards all is as before the iteration."""
        self._copy_statistics(out=False)
        self._upload(self.program, batch)
        finding = diagnose(self.device, self.replay, self.program, self._gate)
        self._copy_statistics(out=False)
        layer = finding.step.layer.name if finding else self.network.layers[-1].name
        what = str(finding) if finding else f"only {layer} shows it, and only once"
        advice = "a lower rate may help, or a look at the data"
        if finding and finding.weights:
            advice = "an earlier update spoilt them: restore a checkpoint, and lower the rate"
        what = f"the loss is {not_finite(loss)}; {what}; nothing was learnt from this batch; {advice}"
        return NotFinite(layer, f"iteration {self.iteration}: {what}")

    # -- state ---------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """A copy of every weight, gradient, momentum and statistic, by name."""
        self._require_open()
        return {tensor.name: self._read(tensor) for tensor in state_tensors(self.network)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from such a copy; the iteration and the settings stay.  A wrong one changes nothing."""
        self._require_open()
        checkpoint.check("the state", self.network, state)
        self.replay.finish()  # an iteration that was cut off may still be running
        for tensor in state_tensors(self.network):
            self._write(tensor, np.ascontiguousarray(state[tensor.name]))
        self._whole = True

    def _read(self, tensor: Tensor) -> np.ndarray:
        """A copy of what is kept from iteration to iteration, on the device or on the host."""
        address = self.program.resident.get(tensor)
        if address is None:
            return np.array(self._shared(self.program, tensor))
        return self.device.read(address, tensor.shape, tensor.dtype)

    def _write(self, tensor: Tensor, values: np.ndarray) -> None:
        address = self.program.resident.get(tensor)
        if address is None:
            np.copyto(self._shared(self.program, tensor, writes=True), values)
        else:
            self.device.write(address, values)

    def save(self, path: str | Path) -> None:
        """Write a checkpoint."""
        self._require_whole()
        settings: dict[str, Any] = {**self._settings(), "schedule": str(self.schedule), "warmup": self.schedule.warmup}
        checkpoint.write(path, self.network, self.state(), settings, self.program.algorithms)

    def restore(self, path: str | Path) -> None:
        """Go on from a checkpoint, its settings and seed included.  A bad one changes nothing.

        It is bit for bit the same training if the program has the checkpoint's algorithms: plan it for
        `machine.with_algorithms(checkpoint.algorithms(path, network))`, as `refimpl run --resume` does.
        """
        state, settings = checkpoint.read(path, self.network)
        schedule = Schedule.parse(settings.pop("schedule"), settings.pop("warmup"))
        self.load_state(state)
        self.schedule = schedule
        for name, value in settings.items():
            setattr(self, name, value)

    def weights(self) -> dict[str, np.ndarray]:
        """The trained weights and running statistics of a network from a file or a module, by their names there."""
        self._require_whole()
        initial = self.network.initial
        if not initial:
            raise RunError(f"{self.network.name} came from no file and no module, so its weights have no names there")
        found: dict[str, np.ndarray] = {}
        for tensor in state_tensors(self.network):
            if first := initial.get(tensor.name):
                values = self._read(tensor)
                found[first.source] = first.as_source(values, found.get(first.source))
        return found

    def to_torch(self, module: Any) -> None:
        """Write the trained weights and running statistics into a `torch.nn.Module` of the network's architecture.

        A module in which one is missing or has another shape is not changed.  The module's counts of batches,
        `num_batches_tracked`, stay as they are.
        """
        from refimpl.importing.torch_module import fill_module

        fill_module(module, self.weights())

    def to_onnx(self, path: str | Path) -> None:
        """Write the ONNX file that the network came from, with the trained weights and running statistics."""
        from refimpl.importing.onnx_file import OnnxFile

        if self.network.file is None:
            raise RunError(f"{self.network.name} came from no ONNX file; only such a network can be written as one")
        whole = OnnxFile(self.network.file).with_weights(self.weights())
        try:
            with replacing(path) as file:
                file.write(whole)
        except OSError as error:
            raise RunError(f"{path} cannot be written: {error.strerror or error}") from None

    def _require_open(self) -> None:
        if self._closed:
            raise RunError("this trainer is closed; make another one")

    def _require_whole(self) -> None:
        self._require_open()
        if not self._whole:
            raise RunError("the last iteration was cut off half way; restore a checkpoint, or load a state")

    # -- what was measured ---------------------------------------------------------------------------------------------

    @property
    def recounted_peak(self) -> int:
        """The most bytes that the pool held, counted again from the instructions that are executed."""
        return recounted_peak(self.program)

    @property
    def host_seconds_per_instruction(self) -> float | None:
        """Host seconds to start an instruction, at best; None on the CPU, which does the work itself."""
        self._require_open()
        return self.replay.host_seconds_per_instruction

    @property
    def compressed(self) -> list[StoredMap]:
        """The maps that threads of the host copied to the store in the last iteration: what each took, and how long."""
        self._require_open()
        return self.replay.stored

    @property
    def driver_calls(self) -> CallTimes | None:
        """Calls that allocated and freed in the last iteration; None where the memory is a pool's, and on the CPU."""
        self._require_open()
        return self.replay.driver_calls

    def timeline(self) -> Timeline:
        """One iteration measured, with the last batch (zeros before the first); the state is put back afterwards."""
        self._require_whole()
        batch = self._last or [np.zeros(tensor.shape, tensor.dtype) for tensor in self.network.given]
        before = self.state()
        self.replay.set(self._launched())
        self._upload(self.program, batch)
        with held_interrupts():
            self._whole = False
            timeline = self.replay.timed()
            self.load_state(before)
        return timeline

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give the memory back; the trainer cannot be used afterwards."""
        if not self._closed:
            self._closed = True
            self.__dict__.pop("replay", None)  # the bound launches keep the arena alive
            self._inference_replay = None
            self.device.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
