"""What several commands share: finding a model by what was typed, tables, and JSON."""

import importlib
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.table import Table

from cruciform.cli.shared.terminal import console as console  # noqa: PLC0414  (commands import it from here)
from cruciform.cli.shared.terminal import echo as echo  # noqa: PLC0414
from cruciform.errors import OptionError, UnknownNameError, first_line, reraise_as
from cruciform.sources.network_names import check_listed, is_listed, list_sources, suggest_source, unknown_network
from cruciform.store.recognize import ENDINGS, PICKLES, describe_path, is_saved
from cruciform.words import printable, printable_json

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


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        callback=check_network,
        help="A network of 'cruciform models', timm:NAME, torchvision:NAME, monai:NAME, your own as "
        "package.module:function, a run of 'cruciform train', or a model directory.",
    ),
]
SizeOption = Annotated[
    str | None, typer.Option("--input", metavar="CxHxW", help="Channels and size of one input, as 3x224x224.")
]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")]
BackendOption = Annotated[
    str, typer.Option(help="local: this process; ddp: several, under torchrun; ray: on a Ray cluster.")
]
WorkersOption = Annotated[int, typer.Option(min=1, help="Processes, for ddp and ray.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]


def processes_typed(backend: str, workers: int) -> list[str]:
    """Returns the options that ask for these processes again; none for the usual one."""
    return [] if backend == "local" else ["--backend", backend, "--workers", str(workers)]


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


def picture(path: Path | None) -> Path | None:
    """Refuses a picture that could not be written, before the work that it is to show."""
    if path is not None:
        from cruciform.plot.style import check_picture

        check_picture(path)
    return path


def ending(suffix: str) -> Callable[[Path | None], Path | None]:
    """Returns what refuses a file of another ending: one that is there would be replaced by what it does not say."""

    def check(path: Path | None) -> Path | None:
        if path is not None and path.is_dir():
            raise OptionError(f"{path} is a folder; name a file, for instance {path / f'x{suffix}'}")
        if path is not None and path.suffix.lower() != suffix:
            raise OptionError(f"{path} would be written as {suffix} is; call it {path.with_suffix(suffix)}")
        return path

    return check


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


@contextmanager
def measuring(limit: float | None = None) -> "Iterator[Callable[[str], None]]":
    """Shows that something is being measured, and for how long; gives what takes words for what it is now.

    Args:
        limit: Seconds that the search may take, where there is such a limit.
    """
    from cruciform.cli.shared.heartbeat import heartbeat, watched

    of = "" if limit is None else f" (the search has {limit:g} s)"
    if not watched():
        with heartbeat(of) as say:
            yield lambda what: say(f"measuring {what}")
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, transient=True, console=console(error=True)) as bar:
        task = bar.add_task(f"measuring{of}")
        yield lambda what: bar.update(task, description=f"measuring {what}{of}")


@contextmanager
def progress_bar(what: str) -> "Iterator[Callable[[int, int], None]]":
    """Shows how far something is; gives what takes how much of how much is done."""
    from cruciform.cli.shared.heartbeat import heartbeat, watched

    if not watched():
        with heartbeat() as say:
            yield lambda done, of: say(f"{what}, {done:,} of {of:,}")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, console=console(error=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def interruptible(advice: str) -> "Iterator[None]":
    """Ends the program as a signal asked for, when a run within the block has saved its state; says how to go on."""
    from cruciform.training.engine.loop import Interrupted

    try:
        yield
    except Interrupted as stop:
        echo(f"{stop}. {advice}", error=True)
        raise typer.Exit(128 + stop.signal) from stop


def read_amount(text: str, units: Mapping[str, float], what: str) -> tuple[float, str]:
    """Reads a number with a unit, as ``256MB`` or ``60%``, in whatever case; returns the amount, and the unit.

    Args:
        text: What was typed.
        units: What each unit stands for; the empty one is none at all.
        what: What it is to be, with examples, for whoever typed something else.
    """
    spelt = {unit.upper(): unit for unit in units}
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(\D*)", text.strip())
    if found is None or found[2].upper() not in spelt:
        raise OptionError(f"{text!r} is no {what}")
    unit = spelt[found[2].upper()]
    return float(found[1]) * units[unit], unit


def read_size(text: str) -> tuple[int, ...]:
    """Reads ``3x224x224``."""
    parts = text.lower().replace("×", "x").split("x")
    if not 2 <= len(parts) <= 4 or not all(part.isdecimal() and int(part) for part in parts):
        raise OptionError(f"{text!r} is not an input size; write channels and sizes, as 3x224x224 or 1x64x64x64")
    return tuple(map(int, parts))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> None:
    """Prints a table; the first ``left`` columns are text, the others numbers."""
    # Escaped before their widths are measured.
    table = Table(title=printable(title), title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(printable(column), justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    console().print(table)


def print_json(data: Any) -> None:
    """Prints plain data as JSON, numbers that are none or without end as null: JSON has no word for them."""
    echo(printable_json(_with_nulls(data), indent=2, allow_nan=False), lines=True)


def _with_nulls(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _with_nulls(value) for key, value in data.items()}
    return [_with_nulls(value) for value in data] if isinstance(data, list | tuple) else data
