"""The conversion table: what every convolution of a network was replaced by, or why it was not."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from cruciform.measure.network_profile import LayerCount, Profile
from cruciform.plan import LayerPlan
from cruciform.text.text_tables import html_table, text_table
from cruciform.text.wording import listed, plural

Action = Literal["replaced", "kept", "skipped"]
CONVERSION_COLUMNS = ("layer", "convolution", "becomes", "parameters", "MACs", "% of MACs")


@dataclass(frozen=True)
class LayerChange:
    """What happened to one convolution.

    Attributes:
        names: Its dotted names; more than one where it is shared.
        convolution: The convolution in short: ``3×3, 64 → 128``.
        action: Replaced, kept because a rule says so, or skipped because it can't be converted or saves nothing.
        reason: Why it was kept or skipped; where it was replaced, a warning about that, mostly none.
        plan: What replaces it.
        params_before: Its parameters.
        params_after: The parameters of its replacement.
        macs_before: Its multiply-accumulates; None where no input size was given.
        macs_after: The multiply-accumulates of its replacement.
        residual: ‖W − fitted‖ / ‖W‖ where trained weights were fitted.
    """

    names: tuple[str, ...]
    convolution: str
    action: Action
    reason: str
    plan: LayerPlan | None
    params_before: int
    params_after: int
    macs_before: int | None
    macs_after: int | None
    residual: float | None = None


@dataclass(frozen=True)
class Verification:
    """Whether a network was run before and after its conversion, with outputs of the same shapes.

    Attributes:
        input_size: The channels and spatial size of the input; None where the network was not run.
        guessed: Whether that size is a guess, since none was given.
        modes: The modes that it was run in: evaluation, training, or none.
        unused: Replaced layers that were not used in any run.
        why: Why it was not run, or not in both modes.
    """

    input_size: tuple[int, ...] | None = None
    guessed: bool = False
    modes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        if not self.modes:
            return f"not verified: give input_size=(3, 224, 224), or channels and size of your inputs ({self.why})"
        size = f"{self.input_size}{', a guessed input size' if self.guessed else ''}"
        return f"verified at {size}, in {' and '.join(self.modes)} mode{f'; {self.why}' if self.why else ''}"


@dataclass(frozen=True)
class ConversionReport:
    """The conversion table of a network; ``print`` and notebooks show it.

    Attributes:
        layers: Every convolution, in the order of the network.
        params_before: Parameters of the whole network.
        counted: The profile of the network before its conversion; None where no input size was given.
        init: The rule that the new layers were initialized by, or ``fit``; None where nothing was converted yet.
        counted_after: The profile of the converted network, which agrees with the sum over the layers.
        verification: How the converted network was run; None where nothing was converted.
        idle: Patterns that change nothing, each with the reason.
    """

    layers: tuple[LayerChange, ...]
    params_before: int
    counted: Profile | None
    init: str | None = None
    counted_after: Profile | None = None
    verification: Verification | None = None
    idle: tuple[str, ...] = ()

    @property
    def verified(self) -> bool:
        """Whether the converted network was run, with outputs of the same shapes as before."""
        return self.verification is not None and bool(self.verification.modes)

    @property
    def input_size(self) -> tuple[int, ...] | None:
        """The input size that multiply-accumulates were counted for."""
        return self.counted.input_size if self.counted else None

    @property
    def macs_before(self) -> int | None:
        """Multiply-accumulates of the whole network."""
        return self.counted.macs if self.counted else None

    @property
    def params_after(self) -> int:
        """Parameters of the whole network after the conversion."""
        return self.params_before + sum(layer.params_after - layer.params_before for layer in self.layers)

    @property
    def macs_after(self) -> int | None:
        """Multiply-accumulates of the whole network after the conversion."""
        if self.macs_before is None:
            return None
        return self.macs_before + sum((row.macs_after or 0) - (row.macs_before or 0) for row in self.layers)

    @property
    def replaced(self) -> int:
        """How many convolutions were replaced."""
        return sum(layer.action == "replaced" for layer in self.layers)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Doubtful replacements, what was not verified, and patterns without effect."""
        against = [f"{row.names[0] or 'the network'}: {row.reason}" for row in self.layers if row.plan and row.reason]
        callers = [f"{row.name or 'the network itself'} ({row.kind})" for row in self._function_callers()]
        if callers:
            against.append(f"not converted, since only modules are: the functional convolutions in {listed(callers)}")
        if self.verification and not self.verified:
            against.append(str(self.verification))
        if self.verification and self.verification.unused:
            against.append(f"not verified, since the network does not use it: {listed(self.verification.unused)}")
        return (*against, *self.idle)

    def _function_callers(self) -> list[LayerCount]:
        modules = {name for row in self.layers for name in row.names}
        rows = self.counted.layers if self.counted else ()
        return [row for row in rows if row.inputs and row.name not in modules]

    def share(self, layer: LayerChange) -> float | None:
        """Return the fraction of the network's multiply-accumulates that a convolution had."""
        if self.macs_before is None or layer.macs_before is None:
            return None
        return layer.macs_before / self.macs_before if self.macs_before else 0.0

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells of the conversion table; ``CONVERSION_COLUMNS`` names them."""
        return [
            (
                ", ".join(row.names) or "(network)",
                row.convolution,
                f"{row.plan or f'{row.action}: {row.reason}'}{_residual(row)}",
                _arrow(row.params_before, row.params_after),
                "–" if row.macs_before is None or row.macs_after is None else _arrow(row.macs_before, row.macs_after),
                "–" if (share := self.share(row)) is None else f"{share:.1%}",
            )
            for row in self.layers
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """The summary, how the conversion was verified, and the warnings: a sentence each."""
        return (self.summary(), *([str(self.verification)] if self.verified else []), *self.warnings)

    def __str__(self) -> str:
        return "\n".join([text_table(CONVERSION_COLUMNS, self.rows, left=3), *self.notes])

    def _repr_html_(self) -> str:
        size = f", input {'×'.join(map(str, self.input_size))}" if self.input_size else ""
        return html_table(CONVERSION_COLUMNS, self.rows, left=3, caption=f"Conversion table{size}", notes=self.notes)

    def summary(self) -> str:
        """Return the totals in a sentence."""
        counts = Counter(layer.action for layer in self.layers)
        text = ", ".join(f"{counts[action]} {action}" for action in ("replaced", "kept", "skipped"))
        parts = [f"{plural(len(self.layers), 'convolution')}: {text}"]
        parts.append(_change("parameters", self.params_before, self.params_after))
        if self.macs_before is not None and self.macs_after is not None:
            parts.append(_change("MACs", self.macs_before, self.macs_after))
            out_of_reach = sum(self.share(row) or 0 for row in self.layers if row.action == "skipped")
            if out_of_reach > 0.5:
                parts.append(f"{out_of_reach:.0%} of the MACs are in convolutions that can't be converted")
        residuals = [row.residual for row in self.layers if row.residual is not None]
        if residuals:
            parts.append(f"relative residual of the fitted weights {min(residuals):.2g} to {max(residuals):.2g}")
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, ready for JSON."""
        return {
            "input_size": self.input_size,
            "init": self.init,
            "params_before": self.params_before,
            "params_after": self.params_after,
            "macs_before": self.macs_before,
            "macs_after": self.macs_after,
            "verified": self.verified,
            "verification": vars(self.verification) if self.verification else None,
            "warnings": list(self.warnings),
            "layers": [
                {**vars(row), "plan": row.plan.to_dict() if row.plan else None, "share": self.share(row)}
                for row in self.layers
            ],
        }


def _change(what: str, before: int, after: int) -> str:
    fraction = f" ({after / before:.1%})" if before else ""
    return f"{what} {before:,} → {after:,}{fraction}"


def _arrow(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} → {after:,}"


def _residual(row: LayerChange) -> str:
    return "" if row.residual is None else f", relative residual {row.residual:.2g}"
