"""What a report says, as plain data: gathered here, written as HTML elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from cruciform.deployment.artifact import REPORT as DEPLOYED
from cruciform.errors import DamagedError, DiagnosisError, OptionError
from cruciform.files import read_json
from cruciform.measure.filters import LayerFilters, network_filters
from cruciform.measure.gradients import Diagnosis, diagnose
from cruciform.measure.latency import LayerSeconds, time_layers
from cruciform.measure.macs import profile
from cruciform.measure.network_profile import LayerCount
from cruciform.measure.record import circumstances
from cruciform.nn.inspect import plan_of
from cruciform.plan import LayerPlan
from cruciform.reports.directory_readme import CardRow, read_card
from cruciform.store.directory import REPORT as CONVERTED
from cruciform.store.trained_weights import holds_trained_weights


@dataclass(frozen=True)
class LayerFact:
    """A layer.

    Attributes:
        name: Its dotted name.
        kind: The class of the module.
        plan: What it computes; empty where it has none.
        params: Its parameters.
        macs: Its multiply-accumulates.
        dense: (parameters, multiply-accumulates) of the convolution that its plan stands in for; None where there is
            no plan.
        replaced: Whether basis filters stand there.
        reason: Why they do not, where a conversion said so.
        seconds: Of one run as PyTorch runs it; None where that was not measured.
        dense_seconds: Of the dense convolution in its place, on the same input; None where there is none, or it was not
            measured.
    """

    name: str
    kind: str
    plan: str
    params: int
    macs: int
    dense: tuple[int, int] | None
    replaced: bool
    reason: str
    seconds: float | None
    dense_seconds: float | None = None


@dataclass(frozen=True)
class Training:
    """How a run went.

    Attributes:
        status: Where it stands, as ``cruciform runs`` has it.
        epochs: Lines of its log, one for each epoch.
        steps: Lines of its log, one for every so many steps.
    """

    status: Mapping[str, Any]
    epochs: Sequence[Mapping[str, Any]]
    steps: Sequence[Mapping[str, Any]]

    @property
    def seconds(self) -> float:
        """Time of training, without evaluations and checkpoints."""
        return sum(float(line.get("seconds_training", 0)) for line in self.epochs)


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run besides its network.

    Attributes:
        training: How it went.
        beginning: The network that it began with; None where that can't be made any more.
        about: What that is, or why it can't be made.
        trained: Whether it began with trained weights; None where only the network itself can tell.
    """

    training: Training
    beginning: nn.Module | None
    about: str
    trained: bool | None = None


@dataclass(frozen=True)
class Facts:
    """All that a report says.

    Attributes:
        name: Of the network or run.
        given: What was asked for, as it was typed.
        kind: ``run``, ``model directory`` or ``network``.
        input_size: Of one input.
        layers: In the order of the network.
        params: Of the network.
        macs: Of the network.
        notes: What a reader of the counts must know.
        diagnosis: Of the gradient; None where the doctor could not tell.
        diagnosed: Which weights, or why there is no diagnosis.
        filters: Of every layer with a window.
        training: Of a run.
        card: What a model directory says of itself, its accuracy for instance.
        deployments: What ``cruciform deploy`` said of each artifact.
        circumstances: Date, versions and hardware.
    """

    name: str
    given: str
    kind: str
    input_size: tuple[int, ...]
    layers: tuple[LayerFact, ...]
    params: int
    macs: int
    notes: tuple[str, ...]
    diagnosis: Diagnosis | None
    diagnosed: str
    filters: tuple[LayerFilters, ...]
    training: Training | None
    card: tuple[CardRow, ...]
    deployments: tuple[Mapping[str, Any], ...]
    circumstances: str

    @property
    def dense_macs(self) -> int:
        """Multiply-accumulates with the dense convolution in the place of every plan."""
        return sum(layer.dense[1] if layer.dense else layer.macs for layer in self.layers)

    @property
    def dense_params(self) -> int:
        """Parameters of the same."""
        return sum(layer.dense[0] if layer.dense else layer.params for layer in self.layers)


