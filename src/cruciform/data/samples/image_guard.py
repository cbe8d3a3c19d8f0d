"""Refuse images that would keep a decoder busy for minutes, before they are decoded.

A file of a few megabytes can have millions of empty segments, which Pillow walks in Python, or thousands of scans, each
of which covers all pixels. Real files have tens of both. The checks here take microseconds for those.
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
    """Raise where a file has more segments than Pillow reads in about a second; called before it is opened."""
    walk = _chunks(data) if data.startswith(PNG) else _segments(data) if data.startswith(JPEG) else iter(())
    if next(islice(walk, MOST_SEGMENTS, None), None) is not None:
        raise DataError(f"has more than {MOST_SEGMENTS:,} segments; no camera or encoder writes so many")


def refuse_many_scans(data: bytes, pixels: int) -> None:
    """Raise where a JPEG has more scans than are decoded in about a second; called before it is decoded.

    Args:
        data: The file.
        pixels: Width times height, from its header.
    """
    # Within a scan every 0xff is followed by a zero, so this counts scans, those of a thumbnail, and whatever looks
    # like one after the end, such as the video of a phone's live photo. Few files need an exact count.
    scans = data.count(SCAN) if data.startswith(JPEG) else 1
    if scans > 1 and scans * pixels > MOST_SCANNED:
        scans = sum(1 for _ in islice(_scans(data), MOST_SCANS + 1))
    if scans > 1 and (scans > MOST_SCANS or scans * pixels > MOST_SCANNED):
        raise DataError(
            f"has {pixels:,} pixels in {scans:,} scans; the limits are {MOST_SCANS} scans, and {MOST_SCANNED:,} pixels "
            "over all scans"
        )


def _scans(data: bytes) -> Iterator[int]:
    """Yield the offsets of the scans of a JPEG, walking from marker to marker as decoders do."""
    place = len(JPEG)
    for _ in range(MOST_SEGMENTS):
        marker = MARKER.search(data, place)
        if marker is None or marker[0] == END:
            return
        place = marker.start()
        if marker[0] == SCAN:
            yield place
        place += 2 if marker[0] in ALONE else 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    yield from range(MOST_SCANS + 1)  # more markers than any encoder writes: refused like too many scans


def _chunks(data: bytes) -> Iterator[int]:
    place = 8
    while place + 12 <= len(data):
        yield place
        place += 12 + int.from_bytes(data[place : place + 4], "big")


def _segments(data: bytes) -> Iterator[int]:
    """Yield the segments of a JPEG header, and single fill bytes between them."""
    place = 2
    while place + 4 <= len(data) and not data.startswith(SCAN, place):
        yield place
        filled = data[place] != 0xFF or data[place + 1] in (0x00, 0xFF)
        place += 1 if filled else 2 + int.from_bytes(data[place + 2 : place + 4], "big")
