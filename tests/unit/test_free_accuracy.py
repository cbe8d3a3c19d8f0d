"""What costs nothing once a network is deployed, on trial: optimizers, layers, and what is concluded from the runs."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from cruciform.models.network import MODELS
from cruciform.models.zoo import create_model
from cruciform.nn.composite import CompositeConv
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec
from cruciform.training.experiments.race import Finish
from cruciform.training.optimizers.optimizer_table import OPTIMIZERS

ROOT = Path(__file__).parents[2]
Modules = Callable[[str], ModuleType]
TRIALS = ("trial_layers", "trial_optimizers")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Modules]:
    """Import benchmarks; what those on trial register is taken back, so that other tests do not find it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for registry in (MODELS, OPTIMIZERS):
        registry.names()  # loaded before it is copied
        monkeypatch.setattr(registry, "_items", dict(registry._items))
    yield importlib.import_module
    for name in TRIALS:
        sys.modules.pop(name, None)


def test_orthogonalized_keeps_directions_and_makes_all_lengths_alike(benchmark: Modules) -> None:
    make = benchmark("trial_optimizers").orthogonalized
    for shape in ((24, 90), (90, 24)):
        matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
        u, before, v = torch.linalg.svd(matrix, full_matrices=False)
        found = make(matrix, steps=5)
        after = u.T @ found @ v.T
        assert before[0] / before[-1] > 2.5, "there is something to make alike"
        assert torch.allclose(after, torch.diag(after.diagonal()), atol=1e-4)
        assert after.diagonal().min() > 0.6
        assert after.diagonal().max() < 1.3


def test_muon_moves_kernels_by_the_learning_rate_whatever_the_gradient(benchmark: Modules) -> None:
    """A kernel of d filters and its step have d singular values; everything else takes the step of SGD."""
    table = benchmark("trial_optimizers").Muon(lr=0.5, momentum=0.0, kernel_lr=0.1, kernel_momentum=0.0)
    moved = []
    for size in (1e-3, 1e3):
        model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.Linear(4, 2))
        optimizer = table.build(model)
        kernel, matrix = model[0].weight, model[1].weight
        with torch.no_grad():
            kernel.mul_(4 / kernel.norm())  # as every step leaves it: √16
        before, matrix_before = kernel.detach().clone(), matrix.detach().clone()
        for parameter in (kernel, matrix):
            parameter.grad = size * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        optimizer.step()
        moved.append(float((kernel.detach() - before).norm()))
        assert torch.allclose(matrix.detach(), matrix_before - 0.5 * matrix.grad)
        assert model[0].bias.grad is None
    assert moved[0] == pytest.approx(moved[1], rel=1e-3)
    assert 0.6 * 0.1 * 4 < moved[0] < 1.3 * 0.1 * 4


def test_product_decay_is_the_gradient_of_the_dense_kernel(benchmark: Modules) -> None:
    """By differences, of a join; a layer of one stage decays as ever."""
    table = benchmark("trial_optimizers").ProductDecay(lr=1.0, momentum=0.0, weight_decay=0.3)
    spec = ConvSpec(3, 4, (3, 3), padding=1, bias=False)
    chain, single = CompositeConv(make_plan(spec, "lr-join")).double(), CompositeConv(make_plan(spec, "lr")).double()
    model = nn.Sequential(chain, single)
    optimizer = table.build(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = [parameter.detach().clone() for parameter in model.parameters()]

    def penalty() -> float:
        return 0.15 * float(chain.dense_kernel().weight.detach().square().sum())

    def slope(parameter: nn.Parameter, place: tuple[int, ...]) -> float:
        found = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                parameter[place] += step
            found.append(penalty())
            with torch.no_grad():
                parameter[place] -= step
        return (found[0] - found[1]) / 2e-5

    wanted = {name: slope(parameter, (1, 0, 0, 0)) for name, parameter in chain.named_parameters()}
    optimizer.step()
    after = dict(zip((name for name, _ in model.named_parameters()), before, strict=True))
    for name, value in wanted.items():
        moved = after[f"0.{name}"] - chain.get_parameter(name).detach()
        assert float(moved[1, 0, 0, 0]) == pytest.approx(value, rel=1e-5)
        assert abs(value) > 1e-6
    for name, parameter in single.named_parameters():
        assert torch.allclose(parameter.detach(), 0.7 * after[f"1.{name}"])


@pytest.mark.parametrize("scheme", ["full", "cross:full=0.25", "lr-join"])
def test_a_summed_network_becomes_an_ordinary_one_exactly(scheme: str, benchmark: Modules) -> None:
    layers = benchmark("trial_layers")
    options: dict[str, Any] = {"schemes": [[scheme] * 2] * 3, "widths": [8, 16, 16], "init": "identity"}
    model = create_model(layers.NAME, **options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in ("product_", "after_", "before_", "point_", "scale_")):
                parameter.add_(0.1 * torch.randn(parameter.shape))
    x = torch.randn(4, 3, 32, 32)
    in_training = model.train()(x)
    summed = model.eval()(x).detach()
    plain = layers.merged_(model)
    assert not [module for module in plain.modules() if isinstance(module, layers.SummedConv)]
    assert torch.equal(plain(x), summed)
    assert torch.allclose(plain.train()(x), in_training, atol=1e-5)
    ordinary = create_model("cifar_fast", **options)
    assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in ordinary.parameters())


