"""Convert all networks of some sources in two child processes; a journal makes runs resumable."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cruciform.coverage.examine import Finding
from cruciform.errors import MissingExtraError
from cruciform.files import read_bytes, read_text
from cruciform.measure.record import versions

TIMEOUT_SECONDS = 300.0  # seconds for one network
LIBRARIES = ("torchvision", "timm", "monai")


@dataclass(frozen=True)
class CoverageRequest:
    """One network to examine."""

    reference: str
    scheme: str
    backward: bool


def cover(
    requests: Sequence[CoverageRequest],
    journal: Path,
    *,
    processes: int = 2,
    report: Callable[[Finding], None] = lambda finding: None,
) -> list[Finding]:
    """Examine all networks that the journal does not hold yet, and return the findings of all.

    What was found with other versions, or failed, is examined again.

    Args:
        requests: What to examine.
        journal: A file of requests and findings, a line each; it is appended to at once.
        processes: How many child processes.
        report: Called with each finding, those of the journal included.
    """
    today = versions(LIBRARIES)
    findings = {request: finding for request, finding in read_findings(journal, today) if request in set(requests)}
    for finding in findings.values():
        report(finding)
    waiting: queue.SimpleQueue[CoverageRequest] = queue.SimpleQueue()
    for request in requests:
        if request not in findings:
            waiting.put(request)
    lock, stop = threading.Lock(), threading.Event()
    journal.parent.mkdir(parents=True, exist_ok=True)
    if journal.exists() and not read_bytes(journal).endswith(b"\n"):
        with journal.open("a", encoding="utf-8") as file:
            file.write("\n")  # after a truncated line, or the next would be lost with it

    def keep(request: CoverageRequest, finding: Finding) -> None:
        with lock, journal.open("a", encoding="utf-8") as file:
            entry = {"request": vars(request), "finding": finding.to_dict(), "versions": today}
            file.write(json.dumps(entry) + "\n")
            findings[request] = finding
            report(finding)

    threads = [threading.Thread(target=_serve, args=(waiting, keep, stop)) for _ in range(processes)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return [findings[request] for request in requests if request in findings]


def list_networks(libraries: Sequence[str]) -> list[str]:
    """Return references to all networks of the libraries; a child process asks them, as it is the one to load them."""
    command = [sys.executable, "-m", "cruciform.coverage.worker", "--list", *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise MissingExtraError((done.stderr.strip().splitlines() or ["the libraries could not be imported"])[-1])
    return list(json.loads(done.stdout))


def read_findings(journal: Path, today: Mapping[str, str]) -> Iterable[tuple[CoverageRequest, Finding]]:
    """Yield what was asked, and found by these versions without a failure; a truncated line is skipped."""
    if journal.exists():
        for line in read_text(journal).splitlines():
            try:
                entry = json.loads(line)
                request, finding = CoverageRequest(**entry["request"]), Finding.from_dict(entry["finding"])
            except (ValueError, TypeError, KeyError):
                continue
            if entry.get("versions") == today and not finding.failure:
                yield request, finding


def _serve(
    waiting: "queue.SimpleQueue[CoverageRequest]",
    keep: Callable[[CoverageRequest, Finding], None],
    stop: threading.Event,
) -> None:
    child: _Child | None = None
    try:
        while not stop.is_set():
            try:
                request = waiting.get_nowait()
            except queue.Empty:
                return
            child = child or _Child()
            finding = child.ask(request)
            if finding is None:
                keep(request, Finding(request.reference, eligible=True, failure=child.end()))
                child = None
            else:
                keep(request, finding)
    finally:
        if child is not None:
            child.end()


class _Child:
    """A child process that answers one request after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cruciform.coverage.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._late = False

    def ask(self, request: CoverageRequest) -> Finding | None:
        """Return the finding, or None where the child died or took too long."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            return None
        timer = threading.Timer(TIMEOUT_SECONDS, self._give_up)
        timer.start()
        try:
            process.stdin.write(json.dumps(vars(request)) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (BrokenPipeError, ValueError):
            return None
        finally:
            timer.cancel()
        return Finding.from_dict(json.loads(line)) if line else None

    def _give_up(self) -> None:
        self._late = True
        self._process.kill()

    def end(self) -> str:
        """End the child and return how it ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            code = self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return f"took longer than {TIMEOUT_SECONDS:.0f} s" if self._late else f"the process ended with code {code}"
