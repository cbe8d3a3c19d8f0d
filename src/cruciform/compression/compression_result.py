"""The result of a compression: an ordinary network, its report, and where to go on from."""

from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from cruciform.compression.compression_page import compression_page
from cruciform.compression.compression_report import CompressionReport
from cruciform.files import write_json, write_text
from cruciform.store.directory import Base, save
from cruciform.store.interface import Interface

PAGE, DATA = "compression.html", "compression.json"


@dataclass(frozen=True)
class Compression:
    """A compressed network and its report.

    Attributes:
        report: Costs and accuracy before and after, and every layer with the reason for its choice; prints well.
        base: How the original is built again.
        interface: Its preprocessing and class names, where they are known.
    """

    report: CompressionReport
    base: Base = field(repr=False)
    interface: Interface = field(repr=False)

    @property
    def model(self) -> nn.Module:
        """The compressed network: an ordinary torch module."""
        return self.report.compressed.conversion.model

    def save(self, directory: str | Path) -> Path:
        """Write a model directory with ``compression.html`` and ``compression.json``."""
        directory = Path(directory)
        preprocessing, classes = self.interface
        table = self.report.compressed.conversion.report
        save(self.model, directory, table, base=self.base, preprocessing=preprocessing, classes=classes)
        write_json(directory / DATA, self.report.to_dict())
        write_text(directory / PAGE, compression_page(self.report))
        return directory

    def __str__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        """Show it as tables in notebooks."""
        return self.report._repr_html_()
