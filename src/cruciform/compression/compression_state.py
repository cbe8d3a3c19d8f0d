"""What a compression has reached, on disk, so that one that was stopped is resumed where it was.

    rises.json        the predicted rise of every candidate, and the order of channels that it is for
    choice.json       the time that was allowed, and the dense network's in the same rounds
    fitted/           the network with the layers that are fitted, as a model directory, and how well each was

All of it belongs to one network, one set of images and one engine: a key of these is stored, and a state of another
key is left alone.
"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cruciform.compression.channel_order.reordered_network import Orders
from cruciform.compression.fitting.fit_network import FittedLayer
from cruciform.conversion.convert import Conversion
from cruciform.errors import StoreError
from cruciform.files import read_text, write_json
from cruciform.nn.inspect import checksum
from cruciform.store.directory import WEIGHTS, save
from cruciform.store.open_reference import load_weights_

FORMAT = 5
"""Changes with what is kept, so that a state of another version is left alone."""
EVERY = 20.0
"""Seconds between two writings of the fitted network."""


class CompressionState:
    """The files of a compression; without a folder nothing is kept.

    Args:
        folder: Where; None: nowhere.
        key: Of the network, the images and the engine.
        block: Layers that are fitted at once; what is known of candidates does not depend on it.
    """

    def __init__(self, folder: Path | None, key: str, block: int = 1) -> None:
        self._folder, self._key, self._block, self._written = folder, key, block, 0.0

    def read(self, name: str) -> Any:
        """Return what was kept under a name; None where nothing of this key was."""
        if self._folder is None:
            return None
        try:
            kept = json.loads(read_text(self._folder / f"{name}.json"))
            return kept["value"] if kept["key"] == self._key else None
        except (OSError, ValueError, KeyError, TypeError, StoreError):
            return None

    def write(self, name: str, value: Any) -> None:
        """Keep plain data under a name."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_json(self._folder / f"{name}.json", {"key": self._key, "value": value})

    def write_fitted(self, conversion: Conversion, layers: list[FittedLayer], orders: Orders, *, last: bool) -> None:
        """Keep the network with the layers that are fitted so far, now and then."""
        if self._folder is None or not (last or time.monotonic() - self._written > EVERY):
            return
        self._written = time.monotonic()
        save(conversion.model, self._folder / "fitted", conversion.report)
        self.write("layers", {**self._choice(conversion, orders), "layers": [asdict(layer) for layer in layers]})

    def read_fitted_(self, conversion: Conversion, orders: Orders) -> list[FittedLayer]:
        """Load the layers that were fitted into a network, and return how well each was; none of another choice."""
        kept = self.read("layers")
        choice = self._choice(conversion, orders)
        if self._folder is None or not kept or {key: kept[key] for key in choice} != choice:
            return []
        try:
            load_weights_(conversion.model, self._folder / "fitted" / WEIGHTS)
        except StoreError:
            return []
        return [FittedLayer(**layer) for layer in kept["layers"]]

    def _choice(self, conversion: Conversion, orders: Orders) -> dict[str, Any]:
        """Return what the weights of fitted layers are of no use without."""
        plans = {row.names[0]: str(row.plan) for row in conversion.report.layers if row.plan is not None}
        return {
            "block": self._block, "plans": plans, "orders": {name: list(order) for name, order in orders.items()}
        }  # fmt: skip


def key_of(model: nn.Module, images: Tensor, *settings: object) -> str:
    """Return a checksum of a network's weights, the calibration images and whatever else matters."""
    return checksum({**model.state_dict(), "images": images}, repr((FORMAT, settings)))