def test_every_part_of_a_summed_kernel_learns(benchmark: Modules) -> None:
    model = create_model(benchmark("trial_layers").NAME, widths=[8, 16, 16], init="identity")
    model(torch.randn(2, 3, 32, 32)).square().sum().backward()
    conv = model.blocks[1].convs[0]
    still = [name for name, parameter in conv.named_parameters() if not bool(parameter.grad.any())]
    assert not still
    assert len(list(conv.named_parameters())) == 8


def finish(name: str, seed: int, percent: float) -> Finish:
    curve = [{"epoch": 5, "seconds": 1.0, "top1": percent / 100 - 0.01, "top1_flip_tta": percent / 100}]
    return Finish(name, seed, 59, 9, 50, {"model": {"name": "cifar_fast"}, "optimizer": {"kind": "sgd"}}, curve, {})


def runs(**accuracies: tuple[float, ...]) -> list[Finish]:
    return [finish(name, seed, one) for name, each in accuracies.items() for seed, one in enumerate(each, start=1)]


def test_a_gain_is_at_equal_training_time(benchmark: Modules) -> None:
    module = benchmark("free_accuracy")
    found = runs(cross_plain=(90.0, 91.0, 92.0), cross_longer=(90.5, 91.5, 92.5), cross_reparam=(91.0, 92.0, 93.0))
    steps = {"cross_plain": {"seconds": [1.0, 2.0, 9.0]}, "cross_reparam": {"seconds": [1.2, 2.4, 9.0]}}
    summary = module.summarize_trials(found, steps)
    # One point, but 0.2 of 5 epochs more; an epoch is worth half a point.
    assert summary["cross_reparam_gain"] == pytest.approx(1.0 - 0.5)
    assert summary["cross_reparam_gain_standard_error"] == round((1 / 3 + 1 / 3) ** 0.5, 3)
    assert "cross_reparam_gain" not in module.summarize_trials(found, {}), "what a step costs is not known"
    assert "dense_reparam_gain" not in summary


def test_a_learning_rate_is_chosen_on_a_seed_that_does_not_count(benchmark: Modules) -> None:
    module = benchmark("free_accuracy")
    chosen = [finish(f"cross_muon_lr={lr}", 0, 80 + lr) for lr in (0.08, 0.16, 0.32)]
    first = {(run.name, run.seed) for run in module.runs_in_order([])}
    assert {name for name, seed in first if seed == 0} == {
        f"{network}_muon_lr={lr:g}" for network in ("cross", "dense") for lr in module.KERNEL_LRS
    }
    assert not [name for name, seed in first if "muon" in name and seed], "nothing is chosen yet"
    after = {(run.name, run.seed) for run in module.runs_in_order(chosen)}
    assert after - first == {("cross_muon_lr=0.32", seed) for seed in module.SEEDS}
    summary = module.summarize_trials(chosen, {})
    assert not [key for key in summary if key.endswith("_accuracy")], "the seed of the choice does not count"


RECIPES = """
import json, free_accuracy
lrs = {"muon": 0.16}
found = {
    f"{network} {trial}": free_accuracy.TrialRun(network, trial, 1, lrs.get(trial)).recipe().to_dict()
    for trial, (_, networks) in free_accuracy.TRIALS.items() for network in networks
}
print(json.dumps(found))
"""


def test_trials_change_what_they_are_named_for_alone() -> None:
    """In a process of its own: a recipe knows the optimizers that are registered before it is imported."""
    start = f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r})"
    done = subprocess.run([sys.executable, "-c", start + RECIPES], capture_output=True, text=True, check=True)
    recipes = json.loads(done.stdout)
    parts = {
        "muon": ["optimizer"],
        "reparam": ["model"],
        "longer": ["epochs", "evaluation"],
        "product_decay": ["optimizer"],
    }
    assert len(recipes) == 11
    for name, recipe in recipes.items():
        network, trial = name.split()
        plain = recipes[f"{network} plain"]
        assert recipe["data"]["holdout"] == 5000
        assert sorted(key for key in plain if plain[key] != recipe[key]) == parts.get(trial, [])
