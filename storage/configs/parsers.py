"""Parsers for the text of settings, with the limits of Kafka 3.9.

A parser takes the text without surrounding spaces. ValueError says which values are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

Parser = Callable[[str], Any]

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}\Z", re.ASCII)  # Python refuses to parse much longer numbers
_RATIO = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z", re.ASCII)
_FORMAT_VERSION = re.compile(r"[0-9]{1,2}(\.[0-9]{1,2}){1,3}(-IV[0-9])?\Z", re.ASCII)
_THROTTLED = re.compile(r"([0-9]{1,10}:[0-9]{1,10})?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """Parses a whole number from `low` to `high`, both included, or `also`."""

    low: int
    high: int
    also: int | None

    def __call__(self, text: str) -> int:
        if not _NUMBER.match(text):
            raise ValueError("must be a whole number")
        value = int(text)
        if not self.low <= value <= self.high and value != self.also:
            allowed = f"must be at least {self.low}" if value < self.low else f"must be at most {self.high}"
            raise ValueError(f"{allowed}, or {self.also}" if self.also is not None else allowed)
        return value


def number(low: int = -INT64_MAX - 1, high: int = INT64_MAX, *, also: int | None = None) -> WholeNumber:
    """Return a parser for whole numbers from `low` to `high`, both included, or `also`."""
    return WholeNumber(low, high, also)


def ratio(text: str) -> float:
    if not _RATIO.match(text):
        raise ValueError("must be a number")
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("must be 0 to 1")
    return value


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def only_false(reason: str) -> Parser:
    """Return a parser for the switch of a missing feature, which refuses `true`."""

    def parse(text: str) -> bool:
        if boolean(text):
            raise ValueError(f"must be false: {reason}")
        return False

    return parse


def one_of(*choices: str) -> Parser:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return parse


def policies(text: str) -> frozenset[str]:
    """Parse `cleanup.policy`: a list of `delete`, `compact` or both."""
    found = frozenset(items(text))
    if not found or found - {"delete", "compact"}:
        raise ValueError("must be delete, compact or both")
    return found


def format_version(text: str) -> str:
    """Return the text if it has the form of a Kafka release's version, such as `3.0` or `3.0-IV1`."""
    if not _FORMAT_VERSION.match(text):
        raise ValueError("must be the version of a release, such as 3.0-IV1")
    return text


def throttled_replicas(text: str) -> tuple[str, ...]:
    """Parse `*`, or a list of partition:broker pairs."""
    found = items(text)
    if found != ("*",) and not all(map(_THROTTLED.match, found)):
        raise ValueError("must be * or a list of partition:broker")
    return found


class ThrottledReplicas:
    """The replicas that `throttled_replicas` has parsed, for look-ups."""

    __slots__ = ("_are_all", "_replicas")

    def __init__(self, parsed: tuple[str, ...]) -> None:
        self._are_all = parsed == ("*",)
        pairs = (pair.split(":") for pair in parsed if ":" in pair)
        self._replicas = frozenset((int(partition), int(broker)) for partition, broker in pairs)

    def has(self, partition: int, broker: int) -> bool:
        """Return whether the setting names this replica."""
        return self._are_all or (partition, broker) in self._replicas


def items(text: str) -> tuple[str, ...]:
    """Return the parts of a list that are separated by commas, without surrounding spaces and without empty parts."""
    return tuple(part for each in text.split(",") if (part := each.strip()))


def as_text(value: Any) -> str:
    """Return the text that is parsed as this value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value)
