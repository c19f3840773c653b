"""A TOML file of a broker's settings: what stands there, and where."""

from __future__ import annotations

import tomllib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidelog.errors import ConfigError
from tidelog.frozen import frozen


@frozen
class SettingsFile:
    """`a.b = 1`, and `b = 1` below `[a]`, count as one value of the name `a.b`: that is how Kafka writes them."""

    path: Path
    text: str
    values: Mapping[str, object]

    @classmethod
    def read(cls, path: Path) -> SettingsFile:
        """ConfigError where it cannot be read, is not TOML, or holds a number of more than 64 bits."""
        try:
            text = path.read_text(encoding="utf-8")
            file = cls(path, text, _flat(tomllib.loads(text)))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None
        except RecursionError:
            raise ConfigError(f"{path}: its values are nested too deeply") from None
        for name, value in file.values.items():
            if _has_huge_number(value):
                raise ConfigError(f"{file.place(name)}: {name} holds a number of more than 64 bits")
        return file

    def place(self, name: str) -> str:
        """`FILE:LINE`, where a setting that stands there begins.

        What the first lines say grows with their number. So the least number of lines that say `name` is found by
        halving, and each trial goes on to where the value ends in the midst of which it would stop.
        """
        lines = self.text.split("\n")
        begin = bisect_left(range(1, len(lines) + 1), True, key=lambda count: name in _said_by(lines, count))
        return f"{self.path}:{begin + 1}"


def _said_by(lines: Sequence[str], count: int) -> Mapping[str, object]:
    """The values of the first `count` lines, and of as many more as their last value needs."""
    for end in range(count, len(lines) + 1):
        try:
            return _flat(tomllib.loads("\n".join(lines[:end])))
        except tomllib.TOMLDecodeError:
            continue
    raise AssertionError("the whole file is TOML")


def _has_huge_number(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_has_huge_number, value))
    if isinstance(value, dict):
        return any(map(_has_huge_number, value.values()))
    return isinstance(value, int) and not -(1 << 63) <= value < 1 << 63


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{prefix}{name}.") if value and isinstance(value, dict) else {prefix + name: value}
    return flat
