"""Write and read model directories.

::

    DIR/model.json          where the base network comes from, the plan of every replaced layer, checksums; and, where
                            known, how images are preprocessed and the names of the classes
    DIR/model.safetensors   all weights and buffers
    DIR/report.json         the conversion table; for people, not read again

Reading rebuilds the base network by its source's own list of names (or takes the one that the caller gives), puts the
layers of the plans in their places and loads the weights. Nothing in a directory can name code to run.
"""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, load_model, save_model
from torch import nn

from cruciform.conversion.conversion_report import ConversionReport
from cruciform.conversion.convert import build_layer, converted_plans, finish_layer
from cruciform.conversion.eligible import class_name, why_skip
from cruciform.conversion.surgery import find_modules, replace_modules_
from cruciform.errors import CruciformError, DamagedError, StoreError, first_line
from cruciform.files import check_regular, new_directory, read_bytes, read_json, refuse_own_place, sha256, write_json
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import TORCH_CONVOLUTIONS, spec_of
from cruciform.plan import LayerPlan
from cruciform.sources.bounds import Bounds, bounded
from cruciform.sources.build_network import build_network
from cruciform.spec import check_keys
from cruciform.store import recognize
from cruciform.store.interface import Interface, read_interface

CARD_FORMAT = 1
MOST_INPUT = 1 << 28  # values of one input: volumes of 640 a side
CARD, WEIGHTS, REPORT = recognize.CARD, recognize.WEIGHTS, "report.json"
OURS = {CARD, WEIGHTS, REPORT, "README.md", "budget.md", "budget.json", "front.png", "layers.png", "compression.html",
        "compression.json"}  # fmt: skip
"""What we write into model directories."""
PRECISIONS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
KEYS = {"format", "base", "input_size", "layers", "weights", "versions"}
KNOWN_SINCE = {"preprocessing", "classes"}
"""Keys that directories of older versions have not."""


@dataclass(frozen=True)
class Base:
    """Where a dense network comes from.

    Attributes:
        reference: Source and name, ``timm:resnet18``; None for one that only the caller's code can build.
        options: What its source was given besides.
    """

    reference: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def save(
    model: nn.Module,
    directory: Path | str,
    report: ConversionReport,
    *,
    base: Base | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    classes: Sequence[str] | None = None,
) -> Path:
    """Write a converted network; the directory gets its name only when it is complete.

    Args:
        model: The converted network.
        directory: Where to; replaced as a whole where it is a model directory already.
        report: Of its conversion; of one that was loaded, ``plan_conversion`` makes a new one.
        base: Where the unconverted network comes from; left out: ``load`` will need it from its caller.
        preprocessing: What is done to an image before, as ``Interface`` has it; left out: not known, and ``predict``
            does not take the directory.
        classes: The names of the outputs, in their order; left out: not known.
    """
    directory = Path(directory)
    refuse_other_directory(directory)
    _refuse_collapsed(model)
    base = base or Base()
    interface = read_interface({"preprocessing": preprocessing, "classes": classes}, str(directory))
    bounds = Bounds.of(tensor.shape for tensor in model.state_dict().values())
    bounds.check_options(base.options, f"the base of {directory}")  # or load would refuse it
    with new_directory(directory) as part:
        save_model(model, str(part / WEIGHTS))
        card = {
            "format": CARD_FORMAT,
            "base": {"reference": base.reference, "options": dict(base.options)},
            "input_size": list(report.input_size) if report.input_size else None,
            "layers": {name: plan.to_dict() for name, plan in converted_plans(model).items()},
            "weights": {"sha256": sha256(part / WEIGHTS)},
            "versions": {"torch": torch.__version__},
            **{key: value for key, value in interface._asdict().items() if value is not None},
        }
        write_json(part / CARD, card)
        write_json(part / REPORT, report.to_dict())
    return directory


def _refuse_collapsed(model: nn.Module) -> None:
    """Raise if a layer was collapsed whose dense convolution pads or standardizes its weights."""
    for name, plan in converted_plans(model).items():
        layers = [layer for layer in model.get_submodule(name).modules() if isinstance(layer, CompositeConv)]
        if plan not in [layer.plan for layer in layers]:
            raise StoreError(
                f"{name} was collapsed, but the dense network has a convolution there that pads or standardizes "
                "its weights; save the network before collapsing it, and collapse what load returns"
            )


