"""Which convolutions does an engine get wrong? Tries every kind of filter group that plans produce.

A convolution library can answer with noise, or write past its buffers, for shapes that few people use: a line with a
stride across it, one input channel. Each combination of kernel, stride, dilation, padding, channels, dtype, memory
format, gradients and threads is computed twice: by ``torch.nn.functional`` (raw) and by ``CompositeConv`` (guarded).
Both are compared with float64 in processes of their own, whose exit codes are read. Inputs and weights end at an
unreadable page, and glibc's allocator checks every block that is freed, so an overrun shows before it hits something
that matters. Exported layers are swept in the same way through ONNX Runtime and OpenVINO: there the guard is the check
before anything is shipped.

    python benchmarks/engine_sweep.py                             all engines; writes results/engine-sweep.json
    python benchmarks/engine_sweep.py --isa AVX2                  as oneDNN computes without AVX-512
    python benchmarks/engine_sweep.py --engine torch --every 20 --no-record

A sweep that was interrupted resumes (build/engine-sweep holds what it has found; delete it after a change to begin
again). Results of other processors and instruction sets stay in the file. Exit code 1: a combination is left unguarded.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine_cases import Finding, sweep_torch, torch_groups
from exported_cases import exported_groups, sweep_exported

from cruciform.cli.shared.progress import progress_bar
from cruciform.machine import processor
from cruciform.measure.record import record_result, today, versions

RESULT = Path(__file__).parents[1] / "results" / "engine-sweep.json"
JOURNALS = Path(__file__).parents[1] / "build" / "engine-sweep"
DEBUG_MALLOC = "libc_malloc_debug.so.0"  # part of glibc since 2.34
PACKAGES = ("onnxruntime", "openvino")
ENGINES: dict[str, tuple[Callable[[], Iterable[Any]], Callable[[Any], list[Finding]]]] = {
    "torch": (torch_groups, sweep_torch),
    "onnxruntime": (lambda: exported_groups("onnxruntime"), sweep_exported),
    "openvino": (lambda: exported_groups("openvino"), sweep_exported),
}
"""How the combinations of each are found, in groups, and how a group is tried."""


def main() -> int:
    options = _options()
    if "MALLOC_CHECK_" not in os.environ:
        _restart(options.isa)
    unguarded = 0
    for engine in options.engine or ENGINES:
        start, (groups, sweep_group) = time.monotonic(), ENGINES[engine]
        chosen, findings = list(groups())[:: options.every], []
        journal = JOURNALS / f"{engine}{options.isa and '-'}{options.isa}.jsonl"
        known = _read_journal(journal) if options.record else {}
        with progress_bar(f"sweeping {engine}") as advance:
            for done, group in enumerate(chosen, 1):
                if str(group) not in known:
                    known[str(group)] = sweep_group(group)
                    if options.record:
                        _add_to_journal(journal, str(group), known[str(group)])
                findings += known[str(group)]
                advance(done, len(chosen))
        counts = {**_counts(findings), "seconds": round(time.monotonic() - start)}
        print(engine, json.dumps(counts, indent=2), *(f for f in findings if f.is_unguarded), sep="\n", flush=True)
        if options.record:
            _record(engine, options, counts, findings)
        unguarded += counts["unguarded"]
    return 1 if unguarded else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", choices=ENGINES, help="only this one; may be repeated")
    parser.add_argument("--every", type=int, default=1, help="only every n-th group of combinations")
    parser.add_argument("--isa", default="", help="the most that oneDNN may use: AVX2, AVX512_CORE, …")
    parser.add_argument("--record", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def _restart(isa: str) -> None:
    """Starts again under an allocator that checks its blocks, and with the instructions that were asked for."""
    os.environ |= {
        "LD_PRELOAD": DEBUG_MALLOC,
        "MALLOC_CHECK_": "3",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
    }
    os.environ |= {"ONEDNN_MAX_CPU_ISA": isa} if isa else {}
    os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606


def _read_journal(path: Path) -> dict[str, list[Finding]]:
    """Returns what an interrupted sweep has found; delete the file to begin again."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {line["group"]: [Finding(**finding) for finding in line["findings"]] for line in map(json.loads, lines)}


def _add_to_journal(path: Path, group: str, findings: Sequence[Finding]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"group": group, "findings": [asdict(finding) for finding in findings]}) + "\n")


def _counts(findings: Sequence[Finding]) -> dict[str, int]:
    crashed = [finding for finding in findings if finding.is_crash]
    return {
        "combinations": len(findings),
        "engine_defects": sum(finding.is_defect for finding in findings),
        "wrong": sum(finding.is_defect for finding in findings) - len(crashed),
        "crashed": len(crashed),
        "routed_around": sum(finding.is_defect and not finding.is_unguarded for finding in findings),
        "refused_by_engine": sum(finding.raw.startswith("refused") for finding in findings),
        "unguarded": sum(finding.is_unguarded for finding in findings),
    }


def _record(engine: str, options: argparse.Namespace, counts: dict[str, int], findings: Sequence[Finding]) -> None:
    """Adds these results to those of other engines and processors."""
    known: dict[str, Any] = json.loads(RESULT.read_text("utf-8"))["details"] if RESULT.exists() else {}
    place = f"{engine} on {processor.name()}, {options.isa or ' '.join(processor.instructions())}"
    known[place] = {
        "date": today(),
        "versions": versions(PACKAGES),
        "every": options.every,
        **counts,
        "defects": [asdict(finding) for finding in findings if finding.is_defect or finding.is_unguarded],
    }
    total = Counter[str]()
    for there in known.values():
        total.update({key: there[key] for key in counts if key != "seconds"})
    record_result(
        RESULT,
        summary=dict(total),
        details=known,
        command="python benchmarks/engine_sweep.py; with --isa AVX512_CORE and --isa AVX2 for older processors",
        n=total["combinations"],
        packages=PACKAGES,
    )


if __name__ == "__main__":
    sys.exit(main())
