"""Writes the paper's tables, from our own counts, into docs/paper.md.

python benchmarks/paper_in_texts.py            part of ``make numbers``
"""

from pathlib import Path

from cruciform.paper.document import render_document
from cruciform.paper.tables import check_tables

DOCUMENT = Path(__file__).parents[1] / "docs" / "paper.md"


def main() -> None:
    old = DOCUMENT.read_text("utf-8")
    new = render_document(old, list(check_tables()))
    if new != old:
        DOCUMENT.write_text(new, "utf-8")
        print(f"docs/{DOCUMENT.name}: rewritten")


if __name__ == "__main__":
    main()
