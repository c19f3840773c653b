"""Counts the lines of Python that a call executes: a measure of its work that no other process changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def executed_lines(call: Callable[[], object]) -> int:
    """Return how many lines of Python were executed while the call ran, each as often as it was executed."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
