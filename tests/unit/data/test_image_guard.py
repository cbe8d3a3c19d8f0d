"""Images that would take too long to decode."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cruciform.data.samples.image_guard import refuse_many_scans
from cruciform.errors import DataError


def test_what_follows_the_end_of_a_photo_is_no_scan_of_it(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "photo.jpg")
    photo = (tmp_path / "photo.jpg").read_bytes()
    film = b"\xff\xda" * 100
    refuse_many_scans(photo + film, 12_000_000)
    with pytest.raises(DataError, match="scans"):
        refuse_many_scans(photo.removesuffix(b"\xff\xd9") + b"\xff\xda\x00\x02" * 100, 12_000_000)
    with pytest.raises(DataError, match="scans"):  # hidden behind more markers than are gone through
        refuse_many_scans(b"\xff\xd8" + b"\xff\xe0\x00\x02" * 30_000 + film, 12_000_000)
