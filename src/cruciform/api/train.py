"""``cruciform.train``: train a network by a recipe."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from cruciform.training.recipe.python_objects import PythonObjects
    from cruciform.training.recipe.recipe import Recipe
    from cruciform.training.run.observer import Observer
    from cruciform.training.run.run import RunStatus
    from cruciform.training.runtime.processes import Processes


def list_recipes() -> list[str]:
    """Return the names of the built-in recipes."""
    from cruciform.training.recipe import cookbook

    return cookbook.list_recipes()


def load_recipe(reference: str | Path, changes: Sequence[str] = ()) -> "Recipe":
    """Load a recipe by name, from a TOML file or from a run.

    Args:
        reference: A name of ``list_recipes()``, a TOML file, or the directory of a run.
        changes: Overrides, each as ``key=value`` with a TOML value, as ``optimizer.lr=0.05``.
    """
    from cruciform.training.recipe import cookbook

    return cookbook.load_recipe(reference, changes)


def train(
    recipe: "str | Path | Recipe",
    run: str | Path,
    *,
    model: "nn.Module | None" = None,
    transform: Callable[..., Any] | None = None,
    resume: bool = True,
    device: str = "auto",
    observers: "Sequence[Observer]" = (),
) -> "nn.Module":
    """Train a network in this process and return it in evaluation mode.

    Args:
        recipe: The name of a recipe, a TOML file, the directory of a run, or a recipe.
        run: The directory for its checkpoints and log.
        model: Your own network, instead of the recipe's.
        transform: One more transform of training samples: of torchvision, timm, albumentations, or any function.
        resume: Whether to resume, where the run has been started before.
        device: ``cpu``, ``cuda``, or ``auto``: a GPU where there is one.
        observers: Are called on every event.
    """
    from cruciform.training.recipe.python_objects import PythonObjects

    objects = PythonObjects(model=model, transform=transform)
    return _train(_loaded(recipe), run, objects, resume=resume, device=device, observers=observers)


def distill(
    recipe: "str | Path | Recipe",
    run: str | Path,
    *,
    model: "nn.Module | None" = None,
    teacher: "nn.Module",
    resume: bool = True,
    device: str = "auto",
    observers: "Sequence[Observer]" = (),
) -> "nn.Module":
    """Train a network to give the outputs of another one, its teacher, besides the labels; otherwise as ``train``.

    A recipe can also name its teacher, a model directory or a run, as ``distill.teacher``: then ``train`` does.

    Args:
        recipe: As for ``train``; its ``distill`` has the teacher's weight and temperature.
        run: The directory for its checkpoints and log.
        model: Your own network, instead of the recipe's.
        teacher: The trained network. A run that is resumed needs the same one.
        resume: Whether to resume, where the run has been started before.
        device: ``cpu``, ``cuda``, or ``auto``: a GPU where there is one.
        observers: Are called on every event.
    """
    from cruciform.training.recipe.python_objects import PythonObjects

    objects = PythonObjects(model=model, teacher=teacher)
    return _train(_loaded(recipe), run, objects, resume=resume, device=device, observers=observers)


def train_distributed(
    recipe: "str | Path | Recipe",
    run: str | Path,
    *,
    processes: "Processes",
    resume: bool = True,
    observers: "Sequence[Observer]" = (),
) -> "RunStatus | None":
    """Train a network in several processes, here or on a Ray cluster, and return the state of the run.

    Args:
        recipe: As for ``train``.
        run: The directory for its checkpoints and log; all processes must be able to read it.
        processes: How many, and how they are started.
        resume: Whether to resume, where the run has been started before.
        observers: Are called on every event, in this process.

    Returns:
        The state of the run; None in processes that torchrun started and that don't lead.
    """
    from cruciform.training.backends.backend import Job
    from cruciform.training.run.observer import ObserverGroup
    from cruciform.training.run.run import Run, read_status
    from cruciform.training.start import start

    found = Run(Path(run))
    job = Job(_loaded(recipe), found, resume=resume, processes=processes, observer=ObserverGroup(observers))
    return read_status(found) if start(job) else None


def list_runs(folder: str | Path = "runs") -> "list[RunStatus]":
    """Return the state of every run in a folder and its subfolders.

    Args:
        folder: The folder; one that does not exist has no runs.
    """
    from cruciform.training.run.run import find_runs, read_status

    return [read_status(run) for run in find_runs(Path(folder))]


def _train(
    recipe: "Recipe",
    run: str | Path,
    objects: "PythonObjects",
    *,
    resume: bool,
    device: str,
    observers: "Sequence[Observer]",
) -> "nn.Module":
    from cruciform.training.engine.loop import train as run_loop
    from cruciform.training.run.run import Run
    from cruciform.training.runtime.runtime import SingleProcess, pick_device

    runtime = SingleProcess(pick_device(device))
    return run_loop(recipe, Run(Path(run)), runtime, resume=resume, observers=observers, inputs=objects).evaluated()


def _loaded(recipe: "str | Path | Recipe") -> "Recipe":
    from cruciform.training.recipe.cookbook import load_recipe
    from cruciform.training.recipe.recipe import Recipe

    return recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
