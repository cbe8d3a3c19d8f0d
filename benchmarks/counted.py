"""What texts say that no file of results holds: counts of the library's networks, and figures made of recorded ones.

Each function returns what a file of ``results/`` would: a summary, and rows of details.
"""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
Result = dict[str, Any]


def read_file(name: str) -> Result:
    """Return a file of results, with today's names of what older files call otherwise."""
    from cruciform.training.recipe.renamed_keys import upgrade_recipe

    data: Result = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    data["summary"] = {key.replace("_deviation", "_std"): value for key, value in data["summary"].items()}
    for row in data["details"] if isinstance(data["details"], list) else []:
        if "recipe" in row:
            row["recipe"] = upgrade_recipe(row["recipe"])
    return data


def count_paper() -> Result:
    """The paper's rows: what is published, and what our networks have as they are deployed."""
    from cruciform.paper.tables import check_tables

    rows = list(check_tables())
    dense = {row.published.model: row.true_macs for row in rows if row.published.table == "vgg_ilsvrc"}["vgg11_gmp"]
    return {
        "summary": {
            "rows": len(rows),
            "equal": sum(row.equal for row in rows),
            "explained": sum(row.published.status == "explained" for row in rows),
        },
        "details": [
            {
                "table": row.published.table,
                "network": row.published.model,
                "macs": row.true_macs,
                "params": row.true_params,
                "of_gmp": row.true_macs / dense,
                "top1": 100 * row.published.top1,
                "top5": 100 * (row.published.top5 or 0),
            }
            for row in rows
        ],
    }


def count_scale() -> Result:
    """What the model of scale says of VGG-16, as it is and made thinner, on 64 GPUs."""
    from cruciform.scale.assumptions import Assumptions
    from cruciform.scale.goodput import Failures, simulate_goodput
    from cruciform.scale.model import TrainingCost, TrainingJob, estimate

    hidden, pooled = (512 * 7 * 7, 4096, 4096, 1000), (512, 1000)
    costs = [
        TrainingCost("dense", *_vgg16("full", hidden), thin=False),
        TrainingCost("pooled", *_vgg16("full", pooled), thin=False),
        TrainingCost("thin", *_vgg16("lr", pooled), thin=True),
        TrainingCost("thin-hidden", *_vgg16("lr", hidden), thin=True),
    ]
    assumed = Assumptions(realised=0.5)
    links = {gigabits: {cost.name: estimate(cost, TrainingJob(1e9, 64, gigabits * 1e9), assumed) for cost in costs}
             for gigabits in (25, 100, 400)}  # fmt: skip
    found = links[100]
    llama = Failures(3600 * assumed.hours_between_failures / 16_384, checkpoint=30, restart=300)
    return {
        "summary": {
            "head_saves": found["dense"].gradient_bytes / found["pooled"].gradient_bytes,
            "low_rank_saves": found["pooled"].gradient_bytes / found["thin"].gradient_bytes,
            "thin_reads": found["thin"].ingest_bytes_per_second / found["dense"].ingest_bytes_per_second,
            "lost_to_failures": 1 - found["dense"].goodput,
            "llama_by_formula": llama.goodput,
            "llama_played": simulate_goodput(llama, work=54 * 86_400, seeds=200)[0],
        },
        "details": [
            {
                "network": name,
                "megabytes": one.gradient_bytes / 1e6,
                "images": one.images_per_second_per_gpu,
                "ingest": one.ingest_bytes_per_second / 1e6,
                "cores": one.cores_per_gpu,
                **{f"efficiency_{gigabits}": links[gigabits][name].efficiency for gigabits in links},
            }
            for name, one in found.items()
        ],
    }


def _vgg16(scheme: str, head: tuple[int, ...]) -> tuple[int, int]:
    """Returns parameters and MACs of VGG-16 with a head of these widths."""
    from cruciform.schemes import make_plan
    from cruciform.spec import ConvSpec

    params = macs = 0
    c, size = 3, 224
    for d, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(layers):
            plan = make_plan(ConvSpec(c, d, 3, padding=1), scheme)
            params, macs, c = params + plan.params, macs + plan.macs((size, size)), d
        size //= 2
    for c, d in pairwise(head):
        params, macs = params + c * d + d, macs + c * d
    return params, macs


