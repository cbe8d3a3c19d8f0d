"""The processor: its name, and which data types it has instructions for.

Engines also compute in bfloat16 where the processor can't: in float32, rounding before and after each operation.
That is right, and slower than 32 bits throughout. Two processors of one name may differ in it.
"""

import platform
from pathlib import Path

INSTRUCTIONS = {
    "bf16": ("amx_bf16", "avx512_bf16", "bf16", "svebf16"),
    "fp16": ("amx_fp16", "avx512_fp16", "asimdhp", "fphp"),
}
"""What Linux calls the instructions for each kind of number, on x86 and on ARM."""
OTHER_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimd", "asimddp", "i8mm", "sve")
"""More that speeds depend on."""
CPUINFO = Path("/proc/cpuinfo")
"""Linux's file about its processors; other systems have none."""
_FIELDS = ("flags", "Features")  # x86, ARM


def name() -> str:
    """Return the name of the processor."""
    return _fields().get("model name") or platform.processor() or "unknown"


def instructions() -> list[str]:
    """Return which of INSTRUCTIONS and OTHER_FEATURES the processor has; none where it is unknown."""
    known = {*OTHER_FEATURES, *(flag for flags in INSTRUCTIONS.values() for flag in flags)}
    return sorted(known & _flags())


def emulation(precision: str) -> str | None:
    """Return why a precision is slow on this processor; None where it is not, or unknown.

    Args:
        precision: A key of INSTRUCTIONS; others are never emulated.
    """
    has, wanted = _flags(), INSTRUCTIONS.get(precision, ())
    if not has or not wanted or not has.isdisjoint(wanted):
        return None
    return (
        f"this processor ({name()}) has no instructions for {precision} ({', '.join(wanted)}): it is emulated, "
        "which is slower than float32"
    )


def _flags() -> set[str]:
    fields = _fields()
    return {flag for field in _FIELDS for flag in fields.get(field, "").split()}


def _fields() -> dict[str, str]:
    """Return the fields of the first core in Linux's file."""
    if not CPUINFO.exists():
        return {}
    first = CPUINFO.read_text("utf-8").partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
