"""HTML as values: whatever is not HTML already is escaped, so no text can become a part of the page."""

from html import escape


class Html(str):
    """Text that is HTML; everything else is not."""

    __slots__ = ()


Content = str | float | None
"""What can stand within an element; a plain text is escaped."""


def element(tag: str, /, *children: "Content | list[Html]", **attributes: Content) -> Html:
    """Returns an element.

    Args:
        tag: Its name.
        children: What is in it, one after the other; None is nothing.
        attributes: ``class_="bar"``, ``data_label="MACs"``: a trailing ``_`` is dropped, others become ``-``.
    """
    words = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{words}>{join(*children)}</{tag}>")


def join(*parts: "Content | list[Html]") -> Html:
    """Returns parts one after the other, escaped where they are no HTML."""
    return Html("".join(_part(part) for part in parts))


def _part(part: "Content | list[Html]") -> str:
    if part is None:
        return ""
    if isinstance(part, list):
        return "".join(map(_part, part))
    return part if isinstance(part, Html) else escape(str(part))
