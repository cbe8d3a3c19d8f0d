"""Writes the paper's tables into a text that has places for them, so that no number in it is typed.

A place is ``<!-- paper table vgg_ilsvrc -->`` … ``<!-- end paper -->``; what stands between is written anew. Besides
``table NAME`` there are ``readings NAME`` (how rows with other counts are to be read) and ``claims``.
"""

import re
from collections.abc import Sequence

from cruciform.errors import OptionError
from cruciform.paper.claims import render_claims
from cruciform.paper.render import by_table, markdown_table, readings
from cruciform.paper.tables import CheckedRow

PLACE = re.compile(r"(<!-- paper ([^>]*?) -->\n).*?(<!-- end paper -->)", re.DOTALL)


def render_document(text: str, rows: Sequence[CheckedRow]) -> str:
    """Returns a text with all its places written anew."""
    return PLACE.sub(lambda place: f"{place[1]}{_content(place[2], rows)}\n{place[3]}", text)


def _content(what: str, rows: Sequence[CheckedRow]) -> str:
    kind, _, name = what.partition(" ")
    tables = by_table(rows)
    if kind == "claims" and not name:
        return render_claims(rows)
    if kind not in ("table", "readings") or name not in tables:
        raise OptionError(
            f"a text has a place for 'paper {what}'; write table or readings with one of {', '.join(tables)}, or claims"
        )
    return markdown_table(tables[name]) if kind == "table" else readings(tables[name])
