"""The loop: one, for every recipe and every runtime.

All that it depends on is the recipe and the number of steps taken. So a checkpoint at any step is enough to go on from,
to the bit, and it does not matter how often or when a run was stopped.
"""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from cruciform.data.loader import Batch, Loader, input_size
from cruciform.data.order import Order
from cruciform.data.transforms.foreign import ForeignTransform
from cruciform.data.transforms.transforms import Transform
from cruciform.errors import BadSampleError, CheckpointError, CruciformError, DataError, NonFiniteError, RunError
from cruciform.text.wording import plural
from cruciform.training.engine.evaluation import GENTLER, EvaluationStopped, evaluate, nonfinite_samples
from cruciform.training.engine.learner import Learner, StepResult, Taken
from cruciform.training.engine.sample_images import first_images
from cruciform.training.recipe.python_objects import PythonObjects, name_given
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.recipe.schedule import Moment
from cruciform.training.run.checkpoint import Checkpoint, load
from cruciform.training.run.identity import identify
from cruciform.training.run.lock import Lock
from cruciform.training.run.log_writers import LogObserver, SampleObserver, TensorBoardObserver
from cruciform.training.run.observer import Observer, Plan, StepRecord
from cruciform.training.run.progress import Progress, read_progress
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import Runtime
from cruciform.training.runtime.signals import Signals
from cruciform.training.setup.precision import emulated, settle_precision
from cruciform.training.setup.recipe_data import Datasets, open_datasets
from cruciform.training.setup.recipe_network import build_model

MOST_BAD_STEPS = 10
"""Steps without a finite gradient that are skipped, or rolled back from, in one run; then it stops whatever it says."""


class Interrupted(Exception):  # noqa: N818  (not an error)
    """A run was asked to end, has saved its state and did.

    Attributes:
        signal: The number of the signal.
        step: Steps that had been taken.
    """

    def __init__(self, signal: int, step: int) -> None:
        super().__init__(f"interrupted after step {step}; its state is saved")
        self.signal, self.step = signal, step

    def __reduce__(self) -> tuple[Any, ...]:  # it travels between processes
        return Interrupted, (self.signal, self.step)


def train(
    recipe: Recipe,
    run: Run,
    runtime: Runtime,
    *,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    inputs: PythonObjects | None = None,
) -> Learner:
    """Trains a network, or goes on training it.

    Args:
        recipe: What to compute.
        run: Where its state and log are kept.
        runtime: Where this process stands among others.
        resume: Whether to go on where the run has been started before.
        observers: Who else shall be told what happens.
        inputs: What no recipe can hold.

    Raises:
        Interrupted: A signal asked the run to end; its state is saved.
    """
    inputs = inputs or PythonObjects()
    recipe = name_given(recipe, inputs)
    recipe, note = settle_precision(run.settled(recipe) if runtime.leads else recipe, runtime)
    with ExitStack() as stack:
        watchers = list(observers)
        lock: Lock | None = None
        if runtime.leads:
            lock = stack.enter_context(run.locked())
            run.prepare(recipe, resume=resume)
            run.checkpoints().sweep()
            watchers.insert(0, LogObserver(run.log, recipe.log.steps, lock.check))
            if recipe.log.tensorboard:
                watchers.insert(1, TensorBoardObserver(run.directory / "tensorboard", recipe.log.steps))
        if recipe.log.samples:
            watchers.append(SampleObserver(run.directory / "samples", runtime.rank))
        signals = stack.enter_context(Signals())
        training: _Training | None = None
        try:
            training = _Training(recipe, run, runtime, watchers, signals, inputs, lock)
            if note:
                training.notice(note)
            training.run_()
        except BaseException as error:
            state = "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"
            for watcher in watchers:
                # On a full disk the end can't be written down, nor without the lock; neither must hide why it ended.
                with suppress(OSError, RunError):
                    watcher.ended(state, training.progress.step if training else 0, error)
            raise
        for watcher in watchers:
            watcher.ended("done", training.progress.step, None)
        return training.learner


