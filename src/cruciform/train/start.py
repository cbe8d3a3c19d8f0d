"""Starts a run: on a backend, for the command line; in this process, for a caller's own code."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from cruciform.errors import RunError
from cruciform.train.backends import ddp, local, ray  # noqa: F401
from cruciform.train.backends.backend import BACKENDS, Job
from cruciform.train.cookbook import load_recipe
from cruciform.train.given import Inputs
from cruciform.train.loop import train
from cruciform.train.observer import Observer
from cruciform.train.recipe import Recipe
from cruciform.train.run import Run
from cruciform.train.runtime import Alone, pick_device


def start(job: Job, backend: str = "local") -> bool:
    """Runs a job to its end; returns whether this process is the one to speak of it then."""
    if job.least is not None and backend != "ray":
        raise RunError(
            f"--least-workers {job.least} is for --backend ray: {backend} goes on with all processes or none"
        )
    return BACKENDS.get(backend)(job)


def train_network(
    recipe: str | Path | Recipe,
    run: str | Path,
    *,
    model: nn.Module | None = None,
    transform: Callable[..., Any] | None = None,
    resume: bool = True,
    device: str = "auto",
    observers: Sequence[Observer] = (),
) -> nn.Module:
    """Trains a network in this process and returns it, ready to be used.

    Args:
        recipe: The name of a recipe, a TOML file, or a recipe.
        run: The directory that its state and log are kept in.
        model: A network of your own, in place of the recipe's.
        transform: One more transform of training samples: torchvision's, timm's, albumentations', any function.
        resume: Whether to go on where the run has been started before.
        device: ``cpu``, ``cuda``, or ``auto``: a GPU where there is one.
        observers: Who shall be told what happens.
    """
    made = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    inputs = Inputs(model=model, transform=transform)
    runtime = Alone(pick_device(device))
    return train(made, Run(Path(run)), runtime, resume=resume, observers=observers, inputs=inputs).evaluated()
