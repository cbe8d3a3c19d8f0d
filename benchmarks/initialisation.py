"""Which initialization lets the paper's networks be trained: the doctor on all of them, with several seeds.

python benchmarks/initialisation.py         writes results/initialisation.json
"""

import math
import statistics
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

from cruciform.measure.gradients import diagnose
from cruciform.measure.record import record_result
from cruciform.models.zoo import create_model, list_models
from cruciform.nn.init_rules import DEFAULT_RULE, RULES
from cruciform.nn.initialize import suited_rule

SEEDS = 3
RESULT = Path(__file__).parents[1] / "results" / "initialisation.json"


def examine(name: str, rule: str) -> dict[str, Any]:
    found = []
    for seed in range(SEEDS):
        model = create_model(name, init=rule, generator=torch.Generator().manual_seed(seed))
        found.append(diagnose(model, model.config.input_shape, batch=2, seed=seed))
    depths = [diagnosis.gradient_over_depth for diagnosis in found]
    ratios = [b.gradient_ratio for diagnosis in found for b in [b for b in diagnosis.blocks if b.on_path][1:]]
    return {
        "network": name,
        "rule": rule,
        "gradient_over_depth": math.exp(statistics.fmean(map(math.log, depths))),
        "gradient_over_depth_by_seed": depths,
        "least_block_ratio": min(ratios),
        "greatest_block_ratio": max(ratios),
        "trainable": sum(diagnosis.trainable is True for diagnosis in found),
    }


def main() -> None:
    torch.set_num_threads(2)
    # With norms any start is trainable: docs/concepts/initialization.md has what decides there.
    names = [name for name in list_models() if suited_rule(create_model(name)) == DEFAULT_RULE]
    pairs = [(name, rule) for name in names for rule in RULES.names()]
    rows = [examine(name, rule) for name, rule in track(pairs, description="examining")]
    summary = {
        f"trainable_{rule.replace('-', '_')}": sum(row["trainable"] == SEEDS for row in rows if row["rule"] == rule)
        for rule in RULES.names()
    }
    record_result(
        RESULT,
        summary={"networks": len(names), **summary},
        details=rows,
        command="python benchmarks/initialisation.py",
        n=SEEDS,
    )
    for row in rows:
        verdict = f"trainable with {row['trainable']} of {SEEDS} seeds"
        print(f"{row['network']:34s} {row['rule']:16s} {row['gradient_over_depth']:10.3g}  {verdict}")


if __name__ == "__main__":
    main()
