"""The identity of a run: its id, recipe, data and hardware, which every checkpoint records.

A run resumes only from its own checkpoints, with the recipe and the data that they were computed with. Where only the
machine differs, it resumes with a notice: its results will not be bit-identical to those of an uninterrupted run.
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
from cruciform.training.run.checkpoint import Checkpoint
from cruciform.training.run.run import Run, differences
from cruciform.training.runtime.runtime import Runtime
from cruciform.training.setup.recipe_data import Datasets, stored_datasets
from cruciform.training.tables.table import read_table

SPLITS = {"train": "training data", "test": "test data"}


@dataclass(frozen=True)
class Identity:
    """What all checkpoints of a run have in common.

    Attributes:
        run: The run.
        id: Its unique id; None where the process can't read its directory.
        recipe: What it computes.
        sources: Its data sets before whitening.
        data: Facts about the data: ``classes``, ``class_names``, ``input_size``, ``samples``, and a fingerprint of
            each split.
        conditions: What bit-identical results depend on besides.
    """

    run: Run
    id: str | None
    recipe: Recipe
    sources: Datasets
    data: Mapping[str, Any]
    conditions: Mapping[str, Any]

    def parts(self) -> dict[str, Any]:
        """Return what a checkpoint records of this, as plain data."""
        run = {"id": self.id, "recipe": self.recipe.to_dict(), "conditions": dict(self.conditions)}
        return {"run": run, "data": dict(self.data)}

    def check(self, checkpoint: Checkpoint) -> list[str]:
        """Raise where the run must not resume from a checkpoint; return notices for users where it may."""
        notices: list[str] = []
        if "run" in checkpoint.values:
            recorded = checkpoint.part("run")
            self._check_run(checkpoint, recorded)
            notices += self._changed_conditions(checkpoint, recorded.get("conditions"))
        data = checkpoint.values.get("data")
        data = data if isinstance(data, dict) else {}
        self._check_data(data)
        if "run" not in checkpoint.values or not SPLITS.keys() <= data.keys():
            notices.append(
                f"{checkpoint.path} was written by an older version and does not record its run, recipe and data, so "
                "they can't be compared"
            )
        return notices

    def keeping(self, checkpoint: Checkpoint) -> "Identity":
        """Return this with the hashes of samples that were readable when a checkpoint was saved and are not now."""
        before, data = checkpoint.values.get("data"), dict(self.data)
        for split in SPLITS:
            if isinstance(before, dict) and isinstance(before.get(split), dict):
                digests = {**data[split]["digests"], **known_digests(before[split])}
                data[split] = {**data[split], "digests": digests}
        return replace(self, data=data)

    def _check_run(self, checkpoint: Checkpoint, recorded: Mapping[str, Any]) -> None:
        before = read_table(Recipe, recorded.get("recipe", {}), f"the recipe in {checkpoint.path}").to_dict()
        changed = "; ".join(differences(before, self.recipe.to_dict()))
        directory = self.run.directory
        if self.id is not None and recorded.get("id") != self.id:
            raise RunError(
                f"{checkpoint.path} belongs to another run ({recorded.get('id')}), not to {directory} ({self.id})"
                f"{f'; its recipe differs too: {changed}' if changed else ''}. Delete it to resume from the newest "
                "checkpoint of this run, or resume the run that it belongs to"
            )
        if changed:
            raise RunError(
                f"{directory / RUN_RECIPE} is not the recipe that {checkpoint.path} was computed with ({changed}). "
                "Restore it (state.json of that checkpoint has it under run.recipe), or start a new run with the new "
                "recipe in another directory"
            )

    def _check_data(self, before: Mapping[str, Any]) -> None:
        """Raise where the data has changed: samples would be seen twice, or never."""
        known = {key: before[key] for key in ("classes", "input_size", "samples") if key in before}
        changed = [f"{key} was {old}, now {self.data[key]}" for key, old in known.items() if self.data[key] != old]
        for split, name in SPLITS.items():
            if not changed and isinstance(before.get(split), dict):
                source = getattr(self.sources, split)
                found = compare_fingerprints(before[split], self.data[split], source)
                changed += [f"{name}: {', '.join(found)}"] if found else []
        if changed:
            raise DataError(
                f"the data in {self.recipe.data.path} is not what this run was trained on ({'; '.join(changed)}). "
                "Restore it, resume with data.path set to its new location, or start a new run in another directory"
            )

    def _changed_conditions(self, checkpoint: Checkpoint, before: Any) -> list[str]:
        before = before if isinstance(before, dict) else {}
        changed = {key: old for key, old in before.items() if self.conditions.get(key, old) != old}
        if not changed:
            return []
        what = "; ".join(f"{key} was {old}, now {self.conditions[key]}" for key, old in changed.items())
        again = f". OMP_NUM_THREADS={changed['threads']} restores the number of threads" if "threads" in changed else ""
        resumed = f"resumed from step {checkpoint.step} under other conditions ({what})"
        return [f"{resumed}: the weights will differ in their last bits from those of an uninterrupted run{again}"]


def identify(recipe: Recipe, run: Run, runtime: Runtime, *, sources: Datasets, input_size: tuple[int, ...]) -> Identity:
    """Return the identity of a run; raise where its processes don't agree on the data.

    Args:
        recipe: What the run computes.
        run: The run.
        runtime: This process among those of the run.
        sources: Its data sets.
        input_size: Of one sample after the transforms.
    """
    stored = stored_datasets(recipe.data, sources)
    prints = {split: take_fingerprint(getattr(stored, split)) for split in SPLITS}
    _agree_on_data(prints, stored, runtime)
    (own,) = runtime.gather([run.id] if runtime.leads else [])
    names = list(stored.train.classes)
    # With all but the last, the network of a run can be used where its data is not available.
    facts = {"classes": len(names), "class_names": names, "input_size": list(input_size), "samples": len(stored.train)}
    return Identity(run, own, recipe, stored, facts | prints, _conditions(runtime))


def _conditions(runtime: Runtime) -> dict[str, Any]:
    """Return what bit-identical results depend on besides recipe and data."""
    found = {"processes": runtime.world, "device": runtime.device.type, "torch": torch.__version__}
    if runtime.device.type != "cpu":
        return found
    capability = torch.backends.cpu.get_cpu_capability()
    return {"threads": torch.get_num_threads(), **found, "processor": f"{processor.name()}, {capability}"}


def _agree_on_data(fingerprints: Mapping[str, Any], sources: Datasets, runtime: Runtime) -> None:
    """Raise, in all processes, where they don't all have the same data."""
    first, *others = runtime.gather([fingerprints])
    for rank, other in enumerate(others, start=1):
        for split, name in SPLITS.items():
            found = compare_fingerprints(first[split], other[split], getattr(sources, split))
            if found:
                raise DataError(
                    f"process {rank} has other {name} than process 0: {', '.join(found)}; all must have the same"
                )
