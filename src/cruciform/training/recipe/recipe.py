"""A recipe: all that decides what a training run computes, as data. The same recipe gives the same weights."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

import cruciform.data.open_dataset  # noqa: F401  (fills DATASETS)
from cruciform.data.samples.source import DATASETS
from cruciform.data.transforms.transforms import Augmentation
from cruciform.data.transforms.whitening import Whitening
from cruciform.errors import PlanError, RecipeError
from cruciform.nn.init_rules import RULES
from cruciform.nn.initialize import AUTO
from cruciform.schemes import find_scheme
from cruciform.training.recipe.lookahead_table import LookaheadTable
from cruciform.training.recipe.optimizer import Optimizer
from cruciform.training.recipe.schedule import Constant, Schedule, Share
from cruciform.training.recipe.sizes import SIZE, fill_sizes
from cruciform.training.recipe.table import Table

AUTO_PRECISION = "auto"
Count = Annotated[int, Field(ge=1)]
Transforms = tuple[Annotated[Augmentation, Field(discriminator="kind")], ...]


class ModelTable(Table):
    """What is trained.

    Attributes:
        name: A network of the zoo, ``timm:resnet18`` and the like, or a model directory.
        options: What its source takes besides, such as ``num_classes``.
        scheme: Converted by this scheme before training; None: as it is.
        init: The rule of initialization; None: the network's own, and the one that suits it where it is converted.
        given: What the network is that the caller's code gave in place of all this; None: it gave none.
    """

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    scheme: str | None = None
    init: str | None = None
    given: str | None = None

    @property
    def what(self) -> str:
        """What is trained, in a word."""
        return self.given or self.name

    @field_validator("scheme")
    @classmethod
    def _known_scheme(cls, value: str | None) -> str | None:
        return value if value is None else _check_name(find_scheme, value)

    @field_validator("init")
    @classmethod
    def _known_rule(cls, value: str | None) -> str | None:
        return value if value in (None, AUTO) else _check_name(partial(RULES.get, besides=[AUTO]), value)


class DataTable(Table):
    """What it is trained on.

    Attributes:
        kind: cifar10, folder, shards or volumes.
        path: Where it lies; relative paths count from the environment variable CRUCIFORM_DATA.
        short_side: Length that the shorter side of images in a folder is brought to; ``data.size`` sets it together
            with the crops.
        holdout: How many training samples are kept from training and evaluated on in place of the test set: the last,
            or every k-th where one class follows the other.
        whiten: Prepare images by GCN and ZCA; None: only subtract ``mean`` and divide by ``deviation``.
        mean: Of each channel, on the scale of the images' bytes.
        deviation: Of each channel.
        threads: How many threads read ahead.
        max_bad: The share of samples that may turn out to be unreadable: they are left out and written down. One more,
            and the run stops.
        given: What the transform of training samples is that the caller's code gave besides; None: it gave none.
    """

    kind: str
    path: str
    short_side: Count | None = None
    holdout: int = Field(default=0, ge=0)
    whiten: Whitening | None = None
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[Annotated[float, Field(gt=0)], ...] = (255.0,)
    threads: int = Field(default=2, ge=0)
    max_bad: Share = 0.0
    given: str | None = None

    def check_channels(self, channels: int) -> None:
        """Raises where images have other channels than there are means or deviations."""
        for name, values in (("mean", self.mean), ("deviation", self.deviation)):
            if len(values) not in (1, channels):
                raise RecipeError(
                    f"data.{name} has {len(values)} values for images of {channels} channels; give one for all, or one "
                    "for each"
                )

    @field_validator("kind")
    @classmethod
    def _known(cls, value: str) -> str:
        return _check_name(DATASETS.get, value)


class LossTable(Table):
    """What is made small.

    Attributes:
        smoothing: The share of the target that is spread over all classes.
        mixup: α of the Beta distribution that pairs of images are mixed by; 0: not mixed.
        auxiliary: The weight of auxiliary heads, where a network has them.
    """

    smoothing: float = Field(default=0.0, ge=0, lt=1)
    mixup: float = Field(default=0.0, ge=0)
    auxiliary: float = Field(default=0.3, ge=0)


class EvaluationTable(Table):
    """How it is judged.

    Attributes:
        batch: Samples at a time, over all ranks.
        epochs: Epochs between evaluations; the last one is always evaluated.
        mirror: Whether the mean of what the network says to an image and to its mirror image is judged besides.
        auc: Whether the area under the ROC curve is computed besides, from the scores of all samples at once.
    """

    batch: Count = 512
    epochs: Count = 1
    mirror: bool = False
    auc: bool = False


class CheckpointTable(Table):
    """When its state is saved, besides at the end of every epoch and when it is interrupted.

    Attributes:
        steps: Steps between checkpoints; None: by time only.
        minutes: Minutes between checkpoints at most.
        keep: How many of the newest are kept.
    """

    steps: Count | None = None
    minutes: float = Field(default=10.0, gt=0)
    keep: Count = 2


class LogTable(Table):
    """What is written down.

    Attributes:
        steps: Steps between two lines of the log.
        tensorboard: Whether TensorBoard's files are written beside the log.
        samples: Whether the numbers of all samples that each step saw are written too.
    """

    steps: Count = 50
    tensorboard: bool = True
    samples: bool = False


class Recipe(Table):
    """All that decides what a run computes, and how it is watched.

    ``data.size`` may be given in place of the sizes that it stands for: see ``cruciform.training.recipe.sizes``.

    Attributes:
        model: What is trained.
        data: What on.
        augment: What is done to training samples, in this order.
        prepare: What is done to samples for evaluation.
        optimizer: How weights are changed.
        schedule: How the rate falls.
        loss: What is made small.
        epochs: How often every sample is seen.
        batch: Samples that all ranks together take in a step.
        accumulate: Pieces that a rank's share of a step is computed in, to save memory.
        clip: The largest norm of the gradient; None: whatever it is.
        average: Decay of the moving average of the weights that is evaluated; None: the weights themselves.
        lookahead: Slow weights that the weights are drawn back to; None: there are none.
        freeze: From patterns of parameters' names to the share of training after which they learn no more; 0: never.
        precision: Of the computation; weights are always kept in float32. ``auto``: bf16 where the device has
            instructions for it, else fp32; a run keeps what that was when it began.
        channels_last: Whether images lie in memory with their channels last, which most convolutions prefer.
        compile: Whether torch.compile is used.
        seed: Of all random numbers.
        nonfinite: What to do when a gradient is not finite: stop; skip the step; or roll back to the last checkpoint
            and go on behind the step that failed.
        evaluation: How it is judged.
        checkpoint: When its state is saved.
        log: What is written down.
    """

    shorthands: ClassVar[tuple[str, ...]] = (SIZE,)

    model: ModelTable
    data: DataTable
    augment: Transforms = ()
    prepare: Transforms = ()
    optimizer: Optimizer
    schedule: Schedule = Constant()
    loss: LossTable = LossTable()
    epochs: Count
    batch: Count
    accumulate: Count = 1
    clip: Annotated[float, Field(gt=0)] | None = None
    average: Annotated[float, Field(gt=0, lt=1)] | None = None
    lookahead: LookaheadTable | None = None
    freeze: dict[str, Share] = Field(default_factory=dict)
    precision: Literal["fp32", "bf16", "fp16", "auto"] = "fp32"
    channels_last: bool = True
    compile: bool = False
    seed: int = Field(default=0, ge=0, lt=2**32)
    nonfinite: Literal["stop", "skip", "rollback"] = "stop"
    evaluation: EvaluationTable = EvaluationTable()
    checkpoint: CheckpointTable = CheckpointTable()
    log: LogTable = LogTable()

    @model_validator(mode="before")
    @classmethod
    def _fill_sizes(cls, value: Any) -> Any:
        return fill_sizes(value) if isinstance(value, Mapping) else value

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, for JSON."""
        return self.model_dump(mode="json")


def _check_name(find: Callable[[str], object], name: str) -> str:
    try:
        find(name)
    except (LookupError, PlanError) as error:
        raise ValueError(str(error)) from None
    return name
