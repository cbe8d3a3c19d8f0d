"""What happens when a gradient is NaN or Inf: stop, skip the step, or roll back to the last checkpoint."""

from collections.abc import Callable
from dataclasses import replace

from cruciform.data.loader import Batch
from cruciform.data.samples.source import Source
from cruciform.errors import NonFiniteError
from cruciform.text.wording import plural
from cruciform.training.engine.evaluation import STABILITY_ADVICE, nonfinite_samples
from cruciform.training.engine.learner import StepResult
from cruciform.training.engine.run_state import RunState
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.runtime.runtime import Runtime

MOST_BAD_STEPS = 10
"""Steps with a NaN or Inf gradient that a run may skip or roll back from; then it stops, whatever the policy."""


def apply_nan_policy(
    state: RunState,
    batch: Batch,
    result: StepResult,
    *,
    recipe: Recipe,
    runtime: Runtime,
    source: Source,
    save: Callable[[], None],
) -> str:
    """Apply the policy of a recipe to a step that failed; return a notice, or raise where the run must stop.

    Args:
        state: Of the run; its progress counts the step already.
        batch: Of the step.
        result: Of the step.
        recipe: With the policy.
        runtime: The processes of the run.
        source: The training samples.
        save: Saves a checkpoint.
    """
    progress, policy = state.progress, recipe.nan_policy
    progress.bad_steps += 1
    what = f"the gradient of step {progress.step} is NaN or Inf (norm {result.norm}, this rank's loss {result.loss})"
    # Samples are finite, or they would have been skipped; divided by a tiny std they may overflow.
    broken = runtime.gather(nonfinite_samples(state.learner.inputs(batch), batch, source))
    if broken:
        raise NonFiniteError(
            f"{what}: normalizing with data.mean={recipe.data.mean} and data.std={recipe.data.std} gives NaN or Inf "
            f"for {plural(len(broken), 'sample')} of the batch, such as {broken[0]}; start again with other values"
        )
    if policy == "stop" or progress.bad_steps > MOST_BAD_STEPS:
        newest, _ = state.find_newest()
        advice = (
            "resume with nan_policy=skip to skip such steps"
            if policy == "stop"
            else f"nan_policy={policy} allows at most {MOST_BAD_STEPS} such steps"
        )
        last = f"the last checkpoint is of step {newest.step if newest else 0}"
        raise NonFiniteError(f"{what}; {last}; {advice}. {STABILITY_ADVICE}")
    if policy == "skip":
        return f"{what}; skipped"
    start, _ = state.find_newest()
    if start is None:
        raise NonFiniteError(f"{what}, and there is no checkpoint to roll back to yet")
    # Weights go back, the data does not: the samples in between are not tried again with weights that failed.
    state.restore_(start)
    kept = {name: getattr(progress, name) for name in ("step", "bad_steps", "bad_samples", "seconds")}
    state.progress = replace(state.progress, **kept)
    save()  # or a kill would repeat the decision
    return f"{what}; rolled back to the weights of step {start.step}"
