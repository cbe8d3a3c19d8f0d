"""Assumptions of the scale model: every number with its source, all of them adjustable."""

from dataclasses import dataclass, field, fields

from cruciform.errors import OptionError
from cruciform.registry import did_you_mean


def _assumed(value: float, unit: str, source: str) -> float:
    made: float = field(default=value, metadata={"unit": unit, "source": source})
    return made


@dataclass(frozen=True)
class Assumptions:
    """The constants of the model. Units and sources are in the fields' metadata."""

    peak: float = _assumed(989e12, "FLOP/s", "NVIDIA H100 SXM data sheet, dense bfloat16")
    utilisation: float = _assumed(0.35, "of the peak", "a usual figure for dense CNNs; measure your own")
    realised: float = _assumed(
        0.562,
        "of the saving",
        "results/bench-vgg.json, ov_bf16_b16_lr: our own benchmark, on a CPU with AMX; no GPU was measured",
    )
    images_per_gpu: float = _assumed(64, "images", "a choice")
    gpus_per_node: float = _assumed(8, "GPUs", "a usual machine")
    link_share: float = _assumed(0.8, "fraction of the link's bandwidth", "a usual figure for a tuned all-reduce")
    overlap: float = _assumed(0.6, "of a step's time", "the backward pass, during which gradients can travel")
    ring_step: float = _assumed(15e-6, "s", "latency of one step of a ring between machines; a usual figure")
    image_bytes: float = _assumed(110e3, "bytes", "the mean JPEG of ImageNet")
    images_per_core: float = _assumed(
        250, "images/s", "decode and crop with Pillow; 'make bench-ingest' measures yours"
    )
    hours_between_failures: float = _assumed(
        50_681, "GPU-hours", "Llama 3: 419 unexpected interruptions, 16,384 GPUs, 54 days (Meta 2024)"
    )
    checkpoint_seconds: float = _assumed(1, "s", "43 MB and less to a local disk; larger states take longer")
    restart_seconds: float = _assumed(60, "s", "a new process, data and network on a machine that is there")
    price: float = _assumed(2.5, "$ per GPU-hour", "a usual rent of an H100 in 2026")

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < float("inf"):
                raise OptionError(f"{name} must be positive, not {value}")
        if self.gpus_per_node < 1:
            raise OptionError(f"gpus_per_node must be at least 1, not {self.gpus_per_node}")
        for name in ("utilisation", "realised", "link_share"):
            if getattr(self, name) > 1:
                raise OptionError(f"{name} is a fraction between 0 and 1, not {getattr(self, name)}")


def assume(changes: list[str]) -> Assumptions:
    """Return the assumptions with some of them changed, each as ``name=value``."""
    known = [one.name for one in fields(Assumptions)]
    values: dict[str, float] = {}
    for change in changes:
        name, _, text = change.partition("=")
        if name not in known:
            raise OptionError(
                f"there is no assumption {name!r}.{did_you_mean(name, known)} There are: {', '.join(known)}"
            )
        try:
            values[name] = float(text)
        except ValueError:
            raise OptionError(f"{change}: write a number, as {name}={getattr(Assumptions, name):g}") from None
    return Assumptions(**values)


def describe_assumptions(assumptions: Assumptions) -> list[tuple[str, float, str, str]]:
    """Return name, value, unit and source of each."""
    default = Assumptions()
    rows = []
    for one in fields(assumptions):
        value = getattr(assumptions, one.name)
        source = one.metadata["source"] if value == getattr(default, one.name) else "given"
        rows.append((one.name, value, one.metadata["unit"], source))
    return rows
