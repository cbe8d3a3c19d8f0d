"""Opens a network by whatever a user can name: a name, a function, a model directory, a run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from cruciform.errors import OptionError
from cruciform.nn.init_rules import RULES
from cruciform.nn.initialize import AUTO, initialize_
from cruciform.sources.build_network import split_reference
from cruciform.store.check_reference import check_reference
from cruciform.store.directory import Base
from cruciform.store.interface import Interface
from cruciform.store.open_reference import Referenced, is_code, is_directory, load_weights_, open_reference
from cruciform.store.run_marker import is_run
from cruciform.store.trained_weights import holds_trained_weights

Origin = Literal["name", "code", "directory", "run", "module"]


@dataclass(frozen=True)
class OpenedNetwork:
    """A network, and what is known about it.

    Attributes:
        model: The network.
        input_size: Channels and spatial size of one input; None where unknown.
        preprocessing: What is done to an image before the network, as recipes write it; None where unknown.
        classes: The names of the outputs, in order; None where unknown.
        origin: ``name`` (zoo, timm, torchvision, MONAI), ``code`` (``package.module:function``), ``directory`` (a model
            directory), ``run``, or ``module`` (an ``nn.Module`` that the caller had).
        reference: What named it.
        trained: Whether its weights are trained; None where only the network itself can tell.
        base: How the unconverted network is built again, for model directories that are written from it.
    """

    model: nn.Module
    input_size: tuple[int, ...] | None
    preprocessing: dict[str, Any] | None
    classes: tuple[str, ...] | None
    origin: Origin
    reference: str
    trained: bool | None
    base: Base

    @property
    def needed_input_size(self) -> tuple[int, ...]:
        """The input size; raises where it is unknown."""
        if self.input_size is None:
            raise OptionError(
                f"the input size of {self.reference} is unknown; give channels and spatial size, as 3x224x224 for "
                "224-pixel color images or 1x64x64x64 for volumes"
            )
        return self.input_size

    @property
    def interface(self) -> Interface:
        """Its preprocessing and class names, as model directories and artifacts store them."""
        return Interface(self.preprocessing, self.classes)

    def __str__(self) -> str:
        size = "unknown" if self.input_size is None else "x".join(map(str, self.input_size))
        return f"{self.reference} ({self.origin}): {type(self.model).__name__}, input size {size}"


def open_network(
    reference: str | Path,
    *,
    weights: str | Path | None = None,
    input_size: tuple[int, ...] | None = None,
    init: str | None = None,
    on_meta: bool = False,
) -> OpenedNetwork:
    """Open a network by name, function, model directory or run.

    Args:
        reference: A zoo name, ``timm:NAME``, ``torchvision:NAME``, ``monai:NAME``, ``package.module:function``, a model
            directory, or the directory of a run.
        weights: A .safetensors file with trained weights of a network that is built by name or function.
        input_size: Channels and spatial size of one input, where it differs from the usual one or is unknown.
        init: Draw its weights again, by this rule.
        on_meta: Build a network by name or function on the meta device, where it allows that: it takes no memory, and
            can be counted but not run.
    """
    if not isinstance(reference, str | Path):
        raise OptionError(
            f"a network is opened by a name or a path, not by a {type(reference).__name__}; a module that you have "
            "needs no opening: give it to any function as it is, with input_size="
        )
    reference = check_reference(str(reference))
    if init and init != AUTO:
        RULES.get(init, besides=[AUTO])
    if weights is not None and init is not None:
        raise OptionError(f"weights={str(weights)!r} would be drawn again by init={init!r}; give one of the two")
    if is_run(Path(reference)) or is_directory(reference):
        if weights is not None:
            raise OptionError(f"{reference} has weights of its own; leave out weights={str(weights)!r}")
        return _open_saved(reference, input_size, init)
    found = _build(reference, init, on_meta=on_meta and weights is None)
    if weights is not None:
        load_weights_(found.model, weights)
    trained = True if weights is not None else None
    origin: Origin = "code" if is_code(reference) else "name"
    return _opened(found, origin, reference, input_size=input_size, trained=trained)


def resolve_network(
    network: "nn.Module | str | Path | OpenedNetwork",
    *,
    weights: str | Path | None = None,
    input_size: tuple[int, ...] | None = None,
) -> OpenedNetwork:
    """Open a network by reference, or wrap one that the caller has.

    Args:
        network: An ``nn.Module``, what ``open_network`` takes, or what it returns.
        weights: As for ``open_network``.
        input_size: As for ``open_network``.
    """
    if isinstance(network, OpenedNetwork | nn.Module):
        if weights is not None:
            raise OptionError(f"weights={str(weights)!r} are loaded into networks by reference; load them yourself")
        if isinstance(network, nn.Module):
            return OpenedNetwork(network, input_size, None, None, "module", type(network).__name__, None, Base())
        return network if input_size is None else replace(network, input_size=input_size)
    if not isinstance(network, str | Path):
        raise OptionError(f"{type(network).__name__} is not a network: give a torch module, or a reference to one")
    return open_network(network, weights=weights, input_size=input_size)


def _open_saved(reference: str, input_size: tuple[int, ...] | None, init: str | None) -> OpenedNetwork:
    path = Path(reference)
    if is_run(path):
        from cruciform.training.engine.trained_run import trained_network  # needs the extra that only runs need

        learned = trained_network(path)
        found = Referenced(learned.model, learned.input_size, learned.interface, learned.base)
        origin: Origin = "run"
        trained = True
    else:
        found = open_reference(reference)
        origin = "directory"
        trained = holds_trained_weights(path, found.model)
    if init:
        initialize_(found.model, init)
    return _opened(found, origin, reference, input_size=input_size, trained=False if init else trained)


def _opened(
    found: Referenced, origin: Origin, reference: str, *, input_size: tuple[int, ...] | None, trained: bool | None
) -> OpenedNetwork:
    size = found.input_size if input_size is None else input_size
    preprocessing, classes = found.interface
    return OpenedNetwork(found.model, size, preprocessing, classes, origin, reference, trained, found.base)


def _build(reference: str, init: str | None, *, on_meta: bool) -> Referenced:
    if on_meta:
        # Some networks read tensor values while they are built, which the meta device does not have.
        try:
            with torch.device("meta"):
                return _build(reference, init, on_meta=False)
        except (OptionError, RuntimeError, NotImplementedError):
            pass
    own_rule = init is not None and split_reference(reference)[0] == "zoo"  # the zoo draws its weights by rule itself
    found = open_reference(reference, {"init": init} if own_rule else None, allow_code=True)
    if init and not own_rule:
        initialize_(found.model, init)
    return found._replace(base=Base(found.base.reference))
