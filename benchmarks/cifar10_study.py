"""How is the saving spent best? Short runs on CIFAR-10, judged on the last 5,000 training images, never on test images.

Every trial is a change to a recipe, by name, below. All that ever ran is kept in the file, with its curve; a trial that
is in it is not run again. Only accuracies are compared: other work may go on beside, so the times say nothing.

    python benchmarks/cifar10_study.py                     all trials, one seed
    python benchmarks/cifar10_study.py 'init-*' --seeds 2  some of them; writes results/cifar10-study.json
    python benchmarks/cifar10_study.py cross --precision fp32    where the processor has no bfloat16
"""

import argparse
import shlex
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

from recorded_trials import run_trials

from cruciform.training.experiments.race import Contestant
from cruciform.training.recipe.cookbook import load_recipe

RESULT = Path(__file__).parents[1] / "results" / "cifar10-study.json"
HELD_OUT = "data.holdout=5000"
EPOCHS = 4


def member(schemes: list[list[str]], *, widths: tuple[int, ...] = (64, 256, 256), residual: bool = True) -> list[str]:
    """Returns the changes that make ``cifar_fast`` another member of its family."""
    text = str(schemes).replace("'", '"')
    return [
        f"model.options.schemes={text}",
        f"model.options.widths={list(widths)}",
        f"model.options.residual={str(residual).lower()}",
    ]


def blocks(*rows: str) -> list[list[str]]:
    """Reads blocks of schemes, each a text such as ``lr lr lr``."""
    return [row.split() for row in rows]


THREE = blocks("lr lr lr", "lr lr lr", "lr lr lr")
CROSS, HALF = "cross:full=0.25", "cross:full=0.5"
STARTS = ("identity", "paper-identity", "pytorch", "paper-completed")
FAST: dict[str, list[str]] = {
    # Width of the initial weights and identity start, apart from each other.
    **{f"init-{rule}": [*member(THREE), f"model.init={rule}"] for rule in STARTS},
    "whiten-bias": [*member(THREE), 'optimizer.lr_mult={"whiten.bias" = 1.0}'],
    # Where low rank hurts: one block of basis filters, the others dense.
    "dense": member(blocks("full full", "full full", "full full"), residual=False),
    "where-block1": member(blocks("lr lr", "full full", "full full"), residual=False),
    "where-block2": member(blocks("full full", "lr lr", "full full"), residual=False),
    "where-block3": member(blocks("full full", "full full", "lr lr"), residual=False),
    "where-first": member(blocks("lr full", "lr full", "lr full"), residual=False),
    "where-second": member(blocks("full lr", "full lr", "full lr"), residual=False),
    # Depth against width against shares of full filters, at 72 MMAC or less.
    "depth-2": member(blocks("lr lr", "lr lr", "lr lr"), residual=False),
    "depth-3": member(THREE),
    "depth-3-plain": member(THREE, residual=False),
    "depth-4": member(blocks("lr lr lr lr", "lr lr lr lr", "lr lr lr lr")),
    "width": member(blocks("lr lr", "lr lr", "lr lr"), widths=(64, 384, 352), residual=False),
    "cross": member(blocks(f"{CROSS} {CROSS}", f"{CROSS} {CROSS}", f"{CROSS} {CROSS}"), residual=False),
    # Two convolutions with a quarter of full filters train a quarter faster than three without: 5 epochs to their 4.
    "cross-wide-end": member(blocks(*[f"{CROSS} {CROSS}"] * 3), widths=(64, 256, 384), residual=False),
    "cross-deep-end": member(blocks(*[f"{CROSS} {CROSS}"] * 2, f"{CROSS} {CROSS} {CROSS}")),
    "cross-half-end": member(blocks(f"{CROSS} {CROSS}", f"{CROSS} {HALF}", f"{HALF} {HALF}"), residual=False),
    "cross-full-start": member(blocks("full full", f"{CROSS} {CROSS}", f"{CROSS} {CROSS}"), residual=False),
    "depth-3-wide-end": member(THREE, widths=(64, 256, 384)),
    "depth-3-cross-first": member(blocks(f"{CROSS} lr lr", f"{CROSS} lr lr", f"{CROSS} lr lr")),
    "depth-3-full-first": member(blocks("full lr lr", "lr lr lr", "lr lr lr")),
    "depth-3-join": member(blocks(*["lr-join lr-join lr-join"] * 3), widths=(64, 224, 224)),
    "dense-start": member(blocks("full full", "lr lr lr", "lr lr lr")),
    "dense-start-2": member(blocks("full full", "full lr", "lr lr lr")),
    # Non-linearities differ in time, not in MACs.
    **{f"{name}-{kind}": [*changes, f"model.options.activation={kind}"] for name, changes in (
        ("depth-3", member(THREE)), ("dense", member(blocks("full full", "full full", "full full"), residual=False)),
    ) for kind in ("relu", "silu", "hardswish")},
    # The recipe's rate is the dense network's; more layers may want another.
    **{f"wide-end-rate-{rate}": [*member(THREE, widths=(64, 256, 384)), f"optimizer.lr={rate}"]
       for rate in (0.7, 1.0, 2.0)},
    "depth-344": member(blocks("lr lr lr", "lr lr lr lr", "lr lr lr lr")),
}  # fmt: skip
# The paper's networks: one schedule for all of them. Their own falls over 307 epochs.
FALLING = ["precision=bf16", 'schedule={kind = "one-cycle", start_factor = 0.2, pct_start = 0.2, end_factor = 0.0}']
NIN = {
    f"{name}-rate-{rate}": (f"{name}_cifar10", [*FALLING, f"optimizer.lr={rate}"])
    for name in ("nin", "nin_c3_lr")
    for rate in (0.025, 0.05, 0.1, 0.2, 0.4)
} | {
    # Without norms the gradient is clipped in every step of SGD; AdamW takes steps of one size by itself.
    f"{name}-adamw-{rate}": (f"{name}_cifar10", [*FALLING, f'optimizer={{kind = "adamw", rate = {rate}}}'])
    for name in ("nin", "nin_c3_lr")
    for rate in (0.001, 0.002, 0.004)
}
# A network of somebody else's, with batch norm, as people would convert and train it: which start suits it?
OTHERS = {
    "resnet18-dense": ("modern_cifar10", ["model.name=timm:resnet18"]),
    **{f"resnet18-{rule}": ("modern_cifar10", ["model.name=timm:resnet18", "model.scheme=lr", f"model.init={rule}"])
       for rule in ("pytorch", "paper-completed", "identity")},
}  # fmt: skip
TRIALS = {name: ("cifar_fast_cifar10", changes) for name, changes in FAST.items()} | NIN | OTHERS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("trials", nargs="*", default=["*"], help="patterns of names")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    given = parser.parse_args()
    kept = "" if given.precision == "bf16" else f"-{given.precision}"
    chosen = [name for name in TRIALS if any(fnmatchcase(name, pattern) for pattern in given.trials)]
    contestants = []
    for name in chosen:
        recipe, changes = TRIALS[name]
        made = load_recipe(recipe, [*changes, HELD_OUT, f"epochs={given.epochs}", f"precision={given.precision}"])
        contestants.append(Contestant(f"{name}-{given.epochs}{kept}", made))
    options = [f"--seeds {given.seeds}", f"--epochs {given.epochs}", f"--precision {given.precision}"]
    command = " ".join(["python benchmarks/cifar10_study.py", *map(shlex.quote, given.trials), *options])
    with tempfile.TemporaryDirectory() as folder:
        run_trials(contestants, range(given.seeds), Path(folder), RESULT, command)


if __name__ == "__main__":
    main()
