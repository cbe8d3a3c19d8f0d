"""How fast are shards read, how soon is a large index open, and does damage go unnoticed?

    CRUCIFORM_DATA=DIR python benchmarks/ingest.py        writes results/ingest.json

Speed: Imagenette's JPEGs out of shards, cut to 112×112, against a bare loop over the files that opens, decodes and cuts
them with Pillow in as many threads; in turns, the best of some rounds counts. Index: 10⁸ samples, in a process of its
own. Damage: shards truncated, flipped, zeroed, with bytes put in, exchanged; ``verify`` must name each, and reading
must give every sample that is not damaged and none that is.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow

from cruciform.data.loader import Loader
from cruciform.data.order import Order
from cruciform.data.sets.shards import ShardSource
from cruciform.data.shard_verify import verify_shards
from cruciform.data.shard_write import Listing, list_items, write_shards
from cruciform.data.sharding.shard_index import INDEX, MANIFEST, NAMES, SAMPLE_RECORD, File, Manifest
from cruciform.data.sharding.shard_options import ShardOptions
from cruciform.data.sharding.storage import open_storage
from cruciform.data.transforms.transforms import RandomCrop
from cruciform.errors import DataError
from cruciform.measure.record import peak_memory, record_result

RESULT = Path(__file__).parents[1] / "results" / "ingest.json"
IMAGES = Path(os.environ.get("CRUCIFORM_DATA", "")) / "imagenette128" / "train"
SIDE, BATCH, SAMPLES, THREADS = 112, 64, 4096, 2
MANY = 10**8


def measure_speed(folder: Path, rounds: int) -> dict[str, Any]:
    """Times both ways in turns; images a second."""
    listing = list_items(IMAGES)
    some = Listing(tuple(random.Random(0).sample(listing.items, SAMPLES)), listing.classes)  # noqa: S311
    write_shards(some, folder, ShardOptions(size=16 * 10**6, threads=THREADS))
    source = ShardSource(open_storage(str(folder)))
    paths = [item.path for item in some.items]
    for path in paths:
        path.read_bytes()  # both ways find their files in the system's cache
    times: dict[str, list[float]] = {"shards": [], "bare": []}
    for number in range(rounds):
        start = time.perf_counter()
        times["shards"].append(_from_shards(source, number) / (time.perf_counter() - start))
        start = time.perf_counter()
        times["bare"].append(_bare(paths) / (time.perf_counter() - start))
    return {"images_per_second": times, "ratio": max(times["shards"]) / max(times["bare"])}


def _from_shards(source: ShardSource, epoch: int) -> int:
    loader = Loader(source, Order(len(source), BATCH, seed=0), [RandomCrop(SIDE)], threads=THREADS)
    steps = loader.order.steps_per_epoch
    count = 0
    with loader.batches(range(epoch * steps, (epoch + 1) * steps)) as batches:
        for batch in batches:
            count += len(batch.images)
    return count


def _bare(paths: list[Path]) -> int:
    def read(path: Path) -> Any:
        with Pillow.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        top, left = random.randint(0, pixels.shape[0] - SIDE), random.randint(0, pixels.shape[1] - SIDE)  # noqa: S311
        return pixels[top : top + SIDE, left : left + SIDE].copy()

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(1 for _ in pool.map(read, paths))


def measure_index(folder: Path) -> dict[str, float]:
    """Opens an index of 10⁸ samples in a new process."""
    folder.mkdir()
    shards = MANY // 2300
    index = np.lib.format.open_memmap(
        folder / INDEX, "w+", SAMPLE_RECORD, (MANY,)
    )  # a file with a hole: no disk is needed
    index[-1] = (shards - 1, 7, 512, 1000, 0, 0)
    del index
    (folder / NAMES).write_bytes(b"")
    made = Manifest(
        tuple(f"class {number}" for number in range(1000)),
        MANY,
        tuple(File(f"shard-{number:06d}.tar", 256_000_000, "0" * 64) for number in range(shards)),
        File(INDEX, (folder / INDEX).stat().st_size, "0" * 64),
        File(NAMES, 0, "0" * 64),
    )
    (folder / MANIFEST).write_text(made.to_json(), "utf-8")
    ended = subprocess.run(  # noqa: S603
        [sys.executable, __file__, "--open", str(folder)], capture_output=True, check=True, text=True
    )
    found: dict[str, float] = json.loads(ended.stdout)
    return found


def open_index(folder: Path) -> None:
    """Says how long it took, and how much more memory than before was in use at any moment."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # forget how much was in use at most so far
    before = peak_memory()
    start = time.perf_counter()
    source = ShardSource(open_storage(str(folder)))
    if int(source.index.records[MANY - 1]["label"]) != 7:
        raise SystemExit("the last record is not what was written")
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "megabytes": (peak_memory() - before) / 2**20}))


