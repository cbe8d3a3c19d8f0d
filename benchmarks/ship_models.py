"""Writes the networks of published CIFAR-10 runs as model directories, each with a card: there is nothing to train.

    python benchmarks/ship_models.py --runs runs/cifar10       writes models/NAME

Of each network the run with seed 0, whatever it came to: choosing the best one would be choosing on the test set.
"""

import argparse
from pathlib import Path

import cifar10

from cruciform.conversion.conversion_report import ConversionReport
from cruciform.data.sets.cifar10 import CLASSES
from cruciform.measure.macs import profile
from cruciform.store.directory import Base, save
from cruciform.store.interface import Interface
from cruciform.training.engine.trained_run import trained_network
from cruciform.training.experiments.race import Finish, read_finish
from cruciform.training.experiments.race_result import read_finishes
from cruciform.training.run.run import Run

MODELS = Path(__file__).parents[1] / "models"
NETWORKS = (cifar10.LOW_RANK, "nin_c3_lr")
SEED = 0


def card(finish: Finish, interface: Interface) -> str:
    """Returns what people want to know before they use it."""
    data = interface.preprocessing["data"]
    accuracy = f"{finish.top1:.2%}"
    if finish.top1_flip_tta is not None:
        accuracy += f"; {finish.top1_flip_tta:.2%} with flip TTA"
    before = f"(pixel − {data['mean']}) / {data['deviation']} for each color, pixels from 0 to 255"
    if data.get("whiten"):
        before = "contrasts normalized, then whitened by what was fitted to the training images"
    precision = finish.recipe["precision"]
    return f"""# {finish.name}, trained on CIFAR-10
| | |
|---|---|
| test accuracy of this run (seed {finish.seed}) | {accuracy} |
| multiply-accumulates of an image | {finish.macs:,} |
| parameters | {finish.params:,} |
| epochs | {finish.curve[-1]["epoch"]}, of {finish.samples:,} images, in {precision} |
| input | 3 × 32 × 32, {before} |
| classes | {", ".join(interface.classes)} |
| made by | `{finish.command}`, then `python benchmarks/ship_models.py` |

It was trained on 32×32 photographs of ten kinds of things, to show what basis filters cost and are worth; it knows
nothing else. All seeds, their spread and the dense network beside it: `results/cifar10.json`.

```python
from cruciform import load

model = load("models/{finish.name}").eval()
```
`cruciform evaluate models/{finish.name} --recipe {finish.name}_cifar10 --set precision={precision}` repeats the
accuracy. `cruciform filters models/{finish.name} -o filters.png` shows what it has learnt, and
`cruciform deploy models/{finish.name} --target onnxruntime -o onnx` ships it. `cruciform predict onnx IMAGES -o
classes.parquet` classifies a folder of images; those of other sizes are resized, and cropped at the center.
"""


def for_any_image(interface: Interface, size: tuple[int, ...]) -> Interface:
    """Returns an interface that takes images of any size; those of the network's own size stay as they are."""
    if interface.preprocessing["data"].get("whiten"):
        return interface
    crop = {"kind": "center-crop", "size": size[-1]}
    data = {**interface.preprocessing["data"], "short_side": size[-1]}
    prepare = [*interface.preprocessing["eval_transforms"], crop]
    return Interface({"eval_transforms": prepare, "data": data}, interface.classes or CLASSES)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=Path, default=Path("runs/cifar10"))
    given = parser.parse_args()
    finishes = {(finish.name, finish.seed): finish for finish in read_finishes(cifar10.RESULT)}
    for name in NETWORKS:
        if (name, SEED) not in finishes:
            print(f"{name}: left out, {cifar10.RESULT.name} has no run of it with seed {SEED}")
            continue
        finish, run = finishes[name, SEED], Run(given.runs / f"{name}-{SEED}")
        if read_finish(run, name).curve != finish.curve:
            raise SystemExit(f"{run.directory} is another run than the one that {cifar10.RESULT.name} records")
        trained = trained_network(run.directory)
        counted = profile(trained.model, trained.input_size)
        report = ConversionReport((), counted.params, counted)
        interface = for_any_image(trained.interface, trained.input_size)
        folder = save(trained.model, MODELS / name, report, base=Base(name, {"num_classes": 10}), **interface._asdict())
        (folder / "README.md").write_text(card(finish, interface), "utf-8")
        size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        print(f"{folder.name}: {size:.1f} MB")


if __name__ == "__main__":
    main()