def derive_bench() -> Result:
    """What is made of the rounds of results/bench-vgg.json and results/bench-vgg-profile.json."""
    import torch

    from cruciform.measure.macs import profile
    from cruciform.models.zoo import create_model

    runs = read_file("bench-vgg")["details"]
    rounds = {name: [one["milliseconds_rounds"] for one in run["networks"].values()] for name, run in runs.items()}
    above = [median(times) / min(times) - 1 for name in rounds if name.startswith("onnx") for times in rounds[name]]
    with torch.device("meta"):
        counted = profile(create_model("vgg11_gmp"), (3, 224, 224))
    weights = 4 * sum(layer.params for layer in counted.layers if layer.kind == "Linear")
    profiled = read_file("bench-vgg-profile")["details"]["vgg11_gmp_lr, batch 1"]["dense"]
    return {
        "summary": {
            "rounds_b1": len(rounds["onnxruntime, batch 1, 1 thread"][0]),
            "rounds_b16": len(rounds["onnxruntime, batch 16, 1 thread"][0]),
            "least_median_above": min(above),
            "most_median_above": max(above),
            "classifier_megabytes": weights / 1e6,
            "classifier_gigabytes_per_second": weights / 1e6 / profiled["fully connected"],
        },
        "details": [],
    }


def derive_nin() -> Result:
    """The paper's CIFAR-10 networks: how long they take as they are deployed, by results/bench-nin.json."""
    runs = read_file("bench-nin")["details"]
    one, many = (runs[f"onnxruntime, batch {batch}, 1 thread"]["networks"] for batch in (1, 16))
    return {
        "summary": {},
        "details": [
            {"network": name, "one": one[name]["milliseconds"], "sixteen": many[name]["milliseconds"]} for name in one
        ],
    }


def derive_networks() -> Result:
    """How many networks of which library were looked at."""
    deployed = {row["network"] for row in read_file("never-slower")["details"]}
    covered = [row["reference"] for row in read_file("coverage")["details"]]
    return {
        "summary": {
            "deployed_zoo": sum(":" not in name for name in deployed),
            "deployed_others": sum(":" in name for name in deployed),
            "monai": sum(name.startswith("monai:") for name in covered),
        },
        "details": [],
    }


def derive_gains() -> Result:
    """What a converted network costs as a fraction of the dense one, beside the accuracy of both."""
    volumes, cifar10, imagenette = (
        read_file(name)["summary"] for name in ("volumes-training", "cifar10", "imagenette")
    )
    nin = {row["network"]: row for row in derive_nin()["details"]}
    deployed = {
        row["network"]: row["ratio"] for row in read_file("never-slower")["details"] if row["target"] == "onnxruntime"
    }
    details: list[Result] = [
        {
            "id": f"{scheme}_{side}",
            "macs": volumes[f"mmacs_{side}_{scheme}"] / volumes[f"mmacs_{side}_dense"],
            "training": volumes[f"cpu_seconds_{side}_{scheme}"] / volumes[f"cpu_seconds_{side}_dense"],
        }
        for side in (28, 64)
        for scheme in ("planes", "cross3")
    ]
    details += [
        {
            "id": "cifar_fast",
            "macs": cifar10["lowrank_mmacs"] / cifar10["dense_mmacs"],
            "inference": deployed["cifar_fast_cross"],
            "training": cifar10["dense_images_per_second"] / cifar10["lowrank_images_per_second"],
        },
        {
            "id": "nin",
            "macs": cifar10["nin_c3_lr_mmacs"] / cifar10["nin_mmacs"],
            "inference": nin["nin_c3_lr"]["one"] / nin["nin"]["one"],
            "training": cifar10["nin_time_ratio"],
        },
        {
            "id": "imagenette",
            "macs": imagenette["vgg11_gmp_lr_mmacs"] / imagenette["vgg11_gmp_mmacs"],
            "training": imagenette["vgg11_gmp_lr_seconds"] / imagenette["vgg11_gmp_seconds"],
        },
    ]
    return {"summary": {}, "details": details}


COUNTED: dict[str, Callable[[], Result]] = {
    "paper": count_paper,
    "scale": count_scale,
    "bench": derive_bench,
    "gains": derive_gains,
    "networks": derive_networks,
    "nin": derive_nin,
}
