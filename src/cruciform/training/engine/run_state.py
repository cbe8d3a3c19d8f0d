"""The state of a run in memory: learner, progress and identity; saved to checkpoints and restored from them."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cruciform.errors import CheckpointError, CruciformError, RunError
from cruciform.training.engine.learner import Learner
from cruciform.training.run.checkpoint import Checkpoint, Checkpoints, load
from cruciform.training.run.identity import Identity
from cruciform.training.run.lock import Lock
from cruciform.training.run.progress import Progress, read_progress
from cruciform.training.runtime.runtime import Runtime


class RunState:
    """The state of a run.

    Args:
        learners: Makes the learner of a point of the run, with initial weights.
        identity: What all checkpoints of the run must agree with.
        checkpoints: Where it is saved.
        runtime: The processes of the run.
        lock: Of the run's directory; None in processes that don't write.

    Attributes:
        progress: How far the run is.
        learner: The network in training.
    """

    def __init__(
        self,
        learners: Callable[[Progress], Learner],
        identity: Identity,
        checkpoints: Checkpoints,
        runtime: Runtime,
        lock: Lock | None,
    ) -> None:
        self._learners, self._identity, self._checkpoints = learners, identity, checkpoints
        self._runtime, self._lock = runtime, lock
        self.progress = Progress()
        self.learner = learners(self.progress)

    def restore_newest_(self, other: Path | None) -> tuple[bool, list[str]]:
        """Restore the newest checkpoint, where there is one.

        Args:
            other: A checkpoint besides the run's own, which is used where it is newer.

        Returns:
            Whether a checkpoint was restored, and notices for the user.
        """
        start, problems = self.find_newest(other)
        notices: list[str] = []
        if start:
            notices += self.restore_(start)
            self._identity = self._identity.keeping(start)
        self._check_agreement()
        return start is not None, [*notices, *(f"skipped a damaged checkpoint: {problem}" for problem in problems)]

    def find_newest(self, other: Path | None = None) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest checkpoint, of the run's own and the other one, and the problems of newer ones."""
        own, problems = self._checkpoints.load_newest()
        if other is None:
            return own, problems
        try:
            given = load(other)
        except CheckpointError as error:
            return own, [*problems, str(error)]
        return (own if own and own.step >= given.step else given), problems

    def restore_(self, checkpoint: Checkpoint) -> list[str]:
        """Restore a checkpoint, or raise where it does not belong to this run; return notices for the user."""
        notices = self._identity.check(checkpoint)
        progress = read_progress(checkpoint)
        if not self._runtime.leads:  # sums over ranks were saved; they are counted once
            progress.loss, progress.samples = 0.0, 0
        self.replace_(progress, checkpoint.tensors, checkpoint.part("learner"))
        return notices

    def replace_(self, progress: Progress, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Replace the progress, and the state of the learner; the learner too, where the network is another one.

        Args:
            progress: The new progress.
            tensors: As ``Learner.state`` returns them.
            values: The same.
        """
        if progress.switched != self.progress.switched:
            self.learner = self._learners(progress)
        self.progress = progress
        self.learner.load_state_(tensors, values)

    def save(self) -> Path | None:
        """Save a checkpoint; return its path in the process that wrote it.

        Only the leader writes. All processes learn whether it succeeded, and all raise where it did not.
        """
        progress = self.progress
        sums = self._runtime.sum(torch.tensor([progress.loss, progress.samples], dtype=torch.float64)).tolist()
        failure: CruciformError | None = None
        path = None
        if self._runtime.leads:
            tensors, values = self.learner.state()
            shared = {**asdict(progress), "loss": sums[0], "samples": int(sums[1])}
            parts = {"progress": shared, "learner": values, **self._identity.parts()}
            try:
                self.check_lock()
                path = self._checkpoints.save(progress.step, tensors, parts, never_finite=self.learner.never_finite)
            except CruciformError as error:
                failure = self._lost_lock() or error  # a run that was moved away can't be written either
        if any(self._runtime.most(int(failure is not None))):
            raise failure or CheckpointError("the leading process could not write the checkpoint; see its message")
        return path

    def is_lock_lost(self) -> bool:
        """Return whether this process has lost the lock of the run."""
        return self._lock is not None and self._lock.is_lost()

    def check_lock(self) -> None:
        """Raise where this process has lost the lock of the run."""
        if self._lock:
            self._lock.check()

    def _lost_lock(self) -> RunError | None:
        try:
            self.check_lock()
        except RunError as error:
            return error
        return None

    def _check_agreement(self) -> None:
        here = self.progress.step
        furthest, nearest = self._runtime.most(here, -here)
        if furthest != -nearest:
            raise RunError(
                f"processes find different checkpoints, of step {-nearest} and of step {furthest}; keep the run in a "
                "folder that all of them can read"
            )
