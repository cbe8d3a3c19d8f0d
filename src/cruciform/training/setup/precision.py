"""The precision of the computation, and what ``auto`` means on this machine.

A run keeps the precision that ``auto`` was resolved to when it started, in its recipe and checkpoints, also where it is
resumed on another machine: otherwise its weights would differ from those of an uninterrupted run.
"""

import torch

from cruciform.machine import processor
from cruciform.training.recipe.recipe import AUTO_PRECISION, Recipe
from cruciform.training.runtime.runtime import Runtime

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def pick_precision(precision: str, device: torch.device) -> str:
    """Return a precision; for ``auto``, bf16 where the device has instructions for it, else fp32."""
    if precision != AUTO_PRECISION:
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "fp32" if set(processor.INSTRUCTIONS["bf16"]).isdisjoint(processor.instructions()) else "bf16"


def settle_precision(recipe: Recipe, runtime: Runtime) -> tuple[Recipe, str | None]:
    """Return the recipe with a precision that all processes use, and a notice for users.

    Args:
        recipe: What to compute; that of the leading process is used.
        runtime: This process among those of the run.
    """
    (precision,) = runtime.gather([recipe.precision] if runtime.leads else [])
    note = None
    if precision == AUTO_PRECISION:
        (lacking,) = runtime.most(int(pick_precision(precision, runtime.device) != "bf16"))
        precision = "fp32" if lacking else "bf16"
        has = "a processor has no bf16 instructions" if lacking else "all processors have bf16 instructions"
        note = f"precision=auto is {precision}: {has}. The run keeps it when it is resumed elsewhere"
    return recipe.model_copy(update={"precision": precision}), note


def emulation_warning(precision: str, device: torch.device, *, resumed: bool) -> str | None:
    """Return a warning where a precision is emulated, and slower than fp32, on this machine."""
    slow = processor.emulation(precision) if device.type == "cpu" else None
    if slow is None:
        return None
    if resumed:
        return f"{slow}. The run keeps {precision}, as it was started; only a new run can use precision=fp32"
    return f"{slow}; precision=fp32 is faster here"
