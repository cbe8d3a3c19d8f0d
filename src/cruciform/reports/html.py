"""HTML as values: everything that is not ``Html`` is escaped."""

from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | float | None
"""The content of an element; plain text is escaped."""


def element(tag: str, /, *children: "Content | list[Html]", **attributes: Content) -> Html:
    """Return an element.

    Args:
        tag: Its name.
        children: Its contents, in order; None is skipped.
        attributes: ``class_="bar"``, ``data_label="MACs"``: a trailing ``_`` is dropped, others become ``-``.
    """
    words = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{words}>{join(*children)}</{tag}>")


def join(*parts: "Content | list[Html]") -> Html:
    """Concatenate parts, escaped unless they are HTML."""
    return Html("".join(_part(part) for part in parts))


def _part(part: "Content | list[Html]") -> str:
    if part is None:
        return ""
    if isinstance(part, list):
        return "".join(map(_part, part))
    return part if isinstance(part, Html) else escape(str(part))
