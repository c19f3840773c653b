"""Define immutable dataclasses that are as cheap to create as mutable ones."""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

_SINCE = "since"


def since(version: int) -> dict[str, int]:
    """Return the `metadata` that marks a message's field as present from API version `version` on.

    The field needs a default.
    """
    return {_SINCE: version}


def version_of(known: Field[Any]) -> int:
    """Return the first version of the API in which messages have this field; 0 without `since`."""
    version: int = known.metadata.get(_SINCE, 0)
    return version


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make the class a dataclass with slots and a hash; only the type checker rejects an assignment to a field.

    A real frozen dataclass takes five times as long to create (0.9 instead of 0.18 µs for eight fields), and each
    request creates about ten of these objects.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