class _Training:
    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        runtime: Runtime,
        watchers: list[Observer],
        signals: Signals,
        inputs: PythonObjects,
        lock: Lock | None,
    ) -> None:
        self.recipe, self.runtime, self.signals, self._watchers = recipe, runtime, signals, watchers
        self._lock = lock
        self._checkpoints = run.checkpoints(recipe.checkpoint.keep)
        train_set, test_set = open_datasets(recipe.data, runtime)
        own: tuple[Transform, ...] = (ForeignTransform(inputs.transform),) if inputs.transform else ()
        self.loader = self._loader(train_set, recipe.batch, (*recipe.augment, *own), shuffled=True)
        self._test_loader = self._loader(test_set, recipe.evaluation.batch, recipe.prepare, shuffled=False)
        size = input_size(test_set, recipe.prepare)
        recipe.data.check_channels(size[0])
        self._identity = identify(recipe, run, runtime, sources=Datasets(train_set, test_set), input_size=size)
        self.per_epoch = self.loader.order.steps_per_epoch
        self.steps = recipe.epochs * self.per_epoch
        notices: list[str] = []
        model = inputs.model or build_model(
            run.network(recipe),
            classes=len(train_set.classes),
            seed=recipe.seed,
            images=lambda count: first_images(recipe, train_set, count),
            notice=notices.append,
        )
        self.learner = Learner(recipe, model, runtime, classes=len(train_set.classes))
        self.progress = Progress()
        start, problems = self._find_start(inputs.start)
        if start:
            notices += self._become_(start)
            self._identity = self._identity.keeping(start)
        self._check_agreement()
        step, conditions = self.progress.step, {"precision": recipe.precision, **self._identity.conditions}
        self._tell(
            "started",
            Plan(run.directory, step, self.steps, self.per_epoch, len(train_set), runtime.world, conditions),
        )
        if len(train_set.classes) == 1:
            notices.append(f"the data has one class, {train_set.classes[0]}: there is nothing to tell apart")
        notices += [f"passed over a damaged checkpoint: {problem}" for problem in problems]
        slow = emulated(recipe.precision, runtime.device, resumed=start is not None)
        for what in (*notices, slow):
            if what:
                self.notice(what)
        self._saved_at = time.monotonic()
        self._figures: dict[str, Any] = {}

    def notice(self, what: str) -> None:
        self._tell("noticed", what, self.progress.step)

    def _loader(self, source: Any, batch: int, transforms: tuple[Transform, ...], *, shuffled: bool) -> Loader:
        order = Order(len(source), batch, self.recipe.seed if shuffled else None)
        runtime = self.runtime
        return Loader(
            source, order, transforms, self.recipe.seed, runtime.rank, runtime.world, self.recipe.data.threads
        )

    # The loop

    def run_(self) -> None:
        if self.progress.evaluated < self.progress.step // self.per_epoch:
            self._close_epoch()  # it was stopped between the last step of an epoch and its evaluation
        with self.loader.batches(range(self.progress.step, self.steps)) as batches:
            started = time.monotonic()
            for batch in batches:
                self._step(batch)
                self.progress.seconds += time.monotonic() - started
                self._after_step()
                started = time.monotonic()

    def _step(self, batch: Batch) -> None:
        progress, recipe = self.progress, self.recipe
        self._leave_out(batch.bad)
        moment = Moment(progress.step, self.steps, self.per_epoch, recipe.optimizer.rate)
        factor = recipe.schedule.rate_factor(moment, progress.plateau)
        result = self.learner.step(batch, progress.step, factor, steps=self.steps)
        progress.step += 1
        if result.taken is Taken.FAILED:
            self._recover(batch, result)
        else:
            progress.loss += result.loss
            progress.samples += batch.counted
        if result.taken is Taken.OVERFLOWED:
            self._tell("noticed", f"step {progress.step} was not taken: {result.taken.value}", progress.step)
        numbers = batch.numbers[: batch.counted]
        mean = result.loss / max(1, len(numbers))
        rate = recipe.optimizer.rate * factor
        self._tell("stepped", StepRecord(progress.step, mean, rate, result.norm, batch.total, numbers))

    def _leave_out(self, bad: Sequence[BadSampleError]) -> None:
        """Writes down which samples can't be read, whichever rank met them, and stops where they are too many.

        Before the step that they are left out of is taken, or it would be taken again with them once they are mended.
        """
        known, what = self.progress.bad_samples, ""
        new = [(error.number, str(error)) for error in bad if error.number not in known]
        if not any(self.runtime.most(len(new))):
            return
        for number, what in self.runtime.gather(new):
            if number not in known:
                known.append(number)
                self._tell("noticed", f"left out: {what}", self.progress.step + 1)
        table, samples = self.recipe.data, len(self.loader.source)
        if len(known) > table.max_bad * samples:
            find = "find all that is damaged with 'cruciform shard verify', or " if table.kind == "shards" else ""
            enough = math.ceil(10_000 * len(known) / samples) / 10_000
            raise DataError(
                f"{len(known):,} of {samples:,} samples can't be read, more than data.max_bad={table.max_bad:g}. "
                f"The last: {what}. All are in the log; {find}allow more: --resume --set data.max_bad={enough:g} is "
                "enough for these"
            )

    def _after_step(self) -> None:
        progress, table = self.progress, self.recipe.checkpoint
        due = bool(table.steps) and progress.step % (table.steps or 1) == 0
        late = time.monotonic() - self._saved_at > 60 * table.minutes
        lost = self._lock is not None and self._lock.is_lost()
        # All agree after each step: a signal may have reached one rank only, clocks differ, and one holds the lock.
        signal, due_now, lost_now = self.runtime.most(self.signals.received, int(due or late), int(lost))
        if lost_now:
            self._check_lock()
            raise RunError("the leading process no longer holds the lock of the run; see its message")
        if signal:
            self._stop(signal)
        if progress.step % self.per_epoch == 0:
            self._close_epoch()
        elif due_now:
            self._save()

    def _close_epoch(self) -> None:
        progress, recipe = self.progress, self.recipe
        epoch = progress.step // self.per_epoch
        sums = self.runtime.sum(torch.tensor([progress.loss, progress.samples], dtype=torch.float64))
        figures: dict[str, Any] = {
            "train_loss": float(sums[0] / max(1.0, float(sums[1]))),
            "seconds_training": round(progress.seconds, 3),
        }
        if epoch % recipe.evaluation.epochs == 0 or epoch == recipe.epochs:
            try:
                judged = evaluate(
                    self.learner,
                    self._test_loader,
                    advance=lambda done, of: self._tell("evaluating", done, of),
                    stop=lambda: bool(self.signals.received),
                )
            except EvaluationStopped:
                self._stop(max(self.runtime.most(self.signals.received)))
            figures |= judged.summary()
            for what in judged.notices:
                self._tell("noticed", what, progress.step)
            if recipe.schedule.plateau:
                progress.plateau.see(judged.top1, recipe.schedule.plateau)
        progress.evaluated, progress.loss, progress.samples, progress.seconds = epoch, 0.0, 0, 0.0
        self._figures = figures
        self._tell("finished_epoch", epoch, progress.step, figures)
        self._save()

    def _stop(self, signal: int) -> None:
        self._save()
        raise Interrupted(signal, self.progress.step)

    # When a gradient is not finite

    def _recover(self, batch: Batch, result: StepResult) -> None:
        progress, policy = self.progress, self.recipe.nonfinite
        progress.bad_steps += 1
        what = (
            f"the gradient of step {progress.step} is not finite (norm {result.norm}, this rank's loss {result.loss})"
        )
        # Samples are finite, or they would have been left out; divided by a tiny deviation they may be no more.
        named = self.runtime.gather(nonfinite_samples(self.learner.inputs(batch), batch, self.loader.source))
        if named:
            table = self.recipe.data
            raise NonFiniteError(
                f"{what}: data.mean={table.mean} and data.deviation={table.deviation} make NaN or Inf of "
                f"{plural(len(named), 'sample')} of the batch, such as {named[0]}; start anew with others"
            )
        if policy == "stop" or progress.bad_steps > MOST_BAD_STEPS:
            advice = (
                "go on with --resume --set nonfinite=skip"
                if policy == "stop"
                else f"more than {MOST_BAD_STEPS} such steps are too many for nonfinite={policy}"
            )
            last = f"the last checkpoint is of step {self._last_step()}"
            raise NonFiniteError(f"{what}; {last}; {advice}. {GENTLER}")
        if policy == "rollback":
            start, _ = self._find_start(None)
            if start is None:
                raise NonFiniteError(f"{what}, and there is no checkpoint yet to roll back to")
            # Weights go back, the data goes on: the samples between are not tried again with weights that failed.
            self._become_(start)
            kept = {name: getattr(progress, name) for name in ("step", "bad_steps", "bad_samples", "seconds")}
            self.progress = replace(self.progress, **kept)
            self._save()  # what was decided must last, or a kill would decide it anew
            what += f"; rolled back to the weights of step {start.step}"
        else:
            what += "; skipped"
        self._tell("noticed", what, self.progress.step)

    # State

    def _find_start(self, given: Path | None) -> tuple[Checkpoint | None, list[str]]:
        """Returns the newest state, of the run's own and the given one, and what is wrong with those that are newer."""
        own, problems = self._checkpoints.load_newest()
        if given is None:
            return own, problems
        try:
            other = load(given)
        except CheckpointError as error:
            return own, [*problems, str(error)]
        return (own if own and own.step >= other.step else other), problems

    def _check_agreement(self) -> None:
        here = self.progress.step
        furthest, nearest = self.runtime.most(here, -here)
        if furthest != -nearest:
            raise RunError(
                f"processes find different checkpoints, of step {-nearest} and of step {furthest}; keep the run in a "
                "folder that all of them see"
            )

    def _become_(self, checkpoint: Checkpoint) -> list[str]:
        """Takes on the state of a checkpoint, or raises where it is no state of this run; returns what to tell."""
        notices = self._identity.check(checkpoint)
        self.progress = read_progress(checkpoint)
        if not self.runtime.leads:  # sums over ranks were saved; they are counted once
            self.progress.loss, self.progress.samples = 0.0, 0
        self.learner.load_state_(checkpoint.tensors, checkpoint.part("learner"))
        return notices

    def _save(self) -> None:
        """Saves the state. Only the leader writes; all learn whether it could, and none goes on where it could not."""
        progress = self.progress
        sums = self.runtime.sum(torch.tensor([progress.loss, progress.samples], dtype=torch.float64)).tolist()
        failure: CruciformError | None = None
        path = None
        if self.runtime.leads:
            tensors, values = self.learner.state()
            shared = {**asdict(progress), "loss": sums[0], "samples": int(sums[1])}
            parts = {"progress": shared, "learner": values, **self._identity.parts()}
            try:
                self._check_lock()
                path = self._checkpoints.save(progress.step, tensors, parts, never_finite=self.learner.never_finite)
            except CruciformError as error:
                failure = self._lost_lock() or error  # a run that is moved away meanwhile can't be written, either
        if any(self.runtime.most(int(failure is not None))):
            raise failure or CheckpointError("the leading process could not write the checkpoint; see its message")
        self._saved_at = time.monotonic()
        self._tell("saved", progress.step, path, self._figures)

    def _check_lock(self) -> None:
        if self._lock:
            self._lock.check()

    def _lost_lock(self) -> RunError | None:
        try:
            self._check_lock()
        except RunError as error:
            return error
        return None

    def _last_step(self) -> int:
        start, _ = self._find_start(None)
        return start.step if start else 0

    def _tell(self, what: str, *news: Any) -> None:
        for watcher in self._watchers:
            getattr(watcher, what)(*news)
