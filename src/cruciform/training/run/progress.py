"""How far a run has got, apart from what it has learnt; and how that is read back from a checkpoint."""

from dataclasses import dataclass, field

from cruciform.errors import CheckpointError
from cruciform.training.recipe.schedule import PlateauState
from cruciform.training.run.checkpoint import Checkpoint


@dataclass
class Progress:
    """How far a run has got.

    Attributes:
        step: Steps taken: global batches consumed.
        evaluated: Epochs whose end was dealt with.
        loss: Sum of the losses since the epoch began, over all ranks.
        samples: How many samples that is over.
        seconds: Time spent on training since the epoch began, in all starts of the run.
        bad_steps: Steps whose gradient was not finite.
        bad_samples: Numbers of samples that can't be read.
        plateau: What the schedule remembers.
    """

    step: int = 0
    evaluated: int = 0
    loss: float = 0.0
    samples: int = 0
    seconds: float = 0.0
    bad_steps: int = 0
    bad_samples: list[int] = field(default_factory=list)
    plateau: PlateauState = field(default_factory=PlateauState)


def read_progress(checkpoint: Checkpoint) -> Progress:
    """Returns the progress that a checkpoint holds; one that no run can have made is refused."""
    values = checkpoint.part("progress")
    try:
        made = Progress(**{**values, "plateau": PlateauState(**values["plateau"])})
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{checkpoint.path} does not say how far its run had got: {error!r}") from error
    counts = (made.step, made.evaluated, made.samples, made.bad_steps, made.plateau.reductions, made.plateau.waited)
    whole = all(type(count) is int and count >= 0 for count in counts)
    real = all(type(number) in (int, float) for number in (made.loss, made.seconds, made.plateau.best))
    listed = isinstance(made.bad_samples, list) and all(type(number) is int for number in made.bad_samples)
    if not (whole and real and listed) or made.step != checkpoint.step:
        raise CheckpointError(f"{checkpoint.path} says of its run what can't be: {made}, after step {checkpoint.step}")
    return made
