"""Predictions as files: written in parts, which are joined into one at the end.

A part depends only on the network and its inputs, so it does not matter which process computes it, when, or how often:
existing parts are not computed again, and the joined file is the same to the byte. The name of a part contains the
checksum of its bytes; a damaged part counts as missing.

::

    OUT.parquet          number, name, classes (best first), class_names (where known), scores, error
    OUT.parquet.parts/   until all parts are there
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from cruciform.errors import MissingExtraError, RunError
from cruciform.files import new_file, read_bytes, write_text
from cruciform.files import sha256 as file_sha256
from cruciform.prediction.inputs import Inputs
from cruciform.prediction.predict_rows import PredictionSettings, predict_rows
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


class Parts:
    """The parts of one file of predictions.

    Args:
        out: The file.
        inputs: The number of inputs.
        settings: How predictions are made.

    Attributes:
        inputs: The number of inputs.
        count: The number of parts.
    """

    def __init__(self, out: Path, inputs: int, settings: PredictionSettings) -> None:
        self._out, self.inputs, self._settings = out, inputs, settings
        self.count = -(-inputs // settings.part)
        self._folder = out.with_name(f"{out.name}.parts")

    def begin(self, identity: dict[str, Any]) -> None:
        """Create the folder, or check that its parts are of the same network and inputs."""
        job = self._folder / "job.json"
        asked = {**identity, **self._settings._asdict(), "inputs_count": self.inputs, "columns": SCHEMA.names}
        text = json.dumps(asked, sort_keys=True)
        if job.is_file() and read_bytes(job) != text.encode():
            raise RunError(
                f"{self._folder} has parts of other inputs, another network or other options; resume with those, or "
                "delete it to start from scratch"
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        if not job.is_file():
            self._remove_parts()  # of an unknown network
        write_text(job, text)

    def missing(self) -> list[int]:
        """Return the parts that are missing."""
        return [number for number in range(self.count) if self._find(number) is None]

    def make(self, number: int, predictor: Predictor, inputs: Inputs) -> None:
        """Compute one part and write it."""
        first = number * self._settings.part
        rows = predict_rows(
            predictor, inputs, range(first, min(first + self._settings.part, self.inputs)), self._settings
        )
        buffer = pa.BufferOutputStream()
        parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), buffer)
        data = buffer.getvalue().to_pybytes()
        with new_file(self._folder / f"{number:08d}-{sha256(data).hexdigest()}.parquet") as hidden:
            hidden.write_bytes(data)

    def join(self) -> int:
        """Join all parts into one file; return how many inputs got no prediction."""
        errors = 0
        with new_file(self._out) as hidden, parquet.ParquetWriter(hidden, SCHEMA) as writer:
            for number in range(self.count):
                path = self._find(number)
                if path is None:
                    raise RunError(
                        f"part {number} of {self._folder} is missing or damaged; predict again to compute it"
                    )
                table = parquet.read_table(path, schema=SCHEMA)
                errors += len(table) - table["error"].null_count
                writer.write_table(table)
        self._remove_parts()
        for path in self._folder.iterdir():  # the file that names their network goes last
            path.unlink()
        self._folder.rmdir()
        return errors

    def _remove_parts(self) -> None:
        for path in self._folder.glob("*.parquet"):
            path.unlink()

    def _find(self, number: int) -> Path | None:
        """Return an undamaged part; damaged ones of its number are removed."""
        for path in sorted(self._folder.glob(f"{number:08d}-*.parquet")):
            if path.stem.partition("-")[2] == file_sha256(path):
                return path
            path.unlink()
        return None
