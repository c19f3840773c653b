"""Read a broker's settings from a TOML file, with the line of each setting."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path

from tidelog.errors import ConfigError
from tidelog.frozen_dataclass import frozen

_OPENING, _CLOSING, _LINE_END = ("[", "{"), ("]", "}"), "\n"
#: Tokens that end a line or open and close brackets; strings and comments are matched so that their content is skipped.
#: A string in triple quotes may end with two more quotes, which belong to it.
_TOKEN = re.compile(
    r"""
    "{3} (?: \\. | [^\\] )*? "{3,5} | '{3} .*? '{3,5}
    | " (?: \\. | [^\\"] )* " | ' [^']* '
    | \# [^\n]*
    | [\[\]{}\n]
    """,
    re.VERBOSE | re.DOTALL,
)


@frozen
class SettingsFile:
    """The settings of a file by name. `a.b = 1`, and `b = 1` below `[a]`, both have the name `a.b`, as Kafka writes it.

    text     the file's text
    values   each setting's value as TOML has it; an empty table is the value `{}` of its own name
    """

    path: Path
    text: str
    values: Mapping[str, object]

    @classmethod
    def read(cls, path: Path) -> SettingsFile:
        """Read the file. ConfigError if that fails, or the file is not TOML in UTF-8.

        A value with an integer of more than 64 bits is also a ConfigError.
        """
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
        """Return `FILE:LINE` of the statement that sets `name`, which must be in `values`; lines count from 1.

        The first n statements set more names with growing n, so the statement is found by bisection.
        """
        begins = _statements(self.text)
        said_after = bisect_left(begins[1:], True, key=lambda end: name in _flat(tomllib.loads(self.text[:end])))
        return f"{self.path}:{self.text.count(_LINE_END, 0, begins[said_after]) + 1}"


def _statements(text: str) -> list[int]:
    """Return the positions where a statement may begin: 0, and after each line end outside of brackets and strings.

    The text before each of these positions is valid TOML if `text` is.
    """
    begins, depth = [0], 0
    for token in _TOKEN.finditer(text):
        if token[0] in _OPENING:
            depth += 1
        elif token[0] in _CLOSING:
            depth -= 1
        elif token[0] == _LINE_END and not depth:
            begins.append(token.end())
    return begins


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
