"""Check that the packages of the extra `arrow` are installed, before a module that needs them is imported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.extras import require

if TYPE_CHECKING:
    import pyarrow as pa


def required_schema(use: str, columns: Iterable[str] | None, *, headers: bool) -> pa.Schema:
    """Return `schema_of(columns, headers=headers)`.

    Raises its errors, and MissingExtraError, which names the `use`, if a package of the extra `arrow` is missing.
    """
    require("arrow", use)
    from tidelog.arrow.schema import schema_of

    return schema_of(columns, headers=headers)
