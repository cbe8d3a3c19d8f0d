"""Fingerprints of data sets: hashes of the class names, the labels and some of the samples.

Cheap for any size and location: ``SAMPLES`` evenly spaced samples are read, and none of shards, whose index has a
checksum of each. Stored bytes are hashed, which do not depend on the version of a decoder; files in folders are decoded
too, to check that they can be. An unreadable sample has no hash: it may be repaired before the run is resumed. A change
of a few samples among many can remain undetected.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from cruciform.data.samples.source import Source, spread
from cruciform.errors import BadSampleError
from cruciform.text.wording import plural

SAMPLES = 64
MOST_LABELS = 2**22
"""Of larger sources only the labels of those samples are compared, so that an index of 10⁸ records is not read."""


def take_fingerprint(source: Source) -> dict[str, Any]:
    """Return the fingerprint of a source, as plain data."""
    labels = source.labels if len(source) <= MOST_LABELS else None
    return {
        "samples": len(source),
        "classes": _hash(json.dumps(list(source.classes)).encode()),
        "labels": None if labels is None else _hash(np.asarray(labels, "<i8").tobytes()),
        "digests": {str(number): _digest(source, number) for number in _chosen(source)},
    }


def compare_fingerprints(before: Mapping[str, Any], now: Mapping[str, Any], source: Source) -> list[str]:
    """Describe the differences of two fingerprints.

    Args:
        before: The recorded fingerprint.
        now: The current fingerprint.
        source: The current data, for the locations of samples.
    """
    if before.get("samples") != now["samples"]:
        return [f"it has {plural(now['samples'], 'sample')}, and had {before.get('samples')}"]
    found = [f"its {what} differ" for what, key in (("class names", "classes"), ("labels", "labels"))
             if None not in (before.get(key), now[key]) and before.get(key) != now[key]]  # fmt: skip
    old, new = known_digests(before), known_digests(now)
    compared = sorted(old.keys() & new.keys(), key=int)
    changed = [number for number in compared if old[number] != new[number]]
    if changed:
        where = source.describe(int(changed[0]))
        found.append(f"{len(changed)} of {plural(len(compared), 'compared sample')} differ, the first: {where}")
    return found


def known_digests(fingerprint: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes of the samples that have one, by index."""
    digests = fingerprint.get("digests")
    pairs = digests.items() if isinstance(digests, dict) else ()
    return {number: digest for number, digest in pairs if isinstance(digest, str) and number.isdecimal()}


def _chosen(source: Source) -> list[int]:
    return spread(min(SAMPLES, len(source)), len(source))


def _digest(source: Source, number: int) -> str | None:
    try:
        return source.digest(number)
    except BadSampleError:
        return None


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
