"""Recipe keys that have been renamed: an old key is refused with the new one; recorded recipes are upgraded.

The table is applied from top to bottom, so an entry below a renamed table uses the table's new name. An entry
``key=value`` renames one value. Entries below ``train_transforms`` and ``eval_transforms`` apply to each list item.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cruciform.errors import RecipeError

RENAMED_KEYS = {
    "optimiser": "optimizer",
    "augment": "train_transforms",
    "prepare": "eval_transforms",
    "average": "ema",
    "clip": "grad_clip_norm",
    "accumulate": "grad_accum_steps",
    "nonfinite": "nan_policy",
    "batch": "batch_size",
    "model.given": "model.python_object",
    "data.given": "data.python_transform",
    "data.deviation": "data.std",
    "data.whiten.regulariser": "data.whiten.eps",
    "optimizer.rate": "optimizer.lr",
    "optimizer.bias_rate": "optimizer.bias_lr_mult",
    "optimizer.rates": "optimizer.lr_mult",
    "optimizer.epsilon": "optimizer.eps",
    "optimizer.decayed=weights": "optimizer.decay_norm_and_bias=false",
    "optimizer.decayed=all": "optimizer.decay_norm_and_bias=true",
    "optimizer.decayed": "optimizer.decay_norm_and_bias",
    "schedule.kind=steps": "schedule.kind=multistep",
    "schedule.at": "schedule.milestones",
    "schedule.by": "schedule.gamma",
    "schedule.warmup": "schedule.warmup_epochs",
    "schedule.start": "schedule.start_factor",
    "schedule.peak": "schedule.pct_start",
    "schedule.end": "schedule.end_factor",
    "schedule.plateau.least": "schedule.plateau.threshold",
    "schedule.plateau.most": "schedule.plateau.max_reductions",
    "loss.smoothing": "loss.label_smoothing",
    "loss.auxiliary": "loss.aux_loss_weight",
    "lookahead.steps": "lookahead.k",
    "lookahead.memory": "lookahead.decay",
    "evaluation.batch": "evaluation.batch_size",
    "evaluation.mirror": "evaluation.flip_tta",
    **{
        f"{name}.{old}": f"{name}.{new}"
        for name in ("train_transforms", "eval_transforms")
        for old, new in {
            "kind=mirror": "kind=hflip",
            "kind=centre-crop": "kind=center-crop",
            "mode": "padding_mode",
            "padding_mode=zeros": "padding_mode=constant",
            "least": "min_scale",
            "proportion": "max_ratio",
        }.items()
    },
}
"""From old to new, as dotted keys."""
LEVELS = 4  # that renamed keys are below the top; whatever is below them need not be copied


def refuse_renamed(recipe: Mapping[str, Any], what: str) -> None:
    """Raise where a recipe uses keys that have been renamed, and name the new ones.

    Args:
        recipe: Plain data.
        what: Where it comes from, for the message.
    """
    if message := describe_renamed(recipe):
        raise RecipeError(f"{what}: {message}")


def describe_renamed(recipe: Mapping[str, Any]) -> str:
    """Return which keys of a recipe have been renamed, and to what; empty where none has."""
    return "; ".join(f"`{old}` is now `{RENAMED_KEYS[old]}`" for old in _rename(recipe)[1])


def upgrade_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded recipe with today's keys."""
    return _rename(recipe)[0]


def _rename(recipe: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a renamed copy, and the entries of the table that applied."""
    renamed = {key: _copied(value, LEVELS) for key, value in recipe.items()}
    return renamed, [old for old, new in RENAMED_KEYS.items() if _apply_(renamed, old, new)]


def _copied(node: Any, levels: int) -> Any:
    if levels and isinstance(node, Mapping):
        return {key: _copied(value, levels - 1) for key, value in node.items()}
    if levels and isinstance(node, list | tuple):
        return [_copied(item, levels - 1) for item in node]
    return node


def _apply_(recipe: dict[str, Any], old: str, new: str) -> bool:
    (old_path, _, old_value), (new_path, _, new_value) = old.partition("="), new.partition("=")
    *above, old_key = old_path.split(".")
    new_key = new_path.rpartition(".")[2]
    found = False
    for table in _tables(recipe, above):
        if old_key not in table or (old_value and table[old_key] != old_value):
            continue
        value = table.pop(old_key)
        table[new_key] = _value(new_value) if new_value else value
        found = True
    return found


def _tables(node: Any, path: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the tables at a path; a list stands for each of its items."""
    if isinstance(node, list):
        for item in node:
            yield from _tables(item, path)
    elif isinstance(node, dict):
        if not path:
            yield node
        elif path[0] in node:
            yield from _tables(node[path[0]], path[1:])


def _value(text: str) -> Any:
    return json.loads(text) if text in ("true", "false") else text
