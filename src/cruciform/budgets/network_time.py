"""Time whole networks in an engine, interleaved."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from cruciform.budgets.yardstick import YARDSTICK, build_yardstick
from cruciform.deployment.search.build import EngineSettings, build_graph, noise, write_engine
from cruciform.deployment.search.clock import Timing, time_engines
from cruciform.deployment.search.layer_forms import Form, forms_of_layers
from cruciform.deployment.targets.target import Engine
from cruciform.errors import DeployError
from cruciform.measure.state_guard import in_mode

DENSE_NETWORK = "dense"
"""The name of the network whose engines are kept."""


def time_network(
    networks: Mapping[str, tuple[nn.Module, Mapping[str, Form]]],
    setting: EngineSettings,
    *,
    kept: dict[str, Engine] | None = None,
) -> dict[str, Timing]:
    """Time networks in given forms and the yardstick, interleaved, each network in its fastest export.

    Args:
        networks: The networks by name, and the form of each converted convolution.
        setting: The engine and batch size.
        kept: Engines of the dense network and of the yardstick, from one call to the next: they take long to build.
    """
    setting = setting.for_times()
    with tempfile.TemporaryDirectory() as folder:
        engines: dict[str, Engine] = dict(kept or {})
        problems = []
        for name, (model, given) in networks.items():
            if any(key.partition("\0")[0] == name for key in engines):
                continue  # kept from an earlier call
            try:
                with in_mode(model, training=False):
                    graph = build_graph(model, forms_of_layers(model, given), setting)
            except DeployError as error:
                problems.append(f"{name}: {error}")
                continue
            for way in setting.ways():
                try:
                    made = Path(tempfile.mkdtemp(dir=folder))
                    engines[f"{name}\0{way}"] = write_engine(graph, way, setting, made)
                except DeployError as error:
                    problems.append(f"{name}, {way}: {error}")
        if YARDSTICK not in engines:
            engines[YARDSTICK] = build_yardstick(setting, Path(tempfile.mkdtemp(dir=folder)))
        if kept is not None:
            kept |= {
                key: engine for key, engine in engines.items() if key.partition("\0")[0] in (DENSE_NETWORK, YARDSTICK)
            }
        times = time_engines(
            engines, noise(setting.batch, setting.input_size), rounds=setting.rounds, threads=setting.threads
        )
    best: dict[str, Timing] = {}
    for key, timing in times.items():
        name = key.partition("\0")[0]
        if name not in best or timing.best < best[name].best:
            best[name] = timing
    missing = set(networks) - set(best)
    if missing:
        raise DeployError(f"{', '.join(sorted(missing))} can't be built for this target: {'; '.join(problems)}")
    return best
