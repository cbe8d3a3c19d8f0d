"""Open the network, and find the target, that was typed."""

from pathlib import Path
from typing import TYPE_CHECKING

from cruciform.cli.shared.parsing import read_size
from cruciform.cli.shared.terminal import console
from cruciform.errors import OptionError

if TYPE_CHECKING:
    from cruciform.conversion.convert import Conversion
    from cruciform.deployment.targets.target import Target
    from cruciform.networks.open_network import OpenedNetwork
    from cruciform.store.directory import Base


def open_typed(
    reference: str,
    size: str | None,
    *,
    weights: Path | None = None,
    init: str | None = None,
    on_meta: bool = False,
) -> "OpenedNetwork":
    """Open the network that was typed, with the input size that was typed."""
    from cruciform.networks.open_network import open_network

    given = read_size(size) if size else None
    opened = open_network(reference, weights=weights, input_size=given, init=init, on_meta=on_meta)
    if opened.input_size is None:
        raise OptionError(f"the input size of {reference} is unknown; add --input, for instance --input 3x224x224")
    return opened


def save_converted(conversion: "Conversion", output: Path, opened: "OpenedNetwork") -> str:
    """Write a model directory, and return a sentence about how to load it."""
    from cruciform.api.save import save

    save(conversion.model, output, conversion.report, base=opened)
    return say_written(output, opened.reference, opened.base)


def say_written(output: Path, reference: str, base: "Base") -> str:
    """Say where a model directory is, and how it is loaded; a network of the user's own he builds himself."""
    built = "" if base.reference else f", {reference.partition(':')[2]}()"
    return f"written to {output}; load it with cruciform.load({str(output)!r}{built})"


def find_target(name: str) -> "Target":
    """Return the engine of a name; warn where this processor only emulates its precision."""
    from cruciform.deployment.targets.target import TARGETS
    from cruciform.machine.processor import emulation

    target = TARGETS.get(name)
    slow = emulation(target.precision)
    if slow:
        console(error=True).print(f"{name}: {slow}", style="yellow")
    return target
