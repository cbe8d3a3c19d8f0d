"""Networks, engines and images by what was typed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cruciform.cli.shared.parsing import read_size
from cruciform.cli.shared.terminal import console
from cruciform.errors import OptionError
from cruciform.store.check_reference import check_reference as check_network
from cruciform.store.recognize import describe_path, is_saved

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from cruciform.conversion.convert import Conversion
    from cruciform.deployment.targets.target import Target
    from cruciform.networks.open_network import OpenedNetwork
    from cruciform.store.interface import Interface

__all__ = ["check_network"]


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
    built = "" if opened.base.reference else f", {opened.reference.partition(':')[2]}()"
    return f"written to {output}; load it with cruciform.load({str(output)!r}{built})"


class Found(NamedTuple):
    """A network by name."""

    model: "nn.Module"
    input_size: tuple[int, ...]
    interface: "Interface"


def find_trained(name: str, size: str | None, *, init: str | None = None, on_meta: bool = False) -> Found:
    """Return the network that was typed, its input size and its interface."""
    opened = open_typed(name, size, init=init, on_meta=on_meta)
    return Found(opened.model, opened.needed_input_size, opened.interface)


def find_model(name: str, size: str | None, *, init: str | None = None) -> "tuple[nn.Module, tuple[int, ...]]":
    """Return the network that was typed, and its input size."""
    return find_trained(name, size, init=init)[:2]


def write_converted(conversion: "Conversion", output: Path, network: str) -> str:
    """Write a model directory of a network by name, and return a sentence about how to load it."""
    return save_converted(conversion, output, open_typed(network, None, on_meta=True))


def refuse_saved(name: str) -> None:
    """Raise where a network is named that is converted already."""
    if is_saved(Path(name)):
        raise OptionError(f"{describe_path(Path(name))} Begin with a dense network, by its name")


def find_images(name: str, *, count: int = 300) -> "NDArray[Any]":
    """Return the first training images of a run, after its eval transforms."""
    from cruciform.store.run_marker import is_run

    if not is_run(Path(name)):
        raise OptionError(
            f"this target learns its ranges from images, and {name} has none of its own; name a run of "
            "'cruciform train', for instance runs/nin_c3_lr_cifar10"
        )
    from cruciform.training.engine.sample_images import sample_images

    return sample_images(Path(name), count)


def find_target(name: str) -> "Target":
    """Return the engine of a name; warn where this processor only emulates its precision."""
    from cruciform.deployment.targets.target import TARGETS
    from cruciform.machine.processor import emulation

    target = TARGETS.get(name)
    slow = emulation(target.precision)
    if slow:
        console(error=True).print(f"{name}: {slow}", style="yellow")
    return target
