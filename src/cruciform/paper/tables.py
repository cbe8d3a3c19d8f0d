"""Every row of the paper's result tables beside our own counts of the same network.

The checker knows no network: what a row implies (a geometry, a part left out, a division) is data of the row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import torch

from cruciform.measure.macs import profile
from cruciform.measure.network_profile import Profile
from cruciform.models.model_card import Published, published_rows
from cruciform.models.zoo import create_model


@dataclass(frozen=True)
class CheckedRow:
    """A published row and our counts.

    Attributes:
        published: The row.
        macs: Our multiply-accumulates under the row's reading; a fraction, since some rows divide.
        params: Our parameters under the row's reading.
        true_macs: Multiply-accumulates of the network as deployed, on our own geometry; the same way of counting.
        true_params: Parameters of that network as deployed.
    """

    published: Published
    macs: Fraction
    params: int
    true_macs: int
    true_params: int

    @property
    def equal(self) -> bool:
        """Whether both numbers equal the published ones to the last digit."""
        return self.macs == self.published.macs and self.params == self.published.params

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {
            **asdict(self),
            "macs": int(self.macs) if self.macs.denominator == 1 else float(self.macs),
            "equal": self.equal,
        }


def check_tables() -> Iterator[CheckedRow]:
    """Count the network of every published row, one after the other."""
    for row in published_rows():
        read = _count(row.model, row.options, training=row.training)
        true = _count(row.model, row.true_options, training=False)
        yield CheckedRow(
            row,
            macs=Fraction(read.macs_paper, row.macs_divided_by),
            params=read.params - _params_of(read, row.params_without),
            true_macs=true.macs_paper,
            true_params=true.params,
        )


def reading_in_short(row: Published) -> str:
    """Return the reading of a row as options of our network."""
    parts = [row.model, *(f"{name}={value}" for name, value in row.options.items())]
    parts += ["as in training"] if row.training else []
    parts += [f"without {' and '.join(row.params_without)}"] if row.params_without else []
    parts += [f"MACs / {row.macs_divided_by}"] if row.macs_divided_by > 1 else []
    return ", ".join(parts)


def _count(name: str, options: Mapping[str, Any], *, training: bool) -> Profile:
    with torch.device("meta"):  # counting needs shapes only
        network = create_model(name, **options)
    return profile(network, network.config.input_shape, training=training)


def _params_of(counted: Profile, parts: tuple[str, ...]) -> int:
    return sum(row.params for row in counted.layers for part in parts if f"{row.name}.".startswith(f"{part}."))
