"""Build HTML from parts. Every string that is not `Markup` is escaped."""

from __future__ import annotations

from html import escape


class Markup(str):
    """A string that is HTML already. Any other string is text."""

    __slots__ = ()


Part = str | int | float | None
_NONE_INSIDE = frozenset({"circle", "col", "line", "meta", "path", "polygon", "polyline", "rect"})


def element(tag: str, /, *parts: Part, **attributes: Part) -> Markup:
    """Return an HTML element with these parts. Strings that are not `Markup` are escaped, and None is omitted.

    Attributes that are None are omitted. `_` in their names stands for `-`, and a `_` at the end is dropped (`class_`).
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _NONE_INSIDE and not parts:
        return Markup(f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{together(*parts)}</{tag}>")


def together(*parts: Part) -> Markup:
    """Return parts without an element around them, escaped unless they are `Markup`. None is omitted."""
    return Markup(
        "".join(part if isinstance(part, Markup) else escape(str(part)) for part in parts if part is not None)
    )
