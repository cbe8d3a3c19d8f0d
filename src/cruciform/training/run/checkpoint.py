"""Checkpoints: one directory per step, complete or absent; damaged ones are skipped.

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
    """A saved state.

    Attributes:
        step: Steps taken.
        tensors: All tensors.
        values: All other values.
        path: Its directory.
    """

    step: int
    tensors: dict[str, Tensor]
    values: dict[str, Any]
    path: Path

    def part(self, name: str) -> dict[str, Any]:
        """Return the values of one part of the state."""
        part = self.values.get(name)
        if not isinstance(part, dict):
            raise CheckpointError(f"{self.path} is not a checkpoint of a run: it has no values for {name!r}")
        return part


def is_finite(tensor: Tensor) -> bool:
    """Return whether a tensor has no NaN or Inf."""
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run.

    Attributes:
        folder: Their location.
        keep: How many of the newest are kept.
    """

    folder: Path
    keep: int = 2

    def save(
        self, step: int, tensors: dict[str, Tensor], values: dict[str, Any], *, never_finite: Collection[str] = ()
    ) -> Path:
        """Write a checkpoint, then remove those that are too old.

        Args:
            step: Steps taken.
            tensors: The state; one with NaN or Inf is not saved.
            values: The rest of it, plain data.
            never_finite: Names of tensors that may have Inf, such as masks.
        """
        for name, tensor in tensors.items():
            if name not in never_finite and not is_finite(tensor):
                raise NonFiniteError(f"{name} has NaN or Inf after step {step}, so it is not saved; {self._newest()}")
        path = self.folder / _name(step)
        try:
            # A run that was moved or deleted is not created again.
            self.folder.mkdir(exist_ok=True)
            with new_directory(path, manifest={"format": CHECKPOINT_FORMAT, "step": step}, parents=False) as part:
                save_file(_apart(tensors), str(part / TENSORS))
                write_json(part / VALUES, values)
        except (OSError, SafetensorError) as error:
            # safetensors reports the error number in its message only.
            full = getattr(error, "errno", None) in DISK_FULL or any(
                f"(os error {number})" in str(error) for number in DISK_FULL
            )
            reason = f"the disk is full ({_needed(tensors)} needed)" if full else str(error)
            raise CheckpointError(
                f"the checkpoint of step {step} can't be written: {reason}; {self._newest()}"
            ) from error
        self._remove_old()
        return path

    def load_newest(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest valid checkpoint, and the problems of newer ones."""
        problems: list[str] = []
        for path in reversed(self._paths()):
            try:
                return load(path), problems
            except CheckpointError as error:
                problems.append(str(error))
        return None, problems

    def sweep(self) -> None:
        """Remove partial checkpoints of killed processes."""
        sweep(self.folder)

    def _paths(self) -> list[Path]:
        return sorted(path for path in self.folder.glob(f"{_PREFIX}*") if path.is_dir())

    def _remove_old(self) -> None:
        old = self._paths()[: -self.keep]
        if old and not any(is_whole(path) for path in self._paths()[-self.keep :]):
            return
        for path in old:
            shutil.rmtree(path, ignore_errors=True)  # the next save tries again

    def _newest(self) -> str:
        whole = next((path for path in reversed(self._paths()) if is_whole(path)), None)
        return f"the last valid checkpoint is {whole}" if whole else "there is no earlier checkpoint"


def load(path: Path) -> Checkpoint:
    """Load a checkpoint, or raise where it is damaged."""
    try:
        manifest = read_manifest(path)
        if manifest.get("format") != CHECKPOINT_FORMAT:
            raise CheckpointError(
                f"{path} has format {manifest.get('format')!r}; this version reads format {CHECKPOINT_FORMAT}"
            )
        step, values = manifest.get("step"), read_json(path / VALUES)
        # Copies, as Ray keeps them, have other names; one with our kind of name must have the right one.
        renamed = path.name.startswith(_PREFIX) and type(step) is int and path.name != _name(step)
        if type(step) is not int or renamed or not isinstance(values, dict):
            raise CheckpointError(
                f"{path} is not a checkpoint: its step is {step!r}, its values {type(values).__name__}"
            )
        return Checkpoint(step, load_file(str(check_regular(path / TENSORS))), values, path)
    except (DamagedError, OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"{path} can't be read: {error}") from error


def _name(step: int) -> str:
    return f"{_PREFIX}{step:08d}"


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors that share memory, such as tied weights, as safetensors requires."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        shared = tensor.data_ptr() in seen or tensor._base is not None
        apart[name] = tensor.clone() if shared else tensor
        seen.add(tensor.data_ptr())
    return apart


def _needed(tensors: dict[str, Tensor]) -> str:
    return f"{sum(tensor.nbytes for tensor in tensors.values()) / 1e6:,.0f} MB"