def load(directory: Path | str, model: nn.Module | None = None) -> nn.Module:
    """Rebuild a converted network from its directory.

    Args:
        directory: What ``save`` wrote.
        model: The unconverted network, where only your code can build it. It is changed in place.
    """
    directory = Path(directory)
    card = _read_card(directory)
    if model is None:
        model, plans = _build_base(directory, card, {})
    else:
        plans = _plans(card)
        if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
            raise StoreError(
                "the given network is on the meta device and has no values; build it outside of torch.device('meta')"
            )
    model = _put_plans_(model, plans)
    _take_precision_(model, directory)
    try:
        load_model(model, str(directory / WEIGHTS))
    except (RuntimeError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the weights in {directory} do not fit the network: {first_line(error)}") from error
    return model


def _take_precision_(model: nn.Module, directory: Path) -> None:
    """Cast tensors to the dtype that they were saved in; a network is built in float32."""
    own = model.state_dict(keep_vars=True)  # tied tensors by all their names: one of them is saved
    with _weights(directory) as file:
        for name in own.keys() & set(file.keys()):
            precision = PRECISIONS.get(file.get_slice(name).get_dtype())
            if precision is not None and own[name].is_floating_point():
                own[name].data = own[name].data.to(precision)


class Adapted(NamedTuple):
    """A network that was loaded with other options than it was saved with.

    Attributes:
        model: The network.
        reinitialized: Names of tensors whose shape changed; they have their initial values.
    """

    model: nn.Module
    reinitialized: tuple[str, ...]


def load_with(directory: Path | str, options: Mapping[str, Any]) -> Adapted:
    """Rebuild a converted network with other options of its base, as for another number of classes.

    Args:
        directory: What ``save`` wrote.
        options: Besides those that it was saved with, or in their place.
    """
    directory = Path(directory)
    card = _read_card(directory)
    base, plans = _build_base(directory, card, options)
    model = _put_plans_(base, plans)
    saved, own = load_file(directory / WEIGHTS), model.state_dict(keep_vars=True)
    reinitialized = tuple(name for name, tensor in saved.items() if name in own and own[name].shape != tensor.shape)
    fitting = {name: tensor for name, tensor in saved.items() if name not in reinitialized}
    missing, unexpected = model.load_state_dict(fitting, strict=False)
    loaded = {id(own[name]) for name in fitting if name in own}  # of those that share memory, one name is saved
    lost = [name for name in missing if name not in reinitialized and id(own[name]) not in loaded]
    if lost or unexpected:
        raise StoreError(f"the weights in {directory} do not fit the network: {', '.join([*lost, *unexpected][:3])}")
    return Adapted(model, reinitialized)


def _plans(card: Mapping[str, Any]) -> dict[str, LayerPlan]:
    return {name: LayerPlan.from_dict(plan) for name, plan in card["layers"].items()}


def _build_base(
    directory: Path, card: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[nn.Module, dict[str, LayerPlan]]:
    """Build the network that was converted, and return the plans of its layers."""
    reference, known, plans = card["base"]["reference"], card["base"]["options"], _plans(card)
    if reference is None:
        raise StoreError(
            f"{directory} does not name its dense network; build it and give it: load({str(directory)!r}, model)"
        )
    bounds = _bounds(directory)
    bounds.check_options(known, str(directory / CARD))
    if _compare_sizes(directory, bounds, reference, known, plans):
        return build_network(reference, {**known, **options}).model, plans
    with bounded(bounds, str(directory / CARD)):
        return build_network(reference, {**known, **options}).model, plans


def _bounds(directory: Path) -> Bounds:
    with _weights(directory) as file:
        return Bounds.of([file.get_slice(name).get_shape() for name in file.keys()])  # noqa: SIM118


def saved_base(directory: Path | str) -> Base:
    """Return how the dense network is built; without a reference, only the caller's code can build it."""
    base = _read_card(Path(directory))["base"]
    return Base(base["reference"], base["options"])


def base_of(directory: Path | str) -> str | None:
    """Return the reference of the network that was converted; None where only its owner's code can build it."""
    return saved_base(directory).reference


def saved_input_size(directory: Path | str) -> tuple[int, ...] | None:
    """Return the size of the input that a directory names, where it names one."""
    size = _read_card(Path(directory))["input_size"]
    if not size:
        return None
    if not isinstance(size, list) or not all(type(extent) is int and extent > 0 for extent in size):
        raise StoreError(f"{directory} has input_size {size!r:.200}; it must be a list of positive integers")
    if math.prod(size) > MOST_INPUT:
        raise StoreError(f"{directory} has input_size {size!r:.200}; at most {MOST_INPUT:,} values are allowed")
    return tuple(size)


def interface_of(directory: Path | str) -> Interface:
    """Return the preprocessing and class names of a model directory, as far as they are known."""
    directory = Path(directory)
    return read_interface(_read_card(directory), str(directory / CARD))


def _compare_sizes(
    directory: Path, bounds: Bounds, reference: str, options: Mapping[str, Any], plans: Mapping[str, LayerPlan]
) -> bool:
    """Raise if the card describes a network that its weights do not fit, before memory is allocated for it.

    Returns:
        Whether they could be compared. Some networks compute while they are built, and can't be built on the meta
        device.
    """
    try:
        with torch.device("meta"), bounded(bounds, str(directory / CARD)):
            sketch = _put_plans_(build_network(reference, options).model, plans)
    except Exception as error:
        if isinstance(error, CruciformError) and error.__cause__ is None:
            raise
        return False
    with _weights(directory) as file:
        saved = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    missing = {id(tensor): (name, tensor) for name, tensor in sketch.state_dict(keep_vars=True).items()}
    for name, tensor in sketch.state_dict(keep_vars=True).items():
        if saved.get(name) == tuple(tensor.shape):
            missing.pop(id(tensor), None)  # of those that share memory, one name is saved
    for name, tensor in missing.values():
        raise StoreError(
            f"the weights in {directory} do not fit the network: {name} should have shape {tuple(tensor.shape)}, and "
            f"is {saved.get(name, 'missing')}"
        )
    return True


@contextmanager
def _weights(directory: Path) -> Iterator[Any]:
    """Open the weights file, whose header can be read without the weights."""
    try:
        with safe_open(str(check_regular(directory / WEIGHTS)), "pt") as file:
            yield file
    except (SafetensorError, ValueError, TypeError) as error:
        raise StoreError(f"the weights in {directory} can't be read: {first_line(error)}") from error


def _put_plans_(model: nn.Module, plans: Mapping[str, LayerPlan]) -> nn.Module:
    found = {item.name: item.module for item in find_modules(model).values()}
    replacements: dict[int, nn.Module] = {}
    for name, plan in plans.items():
        conv = found.get(name)
        if conv is None or not isinstance(conv, TORCH_CONVOLUTIONS) or why_skip(conv):
            what = "nothing" if conv is None else class_name(conv)
            raise StoreError(f"the plan for {name!r} needs a convolution there, but the network has {what}")
        if spec_of(conv) != plan.spec:
            raise StoreError(f"the plan for {name!r} is for {plan.spec}, but the network has {spec_of(conv)}")
        replacements[id(conv)] = finish_layer(build_layer(conv, plan), conv)
    return replace_modules_(model, replacements)


def _read_card(directory: Path) -> dict[str, Any]:
    path = directory / CARD
    try:
        card = read_json(path)
    except DamagedError as error:
        why = error if path.exists() else recognize.describe_path(directory)
        raise StoreError(f"{directory} is not a model directory: {why}") from error
    known = KEYS | (KNOWN_SINCE & set(card)) if isinstance(card, dict) else KEYS
    check_keys(card, known, str(path), StoreError)
    if card["format"] != CARD_FORMAT:
        raise StoreError(f"{path} has format {card['format']!r}; this version reads {CARD_FORMAT}")
    check_keys(card["base"], {"reference", "options"}, f"base in {path}", StoreError)
    check_keys(card["weights"], {"sha256"}, f"weights in {path}", StoreError)
    base, layers = card["base"], card["layers"]
    well = isinstance(base["reference"], str | None) and isinstance(base["options"], dict) and isinstance(layers, dict)
    if not well:
        raise StoreError(f"{path} is damaged: base.reference, base.options or layers is of the wrong type")
    weights = directory / WEIGHTS
    if not weights.is_file():
        raise StoreError(f"{weights} is missing")
    with _weights(directory):  # its header says how long it is: a wrong length is seen before all of it is read
        pass
    if sha256(weights) != card["weights"]["sha256"]:
        raise StoreError(f"{weights} is damaged: its checksum differs from the one in {CARD}")
    return dict(card)


def copy_network(directory: Path, to: Path) -> None:
    """Copy a model directory, unless the copy exists; it is complete or absent."""
    own = to / CARD
    if own.is_file() and read_bytes(own) == read_bytes(directory / CARD):  # which has the checksum of the weights
        return
    _read_card(directory)  # it is whole, and its files are files
    with new_directory(to) as part:
        for name in (CARD, WEIGHTS, REPORT):
            if name != REPORT or (directory / REPORT).is_file():  # a directory is whole without its report
                shutil.copyfile(directory / name, part / name)


def refuse_other_directory(directory: Path) -> None:
    """Raise if saving would delete anything but a model directory: recognized by its files."""
    refuse_own_place(directory)
    if not directory.exists():
        return
    names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    if not directory.is_dir() or (names and not _is_ours(directory)):
        raise StoreError(f"{directory} exists and is not a model directory; choose another name")
    foreign = [name for name in names if name not in OURS]
    if foreign:  # what was deployed, for instance
        raise StoreError(
            f"{directory} also contains {foreign[0]}, which would be deleted; move it, or choose another name"
        )


def _is_ours(directory: Path) -> bool:
    try:
        card = read_json(directory / CARD)  # others have files of this name
    except DamagedError:
        return False
    return isinstance(card, dict) and set(card) - KNOWN_SINCE == KEYS