def gather_facts(
    name: str,
    model: nn.Module,
    input_size: tuple[int, ...],
    *,
    run: RunFacts | None = None,
    directory: Path | None = None,
    rounds: int = 5,
    deployments: Sequence[Path] = (),
) -> Facts:
    """Looks at a network from all sides.

    Args:
        name: What was asked for: a run, a model directory, or a network by name.
        model: The network.
        input_size: Of one input.
        run: What is known about a run besides its network.
        directory: The directory of the run or model, if it is one.
        rounds: How often layers are timed; 0 leaves times out.
        deployments: Artifacts of ``cruciform deploy``, besides those inside the directory.
    """
    path = Path(name)
    counted = profile(model, input_size)
    seconds = time_layers(model, input_size, rounds=rounds) if rounds else {}
    reasons = _reasons(path) if directory else {}
    diagnosis, diagnosed = _diagnose(model, input_size, run, directory)
    return Facts(
        name=path.name if directory else name,
        given=name,
        kind="run" if run else "model directory" if directory else "network",
        input_size=input_size,
        layers=tuple(_layer(row, model, reasons, seconds) for row in counted.layers),
        params=counted.params,
        macs=counted.macs,
        notes=counted.notes,
        diagnosis=diagnosis,
        diagnosed=diagnosed,
        filters=tuple(_filters(model)),
        training=run.training if run else None,
        card=read_card(directory) if directory and not run else (),
        deployments=tuple(_deployments(directory, deployments)),
        circumstances=circumstances(),
    )


def _layer(
    row: LayerCount, model: nn.Module, reasons: Mapping[str, str], seconds: Mapping[str, LayerSeconds]
) -> LayerFact:  # fmt: skip
    module = model.get_submodule(row.name)
    plan = plan_of(module)
    convolves = plan is not None and not isinstance(module, nn.Linear)
    replaced = plan is not None and not plan.is_dense
    timed = seconds.get(row.name)
    return LayerFact(
        name=row.name or "(network)",
        kind=row.kind,
        plan=str(plan) if convolves else "",
        params=row.params,
        macs=row.macs,
        # What is dense already is taken as counted: parameters that layers share are those of the first.
        dense=(_dense(plan, row) if plan and replaced else (row.params, row.macs)) if convolves else None,
        replaced=replaced,
        reason=reasons.get(row.name, ""),
        seconds=timed.own if timed else None,
        dense_seconds=timed.dense if timed else None,
    )


def _dense(plan: LayerPlan, row: LayerCount) -> tuple[int, int]:
    """Returns what the convolution would cost whose place a plan takes."""
    spec = plan.spec
    macs = sum(batch * spec.macs(spec.output_size(size)) for batch, *size in row.inputs)
    return spec.params, macs


def _reasons(path: Path) -> dict[str, str]:
    """Returns why a conversion left layers as they are, by the report of a model directory."""
    try:
        layers = read_json(path / CONVERTED)["layers"]
        return {str(name): str(layer["reason"]) for layer in layers for name in layer["names"] if layer["reason"]}
    except (DamagedError, KeyError, TypeError):
        return {}  # it is for people; a directory is whole without


def _diagnose(
    model: nn.Module, input_size: tuple[int, ...], run: RunFacts | None, directory: Path | None
) -> tuple[Diagnosis | None, str]:
    which, trained = "the weights of this network", None
    if directory and not run:
        trained = holds_trained_weights(directory, model)
    if run:
        # The question is whether it could learn when it began, not what is left of the gradient at the end.
        which, trained = run.about, run.trained
        if run.beginning is None:
            return None, which
        model = run.beginning
    try:
        return diagnose(model, input_size, trained=trained), which
    except DiagnosisError as error:
        return None, str(error)


def _filters(model: nn.Module) -> list[LayerFilters]:
    try:
        return network_filters(model)
    except OptionError:  # no layer has a window
        return []


def _deployments(directory: Path | None, others: Sequence[Path]) -> Iterator[Mapping[str, Any]]:
    """Yields what is known of artifacts within a directory, and of some more."""
    inside = sorted({*directory.glob(f"*/{DEPLOYED}"), *directory.glob(f"*/*/{DEPLOYED}")}) if directory else []
    for path in (*inside, *(other / DEPLOYED for other in others)):
        try:
            report = read_json(path)
            if not isinstance(report, dict):
                raise DamagedError(f"{path} is not a JSON table")
        except DamagedError as error:
            raise OptionError(
                f"{path.parent} is not an artifact of 'cruciform deploy' ({error}); give a directory with a {DEPLOYED}"
            ) from error
        yield {"directory": path.parent.name, **report}
