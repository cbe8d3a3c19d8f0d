"""Percentages that the paper's text states, recomputed from its own tables and from our counts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cruciform.paper.tables import CheckedRow

Rows: TypeAlias = "dict[tuple[str, str], CheckedRow]"


@dataclass(frozen=True)
class Claim:
    """A statement of the paper.

    Attributes:
        says: The statement.
        found: What the numbers say, from the rows.
        verdict: Whether both agree, in words.
    """

    says: str
    found: Callable[[Rows], str]
    verdict: str


def render_claims(rows: Sequence[CheckedRow]) -> str:
    """Return all statements as a Markdown table."""
    by_name = {(row.published.table, row.published.network): row for row in rows}
    lines = [f"| {claim.says} | {claim.found(by_name).replace('%', ' %')} | {claim.verdict} |" for claim in CLAIMS]
    return "\n".join(["| the paper says | its numbers say | verdict |", "|---|---|---|", *lines])


def _fewer(what: str, table: str, one: str, other: str) -> Callable[[Rows], str]:
    """Return how much less a network has of something than another, by the published counts."""

    def found(rows: Rows) -> str:
        a, b = (getattr(rows[table, name].published, what) for name in (one, other))
        return f"{1 - a / b:.1%} fewer {'MACs' if what == 'macs' else 'parameters'} than {other}"

    return found


def _share(what: str, table: str, one: str, other: str) -> Callable[[Rows], str]:
    def found(rows: Rows) -> str:
        a, b = (getattr(rows[table, name].published, what) for name in (one, other))
        return f"{a / b:.1%} of {other}'s {'MACs' if what == 'macs' else 'parameters'}"

    return found


def _points(table: str, one: str, other: str) -> Callable[[Rows], str]:
    """Return the difference of two accuracies in points."""

    def found(rows: Rows) -> str:
        a, b = (rows[table, name].published for name in (one, other))
        if a.top5 is None or b.top5 is None:
            return f"{100 * (a.top1 - b.top1):+.2f} points top-1 against {other}"
        return f"{100 * (a.top5 - b.top5):+.2f} points top-5 against {other}"

    return found


def _both(*parts: Callable[[Rows], str]) -> Callable[[Rows], str]:
    return lambda rows: "; ".join(part(rows) for part in parts)


def _deployed_share(table: str, one: str, other: str) -> Callable[[Rows], str]:
    def found(rows: Rows) -> str:
        a, b = rows[table, one], rows[table, other]
        return f"{1 - a.true_macs / b.true_macs:.1%} fewer MACs than {other} on one geometry"

    return found


VGG, GOOGLENET, NIN = "vgg_ilsvrc", "googlenet", "nin_cifar10"
CLAIMS = (
    Claim("gmp has over 75 % fewer parameters than VGG-11", _fewer("params", VGG, "gmp", "vgg-11"), "holds"),
    Claim("gmp is almost 3 points better (top-5)", _points(VGG, "gmp", "vgg-11"), "loose"),
    Claim(
        "gmp-sf takes 14 % less compute, 0.8 % less accurate",
        _both(_fewer("macs", VGG, "gmp-sf", "vgg-11"), _points(VGG, "gmp-sf", "gmp")),
        "holds, against VGG-11",
    ),
    Claim("gmp-lr-join is 49 % faster", _fewer("macs", VGG, "gmp-lr-join", "gmp"), "holds for MACs; no time is given"),
    Claim(
        "gmp-lr: a third of the compute, no reduction in accuracy",
        _both(_share("macs", VGG, "gmp-lr", "gmp"), _points(VGG, "gmp-lr", "gmp"),
              _points(VGG, "gmp-lr", "gmp-lr-join")),
        "compute holds; accuracy only against gmp-lr-join",
    ),
    Claim("gmp-lr-2x is 58 % faster", _fewer("macs", VGG, "gmp-lr-2x", "gmp"), "holds, of the network with wide conv5"),
    Claim(
        "abstract: 41 % less compute, 24 % of the parameters",
        _both(_share("macs", VGG, "gmp-lr-2x", "vgg-11"), _share("params", VGG, "gmp-lr-2x", "vgg-11")),
        "a slip: 41 % *of* the compute",
    ),
    Claim(
        "gmp-lr-join-wfull saves 16 %, 1 point better, and keeps the number of filters",
        _both(_fewer("macs", VGG, "gmp-lr-join-wfull", "gmp"), _points(VGG, "gmp-lr-join-wfull", "gmp"),
              _share("params", VGG, "gmp-lr-join-wfull", "gmp")),
        "holds but for the filters: conv5 is twice as wide",
    ),
    Claim(
        "gmp-lr-lde saves 86 %, 1.2 points less accurate",
        _both(_fewer("macs", VGG, "gmp-lr-lde", "gmp"), _points(VGG, "gmp-lr-lde", "gmp")),
        "holds",
    ),
    Claim("gmp-lr-lde is 2.5 points better than VGG-11", _points(VGG, "gmp-lr-lde", "vgg-11"), "a slip"),
    Claim(
        "googlenet-lr: 26 % less compute, 41 % fewer parameters",
        _both(_fewer("macs", GOOGLENET, "googlenet-lr", "googlenet"),
              _fewer("params", GOOGLENET, "googlenet-lr", "googlenet"),
              _deployed_share(GOOGLENET, "googlenet-lr", "googlenet")),
        "holds with its counts, which compare two geometries",
    ),
    Claim(
        "nin-c3: 26 % less compute, 54 % of the parameters",
        _both(_fewer("macs", NIN, "nin-c3", "nin"), _share("params", NIN, "nin-c3", "nin")),
        "compute holds; the parameters are a slip",
    ),
    Claim(
        "nin-c3-lr: 54 % of the compute, 45 % of the parameters",
        _both(_share("macs", NIN, "nin-c3-lr", "nin"), _share("params", NIN, "nin-c3-lr", "nin")),
        "holds",
    ),
)  # fmt: skip
