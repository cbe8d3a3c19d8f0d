"""Starts a run: on a backend, for the command line; in this process, for a caller's own code."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from cruciform.errors import RunError
from cruciform.training.backends import (
    ddp,  # noqa: F401
    local,  # noqa: F401
    ray,  # noqa: F401
)
from cruciform.training.backends.backend import BACKENDS, Job
from cruciform.training.engine.loop import train
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.observer import Observer
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess, pick_device


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
    inputs = PythonObjects(model=model, transform=transform)
    runtime = SingleProcess(pick_device(device))
    return train(made, Run(Path(run)), runtime, resume=resume, observers=observers, inputs=inputs).evaluated()
