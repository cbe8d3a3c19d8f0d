"""Compressed and fine-tuned networks beside what users would do instead, at the same measured time.

At 60 and 45 % of the dense network's time in ONNX Runtime, one thread, batch 1: our network from ``compress.py``; the
spatial SVD of the weights; channels pruned by Torch-Pruning (group norm); all three fine-tuned for the same epochs, by
labels and by the original's outputs. And a narrower dense network, trained from scratch by the original's recipe for
as many MACs in all as the original and its fine-tuning took. Choices are made on held-out training images; the test set
is read once a network. Each network is kept in the cache folder when it is finished, so that the command can be stopped
and repeated.

    pip install torch-pruning
    CRUCIFORM_DATA=DIR python benchmarks/compress_rivals.py                          all seeds and budgets
    CRUCIFORM_DATA=DIR python benchmarks/compress_rivals.py cifar_fast --budget 45 --seeds 1
"""

import argparse
import copy
import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from compress import PARTS, SIZE, HeldOut, on_test_set, read_compressed, say, settings
from compress_networks import NETWORKS, ROOT, RUNS, run_of, trained
from compress_tuned import tune, tuned_of
from finished_rows import FinishedRows
from torch import nn

import cruciform
from cruciform.budgets.network_time import DENSE_NETWORK, time_network
from cruciform.cli.shared.run_progress import make_observer
from cruciform.conversion.convert import convert
from cruciform.measure.record import record_result

RESULT = ROOT / "results" / "compress-rivals.json"
ROWS = FinishedRows(RUNS / "finished-rivals", RESULT)
BUDGETS = (60, 45)
FAMILIES = {"cifar_fast": {}, "tiny": {"num_classes": 100}}
"""Networks of the library's own family, which can be built narrower, with the options of each."""
WIDTHS = (64, 256, 256)
ROUND = 8  # channels, which engines compute in blocks
OURS, SVD, PRUNED, NARROW = "ours", "svd", "pruning", "narrow"


def share_of(model: nn.Module, dense: nn.Module) -> float:
    """Return the measured time of a network, as a fraction of the dense one's."""
    times = time_network({DENSE_NETWORK: (dense, {}), "other": (model, {})}, settings())
    return times["other"].best / times[DENSE_NETWORK].best


def within(share: float, dense: nn.Module, made: Iterator[nn.Module]) -> nn.Module | None:
    """Return the first of some networks, given by falling cost, that takes no more than a share of the dense time."""
    for model in made:
        found = share_of(model, dense)
        say(f"  {found:.3f} of the dense time")
        if found <= 1.01 * share:
            return model
    return None


def pruned(dense: nn.Module, *, everywhere: bool) -> Iterator[nn.Module]:
    """Give networks with more and more channels pruned, by group norm."""
    import torch_pruning

    for percent in range(20, 75, 3):
        model = copy.deepcopy(dense)
        kept = [model.get_submodule(name) for name in ("head", "whiten")]
        importance = torch_pruning.importance.GroupMagnitudeImportance()
        pruner = torch_pruning.pruner.GroupNormPruner(
            model, torch.zeros(1, *SIZE), importance, global_pruning=everywhere, pruning_ratio=percent / 100,
            ignored_layers=kept, round_to=ROUND, max_pruning_ratio=0.9,
        )  # fmt: skip
        pruner.step()
        yield model.eval()


def narrow_widths() -> Iterator[list[int]]:
    """Give the widths of narrower and narrower networks."""
    for eighths in range(31, 7, -1):
        yield [max(ROUND, ROUND * round(width * eighths / 32 / ROUND)) for width in WIDTHS]


def make_pruned(name: str, seed: int, budget: int, share: float) -> nn.Module:
    """Prune to a share of the time, layer by layer alike or all layers together, whichever is better held-out."""
    dense = trained(name, seed).eval()
    held_out = HeldOut(run_of(name, seed), 2000)
    made = [within(share, dense, pruned(dense, everywhere=everywhere)) for everywhere in (False, True)]
    return max((model for model in made if model is not None), key=held_out.accuracy)


def make_svd(name: str, seed: int, budget: int, share: float) -> nn.Module:
    """Rebuild the weight-space SVD that ``compress.py`` chose at the same time."""
    mapping = PARTS["networks"].read()[f"{name}-{seed}"]["budgets"][str(budget)]["svd"]["mapping"]
    return convert(trained(name, seed).eval(), mapping, init="fit", input_size=SIZE).model


def make_ours(name: str, seed: int, budget: int, share: float) -> nn.Module:
    """Read the network that ``compress.py`` compressed."""
    return read_compressed(name, seed, budget)


