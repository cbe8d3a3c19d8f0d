"""The progress of a run, apart from its weights, and how it is read from a checkpoint."""

from dataclasses import dataclass, field

from cruciform.errors import CheckpointError
from cruciform.training.recipe.schedule import PlateauState
from cruciform.training.run.checkpoint import Checkpoint


@dataclass
class Progress:
    """The progress of a run.

    Attributes:
        step: Steps taken: global batches consumed.
        evaluated: Epochs that have been closed.
        loss: Sum of the losses since the start of the epoch, over all ranks.
        samples: Number of samples in that sum.
        seconds: Training time since the start of the epoch, over all starts of the run.
        bad_steps: Steps whose gradient was NaN or Inf.
        bad_samples: Indices of unreadable samples.
        plateau: State of the schedule.
        switched: Whether the dense network that the run started with has become low-rank (``model.low_rank_after``).
    """

    step: int = 0
    evaluated: int = 0
    loss: float = 0.0
    samples: int = 0
    seconds: float = 0.0
    bad_steps: int = 0
    bad_samples: list[int] = field(default_factory=list)
    plateau: PlateauState = field(default_factory=PlateauState)
    switched: bool = False


def read_progress(checkpoint: Checkpoint) -> Progress:
    """Return the progress in a checkpoint; raise where it is invalid."""
    values = checkpoint.part("progress")
    try:
        made = Progress(**{**values, "plateau": PlateauState(**values["plateau"])})
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{checkpoint.path} has no valid progress: {error!r}") from error
    counts = (made.step, made.evaluated, made.samples, made.bad_steps, made.plateau.reductions, made.plateau.waited)
    whole = all(type(count) is int and count >= 0 for count in counts)
    real = all(type(number) in (int, float) for number in (made.loss, made.seconds, made.plateau.best))
    listed = isinstance(made.bad_samples, list) and all(type(number) is int for number in made.bad_samples)
    if not (whole and real and listed and type(made.switched) is bool) or made.step != checkpoint.step:
        raise CheckpointError(f"{checkpoint.path} has an impossible progress: {made}, after step {checkpoint.step}")
    return made
