"""The Lookahead settings of a recipe; ``training/engine/lookahead`` implements it."""

from typing import Annotated

from pydantic import Field

from cruciform.training.tables.table import Table


class LookaheadTable(Table):
    """How the slow weights of Lookahead follow the fast ones.

    Attributes:
        k: Steps between two updates of the slow weights.
        decay: Fraction of their own value that the slow weights keep at the end of training.
        power: Exponent of the growth of that fraction over training.
    """

    k: Annotated[int, Field(ge=1)] = 5
    decay: float = Field(default=0.95**5, ge=0, lt=1)
    power: float = Field(default=3.0, ge=0)
