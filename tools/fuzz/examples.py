"""Makes messages of any class from its annotations."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Union, get_args, get_origin, get_type_hints

from tidelog.model import Buffer
from tidelog.protocol.messages import Message

#: The values of the fields in the first example, and in the second.
_FILLINGS: Sequence[dict[Any, Any]] = (
    {int: 1, bool: True, str: "t", bytes: b"b", Buffer: b"records"},
    {int: -(2**63), bool: False, str: "", bytes: b"", Buffer: b""},
)


def examples(cls: type[Any]) -> list[Any]:
    """Return two messages of the class: one with all fields set, and one with empty, null and smallest values."""
    return [_example(cls, filling, full=number == 0) for number, filling in enumerate(_FILLINGS)]


def _example(annotation: Any, filling: dict[Any, Any], *, full: bool) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, Message):
        hints = get_type_hints(annotation)
        own = fields(annotation)  # type: ignore[arg-type]
        return annotation(**{each.name: _example(hints[each.name], filling, full=full) for each in own})
    if annotation in filling:
        return filling[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        members = [each for each in arguments if each is not types.NoneType]
        inner = Buffer if set(members) == set(get_args(Buffer)) else members[0]
        return _example(inner, filling, full=full) if full else None
    if origin is tuple:
        return (_example(arguments[0], filling, full=full),) if full else ()
    key, value = arguments
    return {_example(key, filling, full=full): _example(value, filling, full=full)} if full else {}