def measure_damage(folder: Path, count: int) -> dict[str, Any]:
    """Damages one shard after the other."""
    listing = list_items(IMAGES)
    some = Listing(tuple(random.Random(1).sample(listing.items, 200)), listing.classes)  # noqa: S311
    write_shards(some, folder, ShardOptions(size=60_000, threads=THREADS))
    whole = ShardSource(open_storage(str(folder)))
    truth = [whole.read(number) for number in range(len(whole))]
    shards = sorted(folder.glob("*.tar"))
    missed, wrong = [], []
    for trial in range(count):
        chance = random.Random(trial)  # noqa: S311
        path = chance.choice(shards)
        original = path.read_bytes()
        kind = list(DAMAGES)[trial % len(DAMAGES)]
        damaged = DAMAGES[kind](original, chance, shards)
        if damaged == original:
            continue
        path.write_bytes(damaged)
        if path.name not in {problem.file for problem in verify_shards(folder)}:
            missed.append({"trial": trial, "kind": kind})
        source = ShardSource(open_storage(str(folder)))
        for number, true in enumerate(truth):
            try:
                if source.read(number) != true:
                    wrong.append({"trial": trial, "kind": kind, "sample": number})
            except DataError:
                if int(source.index.records[number]["shard"]) != shards.index(path):
                    wrong.append({"trial": trial, "kind": kind, "sample": number})
        path.write_bytes(original)
    return {"trials": count, "missed": missed, "wrong_samples": wrong, "shards": len(shards)}


def _flip(data: bytes, chance: random.Random, _: Any) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 16)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _put_in(data: bytes, chance: random.Random, _: Any) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + chance.randbytes(chance.choice((1, 512))) + data[place:]


def _zero(data: bytes, chance: random.Random, _: Any) -> bytes:
    place = chance.randrange(0, len(data), 512)
    return data[:place] + bytes(512) + data[place + 512 :]


DAMAGES: dict[str, Callable[[bytes, random.Random, list[Path]], bytes]] = {
    "truncated": lambda data, chance, _: data[: chance.randrange(len(data))],
    "flipped": _flip,
    "zeroed": _zero,
    "inserted": _put_in,
    "exchanged": lambda data, chance, shards: chance.choice(shards).read_bytes(),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--open", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mutations", type=int, default=2000)
    given = parser.parse_args()
    if given.open:
        open_index(given.open)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        speed = measure_speed(folder / "speed", given.rounds)
        index = measure_index(folder / "index")
        damage = measure_damage(folder / "damage", given.mutations)
    summary = {
        "ingest_vs_bare": round(speed["ratio"], 3),
        "images_per_second": round(max(speed["images_per_second"]["shards"]), 1),
        "bare_images_per_second": round(max(speed["images_per_second"]["bare"]), 1),
        "index_open_seconds": round(index["seconds"], 3),
        "index_open_mb": round(index["megabytes"], 1),
        "mutated_shards": damage["trials"],
        "mutated_shards_missed": len(damage["missed"]),
        "wrong_samples": len(damage["wrong_samples"]),
    }
    print(json.dumps(summary, indent=2))
    record_result(
        RESULT,
        summary=summary,
        details={"speed": speed, "index": index, "damage": damage, "threads": THREADS, "samples": SAMPLES},
        command="CRUCIFORM_DATA=DIR python benchmarks/ingest.py",
        n=given.rounds,
        packages=("grain", "pillow"),
    )


if __name__ == "__main__":
    main()
