"""Predict for many images, part by part: in this process, or on a Ray cluster."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cruciform.errors import RunError
from cruciform.prediction.inputs import Inputs, open_inputs
from cruciform.prediction.parts import Parts
from cruciform.prediction.predict_rows import PredictionSettings
from cruciform.prediction.predictions import Predictions
from cruciform.prediction.predictor import Predictor, open_predictor
from cruciform.prediction.request import Request, check_request
from cruciform.training.backends.ray import cluster, import_ray


def run_prediction(
    request: Request,
    settings: PredictionSettings,
    *,
    workers: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> Predictions:
    """Predict for all inputs and write a file, resuming an interrupted call.

    Args:
        request: The network, the inputs and the file.
        settings: How predictions are made.
        workers: Processes on a Ray cluster; None: this process alone.
        on_progress: Called with the number of parts that are done, and of all parts.
    """
    check_request(request)
    predictor = open_predictor(request.model, threads=request.threads, trust=request.trust)
    inputs = open_inputs(request.inputs, short_side=predictor.preparation.short_side)
    out = Path(request.out)
    if workers is None:
        return predict_to_file(predictor, inputs, out, settings, on_progress=on_progress)
    parts, missing = _begin(predictor, inputs, out, settings)
    begun = predictor.identity, inputs.identity
    return _finish(parts, missing, _on_ray(request, settings, missing, workers, begun), out, on_progress)


def predict_to_file(
    predictor: Predictor,
    inputs: Inputs,
    out: Path,
    settings: PredictionSettings,
    *,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> Predictions:
    """Predict in this process and write a file, resuming an interrupted call."""
    parts, missing = _begin(predictor, inputs, out, settings)
    return _finish(parts, missing, _here(parts, missing, predictor, inputs), out, on_progress)


def _begin(predictor: Predictor, inputs: Inputs, out: Path, settings: PredictionSettings) -> tuple[Parts, list[int]]:
    parts = Parts(out, len(inputs), settings)
    parts.begin({"network": predictor.identity, "inputs": inputs.identity})
    return parts, parts.missing()


def _finish(
    parts: Parts, missing: list[int], made: Iterator[Any], out: Path, on_progress: Callable[[int, int], None]
) -> Predictions:
    done = parts.count - len(missing)
    on_progress(done, parts.count)
    for _ in made:
        done += 1
        on_progress(done, parts.count)
    return Predictions(parts.inputs, parts.join(), len(missing), out)


def _here(parts: Parts, missing: list[int], predictor: Predictor, inputs: Inputs) -> Iterator[Any]:
    for number in missing:
        parts.make(number, predictor, inputs)
        yield number


class _Worker:
    """Computes parts in a process of Ray; the network is opened once."""

    def __init__(self, request: tuple[Any, ...], settings: tuple[Any, ...], begun: tuple[str, str]) -> None:
        self._request, asked = Request(*request), PredictionSettings(*settings)
        self._predictor = open_predictor(self._request.model, threads=self._request.threads, trust=self._request.trust)
        self._inputs = open_inputs(self._request.inputs, short_side=self._predictor.preparation.short_side)
        self._parts = Parts(Path(self._request.out), len(self._inputs), asked)
        # Since the start a run may have trained further, or a folder may have got an image, or differ on this machine.
        now = self._predictor.identity, self._inputs.identity
        names = self._request.model, self._request.inputs
        self._changed = [name for name, before, after in zip(names, begun, now, strict=True) if before != after]

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        if self._changed:  # not when it is made: Ray would make it again and again
            raise RunError(f"{self._changed[0]} has changed since the prediction started; start it again")
        for number in batch["item"]:
            self._parts.make(int(number), self._predictor, self._inputs)
        return batch


def _on_ray(
    request: Request, settings: PredictionSettings, missing: list[int], workers: int, begun: tuple[str, str]
) -> Iterator[Any]:
    if not missing:
        return
    ray = import_ray()
    importlib.import_module("ray.data")
    absolute = Request(
        str(Path(request.model).absolute()),
        request.inputs if "://" in request.inputs else str(Path(request.inputs).absolute()),
        str(Path(request.out).absolute()),
        request.threads,
        request.trust,
    )
    with cluster(ray):
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        data = ray.data.from_items(missing, override_num_blocks=len(missing)).map_batches(
            _Worker,
            fn_constructor_args=(tuple(absolute), tuple(settings), begun),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=1,
            max_restarts=-1,
            max_task_retries=-1,
        )
        yield from data.iter_rows()
