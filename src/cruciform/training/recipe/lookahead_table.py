"""The table of Lookahead in a recipe; ``training/engine/lookahead`` computes it."""

from typing import Annotated

from pydantic import Field

from cruciform.training.recipe.table import Table


class LookaheadTable(Table):
    """How slow weights follow.

    Attributes:
        steps: k.
        memory: m, how much of themselves the slow weights keep at the end.
        power: p.
    """

    steps: Annotated[int, Field(ge=1)] = 5
    memory: float = Field(default=0.95**5, ge=0, lt=1)
    power: float = Field(default=3.0, ge=0)
