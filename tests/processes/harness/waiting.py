"""Waiting for something real to become true, with a deadline and a name."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_AGAIN_S = 0.02


def wait_for(what: str, look: Callable[[], T | None], timeout_s: float = 30) -> T:
    """The first truthy thing that `look` returns; AssertionError names `what` did not happen in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        if found := look():
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(_LOOK_AGAIN_S)
