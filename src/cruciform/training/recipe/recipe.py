"""A recipe: everything that decides what a training run computes, as data. The same recipe gives the same weights."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from cruciform.data.samples.source import DATASETS
from cruciform.data.transforms.transforms import RecipeTransform
from cruciform.data.transforms.whitening import Whitening
from cruciform.errors import PlanError, RecipeError
from cruciform.nn.init_rules import RULES
from cruciform.nn.initialize import AUTO
from cruciform.schemes import DENSE, find_scheme
from cruciform.training.objectives.cross_entropy import CrossEntropy
from cruciform.training.objectives.objective import OBJECTIVES, Objective
from cruciform.training.optimizers.optimizer_table import OPTIMIZERS, OptimizerTable
from cruciform.training.recipe.renamed_keys import describe_renamed
from cruciform.training.recipe.schedule import Constant, Fraction, Schedule
from cruciform.training.recipe.sizes import SIZE, fill_sizes
from cruciform.training.tables.distill_table import DistillTable
from cruciform.training.tables.lookahead_table import LookaheadTable
from cruciform.training.tables.table import Table, one_of

AUTO_PRECISION = "auto"
Count = Annotated[int, Field(ge=1)]
Transforms = tuple[Annotated[RecipeTransform, Field(discriminator="kind")], ...]
if TYPE_CHECKING:
    Optimizer = OptimizerTable
    Loss = Objective
else:
    Optimizer = one_of(OPTIMIZERS)
    Loss = one_of(OBJECTIVES, default="cross-entropy")


class ModelTable(Table):
    """The network to train.

    Attributes:
        name: A zoo network, ``timm:resnet18`` and the like, or a model directory.
        options: Arguments of its constructor, such as ``num_classes``.
        scheme: Convert it by this scheme before training; None: train it as it is.
        low_rank_after: Train the dense network for this fraction of the steps, then convert it, with each layer fitted
            to the dense outputs; None: convert it before training.
        init: The initialization rule; None: the network's own, or the one that suits it where it is converted.
        python_object: The class of the ``nn.Module`` that was passed from Python instead; None: none was.
    """

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    scheme: str | None = None
    low_rank_after: float | None = None
    init: str | None = None
    python_object: str | None = None

    @property
    def label(self) -> str:
        """The name of the network, for messages and tables."""
        return self.python_object or self.name

    @field_validator("scheme")
    @classmethod
    def _known_scheme(cls, value: str | None) -> str | None:
        return value if value is None else _check_name(find_scheme, value)

    @field_validator("low_rank_after")
    @classmethod
    def _some_steps_of_both(cls, value: float | None) -> float | None:
        if value is not None and not 0 < value < 1:
            raise ValueError(
                f"{value:g} must be more than 0 and less than 1: the fraction of steps that the dense network takes, "
                "such as 0.3; none converts it before training"
            )
        return value

    @model_validator(mode="after")
    def _something_to_become(self) -> Self:
        if self.low_rank_after is not None and self.scheme in (None, DENSE):
            raise ValueError(
                f"low_rank_after={self.low_rank_after:g} needs the scheme of the low-rank network, not "
                f"scheme={self.scheme or 'none'}: set model.scheme, such as model.scheme=lr, or set "
                "model.low_rank_after=none"
            )
        return self

    def at_start(self) -> "ModelTable":
        """Return the network that training starts with: the dense one, where it becomes low-rank later."""
        dense = {"scheme": None, "low_rank_after": None}
        return self if self.low_rank_after is None else self.model_copy(update=dense)

    @field_validator("init")
    @classmethod
    def _known_rule(cls, value: str | None) -> str | None:
        return value if value in (None, AUTO) else _check_name(partial(RULES.get, besides=[AUTO]), value)


class DataTable(Table):
    """The data set to train on.

    Attributes:
        kind: The kind of data set: cifar10, folder, shards, volumes, or one that another package adds.
        path: Its location; relative paths start from the environment variable CRUCIFORM_DATA.
        short_side: Length that the shorter side of images is resized to; ``data.size`` sets it together with the
            crops.
        holdout: Number of training samples that are held out and evaluated on instead of the test set: the last ones,
            or every k-th one where the samples are sorted by class.
        whiten: Preprocess images by GCN and ZCA; None: only subtract ``mean`` and divide by ``std``.
        mean: Of each channel, on the 0–255 scale of the images.
        std: Of each channel, on the same scale.
        threads: Number of threads that prefetch batches.
        max_bad: Largest fraction of samples that may be unreadable. They are skipped and logged; above it the run
            stops.
        python_transform: The name of the transform that was passed from Python; None: none was.
    """

    kind: str
    path: str
    short_side: Count | None = None
    holdout: int = Field(default=0, ge=0)
    whiten: Whitening | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[Annotated[float, Field(gt=0)], ...] = (255.0,)
    threads: int = Field(default=2, ge=0)
    max_bad: Fraction = 0.0
    python_transform: str | None = None

    def check_channels(self, channels: int) -> None:
        """Raise where the number of means or stds does not fit the number of channels."""
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, channels):
                raise RecipeError(
                    f"data.{name} has {len(values)} values, but images have {channels} channels; give one value for "
                    "all channels, or one for each"
                )

    @field_validator("kind")
    @classmethod
    def _known(cls, value: str) -> str:
        return _check_name(DATASETS.get, value)


class EvaluationTable(Table):
    """How the network is evaluated.

    Attributes:
        batch_size: Samples in a batch, over all ranks.
        epochs: Epochs between evaluations; the last epoch is always evaluated.
        flip_tta: Whether to report accuracy with horizontal-flip test-time augmentation too.
        auc: Whether to compute the area under the ROC curve too.
    """

    batch_size: Count = 512
    epochs: Count = 1
    flip_tta: bool = False
    auc: bool = False


class CheckpointTable(Table):
    """When checkpoints are saved, in addition to the end of every epoch and an interruption.

    Attributes:
        steps: Steps between checkpoints; None: by time only.
        minutes: Minutes between checkpoints at most.
        keep: How many of the newest are kept.
    """

    steps: Count | None = None
    minutes: float = Field(default=10.0, gt=0)
    keep: Count = 2


class LogTable(Table):
    """What is logged.

    Attributes:
        steps: Steps between two log lines.
        tensorboard: Whether to write TensorBoard files too.
        samples: Whether to log the indices of the samples of every step.
    """

    steps: Count = 50
    tensorboard: bool = True
    samples: bool = False


class Recipe(Table):
    """Everything that decides what a run computes, and how it is logged.

    ``data.size`` can be given instead of the sizes that it sets: see ``cruciform.training.recipe.sizes``.

    Attributes:
        model: The network to train.
        data: The data set to train on.
        train_transforms: Transforms of training samples, in order.
        eval_transforms: Transforms of samples for evaluation, in order.
        optimizer: The optimizer: sgd, adamw, or one that another package adds.
        schedule: The learning rate schedule.
        loss: The training objective.
        distill: Learn from a teacher besides; None: from the labels alone.
        epochs: Number of epochs.
        batch_size: Samples in a training batch, over all ranks.
        grad_accum_steps: Number of parts that a rank's batch is computed in, to save memory.
        grad_clip_norm: Largest norm of the gradient; None: no clipping.
        ema: Decay of the exponential moving average of the weights, which is evaluated instead of the weights; None:
            no average.
        lookahead: Settings of Lookahead; None: not used.
        freeze: From parameter name patterns to the fraction of training after which they are frozen; 0: from the
            start.
        precision: Of the computation; weights are always float32. ``auto``: bf16 where the device has instructions
            for it, else fp32; a run keeps what it started with.
        channels_last: Whether to use the channels-last memory format, which is faster for most convolutions.
        compile: Whether to use torch.compile.
        seed: Of all random numbers.
        nan_policy: What to do when a gradient is NaN or Inf: ``stop``; ``skip`` the step; or ``rollback`` to the last
            checkpoint and resume with the next batch.
        evaluation: How the network is evaluated.
        checkpoint: When checkpoints are saved.
        log: What is logged.
    """

    shorthands: ClassVar[tuple[str, ...]] = (SIZE,)

    model: ModelTable
    data: DataTable
    train_transforms: Transforms = ()
    eval_transforms: Transforms = ()
    optimizer: Optimizer
    schedule: Schedule = Constant()
    loss: Loss = CrossEntropy()
    distill: DistillTable | None = None
    epochs: Count
    batch_size: Count
    grad_accum_steps: Count = 1
    grad_clip_norm: Annotated[float, Field(gt=0)] | None = None
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    lookahead: LookaheadTable | None = None
    freeze: dict[str, Fraction] = Field(default_factory=dict)
    precision: Literal["fp32", "bf16", "fp16", "auto"] = "fp32"
    channels_last: bool = True
    compile: bool = False
    seed: int = Field(default=0, ge=0, lt=2**32)
    nan_policy: Literal["stop", "skip", "rollback"] = "stop"
    evaluation: EvaluationTable = EvaluationTable()
    checkpoint: CheckpointTable = CheckpointTable()
    log: LogTable = LogTable()

    @model_validator(mode="before")
    @classmethod
    def _fill_sizes(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if renamed := describe_renamed(value):
            raise ValueError(renamed)
        return fill_sizes(value)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return self.model_dump(mode="json")


def _check_name(find: Callable[[str], object], name: str) -> str:
    try:
        find(name)
    except (LookupError, PlanError) as error:
        raise ValueError(str(error)) from None
    return name
