"""The training loop: one for every recipe and every runtime.

It depends on the recipe and the number of steps taken only. So a run can resume from a checkpoint of any step and give
bit-identical results, however often and whenever it was stopped.
"""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch

from cruciform.data.loader import Batch, Loader, input_size
from cruciform.data.order import Order
from cruciform.data.transforms.foreign import ForeignTransform
from cruciform.data.transforms.transforms import Transform
from cruciform.errors import BadSampleError, DataError, RunError
from cruciform.training.engine.evaluation import EvaluationStopped, evaluate
from cruciform.training.engine.learner import Learner, Outcome
from cruciform.training.engine.low_rank_switch import (
    SWITCH_IMAGES,
    describe,
    find_switch,
    low_rank_state,
    summarize,
)
from cruciform.training.engine.nan_policy import apply_nan_policy
from cruciform.training.engine.open_teacher import open_teacher
from cruciform.training.engine.run_state import RunState
from cruciform.training.engine.sample_images import first_images
from cruciform.training.recipe.python_objects import PythonObjects, name_objects
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.recipe.schedule import Moment
from cruciform.training.run.identity import identify
from cruciform.training.run.lock import Lock
from cruciform.training.run.log_writers import LogObserver, SampleObserver, TensorBoardObserver
from cruciform.training.run.observer import Observer, ObserverGroup, Plan, StepRecord
from cruciform.training.run.progress import Progress
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import Runtime
from cruciform.training.runtime.signals import Signals
from cruciform.training.setup.precision import emulation_warning, settle_precision
from cruciform.training.setup.recipe_data import Datasets, open_datasets
from cruciform.training.setup.recipe_network import build_model


class Interrupted(Exception):  # noqa: N818  (not an error)
    """A run was interrupted by a signal and has saved its state.

    Attributes:
        signal: The number of the signal.
        step: Steps taken so far.
    """

    def __init__(self, signal: int, step: int) -> None:
        super().__init__(f"interrupted after step {step}; its state is saved")
        self.signal, self.step = signal, step

    def __reduce__(self) -> tuple[Any, ...]:  # it is sent between processes
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
    """Train a network, or resume a run.

    Args:
        recipe: What to compute.
        run: Where its state and log are stored.
        runtime: This process among those of the run.
        resume: Whether to resume, where the run has been started before.
        observers: Are called when something happens.
        inputs: Python objects that the recipe can't hold.

    Raises:
        Interrupted: A signal interrupted the run; its state is saved.
    """
    inputs = inputs or PythonObjects()
    recipe = name_objects(recipe, inputs)
    recipe, note = settle_precision(run.settled(recipe) if runtime.leads else recipe, runtime)
    with ExitStack() as stack:
        watching = list(observers)
        lock: Lock | None = None
        if runtime.leads:
            lock = stack.enter_context(run.locked())
            run.prepare(recipe, resume=resume)
            run.checkpoints().sweep()
            watching.insert(0, LogObserver(run.log, recipe.log.steps, lock.check))
            if recipe.log.tensorboard:
                watching.insert(1, TensorBoardObserver(run.directory / "tensorboard", recipe.log.steps))
        if recipe.log.samples:
            watching.append(SampleObserver(run.directory / "samples", runtime.rank))
        group = ObserverGroup(watching)
        signals = stack.enter_context(Signals())
        training: _Training | None = None
        try:
            training = _Training(recipe, run, runtime, group, signals, inputs, lock)
            if note:
                training.notice(note)
            training.run_()
        except BaseException as error:
            state = "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"
            group.on_end(state, training.progress.step if training else 0, error)
            raise
        group.on_end("done", training.progress.step, None)
        return training.state.learner


