"""``cruciform.predict``: the best classes of many images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cruciform.prediction.predictions import Predictions

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from cruciform.deployment.deployed import Artifact
    from cruciform.networks.open_network import OpenedNetwork
    from cruciform.prediction.predictor import Predictor


@dataclass(frozen=True)
class PredictOptions:
    """How ``predict`` works.

    Attributes:
        top: How many classes are kept for each image, the best ones.
        batch: The batch size.
        part: Images between two points that an interrupted prediction resumes from; for files only.
        threads: Threads of the engine, in each process.
        trust: Whether to open an artifact that could do harm if it were forged.
        workers: Processes on a Ray cluster; None: this process.
        on_progress: Called with the number of parts that are done, and of all parts.
    """

    top: int = 5
    batch: int = 16
    part: int = 1024
    threads: int = 1
    trust: bool = False
    workers: int | None = None
    on_progress: Callable[[int, int], None] | None = None


def predict(
    model: "nn.Module | OpenedNetwork | Artifact | str | Path",
    images: "str | Path | Sequence[NDArray[Any]]",
    output: str | Path | None = None,
    *,
    weights: str | Path | None = None,
    input_size: Sequence[int] | None = None,
    options: PredictOptions | None = None,
) -> Predictions:
    """Predict the best classes of many images.

    Args:
        model: An artifact (its directory, or what ``deploy`` returns), a run, a model directory, another reference, or
            what ``open_network`` returns. Its preprocessing must be known.
        images: A folder of images, a set of shards, or a sequence of uint8 arrays (height, width, channels).
        output: The .parquet file to write. An interrupted call resumes where it stopped. Left out: rows in memory.
        weights: A .safetensors file with trained weights, for a network that is built by name or function.
        input_size: Channels and spatial size of one preprocessed image; left out: the network's usual one.
        options: Number of classes, batch size, threads, Ray workers, trust, progress.

    Returns:
        The rows, or the file that has them. An image that can't be read has a row with the error.
    """
    from cruciform.errors import OptionError
    from cruciform.prediction.request import Request, check_output_file, check_request, is_predictable
    from cruciform.store.check_reference import check_reference

    options = options or PredictOptions()
    on_progress = options.on_progress or (lambda done, of: None)
    is_directory = isinstance(model, str | Path) and is_predictable(Path(model))
    if isinstance(model, str | Path) and not is_directory:
        check_reference(str(model))
    by_path = is_directory and weights is None and input_size is None
    if output is not None and by_path and isinstance(images, str | Path):
        request = Request(str(model), str(images), str(output), options.threads, options.trust)
        check_request(request)  # before the packages that reading it needs are imported
        from cruciform.prediction.predict_images import run_prediction
        from cruciform.prediction.predict_rows import PredictionSettings

        settings = PredictionSettings(options.top, options.batch, options.part)
        return run_prediction(request, settings, workers=options.workers, on_progress=on_progress)
    if output is not None:
        check_output_file(Path(output))
    if options.workers is not None:
        raise OptionError(
            "workers on a Ray cluster need an artifact, a run or a model directory by its path, images by path, and an "
            "output file"
        )
    from cruciform.prediction.inputs import ArrayInputs, open_inputs
    from cruciform.prediction.predict_rows import PredictionSettings, predict_rows

    predictor = _open(model, weights, input_size, options)
    short_side = predictor.preparation.short_side
    inputs = open_inputs(str(images), short_side=short_side) if isinstance(images, str | Path) else ArrayInputs(images)
    settings = PredictionSettings(options.top, options.batch, options.part)
    if output is not None:
        from cruciform.prediction.predict_images import predict_to_file

        return predict_to_file(predictor, inputs, Path(output), settings, on_progress=on_progress)
    rows = predict_rows(predictor, inputs, range(len(inputs)), settings)
    return Predictions(len(inputs), sum(row["error"] is not None for row in rows), rows=tuple(rows))


def _open(
    model: "nn.Module | OpenedNetwork | Artifact | str | Path",
    weights: str | Path | None,
    input_size: Sequence[int] | None,
    options: PredictOptions,
) -> "Predictor":
    from cruciform.deployment.deployed import Artifact
    from cruciform.networks.open_network import resolve_network
    from cruciform.prediction.predictor import from_artifact, from_network, open_predictor
    from cruciform.prediction.request import is_artifact

    if isinstance(model, Artifact):
        return from_artifact(model)
    if isinstance(model, str | Path) and is_artifact(Path(model)):
        return open_predictor(str(model), threads=options.threads, trust=options.trust)
    opened = resolve_network(model, weights=weights, input_size=None if input_size is None else tuple(input_size))
    return from_network(opened.model, opened.needed_input_size, opened.interface, name=opened.reference)
