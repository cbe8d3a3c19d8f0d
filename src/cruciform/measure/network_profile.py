"""What a network costs: parameters and MACs per layer, as data, text, HTML, CSV and JSON."""

import csv
import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from cruciform.text.escapes import printable_json
from cruciform.text.text_tables import html_table, text_table

PROFILE_COLUMNS = ("layer", "computes", "output", "parameters", "MACs", "MACs (paper)")
CSV_COLUMNS = ("layer", "kind", "plan", "output", "parameters", "MACs", "MACs (paper)")


@dataclass
class LayerCount:
    """Parameters and MACs of one layer.

    Attributes:
        name: Its dotted name; empty for operations of the network itself.
        kind: The class of the module.
        plan: How it is computed, where it has a plan.
        output: The shape of its last output without the batch.
        inputs: Batch and spatial size of the input of each convolution that it called.
        params: Parameters that are its own and of no layer before it.
        macs: Multiply-accumulates.
        macs_paper: The same by the paper's rule: each bias counted once.
    """

    name: str
    kind: str
    plan: str = ""
    output: tuple[int, ...] = ()
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    params: int = 0
    macs: int = 0
    macs_paper: int = 0


@dataclass(frozen=True)
class Profile:
    """Parameters and MACs of a network; ``print`` and notebooks show it as a table.

    Attributes:
        layers: Every layer with parameters or MACs, in the order of the network.
        input_size: Channels and spatial size of the input.
        params: All parameters.
        macs: All multiply-accumulates of one input.
        macs_paper: The same by the paper's rule.
        outputs: The shapes of the network's outputs, without the batch.
        uncounted: Operations that are not counted (pooling, activations, ...), and how often each was called.
        notes: What else a reader of the numbers must know.
    """

    layers: tuple[LayerCount, ...]
    input_size: tuple[int, ...]
    params: int
    macs: int
    macs_paper: int
    outputs: tuple[tuple[int, ...], ...] = ()
    uncounted: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells of a table with a row for each layer; ``PROFILE_COLUMNS`` names them."""
        rows = []
        for layer in self.layers:
            name, kind, plan, output, *counts = _cells(layer)
            rows.append((str(name), str(plan or kind), str(output), *(f"{count:,}" for count in counts)))
        return rows

    @property
    def summary(self) -> tuple[str, ...]:
        """The totals, and what is not in them, a sentence each."""
        calls = ", ".join(f"{name} {times}×" for name, times in self.uncounted.items())
        return (
            f"{self.params:,} parameters",
            f"{self.macs:,} MACs (multiply-adds; arithmetic and dispatcher agree)",
            f"{self.macs_paper:,} MACs (paper: each bias counted once)",
            *([f"not counted, by convention: {calls}"] if calls else []),
            *(f"note: {note}" for note in self.notes),
        )

    def to_json(self) -> str:
        """Return the whole profile as JSON."""
        return printable_json(asdict(self), indent=2)

    def to_csv(self) -> str:
        """Return a line for each layer and one for the total, comma-separated."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        writer.writerows(_cells(row) for row in self.layers)
        writer.writerow(("total", "", "", "", self.params, self.macs, self.macs_paper))
        return text.getvalue()

    def __str__(self) -> str:
        return "\n".join([text_table(PROFILE_COLUMNS, self.rows, left=3), *self.summary])

    def _repr_html_(self) -> str:
        caption = f"Parameters and MACs for an input of {'×'.join(map(str, self.input_size))}"
        return html_table(PROFILE_COLUMNS, self.rows, left=3, caption=caption, notes=self.summary)


def _cells(row: LayerCount) -> tuple[str | int, ...]:
    output = "×".join(map(str, row.output))
    return (row.name or "(network)", row.kind, row.plan, output, row.params, row.macs, row.macs_paper)
