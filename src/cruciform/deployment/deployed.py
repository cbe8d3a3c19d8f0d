"""A deployed network: where it is stored, how fast it is, and how to run it."""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cruciform.text.text_tables import html_table
from cruciform.text.wording import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TemporaryFolder:
    """A new folder, removed when this object is, or when the program ends.

    Attributes:
        path: The folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="cruciform-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class Artifact:
    """A deployed network. Call it on a float32 batch ``(batch, channels, …)`` to run it in its engine.

    Attributes:
        path: Its directory. Where ``deploy`` was given none, a temporary one, removed with this object.
        report: Everything that was measured and checked, as ``deploy.json`` has it.
        engine: The function that runs it.
        folder: The temporary directory, if it is in one.
    """

    path: Path
    report: Mapping[str, Any] = field(repr=False)
    engine: "Callable[[NDArray[Any]], NDArray[Any]]" = field(repr=False)
    folder: TemporaryFolder | None = field(default=None, repr=False)

    def __call__(self, images: "NDArray[Any]") -> "NDArray[Any]":
        """Run the network on a float32 batch; return its output."""
        return self.engine(images)

    @property
    def target(self) -> str:
        """The name of the engine."""
        return str(self.report.get("target"))

    @property
    def input_size(self) -> tuple[int, ...]:
        """Channels and spatial size of one image."""
        return tuple(self.report.get("input_size") or ())

    @property
    def batch(self) -> int:
        """The batch size that it was optimized and timed for; others run as well."""
        return int(self.report["batch"])

    @property
    def milliseconds(self) -> float:
        """The shortest measured time of a batch."""
        return float(self.report["milliseconds"])

    @property
    def dense_milliseconds(self) -> float | None:
        """The same of the equal dense network, timed in the same rounds; None where there is no equal one."""
        return self.report.get("dense_milliseconds")

    @property
    def verdict(self) -> str:
        """Whether the low-rank form is faster than the dense network here."""
        return str(self.report.get("verdict", ""))

    @property
    def error(self) -> float:
        """The largest difference from PyTorch, as a fraction of the outputs' range over inputs."""
        return float(self.report["largest_error"])

    @property
    def parity(self) -> str:
        """How closely it was seen to compute what PyTorch does, in one sentence."""
        report = self.report
        sizes = ", ".join(map(str, report["verified_batches"]))
        refused = ", ".join(report["refused_batches"])
        control = (
            f" Control: random weights in {report['control_weights']}, which matter least, change the outputs by "
            f"{report['control_error']:.1e}."
            if report["control_error"] is not None
            else ""
        )
        return (
            f"differs from PyTorch by at most {report['largest_error']:.1e} of the outputs' range over inputs at batch "
            f"sizes {sizes}{f'; does not run at {refused}' if refused else ''}; verified {report['verified']}.{control}"
        )

    @property
    def timing(self) -> str:
        """Its time beside the dense network's, in one sentence."""
        dense = self.dense_milliseconds
        beside = "" if dense is None else f"; the equal dense network {dense:.2f} ms"
        return f"{self.milliseconds:.2f} ms{beside}: {self.verdict}"

    def __str__(self) -> str:
        threads = plural(self.report["threads"], "thread")
        lines = [f"{self.report.get('network', '')} in {self.target}, batch size {self.batch}, {threads}"]
        lines += [self.timing, self.parity]
        if self.report.get("emulated"):
            lines.append(str(self.report["emulated"]))
        return "\n".join([*lines, f"stored in {self.path}"])

    def _repr_html_(self) -> str:
        """Show it as a table in notebooks."""
        title, *notes = str(self).splitlines()
        columns = ("layer", "plan", "form", "ms, low-rank", "ms, dense")
        forms = self.report.get("forms", {})
        rows = []
        for layer in self.report.get("layers", ()):
            low_rank = [seconds for form, seconds in layer["seconds"].items() if form != "dense"]
            times = min(low_rank, default=None), layer["seconds"].get("dense")
            rows.append((layer["name"], layer["plan"], str(forms.get(layer["name"], "")), *map(_milliseconds, times)))
        return html_table(columns, rows, left=3, caption=title, notes=notes)


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e3 * seconds:.3f}"
