"""Hostile inputs, by the ten thousand: nothing may crash, hang, eat memory, run code, or be taken for what it is not.

python tests/hostile/run.py --record                    all, and records results/hostile.json
python tests/hostile/run.py --share 0.02                a fiftieth of each kind
python tests/hostile/run.py --seed 0 --kind csv --trial 17      one trial once more, with what it raised
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import bombs  # noqa: F401
import checkpoints  # noqa: F401
import datasets  # noqa: F401
import disguised  # noqa: F401
import images  # noqa: F401
import model_bombs  # noqa: F401
import networks  # noqa: F401
import not_files  # noqa: F401
import numpy as np
import predictions  # noqa: F401
import recipes  # noqa: F401
import terminal  # noqa: F401
import torch
from kind import KINDS, Trial
from trials import chance, chosen, table
from watch import SUITE, run_trials

from cruciform.measure.record import record_result

RESULT = Path(__file__).parents[2] / "results" / "hostile.json"
FAILURES = ("crash", "hang", "memory", "silent", "executed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the trials of each kind")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    parser.add_argument("--trial", type=int, help="one trial of one kind, in this process")
    parser.add_argument("--record", action="store_true", help="write results/hostile.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    memory = Path("/dev/shm")  # noqa: S108  (much is written, nothing is kept)
    folder = Path(tempfile.mkdtemp(prefix="hostile-", dir=memory if memory.is_dir() else None))
    try:
        if given.trial is not None:
            return one(given.kind[0] if given.kind else "", given.seed, given.trial, folder)
        return many(given, folder)
    finally:
        shutil.rmtree(folder)


def one(name: str, seed: int, number: int, folder: Path) -> int:
    """Does one trial again and shows what it raises."""
    kind = KINDS.get(name) or sys.exit("--trial needs --kind NAME")
    seeds = folder / "seeds"
    seeds.mkdir()
    kind.prepare(seeds)
    scratch = folder / "scratch"
    try:
        kind.attack(Trial(number, chance(SUITE, name, seed, number), seeds, scratch, scratch / "canary"))
    except Exception:
        traceback.print_exc()
        return 1
    print("taken")
    return 0


def many(given: argparse.Namespace, folder: Path) -> int:
    """Does many trials and prints the table."""
    began = time.monotonic()
    rows, failures = [], []
    print(f"seed {given.seed}", flush=True)
    for kind in sorted(KINDS.values(), key=lambda kind: kind.library is not None):  # it stays in memory
        if given.kind and kind.name not in given.kind:
            continue
        started = time.monotonic()
        numbers = chosen(kind.count, given.share)
        counts, failed = run_trials(kind, given.seed, numbers, folder)
        failures += failed
        bad = [sum(one.what == what for one in failed) for what in FAILURES]
        rows.append([kind.name, len(numbers), counts["refused"], counts["taken"], *bad])
        print(
            f"{kind.name}: {len(numbers):,} in {time.monotonic() - started:.1f} s, {len(failed)} failures", flush=True
        )
        for failure in failed[:5]:
            print(f"  --seed {given.seed} --kind {kind.name} --trial {failure.number}: {failure.what}: {failure.why}")
    seconds = time.monotonic() - began
    total: list[object] = ["all", *np.sum([row[1:] for row in rows], axis=0).tolist()]
    head = ("kind", "inputs", "refused", "taken, and right", "crashes", "hangs", "memory", "silently wrong", "code run")
    print(table(head, [*rows, total]))
    print(f"{total[1]:,} inputs, {len(failures)} failures, {seconds:.0f} s")
    if given.record:
        summary = {"inputs": total[1], "failures": len(failures), "kinds": len(rows), "seconds": round(seconds)}
        details = [dict(zip(("kind", "inputs", "refused", "taken", *FAILURES), row, strict=True)) for row in rows]
        command = f"python tests/hostile/run.py --record --seed {given.seed} --share {given.share:g}"
        packages = ("pillow", "safetensors", "onnxruntime", "pyarrow", "pydantic")
        record_result(RESULT, summary=summary, details=details, command=command, n=total[1], packages=packages)
    print(json.dumps({"inputs": total[1], "failures": len(failures), "seconds": round(seconds, 1)}))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