def train_narrow(name: str, seed: int, budget: int, share: float, epochs: int) -> nn.Module:
    """Train a narrower network from scratch for as many MACs as the original and its fine-tuning took."""
    network, options = NETWORKS[name], FAMILIES[name]
    dense = cruciform.create_model("cifar_fast", widths=WIDTHS, **options).eval()  # trained or not takes the same time
    widths, models = [], []
    for each in narrow_widths():
        widths.append(each)
        models.append(cruciform.create_model("cifar_fast", widths=each, **options).eval())
    chosen = within(share, dense, iter(models))
    if chosen is None:
        raise SystemExit(f"no narrower network takes {share:.0%} of the dense time")
    recipe = cruciform.load_recipe(network.recipe, [*network.changes, f"seed={seed}"])
    macs = [cruciform.profile(model, input_size=SIZE).macs for model in (chosen, dense)]
    fraction = macs[0] / macs[1]
    longer = round((recipe.epochs + epochs * share) / fraction)
    chosen_widths = widths[models.index(chosen)]
    say(f"  widths {chosen_widths}, {fraction:.2f} of the MACs, {longer} epochs")
    written = ", ".join(f"{key}={value}" for key, value in {"widths": chosen_widths, **options}.items())
    changes = [*network.changes, f"seed={seed}", f"epochs={longer}", f"model.options={{{written}}}"]
    run = RUNS / f"{name}-{seed}-narrow-{budget}"
    return cruciform.train(cruciform.load_recipe(network.recipe, changes), run, observers=[make_observer()])


MAKERS: Mapping[str, Callable[[str, int, int, float], nn.Module]] = {
    OURS: make_ours, PRUNED: make_pruned, SVD: make_svd,
}  # fmt: skip


def measure(contestant: str, name: str, seed: int, budget: int, epochs: int) -> dict[str, Any]:
    """Make one network, fine-tune it or train it, and read the test set."""
    say(f"{name}, seed {seed}, {budget} %: {contestant}")
    share = PARTS["networks"].read()[f"{name}-{seed}"]["budgets"][str(budget)]["ours"]["share"]
    if contestant == NARROW:
        model = train_narrow(name, seed, budget, share, epochs)
    else:
        made = MAKERS[contestant](name, seed, budget, share)
        run = tuned_of(name, seed, budget, epochs, contestant)
        model = tune(name, seed, made, trained(name, seed).eval(), run, epochs)
    model.eval()
    dense = trained(name, seed).eval()
    found = {
        **on_test_set(name, model),
        "dense": on_test_set(name, dense),
        "share": share_of(model, dense),
        "macs": cruciform.profile(model, input_size=SIZE).macs,
        "epochs": epochs,
    }
    say(f"  {found}")
    return found


def summarize(rows: Mapping[str, Any]) -> dict[str, float]:
    """Return the flat summary of all that is finished."""
    summary: dict[str, float] = {}
    for name in FAMILIES:
        prefix = "tiny_" if name == "tiny" else ""
        for budget in BUDGETS:
            by_contestant: dict[str, dict[int, dict[str, Any]]] = {}
            for key, row in rows.items():
                network, seed, own, contestant = key.split("-")
                if network == name and int(own) == budget:
                    by_contestant.setdefault(contestant, {})[int(seed)] = row
            ours = by_contestant.get(OURS, {})
            for contestant, seeds in by_contestant.items():
                lost = [row["dense"]["flip_tta"] - row["flip_tta"] for row in seeds.values()]
                start = f"{name}_{budget}_{contestant}"
                summary |= {
                    f"{start}_seeds": len(lost),
                    f"{start}_loss": round(statistics.mean(lost), 2),
                    f"{start}_share": round(statistics.mean(row["share"] for row in seeds.values()), 3),
                }
                if len(lost) > 1:
                    summary[f"{start}_loss_std"] = round(statistics.stdev(lost), 2)
                both = [ours[seed]["flip_tta"] - row["flip_tta"] for seed, row in seeds.items() if seed in ours]
                if contestant != OURS and both:
                    summary[f"{prefix}ahead_of_{contestant}_{budget}"] = round(statistics.mean(both), 2)
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description="Compressed networks beside pruned, factorized and narrower ones.")
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(FAMILIES)}; all where none is given")
    parser.add_argument("--budget", type=int, action="append", help="of 60 and 45; both where none is given")
    parser.add_argument("--seeds", type=int, help="how many; each network's own number where left out")
    parser.add_argument("--epochs", type=int, default=3, help="of fine-tuning")
    parser.add_argument("--only", action="append", choices=[*MAKERS, NARROW], help="some of the contestants")
    given = parser.parse_args()
    for name in given.networks or FAMILIES:
        for seed in range(given.seeds or NETWORKS[name].seeds):
            for budget in given.budget or BUDGETS:
                for contestant in given.only or (*MAKERS, NARROW):
                    key = f"{name}-{seed}-{budget}-{contestant}"
                    if key not in ROWS.read():
                        ROWS.write(key, measure(contestant, name, seed, budget, given.epochs))
    rows = ROWS.read()
    summary = summarize(rows)
    record_result(
        RESULT,
        summary=summary,
        details=rows,
        command="python benchmarks/compress_rivals.py",
        n=len(rows),
        packages=("onnxruntime", "torch-pruning"),
    )
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
