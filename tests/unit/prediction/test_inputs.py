"""Images that are found in a folder to predict on."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from cruciform.errors import DataError
from cruciform.prediction.inputs import FolderInputs


def test_images_in_linked_folders_are_found_once(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"")
    (tmp_path / "other" / "z.png").write_bytes(b"")
    (tmp_path / "images" / "linked").symlink_to(tmp_path / "other")
    (tmp_path / "other" / "back").symlink_to(tmp_path / "images")
    inputs = FolderInputs(tmp_path / "images", None)
    assert [inputs.name(number) for number in range(len(inputs))] == ["a.png", "linked/z.png"]


def test_no_picture_is_passed_over_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.png", "b.bmp", "c.txt"):
        Image.new("RGB", (4, 4)).save(tmp_path / name, "BMP" if name == "b.bmp" else "PNG")
    inputs = FolderInputs(tmp_path, None)
    assert [inputs.name(number) for number in range(len(inputs))] == ["a.png", "b.bmp"]
    with pytest.raises(DataError, match="can't be decoded: it is not a JPEG, PNG or WEBP file"):
        inputs.image(1)

    def walk(folder: Path, onerror: Callable[[OSError], None], **more: object) -> list[object]:
        onerror(PermissionError(13, "Permission denied", "images/secret"))
        return []

    monkeypatch.setattr("os.walk", walk)  # to root, who may run this, no folder is closed
    with pytest.raises(DataError, match="images/secret can't be listed: Permission denied"):
        FolderInputs(tmp_path, None)
