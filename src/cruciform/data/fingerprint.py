"""What tells a data set from another of the same size: hashes of its class names, its labels and some of its samples.

Cheap whatever its size and wherever it is stored: ``SAMPLES`` samples are read, evenly spread over the source, and of
shards none, for their index has a checksum of each. Stored bytes are hashed, which no version of a decoder changes; a
folder's files are decoded too, but only to see that they can be. A sample that can't be used has no hash: it may be
mended between two starts of a run. A change of a few samples among many can go unnoticed.
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
"""Of larger sources only the labels of the samples above are compared: an index of 10⁸ records is not read whole."""


def take_fingerprint(source: Source) -> dict[str, Any]:
    """Returns the fingerprint of a source, as plain data."""
    labels = source.labels if len(source) <= MOST_LABELS else None
    return {
        "samples": len(source),
        "classes": _hash(json.dumps(list(source.classes)).encode()),
        "labels": None if labels is None else _hash(np.asarray(labels, "<i8").tobytes()),
        "digests": {str(number): _digest(source, number) for number in _chosen(source)},
    }


def compare_fingerprints(before: Mapping[str, Any], now: Mapping[str, Any], source: Source) -> list[str]:
    """Returns in words in what two fingerprints differ.

    Args:
        before: What the data was.
        now: What it is.
        source: The data as it is, which knows where its samples are.
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
    """Returns the hashes of those samples that have one, by their numbers."""
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
