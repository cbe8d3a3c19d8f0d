"""Images made by hand to cost much more than they weigh: refused, or decoded within the bounds of time and memory."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from images import check
from kind import Trial, hostile
from PIL import Image as Pillow

from cruciform.data.sets.folder import decode


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *, bits: int = 8, color: int = 2, before: bytes = b"", behind: bytes = b"",
        rows: int | None = None) -> bytes:  # fmt: skip
    """Returns a black PNG; of fewer rows than it claims where ``rows`` says so."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    line = bytes(1 + (width * samples * bits + 7) // 8) if rows != 0 else b""
    packer = zlib.compressobj(1)
    data = b"".join(packer.compress(line) for _ in range(height if rows is None else rows)) + packer.flush()
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0))
    palette = chunk(b"PLTE", bytes(768)) if color == 3 else b""
    return b"\x89PNG\r\n\x1a\n" + header + palette + before + chunk(b"IDAT", data) + behind + chunk(b"IEND")


def jpeg(size: tuple[int, int] = (48, 40), **options: object) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(np.zeros((size[1], size[0], 3), np.uint8)).save(file, "JPEG", **options)
    return file.getvalue()


def claiming(data: bytes, width: int, height: int) -> bytes:
    """Returns a JPEG whose frame header claims another size."""
    place = next(data.find(marker) for marker in (b"\xff\xc0", b"\xff\xc2") if marker in data)
    return data[: place + 5] + struct.pack(">HH", height, width) + data[place + 9 :]


def many_scans(size: int, count: int) -> bytes:
    """Returns a progressive JPEG whose last scan comes again and again."""
    data = jpeg((size, size), progressive=True)
    last = data.rfind(b"\xff\xda")
    table = data.rfind(b"\xff\xc4", 0, last)
    return data[:-2] + data[table:-2] * count + data[-2:]


def webp(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Pillow.new("RGB", (width, height)).save(file, "WEBP", lossless=True, method=0)
    return file.getvalue()


def frames(count: int) -> bytes:
    control = chunk(b"acTL", struct.pack(">II", count, 0))
    each = chunk(b"fcTL", bytes(26)) + chunk(b"fdAT", bytes(8))
    return png(8, 8, before=control, behind=each * count)


def looped_directory() -> bytes:
    """Returns a JPEG whose EXIF directory points to itself."""
    tiff = b"II*\0\x08\0\0\0" + struct.pack("<HHHII", 1, 0x8769, 4, 1, 8) + struct.pack("<I", 8)
    segment = b"Exif\0\0" + tiff
    data = jpeg()
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + data[2:]


def pictures(count: int) -> bytes:
    """Returns a JPEG that claims to hold many pictures, in a directory that is not there."""
    index = struct.pack("<HHHII", 3, 0xB000, 7, 4, 0) + struct.pack("<HHII", 0xB001, 4, 1, count)
    tiff = b"II*\0\x08\0\0\0" + index + struct.pack("<HHII", 0xB002, 7, 16 * count % 2**32, 0) + bytes(4)
    segment = b"MPF\0" + tiff
    data = jpeg()
    return data[:2] + b"\xff\xe2" + struct.pack(">H", len(segment) + 2) + segment + data[2:]


ZEROS = zlib.compress(bytes(50 * 2**20), 9)
BOMBS: tuple[tuple[Callable[[], bytes], int | None], ...] = (
    (lambda: claiming(jpeg(), 65_535, 65_535), None),
    (lambda: claiming(jpeg(), 65_500, 900), None),
    (lambda: claiming(jpeg(progressive=True), 8_000, 8_000), None),
    (lambda: claiming(jpeg(progressive=True), 8_000, 8_000), 32),
    (lambda: png(50_000, 50_000, bits=1, color=0, rows=10), None),
    (lambda: png(6_300, 6_300, bits=1, color=0), None),
    (lambda: png(6_300, 6_300, color=6), None),
    (lambda: png(6_300, 6_300, bits=1, color=3, rows=3), None),
    (lambda: png(1, 65_500), 500),
    (lambda: png(65_500, 1), 224),
    (lambda: png(2_000_000, 2, bits=1, color=0), 64),
    (lambda: png(0, 0), None),
    (lambda: png(8, 0), 32),
    (lambda: png(2**31 - 1, 2**31 - 1, rows=0), None),
    (lambda: frames(700_000), None),
    (lambda: png(8, 8, behind=chunk(b"prVt") * 2_000_000), None),
    (lambda: png(8, 8, before=chunk(b"prVt") * 2_000_000), None),
    (lambda: png(8, 8, before=chunk(b"zTXt", b"a\0\0" + ZEROS)), None),
    (lambda: png(8, 8, before=chunk(b"zTXt", b"a\0\0" + ZEROS) * 100), None),
    (lambda: png(8, 8, before=chunk(b"iCCP", b"a\0\0" + ZEROS)), None),
    (lambda: png(8, 8, before=chunk(b"iTXt", b"a\0\1\0\0\0" + ZEROS) * 50), None),
    (lambda: many_scans(64, 10_000), None),
    (lambda: claiming(many_scans(64, 2_000), 7_900, 7_900), None),
    (lambda: claiming(many_scans(64, 60), 7_900, 7_900), None),
    (lambda: jpeg()[:2] + b"\xff\xfe\0\2" * 4_000_000 + jpeg()[2:], None),
    (lambda: jpeg()[:2] + b"\xff" * 30_000_000 + jpeg()[2:], None),
    (lambda: jpeg()[:2] + b"\xff\xe1\0\2" * 4_000_000 + jpeg()[2:], None),
    (looped_directory, None),
    (lambda: pictures(4), None),
    (lambda: pictures(2**31 - 1), None),
    (lambda: webp(16_383, 2_430), None),
    (lambda: webp(16_383, 16), 1_000),
    (lambda: b"\xff\xd8" + bytes(60_000_000), None),
    (lambda: bytes(2**26 + 1), None),
)


def prepare(folder: Path) -> None:
    for number, (make, _) in enumerate(BOMBS):
        (folder / f"{number:02d}").write_bytes(make())


@hostile("image bombs", len(BOMBS), prepare)
def attack(trial: Trial) -> None:
    side = BOMBS[trial.number][1]
    check(decode((trial.seeds / f"{trial.number:02d}").read_bytes(), side), side)
