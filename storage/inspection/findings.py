"""What an inspection reports."""

from __future__ import annotations

from typing import NamedTuple

#: Numbers, names and flags as they are; bytes are the users'; a field that ends with `_timestamp` is in ms.
Value = int | str | bytes | bool | None | list[tuple[str, bytes | None]]


class Fact(NamedTuple):
    """One thing that the file says: `what` it is (a batch, an entry, …) and its fields. None: it does not say that."""

    what: str
    fields: dict[str, Value]


class Damage(NamedTuple):
    """From byte `position` on the file does not say what it should, for the `reason`."""

    position: int
    reason: str


Finding = Fact | Damage
