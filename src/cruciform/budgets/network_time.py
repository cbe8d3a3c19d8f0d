"""Time whole networks in an engine, interleaved."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from cruciform.budgets.yardstick import YARDSTICK, build_yardstick
from cruciform.deployment.search.build import Build, EngineSettings, build_engine, noise
from cruciform.deployment.search.clock import Timing, time_engines
from cruciform.deployment.search.layer_forms import Form, forms_of_layers
from cruciform.errors import DeployError
from cruciform.measure.state_guard import in_mode


def time_network(
    networks: Mapping[str, tuple[nn.Module, Mapping[str, Form]]], setting: EngineSettings
) -> dict[str, Timing]:
    """Time networks in given forms and the yardstick, interleaved, each network in its fastest export.

    Args:
        networks: The networks by name, and the form of each converted convolution.
        setting: The engine and batch size.
    """
    setting = setting.for_times()
    with tempfile.TemporaryDirectory() as folder:
        engines, problems = {}, []
        for name, (model, given) in networks.items():
            forms = forms_of_layers(model, given)
            for way in setting.ways():
                try:
                    made = Path(tempfile.mkdtemp(dir=folder))
                    with in_mode(model, training=False):
                        engines[f"{name}\0{way}"] = build_engine(model, Build(forms, way), setting, made)
                except DeployError as error:
                    problems.append(f"{name}, {way}: {error}")
        engines[YARDSTICK] = build_yardstick(setting, Path(tempfile.mkdtemp(dir=folder)))
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
