"""Refuses images that would keep a decoder busy for minutes, before it starts: they are small, and look like any other.

A file of some megabytes can hold millions of empty segments, which Pillow walks in Python, or thousands of scans, each
of which goes over all pixels. Real files have tens of both. The looks taken here cost microseconds for those.
"""

import re
from collections.abc import Iterator
from itertools import islice

from cruciform.errors import DataError

MOST_SEGMENTS = 20_000  # 160 MB of PNG in chunks of 8 kB, as encoders write them
MOST_SCANS = 200
MOST_SCANNED = 256 * 10**6  # pixels, over all scans: ten of 25 megapixels
PNG, JPEG = b"\x89PNG", b"\xff\xd8"
SCAN, END = b"\xff\xda", b"\xff\xd9"
ALONE = (b"\xff\xd8", b"\xff\x01")  # markers without a segment
MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


def refuse_many_segments(data: bytes) -> None:
    """Raises where a file has more segments than Pillow gets through in about a second. Before it is opened."""
    walk = _chunks(data) if data.startswith(PNG) else _segments(data) if data.startswith(JPEG) else iter(())
    if next(islice(walk, MOST_SEGMENTS, None), None) is not None:
        raise DataError(f"has more than {MOST_SEGMENTS:,} segments, as no camera or encoder writes them")


def refuse_many_scans(data: bytes, pixels: int) -> None:
    """Raises where a JPEG has more scans than can be gone through in about a second. Before it is decoded.

    Args:
        data: The file.
        pixels: What it says it has.
    """
    # Inside a scan no 0xff stands without a zero behind it, so this counts scans, those of a thumbnail, and whatever
    # looks like one behind the end, as the film of a phone's moving photo. Few files need a closer look.
    scans = data.count(SCAN) if data.startswith(JPEG) else 1
    if scans > 1 and scans * pixels > MOST_SCANNED:
        scans = sum(1 for _ in islice(_scans(data), MOST_SCANS + 1))
    if scans > 1 and (scans > MOST_SCANS or scans * pixels > MOST_SCANNED):
        raise DataError(
            f"has {pixels:,} pixels in {scans:,} scans; at most {MOST_SCANS} are read, and {MOST_SCANNED:,} pixels "
            "in all of them"
        )


def _scans(data: bytes) -> Iterator[int]:
    """Yields where the scans of a JPEG begin, up to its end, as decoders walk them: from one marker to the next."""
    place = len(JPEG)
    for _ in range(MOST_SEGMENTS):
        marker = MARKER.search(data, place)
        if marker is None or marker[0] == END:
            return
        place = marker.start()
        if marker[0] == SCAN:
            yield place
        place += 2 if marker[0] in ALONE else 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    yield from range(MOST_SCANS + 1)  # more markers than any encoder writes: as bad as so many scans


def _chunks(data: bytes) -> Iterator[int]:
    place = 8
    while place + 12 <= len(data):
        yield place
        place += 12 + int.from_bytes(data[place : place + 4], "big")


def _segments(data: bytes) -> Iterator[int]:
    """Yields the segments of a JPEG's head, and single bytes that fill the gaps between them."""
    place = 2
    while place + 4 <= len(data) and not data.startswith(SCAN, place):
        yield place
        filled = data[place] != 0xFF or data[place + 1] in (0x00, 0xFF)
        place += 1 if filled else 2 + int.from_bytes(data[place + 2 : place + 4], "big")
