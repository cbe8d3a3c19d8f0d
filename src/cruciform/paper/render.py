"""The paper's tables as text for documents: Markdown or LaTeX, one table for each of the paper's."""

from collections.abc import Sequence

from cruciform.paper.tables import CheckedRow

TITLES = {
    "vgg_ilsvrc": "VGG-11 on ILSVRC 2012",
    "places": "VGG-11 on MIT Places",
    "googlenet": "GoogLeNet on ILSVRC 2012",
    "nin_cifar10": "Network-in-Network on CIFAR-10",
}
PAPER_COLUMNS = (
    "network",
    "top-1 %",
    "top-5 %",
    "MACs, published",
    "MACs, our count of the reading",
    "MACs, as deployed",
    "parameters, published",
    "parameters, our count of the reading",
    "parameters, as deployed",
)
LATEX = str.maketrans({"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "–": "--", "×": r"$\times$"})


def render_markdown(rows: Sequence[CheckedRow]) -> str:
    """Return all tables, each under its title."""
    return "\n\n".join(f"## {TITLES[table]}\n\n{markdown_table(group)}" for table, group in by_table(rows).items())


def render_latex(rows: Sequence[CheckedRow]) -> str:
    """Return all tables, each with its caption."""
    return "\n\n".join(
        latex_table(group, caption=TITLES[table], label=f"table:{table}") for table, group in by_table(rows).items()
    )


def by_table(rows: Sequence[CheckedRow]) -> dict[str, list[CheckedRow]]:
    """Return the rows of each table, in the paper's order."""
    groups: dict[str, list[CheckedRow]] = {}
    for row in rows:
        groups.setdefault(row.published.table, []).append(row)
    return groups


def markdown_table(rows: Sequence[CheckedRow]) -> str:
    """Return one table; numbers that are not the published ones are bold."""
    lines = [f"| {' | '.join(PAPER_COLUMNS)} |", f"|---|{'---:|' * (len(PAPER_COLUMNS) - 1)}"]
    for row in rows:
        cells = _cells(row)
        for index, (number, published) in _compared(row).items():
            if number != published:
                cells[index] = f"**{cells[index]}**"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def latex_table(rows: Sequence[CheckedRow], *, caption: str, label: str) -> str:
    """Return one table for the packages booktabs and graphicx; numbers that are not the published ones are bold."""
    lines = [
        r"\begin{table}[htb]",
        r"\centering",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{l{'r' * (len(PAPER_COLUMNS) - 1)}}}",
        r"\toprule",
        " & ".join(column.translate(LATEX) for column in PAPER_COLUMNS) + r" \\",
        r"\midrule",
    ]
    for row in rows:
        cells = [cell.translate(LATEX) for cell in _cells(row)]
        for index, (number, published) in _compared(row).items():
            if number != published:
                cells[index] = rf"\textbf{{{cells[index]}}}"
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}}", rf"\caption{{{caption.translate(LATEX)}}}", rf"\label{{{label}}}"]
    return "\n".join([*lines, r"\end{table}"])


def readings(rows: Sequence[CheckedRow]) -> str:
    """Return as a list what every row with other counts than the printed network's is read as."""
    explained = [row.published for row in rows if row.published.status == "explained"]
    return "\n".join(f"- **{row.network}**: {_grouped(row.explanation)}." for row in explained)


def _cells(row: CheckedRow) -> list[str]:
    published = row.published
    ours = f"{int(row.macs):,}" if row.macs.denominator == 1 else f"{float(row.macs):,.2f}"
    return [
        published.network,
        f"{100 * published.top1:.2f}",
        f"{100 * published.top5:.2f}" if published.top5 is not None else "–",
        f"{published.macs:,}",
        ours,
        f"{row.true_macs:,}",
        f"{published.params:,}",
        f"{row.params:,}",
        f"{row.true_params:,}",
    ]


def _compared(row: CheckedRow) -> dict[int, tuple[object, object]]:
    """Return, for the columns of our counts, the number and the published one."""
    return {
        4: (row.macs, row.published.macs),
        5: (row.true_macs, row.published.macs),
        7: (row.params, row.published.params),
        8: (row.true_params, row.published.params),
    }


def _grouped(text: str) -> str:
    """Return a text with the thousands of its long numbers separated."""
    words = text.replace(" / ", " \N{DIVISION SLASH} ").split(" ")
    return " ".join(_number(word) for word in words).replace("\N{DIVISION SLASH}", "/").rstrip(".")


def _number(word: str) -> str:
    digits = word.strip("(),;:.")
    return word.replace(digits, f"{int(digits):,}") if digits.isdecimal() and len(digits) > 4 else word
