"""The furniture of HTML files: one page without scripts or external files, sections, tables."""

from collections.abc import Sequence
from importlib.resources import files

from cruciform.reports.html import Html, element

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def render_document(title: str, sections: Sequence[Html | None], footer: str) -> str:
    """Return a whole page.

    Args:
        title: In the title bar.
        sections: Its contents, in order.
        footer: How it was made.
    """
    style = Html((files(__package__) / "style.css").read_text("utf-8"))
    head = element(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        element("title", title),
        element("style", style),
    )
    body = element("body", element("main", *sections, element("p", footer, class_="quiet")))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def section(title: str, text: str, *content: Html | None) -> Html:
    """Return a section with a headline and, where there is one, a sentence below it."""
    quiet = element("p", text, class_="quiet") if text else None
    return element("section", element("h2", title), quiet, *content)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int) -> Html:
    """Return a table whose last columns are numbers."""
    first = len(columns) - numbers
    kinds = [None if index < first else "n" for index in range(len(columns))]
    head = element("tr", [element("th", text, class_=kind) for text, kind in zip(columns, kinds, strict=True)])
    body = [
        element(
            "tr",
            [
                element("td", element("span", cell), class_=kind, data_label=column)
                for cell, kind, column in zip(row, kinds, columns, strict=True)
            ],
        )
        for row in rows
    ]
    return element("table", element("thead", head), element("tbody", body))