class _Training:
    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        runtime: Runtime,
        observers: ObserverGroup,
        signals: Signals,
        inputs: PythonObjects,
        lock: Lock | None,
    ) -> None:
        self.recipe, self.runtime, self.signals, self._observers = recipe, runtime, signals, observers
        train_set, test_set = open_datasets(recipe.data, runtime)
        extra: tuple[Transform, ...] = (ForeignTransform(inputs.transform),) if inputs.transform else ()
        self.loader = self._loader(train_set, recipe.batch_size, (*recipe.train_transforms, *extra), shuffled=True)
        self._test_loader = self._loader(test_set, recipe.evaluation.batch_size, recipe.eval_transforms, shuffled=False)
        size = input_size(test_set, recipe.eval_transforms)
        recipe.data.check_channels(size[0])
        identity = identify(recipe, run, runtime, sources=Datasets(train_set, test_set), input_size=size)
        self.per_epoch = self.loader.order.steps_per_epoch
        self.steps = recipe.epochs * self.per_epoch
        self._switch = find_switch(recipe, self.steps, runtime)
        notices: list[str] = []
        table, classes = run.network(recipe), len(train_set.classes)
        teacher = inputs.teacher
        if recipe.distill and teacher is None:
            teacher = open_teacher(recipe.distill, run, leads=runtime.leads)

        def make_learner(progress: Progress) -> Learner:
            model = inputs.model or build_model(
                table if progress.switched else table.at_start(),
                classes=classes,
                seed=recipe.seed,
                images=lambda count: first_images(recipe, train_set, count),
                notice=notices.append,
            )
            return Learner(recipe, model, runtime, classes=classes, teacher=teacher)

        self.state = RunState(make_learner, identity, run.checkpoints(recipe.checkpoint.keep), runtime, lock)
        resumed, found = self.state.restore_newest_(inputs.start)
        if self._switch and not self.progress.switched:
            later = build_model(table, classes=classes, seed=recipe.seed)
            notices.append(self._switch.check(self.state.learner.model, later, recipe))
        conditions = {"precision": recipe.precision, **identity.conditions}
        observers.on_start(
            Plan(
                run.directory,
                self.progress.step,
                self.steps,
                self.per_epoch,
                len(train_set),
                runtime.world,
                conditions,
            )
        )
        if classes == 1:
            notices.append(f"the data has only one class, {train_set.classes[0]}: there is nothing to learn")
        slow = emulation_warning(recipe.precision, runtime.device, resumed=resumed)
        for message in (*notices, *found, slow):
            if message:
                self.notice(message)
        self._saved_at = time.monotonic()
        self._figures: dict[str, Any] = {}

    @property
    def progress(self) -> Progress:
        return self.state.progress

    def notice(self, message: str) -> None:
        self._observers.on_notice(message, self.progress.step)

    def _loader(self, source: Any, batch: int, transforms: tuple[Transform, ...], *, shuffled: bool) -> Loader:
        order = Order(len(source), batch, self.recipe.seed if shuffled else None)
        runtime = self.runtime
        return Loader(
            source, order, transforms, self.recipe.seed, runtime.rank, runtime.world, self.recipe.data.threads
        )

    def run_(self) -> None:
        if self.progress.evaluated < self.progress.step // self.per_epoch:
            self._close_epoch()  # it was stopped between the last step of an epoch and its evaluation
        self._switch_if_due()
        with self.loader.batches(range(self.progress.step, self.steps)) as batches:
            started = time.monotonic()
            for batch in batches:
                self._step(batch)
                self.progress.seconds += time.monotonic() - started
                self._after_step()
                started = time.monotonic()

    def _step(self, batch: Batch) -> None:
        progress, recipe = self.progress, self.recipe
        self._skip_unreadable(batch.bad)
        moment = Moment(progress.step, self.steps, self.per_epoch, recipe.optimizer.lr)
        factor = recipe.schedule.lr_factor(moment, progress.plateau)
        result = self.state.learner.step(batch, progress.step, factor, steps=self.steps)
        progress.step += 1
        if result.outcome is Outcome.FAILED:
            self.notice(
                apply_nan_policy(
                    self.state,
                    batch,
                    result,
                    recipe=recipe,
                    runtime=self.runtime,
                    source=self.loader.source,
                    save=self._save,
                )
            )
        else:
            progress.loss += result.loss
            progress.samples += batch.counted
        if result.outcome is Outcome.OVERFLOWED:
            self.notice(f"step {progress.step} was not taken: {result.outcome.value}")
        numbers = batch.numbers[: batch.counted]
        mean = result.loss / max(1, len(numbers))
        lr = recipe.optimizer.lr * factor
        self._observers.on_step(StepRecord(progress.step, mean, lr, result.norm, batch.total, numbers))

    def _skip_unreadable(self, bad: Sequence[BadSampleError]) -> None:
        """Log samples that can't be read, on whichever rank, and raise where they are too many.

        Before the step is taken: after a repair of the samples, the same step must be taken again with them.
        """
        known, what = self.progress.bad_samples, ""
        new = [(error.number, str(error)) for error in bad if error.number not in known]
        if not any(self.runtime.most(len(new))):
            return
        for number, what in self.runtime.gather(new):
            if number not in known:
                known.append(number)
                self._observers.on_notice(f"skipped an unreadable sample: {what}", self.progress.step + 1)
        table, samples = self.recipe.data, len(self.loader.source)
        if len(known) > table.max_bad * samples:
            verify = "; verify the shards to find all that are damaged" if table.kind == "shards" else ""
            enough = math.ceil(10_000 * len(known) / samples) / 10_000
            raise DataError(
                f"{len(known):,} of {samples:,} samples can't be read, more than data.max_bad={table.max_bad:g} "
                f"allows. The last: {what}. All are in the log{verify}. To skip these, resume with "
                f"data.max_bad={enough:g}"
            )

    def _after_step(self) -> None:
        progress, table = self.progress, self.recipe.checkpoint
        due = bool(table.steps) and progress.step % (table.steps or 1) == 0
        late = time.monotonic() - self._saved_at > 60 * table.minutes
        # All ranks agree after each step: a signal may have reached one only, clocks differ, and one holds the lock.
        signal, due_now, lost_now = self.runtime.most(
            self.signals.received, int(due or late), int(self.state.is_lock_lost())
        )
        if lost_now:
            self.state.check_lock()
            raise RunError("the leading process has lost the lock of the run; see its message")
        if signal:
            self._stop(signal)
        if progress.step % self.per_epoch == 0:
            self._close_epoch()
        elif due_now:
            self._save()
        self._switch_if_due()

    def _switch_if_due(self) -> None:
        """Make the dense network low-rank, where that is due, and save it: the fit need not be repeated."""
        state, switch = self.state, self._switch
        if switch is None or not switch.is_due(self.progress):
            return
        started = time.monotonic()
        fitted = switch.fit(state.learner, first_images(self.recipe, self.loader.source, SWITCH_IMAGES))
        state.replace_(replace(self.progress, switched=True), *low_rank_state(state.learner, fitted.conversion.model))
        seconds = time.monotonic() - started
        self.progress.seconds += seconds
        figures = {**describe(fitted), "fit_seconds": round(seconds, 3)}
        self._observers.on_low_rank(self.progress.step, figures)
        self.notice(summarize(figures))
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
                evaluation = evaluate(
                    self.state.learner,
                    self._test_loader,
                    on_progress=self._observers.on_evaluation,
                    stop=lambda: bool(self.signals.received),
                )
            except EvaluationStopped:
                self._stop(max(self.runtime.most(self.signals.received)))
            figures |= evaluation.summary()
            for message in evaluation.notices:
                self.notice(message)
            if recipe.schedule.plateau:
                progress.plateau.update(evaluation.top1, recipe.schedule.plateau)
        progress.evaluated, progress.loss, progress.samples, progress.seconds = epoch, 0.0, 0, 0.0
        self._figures = figures
        self._observers.on_epoch(epoch, progress.step, figures)
        self._save()

    def _stop(self, signal: int) -> None:
        self._save()
        raise Interrupted(signal, self.progress.step)

    def _save(self) -> None:
        path = self.state.save()
        self._saved_at = time.monotonic()
        self._observers.on_checkpoint(self.progress.step, path, self._figures)
