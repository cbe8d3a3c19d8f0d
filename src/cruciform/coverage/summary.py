"""Summarize coverage: numbers per library, and a page for the docs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cruciform.coverage.examine import Finding
from cruciform.sources.build_network import split_reference

GOAL = 0.99

COVERAGE_PAGE = """# Coverage

Every network that torchvision and timm list, and those of MONAI that `src/cruciform/sources/monai.py` lists, their
convolutions converted by the scheme `{scheme}`:
`cruciform coverage --library all --scheme {scheme}`. {circumstances}

*Eligible*: has a convolution with groups=1 and a kernel longer than 1 along two axes or more. *Converted*: at least one
was replaced, all outputs have the same shapes, and the converted network has the MACs of its conversion table.
*Backward*: of a sample of those under 60 M parameters, run on real tensors, every replaced layer got a finite gradient.

| library | networks | eligible | converted | backward | failed |
|---|---|---|---|---|---|
{libraries}

## Failures

{failures}

## How much is saved

| network | replaced | MACs before | MACs after | left |
|---|---|---|---|---|
{savings}
"""


@dataclass(frozen=True)
class Tally:
    """The numbers of one library.

    Attributes:
        library: Its name.
        networks: How many networks it has.
        eligible: How many have something to convert.
        converted: How many of these convert, with outputs of the same shapes and the promised counts.
        backward: How many were run backwards on real tensors, with a finite gradient in every replaced layer.
        failed: Eligible networks that do not convert, and networks that can't be built or run at all.
    """

    library: str
    networks: int
    eligible: int
    converted: int
    backward: int
    failed: tuple[Finding, ...]

    @property
    def share(self) -> float:
        """The fraction of eligible networks that convert."""
        return self.converted / self.eligible if self.eligible else 1.0

    @property
    def passed(self) -> bool:
        """Whether nearly all eligible networks convert, and nearly all can be built."""
        return self.share >= GOAL and len(self.failed) <= (1 - GOAL) * self.networks


def tally(findings: Iterable[Finding]) -> list[Tally]:
    """Return the numbers of each library, in the order in which they come."""
    by_library: dict[str, list[Finding]] = {}
    for finding in findings:
        by_library.setdefault(split_reference(finding.reference)[0], []).append(finding)
    return [
        Tally(
            library,
            networks=len(found),
            eligible=sum(f.eligible for f in found),
            converted=sum(is_covered(f) for f in found),
            backward=sum(f.backward is True for f in found),
            failed=tuple(f for f in found if f.failure or (f.eligible and not is_covered(f))),
        )
        for library, found in by_library.items()
    ]


def is_covered(finding: Finding) -> bool:
    """Return whether a network converts correctly."""
    return finding.eligible and finding.converted and finding.same_shapes and not finding.failure


def markdown(tallies: Sequence[Tally], findings: Sequence[Finding], *, scheme: str, circumstances: str) -> str:
    """Return a page for the docs."""
    failures = [f"- `{f.reference}`: {f.failure}" for t in tallies for f in t.failed]
    return COVERAGE_PAGE.format(
        scheme=scheme,
        circumstances=circumstances,
        libraries="\n".join(map(_library, tallies)),
        failures="\n".join(failures) or "None.",
        savings="\n".join(_saving(finding) for finding in findings if is_covered(finding)),
    )


def _library(t: Tally) -> str:
    share = f"{t.converted} ({t.share:.1%})"
    return f"| {t.library} | {t.networks} | {t.eligible} | {share} | {t.backward} | {len(t.failed)} |"


def _saving(finding: Finding) -> str:
    before, after = finding.macs_before or 0, finding.macs_after or 0
    left = f"{after / before:.0%}" if before else "–"
    return f"| {finding.reference} | {finding.replaced} | {before:,} | {after:,} | {left} |"
