"""What training a network on many GPUs would take: time of a step, of its all-reduce, of reading, of failures.

Data parallelism with a ring all-reduce between machines (links within a machine are much faster, and taken to be free),
gradients in 32 bits, started while the backward pass still runs.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from cruciform.errors import OptionError
from cruciform.scale.assumptions import Assumptions
from cruciform.scale.goodput import Failures

PASSES = 3  # forward, and twice as much backward
BITS_IN_A_BYTE = 8


class TrainingCost(NamedTuple):
    """The facts about a network.

    Attributes:
        name: What it is called.
        params: Its parameters.
        macs: Of one image.
        thin: Whether it has layers of basis filters, whose saving becomes time only in part.
    """

    name: str
    params: int
    macs: int
    thin: bool


@dataclass(frozen=True)
class TrainingJob:
    """A training job.

    Attributes:
        images: Images to be seen, all epochs together.
        gpus: How many.
        link: Bits a second between two machines.
    """

    images: float
    gpus: int
    link: float

    def __post_init__(self) -> None:
        if not (0 < self.images < math.inf and self.gpus >= 1 and 0 < self.link < math.inf):
            raise OptionError(f"images, gpus and link must be positive; got {self.images}, {self.gpus}, {self.link}")


@dataclass(frozen=True)
class Estimate:
    """The estimate for a job.

    Attributes:
        images_per_second_per_gpu: Of one GPU alone.
        step_seconds: Computing one step.
        gradient_bytes: What every step sends.
        reduce_seconds: Sending it.
        efficiency: The fraction of a step spent computing.
        ingest_bytes_per_second: That each GPU needs to be fed with.
        cores_per_gpu: To decode them.
        checkpoint_bytes: Weights and momentum.
        interval_seconds: Between checkpoints.
        goodput: The fraction of time that is progress.
        images_per_second: Of all, in the end.
        hours: For the job.
        dollars: For the job.
    """

    images_per_second_per_gpu: float
    step_seconds: float
    gradient_bytes: float
    reduce_seconds: float
    efficiency: float
    ingest_bytes_per_second: float
    cores_per_gpu: float
    checkpoint_bytes: float
    interval_seconds: float
    goodput: float
    images_per_second: float
    hours: float
    dollars: float


def estimate(cost: TrainingCost, job: TrainingJob, assumed: Assumptions) -> Estimate:
    """Estimate a job with a network."""
    rate = assumed.peak * assumed.utilisation * (assumed.realised if cost.thin else 1) / (2 * PASSES * cost.macs)
    step = assumed.images_per_gpu / rate
    gradient = 4.0 * cost.params
    reduce = _reduce_seconds(gradient, job, assumed)
    exposed = max(0.0, reduce - assumed.overlap * step)
    efficiency = step / (step + exposed)
    failures = Failures(
        3600 * assumed.hours_between_failures / job.gpus, assumed.checkpoint_seconds, assumed.restart_seconds
    )
    speed = rate * job.gpus * efficiency * failures.goodput
    hours = job.images / speed / 3600
    return Estimate(
        rate,
        step,
        gradient,
        reduce,
        efficiency,
        rate * assumed.image_bytes,
        rate / assumed.images_per_core,
        2 * gradient,
        failures.interval,
        failures.goodput,
        speed,
        hours,
        hours * job.gpus * assumed.price,
    )


def _reduce_seconds(gradient: float, job: TrainingJob, assumed: Assumptions) -> float:
    nodes = -(-job.gpus // int(assumed.gpus_per_node))
    if nodes == 1:
        return 0.0
    bandwidth = job.link * assumed.link_share / BITS_IN_A_BYTE
    return 2 * (nodes - 1) / nodes * gradient / bandwidth + 2 * (nodes - 1) * assumed.ring_step
