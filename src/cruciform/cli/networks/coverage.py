"""``cruciform coverage``: how many networks of timm, torchvision and MONAI can be converted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption
from cruciform.cli.shared.parsing import ending
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.errors import OptionError

if TYPE_CHECKING:
    from cruciform.coverage.coverage_run import CoverageRequest
    from cruciform.coverage.examine import Finding

BACKWARD_EVERY = 12


def coverage(
    library: Annotated[str, typer.Option(help="torchvision, timm, monai, or all.")] = "all",
    scheme: Annotated[str, typer.Option(help="The scheme to convert by.")] = "lr",
    sample: Annotated[int | None, typer.Option(min=1, help="Convert only this many networks, evenly spaced.")] = None,
    journal: Annotated[
        Path,
        typer.Option(
            callback=ending(".jsonl"),
            help="Record of the networks done so far; an interrupted run resumes from it.",
        ),
    ] = Path("runs/coverage.jsonl"),
    result: Annotated[
        Path | None, typer.Option(callback=ending(".json"), help="Record the result in this file (.json).")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(callback=ending(".md"), help="Write a table for the docs into this file (.md).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Convert every network of a library; exit code 1 if less than 99 % of the eligible ones are converted.

    The same if more than 1 % can't be built.

    Example: cruciform coverage --library torchvision
    """
    from cruciform.coverage.coverage_run import LIBRARIES, cover
    from cruciform.coverage.summary import markdown, tally

    requests = _requests(library, scheme, sample)
    findings = _with_progress(requests, journal) if not as_json else cover(requests, journal)
    tallies = tally(findings)
    if result:
        from cruciform.measure.record import record_result

        summary = {f"{t.library}_{what}": getattr(t, what) for t in tallies for what in ("eligible", "converted")}
        record_result(
            result,
            summary={**summary, "backward": sum(t.backward for t in tallies)},
            details=[finding.to_dict() for finding in findings],
            command=f"cruciform coverage --library {library} --scheme {scheme}",
            n=len(findings),
            packages=LIBRARIES,
        )
    if table:
        from cruciform.measure.record import circumstances

        text = markdown(tallies, findings, scheme=scheme, circumstances=circumstances(LIBRARIES))
        table.write_text(text, "utf-8")
    if as_json:
        print_json([finding.to_dict() for finding in findings])
    else:
        print_table(
            f"Coverage of the scheme {scheme}",
            ("library", "networks", "eligible", "converted, same shapes", "% converted", "backward", "failed"),
            [
                (t.library, *map(str, (t.networks, t.eligible, t.converted)), f"{t.share:.1%}", str(t.backward),
                 str(len(t.failed)))
                for t in tallies
            ],
        )  # fmt: skip
        for finding in (finding for t in tallies for finding in t.failed):
            console().print(f"{finding.reference}: {finding.failure}", style="yellow")
    if not all(t.passed for t in tallies):
        raise typer.Exit(1)


def _requests(library: str, scheme: str, sample: int | None) -> "list[CoverageRequest]":
    from cruciform.coverage.coverage_run import LIBRARIES, CoverageRequest, list_networks
    from cruciform.schemes import find_scheme

    find_scheme(scheme)
    if library not in (*LIBRARIES, "all"):
        raise OptionError(f"--library {library} is not one of {', '.join(LIBRARIES)}, all")
    references = list_networks(LIBRARIES if library == "all" else (library,))
    if sample is not None and sample < len(references):
        references = [references[index * len(references) // sample] for index in range(sample)]
    return [CoverageRequest(ref, scheme, index % BACKWARD_EVERY == 0) for index, ref in enumerate(references)]


def _with_progress(requests: "list[CoverageRequest]", journal: Path) -> "list[Finding]":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from cruciform.coverage.coverage_run import cover

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console()) as progress:
        task = progress.add_task("examining", total=len(requests))

        def report(finding: "Finding") -> None:
            progress.update(task, advance=1, description=finding.reference)
            if finding.failure:
                progress.console.print(f"{finding.reference}: {finding.failure}", style="yellow")

        return cover(requests, journal, report=report)
