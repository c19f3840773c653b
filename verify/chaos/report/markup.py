"""HTML from its parts: text is escaped because it is text, not because somebody remembered to."""

from __future__ import annotations

from html import escape


class Markup(str):
    """What is HTML already. Any other string is text."""

    __slots__ = ()


Part = str | int | float | None
_NONE_INSIDE = frozenset({"circle", "col", "line", "meta", "path", "polygon", "polyline", "rect"})


def element(tag: str, /, *parts: Part, **attributes: Part) -> Markup:
    """An element with these parts in it, strings that are no `Markup` as text, None as nothing.

    Attributes that are None are left out; `_` in their names stands for `-`, and one at the end for nothing (`class_`).
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
    """Parts without an element around them."""
    return Markup(
        "".join(part if isinstance(part, Markup) else escape(str(part)) for part in parts if part is not None)
    )
