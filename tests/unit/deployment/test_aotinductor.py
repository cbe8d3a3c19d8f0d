from pathlib import Path

import pytest
import torch._inductor.cpp_builder
from torch._inductor.exc import InvalidCxxCompiler

from cruciform.deployment.targets.aotinductor import PROCESSOR, AotInductor
from cruciform.deployment.targets.compiler import require_compiler
from cruciform.errors import DeployError
from cruciform.files import write_json


def test_machine_code_for_another_processor_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / PROCESSOR, {"abilities": ["avx4096"]})
    with pytest.raises(DeployError, match="a processor with avx4096"):
        AotInductor().load(tmp_path, threads=1)


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr(torch._inductor.cpp_builder, "get_cpp_compiler", none)
    with pytest.raises(DeployError, match="apt install g\\+\\+"):
        require_compiler()
