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
        block: Layers that are fitted by one pass of both networks; 1 is the most exact, more are faster in networks of
            hundreds of layers.
        threads: Threads of the engine.
        rounds: How often candidates are timed, interleaved; the shortest time counts.
        finetune: Epochs of fine-tuning after the fit, by labels and by the original's outputs; 0: none. It needs a
            recipe or a run in place of images.
        state: A folder from which a compression that was stopped is resumed; None: nothing is kept.
        on_progress: Called with what is being done.
    """

    count: int = 1024
    protect: Sequence[str] = ()
    block: int = 1
    threads: int = 1
    rounds: int = 7
    finetune: int = 0
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
    import time

    import torch

    from cruciform.budgets.units.cost_unit import read_limits
    from cruciform.compression.calibration_inputs import calibration_images
    from cruciform.compression.compress import CompressionOptions, Compressor
    from cruciform.compression.compression_report import FITTED, ORIGINAL, CompressionReport, CompressionStage
    from cruciform.compression.compression_result import Compression
    from cruciform.compression.finetune import find_training_data, finetune_, finetuning_recipe
    from cruciform.data.transforms.whitening import cache_folder
    from cruciform.deployment.search.build import EngineSettings
    from cruciform.deployment.search.layer_forms import refuse_converted
    from cruciform.deployment.targets.target import TARGETS
    from cruciform.networks.open_network import resolve_network

    options = options or CompressOptions()
    budgets = {"time": budget} if isinstance(budget, str) else dict(budget)
    limits = read_limits(budgets)
    engine = TARGETS.get(target)
    opened = resolve_network(model)
    refuse_converted(opened.model, opened.reference)
    recipe = find_training_data(opened, images) if options.finetune else None
    if images is None or isinstance(images, str | Path):
        inputs = calibration_images(opened, images, options.count)
    else:
        inputs = torch.as_tensor(images)
    size = tuple(inputs.shape[1:]) if opened.input_size is None else opened.input_size
    on_progress = options.on_progress or (lambda what: None)
    setting = EngineSettings(engine, size, batch=batch, threads=options.threads, rounds=options.rounds)
    state = None if options.state is None else Path(options.state)
    started = time.monotonic()
    compressor = Compressor(
        opened.model,
        inputs,
        setting,
        cache_folder() / "costs",
        CompressionOptions(
            tuple(options.protect),
            options.block,
            state,
            on_progress,
        ),
    )
    compressed = compressor.compress(limits)
    seconds = time.monotonic() - started

    def judge(network: "nn.Module") -> float | None:
        if evaluate is None:
            return None
        on_progress("the evaluation")
        return float(evaluate(network))

    made = compressed.conversion.model
    stages = [CompressionStage(ORIGINAL, 0.0, judge(opened.model)), CompressionStage(FITTED, seconds, judge(made))]
    if recipe is not None:
        tuning = finetuning_recipe(recipe, options.finetune)
        stages.append(
            finetune_(made, opened.model, tuning, state, judge=judge, fitted=stages[-1], on_progress=on_progress)
        )
    about = {
        "network": opened.reference,
        **setting.about,
        "images": len(inputs),
        "budgets": {name: str(limit) for name, limit in budgets.items()},
    }
    return Compression(CompressionReport(compressed, tuple(stages), about), opened.base, opened.interface)
