import subprocess
import sys
from pathlib import Path

import pytest

import cruciform

NAMES = {
    "Artifact", "BenchOptions", "BudgetOptions", "CompressOptions",
    "DeployOptions", "PredictOptions", "bench", "budget", "compress", "deploy",
    "open_artifact", "predict", "report",
    "CompositeConv", "ConvSpec", "CruciformError", "FilterGroup", "LayerPlan", "Stage", "__version__", "convert",
    "convert_", "create_model", "cross", "diagnose", "initialize_", "list_models", "load", "load_recipe", "make_plan",
    "model_card", "open_network", "OpenedNetwork", "plan_conversion", "profile", "save", "Observer", "Processes",
    "ShardOptions", "evaluate", "list_recipes", "list_runs", "race", "sweep", "train", "train_distributed",
    "verify_shards", "write_shards", "distill", "distillation_losses",
}  # fmt: skip


def test_the_front_door_is_exactly_its_list() -> None:
    assert set(cruciform.__all__) == NAMES
    assert set(dir(cruciform)) == NAMES


def test_every_name_leads_somewhere() -> None:
    for name in cruciform.__all__:
        assert getattr(cruciform, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(cruciform, "nonsense")


def test_the_type_checker_sees_the_same_names() -> None:
    text = Path(cruciform.__file__).read_text("utf-8")
    block = text[text.index("if TYPE_CHECKING:") : text.index("_HOMES")]
    for name in NAMES - {"__version__"}:
        assert name in block


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


@pytest.mark.slow
def test_importing_costs_less_than_half_a_second_beyond_torch() -> None:
    # Processor time, for waiting does not count; where torch's own import shows a slow or busy machine, a third of it.
    code = (
        "import time; start = time.process_time(); import torch; middle = time.process_time(); import cruciform; "
        "[getattr(cruciform, name) for name in cruciform.__all__]; print(middle - start, time.process_time() - middle)"
    )
    torchs, ours = (min(times) for times in zip(*(map(float, run(code).split()) for _ in range(3)), strict=True))
    assert ours < max(0.5, torchs / 3)


@pytest.mark.slow
def test_touching_every_name_loads_no_optional_package() -> None:
    heavy = run(
        "import sys, cruciform; [getattr(cruciform, name) for name in cruciform.__all__]; "
        "print([m for m in ('pydantic', 'grain', 'PIL', 'ray', 'onnx', 'openvino', 'scipy') if m in sys.modules])"
    )
    assert heavy == "[]"


def test_importing_does_not_load_torch_or_any_optional_package() -> None:
    heavy = run(
        "import sys, cruciform; print([m for m in ('torch', 'numpy', 'matplotlib', 'typer') if m in sys.modules])"
    )
    assert heavy == "[]"


def test_importing_opens_no_socket_starts_no_process_writes_no_file() -> None:
    code = """
import sys
seen = []
def audit(event, args):
    writes = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")
    starts = event in ("os.fork", "os.exec", "os.posix_spawn", "os.system")
    if writes or starts or event.split(".")[0] in ("socket", "subprocess"):
        seen.append((event, args))
import torch
sys.addaudithook(audit)
import cruciform
for name in cruciform.__all__:
    getattr(cruciform, name)
print(seen)
"""
    assert run(code) == "[]"
