"""Networks, engines and images by what was typed."""

import importlib
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cruciform.cli.shared.parsing import read_size
from cruciform.cli.shared.terminal import console
from cruciform.errors import OptionError, UnknownNameError, first_line, reraise_as
from cruciform.sources.network_names import check_listed, is_listed, list_sources, suggest_source, unknown_network
from cruciform.store.recognize import ENDINGS, PICKLES, describe_path, is_saved

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from cruciform.conversion.convert import Conversion
    from cruciform.deployment.targets.target import Target
    from cruciform.store.interface import Interface

NETWORKS = (
    "A network is given by a name of 'cruciform models', timm:NAME, torchvision:NAME, monai:NAME, "
    "package.module:function, a run, or a directory that 'cruciform convert' wrote"
)
NO_DIRECTORY = (
    "There is no run or model directory of this name either: type a run, for instance runs/modern_cifar10 (see "
    "'cruciform runs'), or a directory that 'cruciform convert' wrote"
)


def check_network(name: str) -> str:
    """Returns what was typed for a network where it may be one; needs no torch, so a mistake is answered at once."""
    path = Path(name)
    if is_saved(path) or is_listed(name):
        return name
    source, colon, _ = name.partition(":")
    if path.exists() or "/" in name or name.startswith((".", "~")) or path.suffix.lower() in {*PICKLES, *ENDINGS}:
        raise OptionError(f"{describe_path(path)} {NETWORKS}")
    if not colon:
        own = "package.module:function for a network of your own"
        raise UnknownNameError(f"{unknown_network(name)}, or {own}. {NO_DIRECTORY}")
    if source in list_sources():
        check_listed(name)
    elif (hint := suggest_source(source)) and not _is_importable(source.partition(".")[0]):
        raise UnknownNameError(f"there is neither a source of networks nor a module {source!r}.{hint}")
    return name


def _is_importable(module: str) -> bool:
    here = Path.cwd()
    return any((here / name).exists() for name in (module, f"{module}.py")) or find_spec(module) is not None


def find_model(name: str, size: str | None, *, init: str | None = None) -> "tuple[nn.Module, tuple[int, ...]]":
    """Returns the network of a name, and the size of its input."""
    check_network(name)
    from cruciform.nn.init_rules import RULES
    from cruciform.nn.initialize import AUTO, initialize_
    from cruciform.sources.build_network import build_network, split_reference
    from cruciform.sources.network_library import SOURCES

    if init and init != AUTO:
        RULES.get(init, besides=[AUTO])  # or it would be told as an unknown network
    source, _ = split_reference(name)
    if source not in SOURCES:
        if size is None:
            raise OptionError(f"the input of {name} is not known; add --input, for instance --input 3x224x224")
        model = _import_model(name)
        return (initialize_(model, init) if init else model), read_size(size)
    model, usual = build_network(name, {"init": init} if init and source == "zoo" else {})
    if init and source != "zoo":
        initialize_(model, init)
    return model, read_size(size) if size else usual


class Found(NamedTuple):
    """A network by name.

    Attributes:
        model: The network.
        input_size: Of one image.
        interface: What is done to an image before, and the names of the classes, where these are known.
    """

    model: "nn.Module"
    input_size: tuple[int, ...]
    interface: "Interface"


def find_trained(name: str, size: str | None, *, init: str | None = None, on_meta: bool = False) -> Found:
    """Returns the network of a run or of a model directory with its weights, or one by name.

    Args:
        name: What was typed.
        size: Of an input, as it was typed.
        init: Initialize it anew by this rule.
        on_meta: Whether a network by name may be built without memory for its weights.
    """
    found = _find_saved(name, size)
    if found is None:
        from cruciform.store.interface import Interface

        return Found(*_find_built(name, size, init, on_meta=on_meta), Interface())
    if init:
        from cruciform.nn.initialize import initialize_

        initialize_(found.model, init)
    return found


def _find_built(name: str, size: str | None, init: str | None, *, on_meta: bool) -> "tuple[nn.Module, tuple[int, ...]]":
    import torch

    if on_meta:
        # Some networks look at numbers while they are built, which the meta device has not; they are built for real.
        with suppress(OptionError, RuntimeError, NotImplementedError), torch.device("meta"):
            return find_model(name, size, init=init)
    return find_model(name, size, init=init)


def _find_saved(name: str, size: str | None) -> Found | None:
    """Returns the network of a run or of a model directory, where there is one."""
    from cruciform.store.directory import CARD, input_size, interface_of, load

    path = Path(name)
    if (path / CARD).is_file():
        recorded = input_size(path)
        if size is None and recorded is None:
            raise OptionError(f"{name} does not say the size of its input; add --input, for instance --input 3x224x224")
        return Found(load(path), read_size(size) if size else recorded or (), interface_of(path))
    from cruciform.store.run_marker import is_run

    if is_run(path):
        from cruciform.training.evaluate_run import trained_network

        trained = trained_network(path)
        return Found(trained.model, read_size(size) if size else trained.input_size, trained.interface)
    return None


def write_converted(conversion: "Conversion", output: Path, network: str) -> str:
    """Writes a model directory, and returns how it is read."""
    from cruciform.sources.build_network import split_reference, usual_preprocessing
    from cruciform.sources.network_library import SOURCES
    from cruciform.store.directory import Base, save

    # A function of the user's is nothing that a directory may name: it would run code when it is read.
    known = split_reference(network)[0] in SOURCES
    preprocessing = usual_preprocessing(network, conversion.model) if known else None
    base = Base(network if known else None)
    save(conversion.model, output, conversion.report, base=base, preprocessing=preprocessing)
    given = "" if known else f", {network.partition(':')[2]}()"
    return f"written to {output}; read it with cruciform.load({str(output)!r}{given})"


def refuse_saved(name: str) -> None:
    """Raises where a network is named that is converted already: its like begins with a dense one."""
    if is_saved(Path(name)):
        raise OptionError(f"{describe_path(Path(name))} Begin with a dense network, by its name")


def find_images(name: str, *, count: int = 300) -> "NDArray[Any]":
    """Returns the first training images of a run, as its network is judged on images."""
    from cruciform.store.run_marker import is_run

    if not is_run(Path(name)):
        raise OptionError(
            f"this target learns its ranges from images, and {name} has none of its own; name a run of "
            "'cruciform train', for instance runs/nin_c3_lr_cifar10"
        )
    from cruciform.training.engine.sample_images import sample_images

    return sample_images(Path(name), count)


def _import_model(name: str) -> "nn.Module":
    from torch import nn

    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))  # as python -m does: the user's own files come first
    advice = "write package.module:function"
    with reraise_as(OptionError, lambda error: f"{name} can't be imported: {type(error).__name__}: {error}; {advice}"):
        make = getattr(importlib.import_module(module), attribute)
    with reraise_as(OptionError, lambda error: f"{name}() failed: {type(error).__name__}: {first_line(error)}"):
        made = make()
    if not isinstance(made, nn.Module):
        raise OptionError(f"{name}() returned {type(made).__name__}, not a torch module")
    return made


def find_target(name: str) -> "Target":
    """Returns the engine of a name; says where this processor can only emulate what it computes in."""
    from cruciform.deployment.targets.registered import TARGETS
    from cruciform.machine.processor import emulation

    target = TARGETS.get(name)
    slow = emulation(target.precision)
    if slow:
        console(error=True).print(f"{name}: {slow}", style="yellow")
    return target
