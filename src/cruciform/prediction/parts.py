"""Predictions as files: inputs are cut into parts, each a file that is whole or absent; all make one in the end.

A part is a function of the network and its inputs, so it does not matter who computes it, when, or how often: what is
there is not computed again, and the whole is the same to the byte. The name of a part holds the checksum of its bytes:
one that is damaged is as good as absent.

::

    OUT.parquet          number, name, classes (best first), class_names (where known), scores, error
    OUT.parquet.parts/   until all parts are there
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cruciform.errors import DataError, DeployError, MissingExtraError, RunError
from cruciform.files import new_file, read_bytes, write_text
from cruciform.files import sha256 as file_sha256
from cruciform.prediction.inputs import Inputs
from cruciform.prediction.predictor import Predictor

try:
    import pyarrow as pa
    import pyarrow.parquet as parquet
except ImportError as error:
    raise MissingExtraError(
        f"predictions are written with pyarrow ({error}): pip install 'cruciform[predict]'"
    ) from error

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("name", pa.string()),
        ("classes", pa.list_(pa.int32())),
        ("class_names", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float32())),
        ("error", pa.string()),
    ]
)


class Asking(NamedTuple):
    """How predictions are made.

    Attributes:
        top: How many classes are kept for each input, the best ones.
        batch: Inputs that the network sees at a time.
        part: Inputs in a part.
    """

    top: int = 5
    batch: int = 16
    part: int = 1024


class Parts:
    """The parts of one file of predictions.

    Args:
        out: The file.
        inputs: How many inputs there are.
        asking: How predictions are made.

    Attributes:
        count: How many parts there are.
    """

    def __init__(self, out: Path, inputs: int, asking: Asking) -> None:
        self._out, self._inputs, self._asking = out, inputs, asking
        self.count = -(-inputs // asking.part)
        self._folder = out.with_name(f"{out.name}.parts")

    def begin(self, identity: dict[str, Any]) -> None:
        """Makes the folder, or finds that its parts are of the same network and inputs."""
        job = self._folder / "job.json"
        asked = {**identity, **self._asking._asdict(), "inputs_count": self._inputs, "columns": SCHEMA.names}
        text = json.dumps(asked, sort_keys=True)
        if job.is_file() and read_bytes(job) != text.encode():
            raise RunError(
                f"{self._folder} holds parts of other inputs, another network or other options; go on with those, or "
                "delete it to begin anew"
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        if not job.is_file():
            self._remove_parts()  # nothing says of which network they are
        write_text(job, text)

    def missing(self) -> list[int]:
        """Returns the parts that are not there yet."""
        return [number for number in range(self.count) if self._find(number) is None]

    def make(self, number: int, predictor: Predictor, inputs: Inputs) -> None:
        """Computes one part and writes it."""
        first = number * self._asking.part
        rows = predict_rows(predictor, inputs, range(first, min(first + self._asking.part, self._inputs)), self._asking)
        buffer = pa.BufferOutputStream()
        parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), buffer)
        data = buffer.getvalue().to_pybytes()
        with new_file(self._folder / f"{number:08d}-{sha256(data).hexdigest()}.parquet") as hidden:
            hidden.write_bytes(data)

    def join(self) -> int:
        """Makes one file of all parts, removes them, and returns how many inputs got no prediction."""
        errors = 0
        with new_file(self._out) as hidden, parquet.ParquetWriter(hidden, SCHEMA) as writer:
            for number in range(self.count):
                path = self._find(number)
                if path is None:
                    raise RunError(
                        f"part {number} of {self._folder} is missing or damaged; the same command makes it anew"
                    )
                table = parquet.read_table(path, schema=SCHEMA)
                errors += len(table) - table["error"].null_count
                writer.write_table(table)
        self._remove_parts()
        for path in self._folder.iterdir():  # what says of which network the parts are goes last
            path.unlink()
        self._folder.rmdir()
        return errors

    def _remove_parts(self) -> None:
        for path in self._folder.glob("*.parquet"):
            path.unlink()

    def _find(self, number: int) -> Path | None:
        """Returns a part that is what was written; others of its number are removed."""
        for path in sorted(self._folder.glob(f"{number:08d}-*.parquet")):
            if path.stem.partition("-")[2] == file_sha256(path):
                return path
            path.unlink()
        return None


def predict_rows(predictor: Predictor, inputs: Inputs, numbers: range, asking: Asking) -> list[dict[str, Any]]:
    """Returns a row for each input: what the network says, or why it could not be asked."""
    rows: list[dict[str, Any]] = []
    names = predictor.classes
    for first in range(numbers.start, numbers.stop, asking.batch):
        batch = range(first, min(first + asking.batch, numbers.stop))
        images: dict[int, NDArray[np.float32]] = {}
        errors: dict[int, str] = {}
        for number in batch:
            try:
                images[number] = predictor.prepare(inputs.image(number))
            except DataError as error:
                errors[number] = str(error)
        said = _ask(predictor, list(images.values()), asking.top)
        answers = dict(zip(images, said, strict=True))
        unsaid = [number for number, answer in answers.items() if answer is None]
        errors |= dict.fromkeys(unsaid, "the network puts out numbers that are not finite for this image")
        for number in batch:
            classes, scores = answers.get(number) or (None, None)
            rows.append(
                {
                    "number": number,
                    "name": inputs.name(number),
                    "classes": classes,
                    "class_names": [names[place] for place in classes] if classes and names else None,
                    "scores": scores,
                    "error": errors.get(number),
                }
            )
    return rows


def _ask(
    predictor: Predictor, images: Sequence[NDArray[np.float32]], top: int
) -> list[tuple[list[int], list[float]] | None]:
    """Returns the best classes and their shares for each image; None where the network puts out no finite numbers."""
    if not images:
        return []
    logits = predictor.engine(np.stack(images)).astype(np.float64)
    if predictor.classes and logits.shape[1:] != (len(predictor.classes),):
        raise DeployError(
            f"the network puts out {logits.shape[1:]} scores for an image, and names {len(predictor.classes)} classes"
        )
    finite = [bool(np.isfinite(row).all()) for row in logits]
    logits[[not each for each in finite]] = 0.0
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    best = np.argsort(-shares, axis=1, kind="stable")[:, :top]
    return [
        (places.tolist(), row[places].astype(np.float32).tolist()) if says else None
        for places, row, says in zip(best, shares, finite, strict=True)
    ]
