"""A folder of images: ``PATH/train/CLASS/*.jpg`` and ``PATH/val/CLASS/*.jpg`` (or ``test``)."""

import io
import os
from pathlib import Path

import numpy as np

from cruciform.data.samples.image_guard import refuse_many_scans, refuse_many_segments
from cruciform.data.samples.pillow import Pillow, UnidentifiedImageError
from cruciform.data.samples.source import Image, Opening, Sample, dataset, digest_of, need_path
from cruciform.errors import BadSampleError, DataError
from cruciform.files import open_regular, read_bytes
from cruciform.text.wording import plural

NAMES = {"train": ("train",), "test": ("val", "test", "validation")}
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp"})
FORMATS = ("JPEG", "PNG", "WEBP")
OTHER_PICTURES = frozenset({".avif", ".bmp", ".gif", ".heic", ".jp2", ".pgm", ".ppm", ".tif", ".tiff"})
"""Suffixes of images that can't be read, and are reported instead of skipped."""

MOST_BYTES = 64 * 2**20
MOST_PIXELS = {"JPEG": 64 * 10**6, "PNG": 40 * 10**6, "WEBP": 40 * 10**6}
"""Largest images, which are decoded within a second and a gigabyte."""


def images_by_class(folder: Path) -> dict[str, list[Path]]:
    """Return the images of each class, both sorted. An empty folder is a class too, a hidden one is not."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return {name: _images(folder / name) for name in names}


def _images(folder: Path) -> list[Path]:
    found, others = [], []
    for path in sorted(path for path in folder.iterdir() if not path.name.startswith(".")):
        suffix = path.suffix.lower()
        if suffix in SUFFIXES:
            found.append(path)
        elif suffix in OTHER_PICTURES or path.is_dir():
            others.append(path)
    if others:
        raise DataError(
            f"{folder} contains {plural(len(others), 'file or folder', 'files or folders')} that can't be read as "
            f"images, such as {others[0].name}. The folder of a class contains files of {', '.join(sorted(SUFFIXES))}: "
            "convert the others, or move them away"
        )
    return found


class FolderSource:
    """The images of one folder; the sorted names of its subfolders are the classes."""

    def __init__(self, folder: Path, *, short_side: int | None) -> None:
        found = images_by_class(folder)
        self.classes = tuple(found)
        self._short_side = short_side
        self._files = [(path, label) for label, paths in enumerate(found.values()) for path in paths]
        self.labels = np.array([label for _, label in self._files])
        if not self._files:
            raise DataError(f"{folder} contains no images; expected {folder}/CLASS/*.jpg (or .png, .webp)")

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Sample:
        path, label = self._files[index]
        try:
            return Sample(read_image(path, self._short_side), label)
        except DataError as error:
            raise BadSampleError(index, self.describe(index), str(error)) from error

    def describe(self, index: int) -> str:
        """Return its file."""
        return str(self._files[index][0])

    def digest(self, index: int) -> str:
        """Return a hash of the bytes of the file, which must be an image, and of its label."""
        _, label = self[index]
        return digest_of(read_bytes(self._files[index][0]), label)


@dataset("folder")
def open_folder(opening: Opening) -> FolderSource:
    """List the images of one split."""
    root = need_path(opening.path, "the folder with the images", folder=True)
    for name in NAMES[opening.split]:
        if (root / name).is_dir():
            return FolderSource(root / name, short_side=opening.short_side)
    raise DataError(f"{root} has no folder {' or '.join(NAMES[opening.split])}")


def read_image(path: Path, short_side: int | None = None) -> Image:
    """Read and decode an image file; see ``decode``."""
    try:
        with open_regular(path) as file:
            check_size(os.fstat(file.fileno()).st_size)
            return decode(file.read(), short_side)
    except OSError as error:
        raise DataError(f"can't be read: {error.strerror}") from error


def decode(data: bytes, short_side: int | None = None) -> Image:
    """Decode an image to uint8 (height, width, 3).

    Args:
        data: A JPEG, PNG or WebP file.
        short_side: Length that the shorter side is resized to. A JPEG is decoded at the smallest scale above it, which
            is faster.
    """
    check_size(len(data))
    refuse_many_segments(data)
    try:
        with Pillow.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            most = MOST_PIXELS.get(image.format or "", MOST_PIXELS["JPEG"])  # a JPEG of several pictures is an MPO
            _check_pixels(width, height, most)
            refuse_many_scans(data, width * height)
            if short_side is None:
                return np.asarray(_in_color(image))
            scale = short_side / min(width, height)
            size = max(short_side, round(width * scale)), max(short_side, round(height * scale))
            _check_pixels(*size, most)  # a long, thin image can grow beyond the limit
            image.draft("RGB", size)
            return np.asarray(_in_color(image).resize(size, Pillow.Resampling.BILINEAR))
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"can't be decoded: it is not a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file") from error
    except Exception as error:  # Pillow's decoders raise anything: OSError, ValueError, SyntaxError…
        raise DataError(f"can't be decoded: {error}") from error


def _in_color(image: Pillow.Image) -> Pillow.Image:
    if image.mode == "RGB":
        return image  # convert would copy it
    if image.mode.startswith("I"):  # 16-bit gray, which convert would clip to 255
        image = Pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    color = image.convert("RGB")
    image.close()  # not to hold a large image in memory twice
    return color


def check_size(size: int) -> None:
    """Raise where a file is larger than the limit."""
    if size > MOST_BYTES:
        raise DataError(f"has {size:,} bytes; the limit is {MOST_BYTES:,}")


def _check_pixels(width: int, height: int, most: int) -> None:
    if width * height > most:
        raise DataError(f"has {width}×{height} pixels; the limit is {most:,}")
