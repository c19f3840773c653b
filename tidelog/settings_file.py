"""A TOML file of a broker's settings: what stands there, and where."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
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
        """ConfigError where it cannot be read, or is not TOML."""
        try:
            text = path.read_text(encoding="utf-8")
            return cls(path, text, _flat(tomllib.loads(text)))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None

    def place(self, name: str) -> str:
        """`FILE:LINE`, where a setting that stands there begins."""
        begin, lines = 1, self.text.split("\n")
        for count in range(1, len(lines) + 1):
            try:
                values = _flat(tomllib.loads("\n".join(lines[:count])))
            except tomllib.TOMLDecodeError:
                continue  # in the midst of a value of several lines
            if name in values:
                break
            begin = count + 1
        return f"{self.path}:{begin}"


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{prefix}{name}.") if value and isinstance(value, dict) else {prefix + name: value}
    return flat
