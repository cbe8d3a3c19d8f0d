"""The distillation settings of a recipe; ``training/engine/teacher`` implements it."""

from pydantic import Field

from cruciform.training.tables.table import Table


class DistillTable(Table):
    """How a network learns from another one, its teacher.

    Attributes:
        teacher: A model directory or a run: the trained network. None: it is passed from Python.
        weight: Of the teacher; the labels have the rest. 1: labels are not used.
        temperature: Of the class probabilities; 1 or less suits teachers that were trained with label smoothing.
        python_object: The class and the checksum of the teacher that was passed from Python; None: none was.
    """

    teacher: str | None = None
    weight: float = Field(default=0.5, gt=0, le=1)
    temperature: float = Field(default=1.0, gt=0)
    python_object: str | None = None
