"""Parts of predictions, mutated while a job is interrupted: computed anew, or refused, but never joined as they are."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
from kind import Silent, Trial, hostile
from mutate import mutate_bytes, mutate_json
from numpy.typing import NDArray

from cruciform.prediction.parts import Parts
from cruciform.prediction.predict_rows import PredictionSettings
from cruciform.prediction.predictor import Predictor, Preparation

ASKING = PredictionSettings(top=2, batch=4, part=4)
COUNT = 12
IDENTITY = {"network": "n", "inputs": "i"}


class Inputs:
    identity = "i"

    def __len__(self) -> int:
        return COUNT

    def name(self, number: int) -> str:
        return f"image{number}"

    def image(self, number: int) -> NDArray[np.uint8]:
        return np.full((2, 2, 3), number, np.uint8)


def predictor() -> Predictor:
    def ask(images: NDArray[Any]) -> NDArray[Any]:
        return np.stack([images.sum((1, 2, 3)), np.ones(len(images)), np.zeros(len(images))], axis=1)

    preparation = Preparation(None, (), np.zeros(1, np.float32), np.ones(1, np.float32))
    return Predictor(ask, preparation, (3, 2, 2), "n")


def make(out: Path, *, join: bool) -> Parts:
    parts = Parts(out, COUNT, ASKING)
    parts.begin(IDENTITY)
    for number in parts.missing():
        parts.make(number, predictor(), Inputs())
    if join:
        parts.join()
    return parts


def prepare(folder: Path) -> None:
    make(folder / "whole.parquet", join=True)
    make(folder / "out.parquet", join=False)


@cache
def original(folder: Path) -> tuple[dict[str, bytes], bytes]:
    parts = {path.name: path.read_bytes() for path in (folder / "out.parquet.parts").iterdir()}
    return parts, (folder / "whole.parquet").read_bytes()


@hostile("prediction parts", 600, prepare)
def attack_parts(trial: Trial) -> None:
    files, whole = original(trial.seeds)
    folder = trial.scratch / "out.parquet.parts"
    folder.mkdir(parents=True)
    files = dict(files)
    name = trial.random.choice(sorted(files))
    how = trial.random.random()
    if name == "job.json" and how < 0.5:
        files[name] = mutate_json(json.loads(files[name]), trial.random)
    elif how < 0.85:
        files[name] = mutate_bytes(files[name], trial.random)[1]
    else:
        other = trial.random.choice(sorted(files))
        files[name], files[other] = files[other], files[name]
    for name, data in files.items():
        (folder / name).write_bytes(data)
    make(trial.scratch / "out.parquet", join=True)
    if (trial.scratch / "out.parquet").read_bytes() != whole:
        numbers = parquet.read_table(trial.scratch / "out.parquet")["number"].to_pylist()
        raise Silent(f"the joined predictions are others; numbers {numbers}")
