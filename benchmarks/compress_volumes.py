"""A trained 3-D ResNet-18 (AdrenalMNIST3D, 28³) compressed without training, to the MACs of ``planes`` and ``cross3``.

The area under the ROC curve on the test set, read once a network: the trained network, compressed to as many MACs as
each scheme would take; the scheme itself, fitted to outputs and to the weights; and the weight-space spatial SVD of as
many MACs, its ranks chosen by the same solver, by the energy that they keep. Calibration: training volumes without
labels. What is finished is kept in the cache folder, from where ``compress.py`` takes it into results/compress.json.

    CRUCIFORM_DATA=DIR python benchmarks/compress_volumes.py --seeds 3        can be stopped and repeated
"""

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import torch
from compress import PARTS, VOLUME_SCHEMES, fit, say, summarize_volumes
from compress_networks import NETWORKS, RUNS, run_of, trained
from torch import nn

import cruciform
from cruciform.budgets.solving.solver import Layer, solve
from cruciform.budgets.units.cost_unit import read_limits
from cruciform.budgets.value import kept_energy
from cruciform.compression.compress import CompressionOptions, Compressor
from cruciform.conversion.convert import convert
from cruciform.data.transforms.whitening import cache_folder
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.targets.target import TARGETS
from cruciform.nn.inspect import spec_of
from cruciform.schemes import DENSE, make_plan
from cruciform.training.engine.sample_images import sample_images

NAME = "volumes"
CALIBRATION = 1024
SIZE = (1, 28, 28, 28)


def auc(model: nn.Module) -> float:
    """Return the area under the ROC curve on the test set."""
    network = NETWORKS[NAME]
    found = cruciform.evaluate(model, recipe=cruciform.load_recipe(network.recipe, network.changes)).evaluation
    assert found.auc is not None  # noqa: S101 - the recipe asks for it
    return found.auc


def svd_at(macs: float, model: nn.Module, compressor: Compressor) -> nn.Module:
    """Return the weight-space SVD that keeps the most of the kernels' energy in at most so many MACs."""
    layers = []
    for layer in compressor.survey.layers:
        weight, spec = model.get_parameter(f"{layer.name}.weight").detach(), spec_of(model.get_submodule(layer.name))
        options = tuple(
            replace(option, value=kept_energy(make_plan(spec, option.name), weight))
            for option in layer.options
            if option.name.startswith(("sf:", DENSE))
        )
        layers.append(Layer(layer.name, options))
    dense = compressor.survey.dense
    found = solve(layers, {"MACs": macs * dense["MACs"]}, fixed=dense)
    mapping = {name: option.name for name, option in found.choices.items() if option.name != DENSE}
    return convert(model, mapping, init="fit", input_size=SIZE).model


def measure(seed: int) -> dict[str, Any]:
    model = trained(NAME, seed).eval()
    images = torch.from_numpy(sample_images(run_of(NAME, seed), CALIBRATION))
    setting = EngineSettings(TARGETS.get("onnxruntime"), SIZE)
    options = CompressionOptions(state=RUNS / f"{NAME}-{seed}-state", on_progress=lambda what: None)
    started = time.monotonic()
    compressor = Compressor(model, images, setting, cache_folder() / "costs", options)
    row: dict[str, Any] = {"dense": auc(model), "prepare_seconds": time.monotonic() - started}
    say(f"dense: AUC {row['dense']:.4f}")
    for scheme in VOLUME_SCHEMES:
        by_weights = convert(model, scheme, init="fit", input_size=SIZE)
        macs = cruciform.profile(by_weights.model, SIZE).macs / cruciform.profile(model, SIZE).macs
        mapping = {change.names[0]: scheme for change in by_weights.report.layers if change.plan is not None}
        ours = compressor.compress(read_limits({"macs": f"{100 * macs:.2f}%"}))
        row[scheme] = {
            "macs": macs,
            "ours": auc(ours.conversion.model),
            "ours_macs": ours.plan.predicted["MACs"] / ours.plan.dense["MACs"],
            "ours_share": ours.seconds / ours.dense_seconds,
            "mapping": ours.plan.mapping,
            "scheme": auc(fit(compressor, mapping).model),
            "weights": auc(by_weights.model),
            "svd": auc(svd_at(macs, model, compressor)),
        }
        say(f"{scheme}: {row[scheme]}")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="Compress a trained 3-D network without training.")
    parser.add_argument("--seeds", type=int, default=NETWORKS[NAME].seeds)
    for seed in range(parser.parse_args().seeds):
        if str(seed) not in PARTS["volumes"].read():
            PARTS["volumes"].write(str(seed), measure(seed))
    print(json.dumps(summarize_volumes(PARTS["volumes"].read()), indent=1))


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
