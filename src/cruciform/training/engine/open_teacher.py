"""The teacher of a distilled run: opened once, and kept with the run, so that it resumes if the teacher is moved."""

from pathlib import Path

from torch import nn

from cruciform.conversion.convert import plan_conversion
from cruciform.errors import RecipeError
from cruciform.schemes import DENSE
from cruciform.store.directory import copy_network, save
from cruciform.store.open_reference import is_directory, open_reference
from cruciform.store.run_marker import is_run
from cruciform.training.engine.trained_run import trained_network
from cruciform.training.run.run import Run
from cruciform.training.tables.distill_table import DistillTable


def open_teacher(table: DistillTable, run: Run, *, leads: bool) -> nn.Module:
    """Return the teacher that a recipe names.

    Args:
        table: What names it.
        run: Keeps a copy, from which it is read where there is one.
        leads: Whether this process makes the copy.
    """
    kept = run.directory / "teacher"
    if not is_directory(str(kept)):
        if table.teacher is None:
            raise RecipeError(
                "distill has no teacher: set distill.teacher to a model directory or a run, or call cruciform.distill"
            )
        path = Path(table.teacher)
        if not is_run(path) and not is_directory(table.teacher):
            raise RecipeError(
                f"distill.teacher={table.teacher} is neither a model directory nor a run, which a teacher must be: it "
                "is a trained network"
            )
        if not leads:  # the copy may not be there yet; the weights are the same
            return trained_network(path).model if is_run(path) else open_reference(table.teacher).model
        _keep(path, kept)
    return open_reference(str(kept)).model


def _keep(teacher: Path, to: Path) -> None:
    if not is_run(teacher):
        copy_network(teacher, to)
        return
    model, size, _, base = trained_network(teacher)
    save(model, to, plan_conversion(model, DENSE, input_size=size), base=base)
