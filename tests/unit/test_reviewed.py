"""What reviews of deployment, prediction and data have found: things that once went wrong in silence or in a crash."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from cruciform.cli.shared.terminal import console
from cruciform.data.samples.image_guard import refuse_many_scans
from cruciform.data.sets.folder import FolderSource
from cruciform.data.shard_write import list_items
from cruciform.deployment.parity.compare import compare
from cruciform.deployment.rewrites.capture import capture
from cruciform.deployment.rewrites.linear import linear_as_convolution_
from cruciform.deployment.targets.registered import TARGETS
from cruciform.errors import DataError
from cruciform.prediction.inputs import FolderInputs
from cruciform.prediction.parts import Asking, predict_rows
from cruciform.prediction.predictor import Predictor, Preparation
from cruciform.reports.charts import nice_ticks


def test_targets_whose_artifacts_could_do_harm_say_so() -> None:
    assert {name for name, target in TARGETS.items() if target.danger} == {
        "torch", "torch-compile", "aotinductor", "torch-int8", "executorch",
    }  # fmt: skip


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
    with pytest.raises(DataError, match="can't be decoded: it is none of JPEG, PNG, WEBP, which are read"):
        inputs.image(1)

    def walk(folder: Path, onerror: Callable[[OSError], None], **more: object) -> list[object]:
        onerror(PermissionError(13, "Permission denied", "images/secret"))
        return []

    monkeypatch.setattr("os.walk", walk)  # to root, who may run this, no folder is closed
    with pytest.raises(DataError, match="images/secret can't be gone through: Permission denied"):
        FolderInputs(tmp_path, None)


def test_numbers_that_are_not_finite_are_no_prediction(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "c.png"):
        Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(tmp_path / name)
    logits = np.array([[0.0, np.nan, 1.0], [0.0, 2.0, 1.0], [0.0, np.inf, 1.0]])
    plain = Preparation(None, (), np.zeros(1, np.float32), np.ones(1, np.float32))
    predictor = Predictor(lambda images: logits[: len(images)], plain, (3, 2, 2), "network")
    rows = predict_rows(predictor, FolderInputs(tmp_path, None), range(3), Asking(1, 3, 3))
    assert [row["classes"] for row in rows] == [None, [1], None]
    assert [row["error"] is None for row in rows] == [False, True, False]


def test_what_follows_the_end_of_a_photo_is_no_scan_of_it(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "photo.jpg")
    photo = (tmp_path / "photo.jpg").read_bytes()
    film = b"\xff\xda" * 100
    refuse_many_scans(photo + film, 12_000_000)
    with pytest.raises(DataError, match="scans"):
        refuse_many_scans(photo.removesuffix(b"\xff\xd9") + b"\xff\xda\x00\x02" * 100, 12_000_000)
    with pytest.raises(DataError, match="scans"):  # hidden behind more markers than are gone through
        refuse_many_scans(b"\xff\xd8" + b"\xff\xe0\x00\x02" * 30_000 + film, 12_000_000)


def test_brackets_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("written to art[draft]; not tried: [/usr/lib/libfoo.so]")
    assert capsys.readouterr().out == "written to art[draft]; not tried: [/usr/lib/libfoo.so]\n"


@pytest.mark.parametrize(("low", "high"), [(2.3025850929940455, 2.302585092994046), (1e-14, 2e-14), (0.0, 0.0)])
def test_a_flat_line_has_an_axis(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low
    assert ticks[-1] >= high
    assert len(set(ticks)) == len(ticks) >= 2


def test_engines_are_compared_a_batch_at_a_time() -> None:
    sizes: list[int] = []

    class Watched(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(len(x))
            return x.flatten(1)

    images = np.random.default_rng(0).random((150, 1, 2, 2), dtype=np.float32)
    run = lambda given: given.reshape(len(given), -1)  # noqa: E731
    found = compare(Watched(), run, images, batch=64, target=TARGETS.get("torch"), name="reshape")
    assert found.error == 0
    assert set(sizes) == {1, 64, 65}


def test_a_kernel_that_is_computed_is_left_before_its_norm() -> None:
    conv = nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 8, 3))
    network = nn.Sequential(conv, nn.BatchNorm2d(8), nn.ReLU()).eval()
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(capture(network, (3, 8, 8))(x), network(x))


def test_a_matrix_that_is_computed_stays_one() -> None:
    norm = nn.utils.parametrizations.spectral_norm
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), norm(nn.Linear(3, 4))).eval()
    assert not linear_as_convolution_(capture(network, (3, 8, 8)))


def test_folders_and_shards_have_the_same_classes(tmp_path: Path) -> None:
    for name in ("cat", "dog", ".ipynb_checkpoints"):
        (tmp_path / name).mkdir()
    for name in ("dog", ".ipynb_checkpoints"):
        Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(tmp_path / name / "a.png")
    source, listing = FolderSource(tmp_path, short_side=None), list_items(tmp_path)
    assert source.classes == listing.classes == ("cat", "dog")
    assert [item.label for item in listing.items] == source.labels.tolist() == [1]
