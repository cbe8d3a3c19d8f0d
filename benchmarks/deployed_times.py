"""Milliseconds of deployed networks: the fastest build of each is found first, then all are timed, interleaved.

A build that was found is kept, so that an interrupted search continues with the next network.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from finished_rows import read_rows, write_row
from torch import nn

from cruciform.deployment.bench.bench import prefixed, time_side_by_side
from cruciform.deployment.search.build import Build, EngineSettings, build_engine, noise
from cruciform.deployment.search.choose import choose_build
from cruciform.deployment.targets.target import Engine


def deployed_times(
    models: Mapping[str, nn.Module],
    settings: Mapping[str, EngineSettings],
    builds: Path,
    on_progress: Callable[[str], None],
) -> dict[str, Any]:
    """Return the times of each network in its fastest build.

    Args:
        models: The networks, the baseline first: where its time drifts, the machine is too busy.
        settings: For each network the engine, the input size and the time limit of the search.
        builds: Where builds are kept.
        on_progress: Called with what is being done.

    Raises:
        DeployError: The baseline's time drifted by more than 10 % in every attempt.
    """
    for name, model in models.items():
        if name not in read_rows(builds):
            build = choose_build(model, settings[name], on_progress=prefixed(on_progress, name)).build
            write_row(builds, name, {"forms": dict(build.forms), "way": build.way})
    chosen = {name: Build(**read_rows(builds)[name]) for name in models}
    with tempfile.TemporaryDirectory() as folder:
        engines = {
            name: _on_noise(
                build_engine(models[name], build, settings[name], Path(tempfile.mkdtemp(dir=folder))), settings[name]
            )
            for name, build in chosen.items()
        }
        baseline = next(iter(models))
        others = {name: engine for name, engine in engines.items() if name != baseline}
        times = time_side_by_side({baseline: engines[baseline]}, others, settings[baseline], on_progress)
    return {
        name: {
            "milliseconds": 1e3 * timing.best,
            "milliseconds_median": 1e3 * timing.middle,
            "milliseconds_rounds": [round(1e3 * seconds, 4) for seconds in timing.rounds],
            "way": chosen[name].way,
            "forms": dict(chosen[name].forms),
        }
        for name, timing in times.items()
    }


def _on_noise(engine: Engine, setting: EngineSettings) -> Engine:
    """Return an engine that runs on noise of its own input size, whatever it is given."""
    images = noise(setting.batch, setting.input_size)
    return lambda _: engine(images)
