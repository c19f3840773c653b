"""Check that the packages of the extra `arrow` are installed, before a module that needs them is imported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.errors import LocalError

if TYPE_CHECKING:
    import pyarrow as pa

_PACKAGES = ("numpy", "pyarrow")


def require_arrow(use: str) -> None:
    """Return if pyarrow and numpy can be imported; else raise LocalError, which names the `use` and the pip command."""
    try:
        import numpy as numpy
        import pyarrow as pyarrow
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise LocalError(f"{use} needs the package {error.name}: pip install 'tidelog[arrow]'") from None


def required_schema(use: str, columns: Iterable[str] | None, *, headers: bool) -> pa.Schema:
    """Return `schema_of(columns, headers=headers)`. Raises the errors of both functions."""
    require_arrow(use)
    from tidelog.arrow.schema import schema_of

    return schema_of(columns, headers=headers)
