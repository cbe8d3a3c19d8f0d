"""Model cards: the paper's published numbers of a network, and how each is reproduced."""

import csv
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from cruciform.models.network import NetworkConfig
from cruciform.models.zoo import model_config


@dataclass(frozen=True)
class Published:
    """A row of the paper's tables, and the reading that reproduces its counts.

    Attributes:
        table: The table: ``vgg_ilsvrc``, ``places``, ``googlenet`` or ``nin_cifar10``.
        network: The paper's name of the network.
        macs: Published multiply-accumulates, by the paper's way of counting.
        params: Published parameters.
        top1: Published accuracy.
        top5: Published top-5 accuracy, where there is one.
        status: ``exact``, or ``explained`` where the network as printed has other counts.
        explanation: The reading in words.
        model: Our network for it.
        options: Options of our network that the row implies.
        training: Whether the row counts the network as in training.
        params_without: Parts whose parameters the row leaves out.
        macs_divided_by: What the row's multiply-accumulates were divided by.
        true_options: Options under which the row's network is truly counted, on our own geometry.
    """

    table: str
    network: str
    macs: int
    params: int
    top1: float
    top5: float | None
    status: str
    explanation: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    training: bool = False
    params_without: tuple[str, ...] = ()
    macs_divided_by: int = 1
    true_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelCard:
    """A network's card.

    Attributes:
        name: The network's name.
        config: What it is built from.
        published: The rows of the paper that are about it.
    """

    name: str
    config: NetworkConfig
    published: tuple[Published, ...]


@cache
def published_rows() -> tuple[Published, ...]:
    """Return all rows of the paper's four result tables."""
    here = files(__package__)
    readings = tomllib.loads((here / "readings.toml").read_text("utf-8"))["reading"]
    by_row = {(reading.pop("table"), reading.pop("network")): reading for reading in readings}
    rows = csv.DictReader((here / "published.csv").read_text("utf-8").splitlines())
    return tuple(_published(row, by_row[row["table"], row["network"]]) for row in rows)


def model_card(name: str) -> ModelCard:
    """Return the card of a network of the zoo."""
    config = model_config(name)
    return ModelCard(name, config, tuple(row for row in published_rows() if row.model == name))


def _published(row: Mapping[str, str], reading: Mapping[str, Any]) -> Published:
    return Published(
        table=row["table"],
        network=row["network"],
        macs=int(row["macs"]),
        params=int(row["params"]),
        top1=float(row["top1"]),
        top5=float(row["top5"]) if row["top5"] else None,
        status=row["status"],
        explanation=row["reading"],
        **{**reading, "params_without": tuple(reading.get("params_without", ()))},
    )
