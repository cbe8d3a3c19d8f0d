"""``cruciform.compress``: a trained network made cheaper without training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from cruciform.budgets.units.cost_unit import Limit
    from cruciform.compression.compression_result import Compression
    from cruciform.networks.open_network import OpenedNetwork


@dataclass(frozen=True)
class CompressOptions:
    """How ``compress`` calibrates and measures.

    Attributes:
        count: Calibration images that are taken of a folder, recipe or run.
        protect: Name patterns of layers to keep dense.
        block: Layers that are fitted in one pass of the compressed network; 1 is the most exact, more are faster in
            networks of hundreds of layers.
        threads: Threads of the engine.
        rounds: How often candidates are timed, interleaved; the shortest time counts.
        finetune: Epochs of fine-tuning after the fit, by labels and by the original's outputs; 0: none. It needs a
            recipe or a run in place of images.
        int8: A directory for an artifact in int8, of the int8 variant of the engine, beside the original in int8; None:
            none is made.
        state: A folder from which a compression that was stopped is resumed; None: nothing is kept.
        on_progress: Called with what is being done.
    """

    count: int = 1024
    protect: Sequence[str] = ()
    block: int = 1
    threads: int = 1
    rounds: int = 7
    finetune: int = 0
    int8: str | Path | None = None
    state: str | Path | None = None
    on_progress: Callable[[str], None] | None = None


def compress(
    model: "nn.Module | OpenedNetwork | str | Path",
    images: "Tensor | NDArray[Any] | str | Path | None" = None,
    budget: "str | Mapping[str, str | Limit]" = "60%",
    *,
    target: str = "onnxruntime",
    batch: int = 1,
    evaluate: "Callable[[nn.Module], float] | None" = None,
    options: CompressOptions | None = None,
) -> "Compression":
    """Compress a trained network: its layers chosen by measured time, and fitted to what they compute.

    No labels and no training are needed, only a few hundred inputs.

    Args:
        model: A trained network: an ``nn.Module``, a reference (a run, a model directory), or what ``open_network``
            returns; for ``package.module:function`` give ``open_network(..., weights=FILE)``.
        images: Preprocessed inputs ``(n, channels, …)``, or where to take them from: a folder of images, a recipe or a
            run. Left out: the training images of the run that the network comes from.
        budget: The time of a batch, as ``"60%"`` of the original's or ``"12ms"``; or several limits by cost unit, as
            for ``cruciform.budget``.
        target: The engine, by its name in ``cruciform.deployment.targets``.
        batch: The batch size.
        evaluate: Called with the network before and after; its number, such as an accuracy, is reported.
        options: Calibration, protected layers, threads, rounds, where to resume from, progress.

    Raises:
        BudgetError: The budget can't be met.
    """
    import torch

    from cruciform.compression.calibration_inputs import calibration_images
    from cruciform.compression.compress import CompressionOptions
    from cruciform.compression.compression_result import Compression
    from cruciform.compression.finetune import find_training_data
    from cruciform.compression.pipeline import Pipeline
    from cruciform.compression.quantize import int8_target
    from cruciform.deployment.artifact import refuse_to_overwrite
    from cruciform.deployment.search.build import EngineSettings
    from cruciform.deployment.search.layer_forms import refuse_converted
    from cruciform.deployment.targets.target import TARGETS
    from cruciform.networks.open_network import resolve_network

    options = options or CompressOptions()
    budgets = {"time": budget} if isinstance(budget, str) else dict(budget)
    engine = TARGETS.get(target)
    opened = resolve_network(model)
    refuse_converted(opened.model, opened.reference)
    int8 = None if options.int8 is None else Path(options.int8)
    if int8 is not None:  # before minutes of work
        int8_target(target)
        refuse_to_overwrite(int8)
    recipe = find_training_data(opened, images) if options.finetune else None
    if images is None or isinstance(images, str | Path):
        inputs = calibration_images(opened, images, options.count)
    else:
        inputs = torch.as_tensor(images)
    size = tuple(inputs.shape[1:]) if opened.input_size is None else opened.input_size
    setting = EngineSettings(engine, size, batch=batch, threads=options.threads, rounds=options.rounds)
    state = None if options.state is None else Path(options.state)
    on_progress = options.on_progress or (lambda what: None)
    how = CompressionOptions(tuple(options.protect), options.block, state, on_progress)
    pipeline = Pipeline(opened, inputs, setting, how, evaluate)
    report = pipeline.run(budgets, recipe=recipe, epochs=options.finetune, int8=int8)
    return Compression(report, opened.base, opened.interface)
