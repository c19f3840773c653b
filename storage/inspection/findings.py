"""The findings of an inspection."""

from __future__ import annotations

from typing import NamedTuple

#: A value in a finding. Bytes belong to users; a field whose name ends with `_timestamp` is in ms.
Value = int | str | bytes | bool | None | list[tuple[str, bytes | None]]


class Fact(NamedTuple):
    """One item in a file: `what` is its kind (a batch, an entry, …). A field is None if the file does not have it."""

    what: str
    fields: dict[str, Value]


class Damage(NamedTuple):
    """The file is damaged at byte `position`; `reason` says how. Later parts may be valid."""

    position: int
    reason: str


Finding = Fact | Damage
