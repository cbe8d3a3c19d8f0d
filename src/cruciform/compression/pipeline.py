"""The stages of a compression, one after the other: fitted, fine-tuned, int8. Each is evaluated and timed."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cruciform.budgets.units.cost_unit import Limit, read_limits
from cruciform.compression.compress import CompressionOptions, Compressor
from cruciform.compression.compression_report import CompressionReport
from cruciform.compression.compression_stage import FITTED, ORIGINAL, CompressionStage
from cruciform.compression.finetune import finetune_, finetuning_recipe
from cruciform.compression.quantize import Quantized, int8_target, quantize
from cruciform.data.transforms.whitening import cache_folder
from cruciform.deployment.search.build import EngineSettings
from cruciform.networks.open_network import OpenedNetwork
from cruciform.training.recipe.recipe import Recipe

INT8_IMAGES = 300
"""Calibration images of the quantization, at most."""


@dataclass(frozen=True)
class Pipeline:
    """A trained network, and all that its compression needs.

    Attributes:
        opened: The network.
        images: Calibration inputs, (n, channels, …), preprocessed.
        setting: The engine, batch size and threads.
        options: Protected layers, sampling, where to resume from, progress.
        evaluate: Called with the network after each stage; None: nothing is evaluated.
    """

    opened: OpenedNetwork
    images: Tensor
    setting: EngineSettings
    options: CompressionOptions
    evaluate: Callable[[nn.Module], float] | None = None

    def run(
        self, budgets: Mapping[str, str | Limit], *, recipe: Recipe | None, epochs: int, int8: Path | None
    ) -> CompressionReport:
        """Run all stages that are asked for.

        Args:
            budgets: By cost unit.
            recipe: Has the data for the fine-tuning; None: there is none.
            epochs: Of the fine-tuning.
            int8: Where the artifact in int8 is written; None: none is made.
        """
        opened, options, limits = self.opened, self.options, read_limits(budgets)
        started = time.monotonic()
        compressor = Compressor(opened.model, self.images, self.setting, cache_folder() / "costs", options)
        compressed = compressor.compress(limits)
        seconds = time.monotonic() - started
        made = compressed.conversion.model
        original = CompressionStage(ORIGINAL, 0.0, self._judge(opened.model))
        stages = [original, CompressionStage(FITTED, seconds, self._judge(made))]
        if recipe is not None:
            stages.append(
                finetune_(
                    made,
                    opened.model,
                    finetuning_recipe(recipe, epochs),
                    options.state,
                    judge=self._judge,
                    fitted=stages[-1],
                    on_progress=options.on_progress,
                )
            )
        quantized = self._quantized(made, int8) if int8 is not None else None
        about: dict[str, Any] = {
            "network": opened.reference,
            **self.setting.about,
            "images": len(self.images),
            "budgets": {name: str(limit) for name, limit in budgets.items()},
        }
        return CompressionReport(compressed, tuple(stages), about, quantized)

    def _quantized(self, made: nn.Module, directory: Path) -> Quantized:
        images = self.images[:INT8_IMAGES].cpu().numpy()
        target = int8_target(self.setting.target.name).with_images(images)
        return quantize(
            self.opened.model,
            made,
            replace(self.setting, target=target),
            directory,
            about={"network": self.opened.reference, **self.opened.interface._asdict()},
            judge=self._judge,
            on_progress=self.options.on_progress,
        )

    def _judge(self, network: nn.Module) -> float | None:
        if self.evaluate is None:
            return None
        self.options.on_progress("the evaluation")
        return float(self.evaluate(network))
