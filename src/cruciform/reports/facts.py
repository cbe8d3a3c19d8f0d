"""Gather the contents of a report as plain data, which ``page`` renders as HTML."""

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
    """A layer of the network.

    Attributes:
        name: Its dotted name.
        kind: The class of the module.
        plan: Its plan as text; empty where it has none.
        params: Its parameters.
        macs: Its MACs.
        dense: (parameters, MACs) of the dense convolution that its plan replaces; None where there is no plan.
        replaced: Whether it is low-rank.
        reason: Why the conversion kept it dense, if known.
        seconds: Its time in PyTorch; None where it was not measured.
        dense_seconds: The time of the dense convolution on the same input; None where it was not measured.
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
    """The training log of a run.

    Attributes:
        status: The state of the run, as ``cruciform runs`` shows it.
        epochs: Log lines of epochs.
        steps: Log lines of steps.
    """

    status: Mapping[str, Any]
    epochs: Sequence[Mapping[str, Any]]
    steps: Sequence[Mapping[str, Any]]

    @property
    def seconds(self) -> float:
        """The training time, without evaluations and checkpoints."""
        return sum(float(line.get("seconds_training", 0)) for line in self.epochs)


@dataclass(frozen=True)
class RunFacts:
    """What is known about a run besides its network.

    Attributes:
        training: Its log.
        beginning: Its initial network; None where that can't be built any more.
        about: A description of that, or why it can't be built.
        trained: Whether it started from trained weights; None where only the network itself shows it.
    """

    training: Training
    beginning: nn.Module | None
    about: str
    trained: bool | None = None


@dataclass(frozen=True)
class Facts:
    """The contents of a report.

    Attributes:
        name: The name of the network or run.
        given: The reference that was given.
        kind: ``run``, ``model directory`` or ``network``.
        input_size: Channels and spatial size of one input.
        layers: The layers, in the order of the network.
        params: The parameters of the network.
        macs: The MACs of the network.
        notes: Remarks on the counts.
        diagnosis: The doctor's diagnosis of the gradient; None where there is none.
        diagnosed: Which weights were diagnosed, or why there is no diagnosis.
        filters: The filters of every layer with a kernel above 1×1.
        training: The log of a run.
        card: The README table of a model directory, with its accuracy for instance.
        deployments: The report of each artifact.
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
        """MACs with the dense convolution in place of every plan."""
        return sum(layer.dense[1] if layer.dense else layer.macs for layer in self.layers)

    @property
    def dense_params(self) -> int:
        """Parameters with the dense convolution in place of every plan."""
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
    """Gather everything that a report shows.

    Args:
        name: The reference that was given.
        model: The network.
        input_size: Channels and spatial size of one input.
        run: What is known about a run besides its network.
        directory: The directory of the run or model, if it is one.
        rounds: How often layers are timed; 0 leaves times out.
        deployments: Artifacts, besides those inside the directory.
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
        # Dense layers as counted: shared parameters belong to the first layer.
        dense=(_dense(plan, row) if plan and replaced else (row.params, row.macs)) if convolves else None,
        replaced=replaced,
        reason=reasons.get(row.name, ""),
        seconds=timed.own if timed else None,
        dense_seconds=timed.dense if timed else None,
    )


def _dense(plan: LayerPlan, row: LayerCount) -> tuple[int, int]:
    """Return the cost of the convolution that a plan replaces."""
    spec = plan.spec
    macs = sum(batch * spec.macs(spec.output_size(size)) for batch, *size in row.inputs)
    return spec.params, macs


def _reasons(path: Path) -> dict[str, str]:
    """Return why a conversion kept layers, from the report of a model directory."""
    try:
        layers = read_json(path / CONVERTED)["layers"]
        return {str(name): str(layer["reason"]) for layer in layers for name in layer["names"] if layer["reason"]}
    except (DamagedError, KeyError, TypeError):
        return {}  # the report is optional


def _diagnose(
    model: nn.Module, input_size: tuple[int, ...], run: RunFacts | None, directory: Path | None
) -> tuple[Diagnosis | None, str]:
    which, trained = "the weights of this network", None
    if directory and not run:
        trained = holds_trained_weights(directory, model)
    if run:
        # The question is whether it could learn at the start, not how large the gradient is at the end.
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
    except OptionError:  # all kernels are 1×1
        return []


def _deployments(directory: Path | None, others: Sequence[Path]) -> Iterator[Mapping[str, Any]]:
    """Yield the reports of artifacts inside a directory, and of some more."""
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
