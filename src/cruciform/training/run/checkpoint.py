"""Checkpoints: one directory a step, whole or absent; the newest whole one is found whatever became of the others.

::

    checkpoints/step-00000391/state.safetensors   all tensors
                              state.json          all other values
                              manifest.json       checksums of both, written last
"""

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from cruciform.errors import CheckpointError, DamagedError, NonFiniteError
from cruciform.files import (
    DISK_FULL,
    check_regular,
    is_whole,
    new_directory,
    read_json,
    read_manifest,
    sweep,
    write_json,
)

CHECKPOINT_FORMAT = 1
TENSORS, VALUES = "state.safetensors", "state.json"
_PREFIX = "step-"


class Checkpoint(NamedTuple):
    """A state that was saved.

    Attributes:
        step: Steps that had been taken.
        tensors: All tensors.
        values: All other values.
        path: Where it lies.
    """

    step: int
    tensors: dict[str, Tensor]
    values: dict[str, Any]
    path: Path

    def part(self, name: str) -> dict[str, Any]:
        """Returns the values of one part of the state."""
        part = self.values.get(name)
        if not isinstance(part, dict):
            raise CheckpointError(f"{self.path} is no checkpoint of a run: it has no values for {name!r}")
        return part


def is_finite(tensor: Tensor) -> bool:
    """Tells whether all of a tensor's numbers are some."""
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run.

    Attributes:
        folder: Where they lie.
        keep: How many of the newest are kept.
    """

    folder: Path
    keep: int = 2

    def save(
        self, step: int, tensors: dict[str, Tensor], values: dict[str, Any], *, never_finite: Collection[str] = ()
    ) -> Path:
        """Writes one, and only then removes what is too old.

        Args:
            step: Its number.
            tensors: The state; one that has become infinite or no number is not saved.
            values: The rest of it, plain data.
            never_finite: Names of tensors that need not be finite.
        """
        for name, tensor in tensors.items():
            if name not in never_finite and not is_finite(tensor):
                raise NonFiniteError(f"{name} is not finite after step {step}, so it is not saved; {self._newest()}")
        path = self.folder / _name(step)
        try:
            # A run that was moved away, or deleted, is not made again.
            self.folder.mkdir(exist_ok=True)
            with new_directory(path, manifest={"format": CHECKPOINT_FORMAT, "step": step}, parents=False) as part:
                save_file(_apart(tensors), str(part / TENSORS))
                write_json(part / VALUES, values)
        except (OSError, SafetensorError) as error:
            # safetensors writes by itself, and tells the number in words only.
            full = getattr(error, "errno", None) in DISK_FULL or any(
                f"(os error {number})" in str(error) for number in DISK_FULL
            )
            reason = f"the disk is full ({_needed(tensors)} are needed)" if full else str(error)
            raise CheckpointError(
                f"the checkpoint of step {step} can't be written: {reason}; {self._newest()}"
            ) from error
        self._remove_old()
        return path

    def load_newest(self) -> tuple[Checkpoint | None, list[str]]:
        """Returns the newest whole checkpoint, and what is wrong with those that are newer."""
        problems: list[str] = []
        for path in reversed(self._paths()):
            try:
                return load(path), problems
            except CheckpointError as error:
                problems.append(str(error))
        return None, problems

    def sweep(self) -> None:
        """Removes what a killed process left half written."""
        sweep(self.folder)

    def _paths(self) -> list[Path]:
        return sorted(path for path in self.folder.glob(f"{_PREFIX}*") if path.is_dir())

    def _remove_old(self) -> None:
        old = self._paths()[: -self.keep]
        if old and not any(is_whole(path) for path in self._paths()[-self.keep :]):
            return
        for path in old:
            shutil.rmtree(path, ignore_errors=True)  # what was to be saved is; the next save tries again

    def _newest(self) -> str:
        whole = next((path for path in reversed(self._paths()) if is_whole(path)), None)
        return f"the last whole one is {whole}" if whole else "there is none before it"


def load(path: Path) -> Checkpoint:
    """Reads a checkpoint, or raises where it is not what was written."""
    try:
        manifest = read_manifest(path)
        if manifest.get("format") != CHECKPOINT_FORMAT:
            raise CheckpointError(
                f"{path} has format {manifest.get('format')!r}; this version reads {CHECKPOINT_FORMAT}"
            )
        step, values = manifest.get("step"), read_json(path / VALUES)
        # Copies, as Ray keeps them, have names of their own; one that has our kind of name must have its own.
        renamed = path.name.startswith(_PREFIX) and type(step) is int and path.name != _name(step)
        if type(step) is not int or renamed or not isinstance(values, dict):
            raise CheckpointError(f"{path} is no checkpoint: its step is {step!r}, its values {type(values).__name__}")
        return Checkpoint(step, load_file(str(check_regular(path / TENSORS))), values, path)
    except (DamagedError, OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"{path} can't be read: {error}") from error


def _name(step: int) -> str:
    return f"{_PREFIX}{step:08d}"


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gives tensors that share memory, as tied weights do, memory of their own: the format asks for it."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        shared = tensor.data_ptr() in seen or tensor._base is not None
        apart[name] = tensor.clone() if shared else tensor
        seen.add(tensor.data_ptr())
    return apart


def _needed(tensors: dict[str, Tensor]) -> str:
    return f"{sum(tensor.nbytes for tensor in tensors.values()) / 1e6:,.0f} MB"
