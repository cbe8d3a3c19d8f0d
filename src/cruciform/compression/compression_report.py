"""What a compression costs and is worth beside the original, layer by layer, and why."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cruciform.budgets.budget_report import in_units
from cruciform.budgets.units.unit_seconds import SECONDS
from cruciform.compression.compress import Compressed
from cruciform.compression.compression_stage import CompressionStage
from cruciform.compression.quantize import Quantized
from cruciform.measure.record import hardware, versions
from cruciform.text.text_tables import html_table, text_table
from cruciform.text.wording import listed

LAYER_COLUMNS = ("layer", "convolution", "becomes", "why", "output error", "by weights", "time / dense")
COMPARISON_COLUMNS = ("", "original", "compressed", "share")


@dataclass(frozen=True)
class CompressionReport:
    """What was chosen, and what came of it.

    Attributes:
        compressed: The network, what was chosen for every layer, and how well each was fitted.
        stages: The original, and what was done to it.
        about: The network, engine, batch size, threads, input size, images and budgets.
        quantized: The result in int8; None where it was not asked for.
    """

    compressed: Compressed
    stages: tuple[CompressionStage, ...]
    about: Mapping[str, Any]
    quantized: Quantized | None = None

    @property
    def before(self) -> float | None:
        """What ``evaluate`` said of the original; None where it was not given."""
        return self.stages[0].evaluation

    @property
    def after(self) -> float | None:
        """The same of the result."""
        return [stage for stage in self.stages if stage.kept][-1].evaluation

    @property
    def title(self) -> str:
        """The network and where it runs."""
        return f"{self.about['network']} in {self.about['target']}, batch size {self.about['batch']}"

    @property
    def comparison(self) -> list[tuple[str, ...]]:
        """What the original and the compressed network cost and are worth, as text."""
        found, plan, int8 = self.compressed, self.compressed.plan, self.quantized
        rows = [("time, measured", found.dense_seconds, found.seconds, SECONDS)]
        if int8:
            rows.append(("time in int8, measured", int8.dense_seconds, int8.seconds, SECONDS))
        rows += [(name, plan.dense[name], plan.predicted[name], name) for name in plan.dense if name != SECONDS]
        made: list[tuple[str, ...]] = [
            (label, in_units(unit, dense), in_units(unit, now), f"{now / dense:.1%}")
            for label, dense, now, unit in rows
        ]
        for stage in (*self.stages[1:], *([int8.stage] if int8 else [])):
            if self.before is not None and stage.evaluation is not None:
                now, change = f"{stage.evaluation:.4g}", f"{stage.evaluation - self.before:+.4g}"
                made.append((f"evaluation, {stage.name}", f"{self.before:.4g}", now, change))
        return made

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """What was chosen for every layer, as text."""
        errors = {layer.name: layer for layer in self.compressed.fit.layers}
        rows: list[tuple[str, ...]] = []
        for one in self.compressed.plan.layers:
            fitted = errors.get(one.name)
            exact = "–" if fitted is None else f"{fitted.relative_error:.2%}"
            by_weights = "–" if fitted is None else f"{fitted.weight_fit_error:.2%}"
            share = f"{one.seconds / one.dense_seconds:.2f}"
            rows.append((one.name, one.convolution, one.scheme, one.reason, exact, by_weights, share))
        return rows

    @property
    def notes(self) -> list[str]:
        """What was left out, and what the numbers mean."""
        found = self.compressed
        wanted = found.plan.budgets.get(SECONDS)
        notes = [f"{name} keeps the fit to its weights: {reason}" for name, reason in found.fit.skipped.items()]
        if found.reordered:
            notes.append(
                f"channels are in another order, so that each gets the shape that suits it: {listed(found.reordered)}"
            )
        share, asked = found.seconds / found.dense_seconds, self.about["budgets"].get("time")
        if wanted is not None and asked is not None:
            notes.append(f"time: {asked} was asked for, {share:.1%} of the original's was measured")
        notes += [f"{stage.name} in {stage.seconds:.0f} s" for stage in self.stages[1:]]
        notes += [
            f"{stage.name} is not in the result: it made the evaluation worse"
            for stage in self.stages
            if not stage.kept
        ]
        if self.quantized:
            notes.append(f"{self.quantized.verdict}; in {self.quantized.stage.seconds:.0f} s")
        notes += found.plan.problems
        if self.before is None:
            notes.append("accuracy was not measured: no evaluation was given")
        notes.append(
            "output error: of each layer on the calibration inputs, relative to the variance of its outputs, errors "
            "counted by what they do to the network; by weights: that of a fit to the weights alone"
        )
        return notes

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the network as plain data, for JSON."""
        found = self.compressed
        return {
            **self.about,
            "before": self.before,
            "after": self.after,
            "stages": [asdict(stage) for stage in self.stages],
            "int8": self.quantized.to_dict() if self.quantized else None,
            "seconds": found.seconds,
            "dense_seconds": found.dense_seconds,
            "predicted_rise": found.rise,
            "plan": asdict(found.plan),
            "layers": [asdict(layer) for layer in found.fit.layers],
            "skipped": found.fit.skipped,
            "reordered": found.reordered,
            "versions": versions(),
            "hardware": hardware(),
        }

    def __str__(self) -> str:
        return "\n".join([
            self.title,
            text_table(COMPARISON_COLUMNS, self.comparison, left=1),
            text_table(LAYER_COLUMNS, self.rows, left=4),
            *self.notes,
        ])  # fmt: skip

    def _repr_html_(self) -> str:
        """Show it as tables in notebooks."""
        return html_table(COMPARISON_COLUMNS, self.comparison, left=1, caption=self.title, notes=[]) + html_table(
            LAYER_COLUMNS, self.rows, left=4, caption="layers", notes=self.notes
        )
