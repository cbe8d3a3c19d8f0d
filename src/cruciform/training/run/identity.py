"""What a checkpoint is a state of: which run, by which recipe, on which data, computed by what.

A run resumes only from a checkpoint of its own, by the recipe and on the data that this was computed with. Where only
the machine differs it resumes too, with a notice, for its last bits will differ from those of an unbroken run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from cruciform.data.fingerprint import compare_fingerprints, known_digests, take_fingerprint
from cruciform.errors import DataError, RunError
from cruciform.machine import processor
from cruciform.store.run_marker import RUN_RECIPE
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.recipe.table import read_table
from cruciform.training.run.checkpoint import Checkpoint
from cruciform.training.run.run import Run, differences
from cruciform.training.runtime.runtime import Runtime
from cruciform.training.setup.recipe_data import Datasets, stored_datasets

SPLITS = {"train": "training data", "test": "test data"}


@dataclass(frozen=True)
class Identity:
    """What the states of a run have in common.

    Attributes:
        run: The run.
        id: What tells it from all others; None where the process can't see its directory.
        recipe: What it computes.
        sources: What on, as it is stored.
        data: What is known of the data: ``classes``, ``class_names``, ``input_size``, ``samples``, and a fingerprint of
            each split.
        conditions: What equal bits depend on besides.
    """

    run: Run
    id: str | None
    recipe: Recipe
    sources: Datasets
    data: Mapping[str, Any]
    conditions: Mapping[str, Any]

    def parts(self) -> dict[str, Any]:
        """Returns what a checkpoint holds of this, as plain data."""
        run = {"id": self.id, "recipe": self.recipe.to_dict(), "conditions": dict(self.conditions)}
        return {"run": run, "data": dict(self.data)}

    def check(self, checkpoint: Checkpoint) -> list[str]:
        """Raises where a run must not resume from a checkpoint; returns what people should know where it may."""
        notices: list[str] = []
        if "run" in checkpoint.values:
            said = checkpoint.part("run")
            self._check_run(checkpoint, said)
            notices += self._changed_conditions(checkpoint, said.get("conditions"))
        data = checkpoint.values.get("data")
        data = data if isinstance(data, dict) else {}
        self._check_data(data)
        if "run" not in checkpoint.values or not SPLITS.keys() <= data.keys():
            notices.append(
                f"{checkpoint.path} is of an older version: it does not tell its run, its recipe and the contents of "
                "its data, so that these are taken for what they were"
            )
        return notices

    def keeping(self, checkpoint: Checkpoint) -> "Identity":
        """Returns this with the hashes of samples that could be read when a checkpoint was made, and can't be now."""
        before, data = checkpoint.values.get("data"), dict(self.data)
        for split in SPLITS:
            if isinstance(before, dict) and isinstance(before.get(split), dict):
                digests = {**data[split]["digests"], **known_digests(before[split])}
                data[split] = {**data[split], "digests": digests}
        return replace(self, data=data)

    def _check_run(self, checkpoint: Checkpoint, said: Mapping[str, Any]) -> None:
        before = read_table(Recipe, said.get("recipe", {}), f"the recipe in {checkpoint.path}").to_dict()
        changed = "; ".join(differences(before, self.recipe.to_dict()))
        directory = self.run.directory
        if self.id is not None and said.get("id") != self.id:
            raise RunError(
                f"{checkpoint.path} is a checkpoint of another run ({said.get('id')}), not of {directory} ({self.id})"
                f"{f'; its recipe differs, too: {changed}' if changed else ''}. Delete it, and the run resumes from "
                "its own newest one; or resume the run that it belongs to"
            )
        if changed:
            raise RunError(
                f"{directory / RUN_RECIPE} is not the recipe that {checkpoint.path} was computed with ({changed}). "
                f"Put it back as it was (state.json in that checkpoint holds it under run, recipe), or start another "
                "run with the new one: --run DIR"
            )

    def _check_data(self, before: Mapping[str, Any]) -> None:
        """Raises where the data is not what it was: samples would be others, be seen twice or never."""
        known = {key: before[key] for key in ("classes", "input_size", "samples") if key in before}
        changed = [f"{key} was {old}, now {self.data[key]}" for key, old in known.items() if self.data[key] != old]
        for split, name in SPLITS.items():
            if not changed and isinstance(before.get(split), dict):
                source = getattr(self.sources, split)
                found = compare_fingerprints(before[split], self.data[split], source)
                changed += [f"{name}: {', '.join(found)}"] if found else []
        if changed:
            raise DataError(
                f"the data in {self.recipe.data.path} is not what this run was trained on ({'; '.join(changed)}); "
                "bring it back, name where it is with --resume --set data.path=PATH, or start anew with --run DIR"
            )

    def _changed_conditions(self, checkpoint: Checkpoint, before: Any) -> list[str]:
        before = before if isinstance(before, dict) else {}
        changed = {key: old for key, old in before.items() if self.conditions.get(key, old) != old}
        if not changed:
            return []
        what = "; ".join(f"{key} was {old}, now {self.conditions[key]}" for key, old in changed.items())
        again = f". OMP_NUM_THREADS={changed['threads']} brings its threads back" if "threads" in changed else ""
        told = f"resumed from step {checkpoint.step} under other conditions ({what})"
        return [f"{told}: the weights will differ in their last bits from those of an uninterrupted run{again}"]


def identify(recipe: Recipe, run: Run, runtime: Runtime, *, sources: Datasets, input_size: tuple[int, ...]) -> Identity:
    """Finds out what all checkpoints of a run must agree with; all processes must agree on it, too.

    Args:
        recipe: What the run computes.
        run: The run.
        runtime: Where this process stands among others.
        sources: What it is trained and evaluated on.
        input_size: Of one sample, transformed.
    """
    stored = stored_datasets(recipe.data, sources)
    prints = {split: take_fingerprint(getattr(stored, split)) for split in SPLITS}
    _agree_on_data(prints, stored, runtime)
    (own,) = runtime.gather([run.id] if runtime.leads else [])
    names = list(stored.train.classes)
    # With all but the last a run can be reported on, shipped and asked where its data is not.
    facts = {"classes": len(names), "class_names": names, "input_size": list(input_size), "samples": len(stored.train)}
    return Identity(run, own, recipe, stored, facts | prints, _conditions(runtime))


def _conditions(runtime: Runtime) -> dict[str, Any]:
    """Returns what the bits of a result depend on besides recipe and data."""
    found = {"processes": runtime.world, "device": runtime.device.type, "torch": torch.__version__}
    if runtime.device.type != "cpu":
        return found
    capability = torch.backends.cpu.get_cpu_capability()
    return {"threads": torch.get_num_threads(), **found, "processor": f"{processor.name()}, {capability}"}


def _agree_on_data(fingerprints: Mapping[str, Any], sources: Datasets, runtime: Runtime) -> None:
    """Raises, in all processes, where not all of them find the same data."""
    first, *others = runtime.gather([fingerprints])
    for rank, other in enumerate(others, start=1):
        for split, name in SPLITS.items():
            found = compare_fingerprints(first[split], other[split], getattr(sources, split))
            if found:
                raise DataError(
                    f"process {rank} finds other {name} than process 0: {', '.join(found)}; give all of them the same"
                )
