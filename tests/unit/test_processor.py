"""Which short numbers a processor computes itself, read from what Linux tells of real ones (shortened)."""

from pathlib import Path

import pytest

from cruciform.machine import processor

CASCADE_LAKE = (
    "processor\t: 0\nmodel name\t: Xeon @ 2.50GHz\nflags\t\t: fpu avx2 avx512f avx512_vnni\n\nprocessor\t: 1\n"
)
SAPPHIRE_RAPIDS = "model name\t: Xeon\nflags\t\t: avx2 avx512f avx512_bf16 amx_bf16 avx512_fp16 amx_int8\n\n"
GRAVITON_3 = "processor\t: 0\nFeatures\t: fp asimd fphp asimdhp asimddp sve i8mm bf16\n\n"
RASPBERRY_PI_4 = "processor\t: 0\nFeatures\t: fp asimd crc32\n\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    return tmp_path / "cpuinfo"


@pytest.mark.parametrize(
    ("told", "emulated"),
    [
        (CASCADE_LAKE, {"bf16", "fp16"}),
        (SAPPHIRE_RAPIDS, set()),
        (GRAVITON_3, set()),
        (RASPBERRY_PI_4, {"bf16", "fp16"}),
        ("processor\t: 0\n", set()),  # it does not tell: nothing is claimed
    ],
)
def test_only_what_a_processor_lacks_is_emulated(machine: Path, told: str, emulated: set[str]) -> None:
    machine.write_text(told, "utf-8")
    assert {kind for kind in ("bf16", "fp16", "fp32", "f32", "int8") if processor.emulation(kind)} == emulated


def test_the_reason_names_the_processor_and_what_it_would_need(machine: Path) -> None:
    machine.write_text(CASCADE_LAKE, "utf-8")
    reason = processor.emulation("bf16") or ""
    assert "Xeon @ 2.50GHz" in reason
    assert "avx512_bf16" in reason


def test_two_processors_of_one_name_are_told_apart(machine: Path) -> None:
    machine.write_text(SAPPHIRE_RAPIDS, "utf-8")
    new = processor.instructions()
    machine.write_text(SAPPHIRE_RAPIDS.replace("amx_bf16 ", ""), "utf-8")
    assert sorted({*processor.instructions(), "amx_bf16"}) == new


def test_a_system_that_tells_nothing_has_no_instructions(machine: Path) -> None:
    assert processor.instructions() == []
    assert processor.emulation("bf16") is None
    assert processor.name()
