"""Lets a test show that objects are freed as soon as nothing uses them, and so that no reference cycle holds them.

Brokers collect garbage rarely, so that the memory of a cycle is in use for hours.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import ref


@contextmanager
def without_collections() -> Iterator[None]:
    """Have Python free only what has no reference left."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def until_freed(*references: ref[object]) -> None:
    """Return once the event loop has freed all these objects. Fail with those that are left after many turns."""
    for _ in range(2_000):
        if all(reference() is None for reference in references):
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"still in use: {[reference() for reference in references if reference() is not None]}")
