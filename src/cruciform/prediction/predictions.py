"""The result of a prediction: rows in memory, or the file that has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cruciform.text.text_tables import html_table, text_table
from cruciform.text.wording import plural

PREDICTION_COLUMNS = ("image", "class", "score", "error")
SHOWN = 10  # rows that are printed


@dataclass(frozen=True)
class Predictions:
    """The predictions for a number of images.

    Attributes:
        inputs: How many images there were.
        errors: How many got no prediction; their rows say why.
        computed: Parts of the file that were computed now; the others existed already.
        path: The .parquet file, where one was written.
        rows: For each image its number, name, best classes, their names and scores, and the error; None where they
            were written to a file.
    """

    inputs: int
    errors: int
    computed: int = 0
    path: Path | None = None
    rows: tuple[Mapping[str, Any], ...] | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain data, for JSON."""
        return {"inputs": self.inputs, "errors": self.errors, "computed": self.computed}

    @property
    def summary(self) -> str:
        """How many images were predicted, and where the rows are."""
        where = f" in {self.path}" if self.path else ""
        failed = f", {self.errors:,} without a prediction: see the column error" if self.errors else ""
        return f"{plural(self.inputs, 'image')}{where}{failed}"

    def __str__(self) -> str:
        rows = self._table()
        return "\n".join([*([text_table(PREDICTION_COLUMNS, rows, left=2)] if rows else []), self.summary])

    def _repr_html_(self) -> str:
        """Show the first rows as a table in notebooks."""
        return html_table(PREDICTION_COLUMNS, self._table(), left=2, notes=[self.summary])

    def _table(self) -> list[tuple[str, ...]]:
        made: list[tuple[str, ...]] = []
        for row in (self.rows or ())[:SHOWN]:
            best = row["class_names"] or row["classes"]
            score = f"{row['scores'][0]:.3f}" if row["scores"] else ""
            made.append((row["name"], str(best[0]) if best else "", score, row["error"] or ""))
        return made
