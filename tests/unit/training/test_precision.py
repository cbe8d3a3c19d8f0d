"""The precision ``auto``: bf16 where the processor has it; settled once, when a run begins."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cruciform.errors import RunError
from cruciform.machine import processor
from cruciform.training.engine.learner import Learner
from cruciform.training.engine.loop import train
from cruciform.training.recipe.cookbook import list_recipes, load_recipe
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.run.checkpoint import load
from cruciform.training.run.journal import read_journal
from cruciform.training.run.observer import Observer, StepRecord
from cruciform.training.run.run import Run, differences
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.setup.precision import pick_precision, settle_precision

HERE = torch.device("cpu")
WITHOUT, WITH = "flags : avx512f\n", "flags : avx512f amx_bf16\n"


class Machine:
    """A processor that can be exchanged."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = folder / "cpuinfo"
        monkeypatch.setattr(processor, "CPUINFO", self._path)

    def becomes(self, text: str | None) -> None:
        self._path.unlink(missing_ok=True)
        if text is not None:
            self._path.write_text(text, "utf-8")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


class Stop(Observer):
    """Ends a run after a step."""

    def on_step(self, record: StepRecord) -> None:
        if record.step == 4:
            raise KeyboardInterrupt


class Seen(nn.Linear):
    """Notes the types that it computes in."""

    def __init__(self) -> None:
        super().__init__(3072, 10)
        self.types: set[torch.dtype] = set()

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  (torch's name)
        result = super().forward(input.flatten(1))
        self.types.add(result.dtype)
        return result


def go(recipe: Any, run: Path, *observers: Observer) -> set[torch.dtype]:
    model = Seen()
    train(recipe, Run(run), SingleProcess(HERE), resume=True, observers=observers, inputs=PythonObjects(model=model))
    return model.types


def notices(run: Path) -> list[str]:
    return [line["message"] for line in read_journal(run / "log.jsonl") if line["event"] == "notice"]


@pytest.mark.parametrize(("text", "expected"), [(WITHOUT, "fp32"), (WITH, "bf16"), (None, "fp32")])
def test_auto_is_bf16_only_where_the_processor_is_known_to_have_it(
    machine: Machine, text: str | None, expected: str
) -> None:
    machine.becomes(text)
    assert pick_precision("auto", HERE) == expected
    for other in ("fp32", "bf16", "fp16"):
        assert pick_precision(other, HERE) == other


@pytest.mark.parametrize(
    ("text", "expected", "dtype"), [(WITHOUT, "fp32", torch.float32), (WITH, "bf16", torch.bfloat16)]
)
def test_what_auto_was_is_computed_in_and_recorded(
    machine: Machine, make: Any, tmp_path: Path, text: str, expected: str, dtype: torch.dtype
) -> None:
    machine.becomes(text)
    run = tmp_path / "run"
    assert go(make(precision="auto", epochs=1), run) == {dtype}
    assert Run(run).recipe().precision == expected
    (path,) = (run / "checkpoints").iterdir()
    assert load(path).values["run"]["recipe"]["precision"] == expected
    (start,) = [line for line in read_journal(run / "log.jsonl") if line["event"] == "start"]
    assert start["conditions"]["precision"] == expected
    (told,) = notices(run)
    assert told.startswith(f"precision=auto is {expected}: ")


@pytest.mark.parametrize(
    ("first", "then", "dtype", "told"),
    [(WITH, WITHOUT, torch.bfloat16, ["keeps bf16, as it was started"]), (WITHOUT, WITH, torch.float32, [])],
)
@pytest.mark.parametrize("asked", ["auto", "as recorded"])
def test_a_run_keeps_its_precision_where_auto_would_be_another(
    machine: Machine, make: Any, tmp_path: Path, first: str, then: str, dtype: torch.dtype, told: list[str], asked: str
) -> None:
    run, auto = tmp_path / "run", make(precision="auto")
    machine.becomes(first)
    with pytest.raises(KeyboardInterrupt):
        go(auto, run, Stop())
    began = Run(run).recipe()
    machine.becomes(then)
    assert go(auto if asked == "auto" else began, run) == {dtype}
    assert Run(run).recipe() == began, "that it was auto must not be written back"
    found = [what for what in notices(run) if "as it was started" in what]
    assert len(found) == len(told)
    assert all(words in what for words, what in zip(told, found, strict=True))
    assert not any("precision=fp32 is faster" in what for what in notices(run)), "a run would refuse that"


def test_a_run_in_a_precision_of_its_own_is_not_taken_for_auto(make: Any, tmp_path: Path) -> None:
    go(make(precision="fp16", epochs=1), tmp_path / "run")
    begun = make(precision="bf16").to_dict()
    assert differences(begun, make(precision="auto").to_dict()) == []
    assert differences(begun, make(precision="fp32").to_dict()) == ["precision was bf16, now fp32"]
    assert differences(make(precision="fp16").to_dict(), make(precision="auto").to_dict())
    for other in ("fp32", "auto"):
        with pytest.raises(RunError, match="precision was fp16, now (fp32|bf16)"):
            go(make(precision=other, epochs=1), tmp_path / "run")


def test_a_learner_of_its_own_takes_auto_as_well(machine: Machine, make: Any) -> None:
    """As for a model directory that is evaluated on the data of a recipe."""
    machine.becomes(WITH)
    learner = Learner(make(precision="auto"), Seen(), SingleProcess(HERE))
    with learner._autocast():
        assert torch.ones(2, 2).mm(torch.ones(2, 2)).dtype == torch.bfloat16


def test_no_recipe_that_comes_with_the_library_asks_for_what_may_be_emulated() -> None:
    assert {load_recipe(name).precision for name in list_recipes()} == {"auto", "fp32"}


def test_making_ready_a_run_that_has_begun_keeps_its_precision(machine: Machine, make: Any, tmp_path: Path) -> None:
    """As the process does that starts others, before it knows what they compute on."""
    machine.becomes(WITH)
    run, auto = Run(tmp_path / "run"), make(precision="auto", epochs=1, model={"name": "x", "python_object": "Seen"})
    go(auto, run.directory)
    machine.becomes(WITHOUT)
    run.prepare(auto, resume=True)
    assert run.recipe().precision == "bf16"


def test_processes_that_differ_compute_in_what_all_of_them_have(machine: Machine, make: Any) -> None:
    class Second(SingleProcess):
        """A process beside one that has no bf16."""

        def most(self, *numbers: int) -> tuple[int, ...]:
            return tuple(max(number, 1) for number in numbers)

    machine.becomes(WITH)
    recipe, note = settle_precision(make(precision="auto"), Second(HERE))
    assert recipe.precision == "fp32"
    assert note is not None
    assert "a processor has no bf16 instructions" in note
    assert settle_precision(make(precision="bf16"), Second(HERE))[0].precision == "bf16"
