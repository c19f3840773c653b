"""What is fuzzed: something that reads bytes, and what must be true of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


class Wrong(Exception):
    """A reader took the bytes for what they are not, or two that should agree do not."""


@dataclass(frozen=True, slots=True)
class Target:
    """`run` is given any bytes at all. Whatever it raises is a bug that was found.

    reads    what it is, for people
    seeds    bytes that are what they should be, to begin with
    rooms    packages whose branches lead a coverage-guided fuzzer
    dictionary  bytes that mean something here
    """

    name: str
    reads: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    rooms: Sequence[str] = ("tidelog", "storage", "node", "cluster")
    dictionary: Sequence[bytes] = ()


def check(kept: bool, what: object) -> None:
    """Wrong, unless `kept`; not an assertion, since those can be switched off."""
    if not kept:
        raise Wrong(str(what))
