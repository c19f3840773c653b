"""Waiting for something real to become true, with a deadline and a name."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_LOOK_AGAIN_S = 0.02


class Void(AssertionError):
    """The fault of a test did not bite, so that the test says nothing."""


def wait_for(what: str, look: Callable[[], T | None], timeout_s: float = 30) -> T:
    """The first truthy thing that `look` returns; AssertionError names `what` did not happen in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        if found := look():
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(_LOOK_AGAIN_S)


def wait_bitten(what: str, look: Callable[[], T | None], timeout_s: float = 30) -> T:
    """The same for the sign that a fault bit; Void where it is not seen."""
    began = time.monotonic()
    try:
        found = wait_for(what, look, timeout_s)
    except AssertionError as error:
        raise Void(f"void: {error}") from None
    print(f"bitten: {what}, after {time.monotonic() - began:.2f} s")
    return found


def require_bite(void: str, seen: object) -> None:
    """Void where the sign that a fault bit is not there; `void` says what that would mean."""
    if not seen:
        raise Void(f"void: {void}")
    print(f"bitten: {seen} (void would be: {void})")


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped all threads; each thread runs until it next enters the kernel."""
    states = (Path(task, "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    return all("(stopped)" in state for state in states)


def is_gone(pid: int) -> bool:
    """Return whether the process was killed, even if its parent has not collected it."""
    try:
        return "(zombie)" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
