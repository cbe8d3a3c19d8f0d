"""The precision of the computation: what torch calls it, and what ``auto`` stands for on this machine.

A run keeps what ``auto`` was when it began, in its recipe and its checkpoints: resumed on a machine where it would be
another, it goes on as it began, for its weights would not be those of an unbroken run otherwise.
"""

import torch

from cruciform.machine import processor
from cruciform.training.recipe.recipe import AUTO_PRECISION, Recipe
from cruciform.training.runtime.runtime import Runtime

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def pick_precision(precision: str, device: torch.device) -> str:
    """Returns a precision as it is; for ``auto`` bf16 where the device has instructions for it, else fp32."""
    if precision != AUTO_PRECISION:
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "fp32" if set(processor.INSTRUCTIONS["bf16"]).isdisjoint(processor.instructions()) else "bf16"


def settle_precision(recipe: Recipe, runtime: Runtime) -> tuple[Recipe, str | None]:
    """Returns the recipe with a precision that all processes compute in, and what to tell people of it.

    Args:
        recipe: What to compute; the leading process's counts.
        runtime: Where this process stands among others.
    """
    (precision,) = runtime.gather([recipe.precision] if runtime.leads else [])
    note = None
    if precision == AUTO_PRECISION:
        (lacking,) = runtime.most(int(pick_precision(precision, runtime.device) != "bf16"))
        precision = "fp32" if lacking else "bf16"
        has = "a process has no instructions for bf16" if lacking else "all processes have instructions for it"
        note = f"precision=auto is {precision}: {has}. The run keeps it wherever it is resumed"
    return recipe.model_copy(update={"precision": precision}), note


def emulated(precision: str, device: torch.device, *, resumed: bool) -> str | None:
    """Returns a warning where a precision is slower than fp32 on this machine."""
    slow = processor.emulation(precision) if device.type == "cpu" else None
    if slow is None:
        return None
    if resumed:
        return f"{slow}. The run goes on in {precision} as it began; only a new run can have precision=fp32"
    return f"{slow}; --set precision=fp32 is faster here"
