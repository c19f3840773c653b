"""Defines a target: a reader of bytes and the conditions that it must meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


class Wrong(Exception):
    """A reader accepted bytes that it must not accept, or two readers that should agree do not."""


@dataclass(frozen=True, slots=True)
class Target:
    """A reader that is fuzzed. `run` takes any bytes, and every exception that it raises is a bug.

    reads       what the reader reads, in words
    seeds       returns valid bytes to start from
    packages    packages whose branches guide a coverage-guided fuzzer
    dictionary  bytes that have a meaning for this reader
    """

    name: str
    reads: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    packages: Sequence[str] = ("tidelog", "storage", "node", "cluster")
    dictionary: Sequence[bytes] = ()


def check(holds: bool, what: object) -> None:
    """Raise Wrong with the text of `what` unless `holds`.

    An assertion would not do, because assertions can be switched off.
    """
    if not holds:
        raise Wrong(str(what))
