"""Predicts for many images, part by part: here, or wherever Ray Data places the parts."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cruciform.errors import RunError
from cruciform.prediction.inputs import Inputs, open_inputs
from cruciform.prediction.parts import Asking, Parts
from cruciform.prediction.predictor import Predictor, open_predictor
from cruciform.prediction.request import Request, check_request
from cruciform.training.backends.ray import cluster, import_ray


class Predicted(NamedTuple):
    """What came of it.

    Attributes:
        inputs: How many there were.
        errors: How many got no prediction, being no images or of another size; their rows say why.
        computed: Parts that were computed now; others were there already.
    """

    inputs: int
    errors: int
    computed: int


def run_prediction(
    request: Request,
    asking: Asking,
    *,
    workers: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> Predicted:
    """Predicts for all inputs; what an interrupted call has done already is not done again.

    Args:
        request: What is asked.
        asking: How predictions are made.
        workers: Processes on a Ray cluster; None: this process alone.
        on_progress: Called with the number of parts that are done, and of all parts.
    """
    check_request(request)
    predictor = open_predictor(request.model, threads=request.threads, trust=request.trust)
    inputs = open_inputs(request.inputs, short_side=predictor.preparation.short_side)
    out = Path(request.out)
    parts = Parts(out, len(inputs), asking)
    begun = predictor.identity, inputs.identity
    parts.begin(dict(zip(("network", "inputs"), begun, strict=True)))
    missing = parts.missing()
    done = parts.count - len(missing)
    on_progress(done, parts.count)
    if workers is None:
        made = _here(parts, missing, predictor, inputs)
    else:
        made = _on_ray(request, asking, missing, workers, begun)
    for _ in made:
        done += 1
        on_progress(done, parts.count)
    return Predicted(len(inputs), parts.join(), len(missing))


def _here(parts: Parts, missing: list[int], predictor: Predictor, inputs: Inputs) -> Iterator[Any]:
    for number in missing:
        parts.make(number, predictor, inputs)
        yield number


class _Worker:
    """Makes parts, in a process of Ray's; the network is opened once."""

    def __init__(self, request: tuple[Any, ...], asking: tuple[Any, ...], begun: tuple[str, str]) -> None:
        self._request, asked = Request(*request), Asking(*asking)
        self._predictor = open_predictor(self._request.model, threads=self._request.threads, trust=self._request.trust)
        self._inputs = open_inputs(self._request.inputs, short_side=self._predictor.preparation.short_side)
        self._parts = Parts(Path(self._request.out), len(self._inputs), asked)
        # A run may have trained on since, and a folder may have got one more image, or be another on this machine.
        now = self._predictor.identity, self._inputs.identity
        names = self._request.model, self._request.inputs
        self._changed = [name for name, before, after in zip(names, begun, now, strict=True) if before != after]

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        if self._changed:  # not when it is made: Ray would make it again and again
            raise RunError(f"{self._changed[0]} has changed since the prediction began; start it again")
        for number in batch["item"]:
            self._parts.make(int(number), self._predictor, self._inputs)
        return batch


def _on_ray(
    request: Request, asking: Asking, missing: list[int], workers: int, begun: tuple[str, str]
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
            fn_constructor_args=(tuple(absolute), tuple(asking), begun),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=1,
            max_restarts=-1,
            max_task_retries=-1,
        )
        yield from data.iter_rows()
