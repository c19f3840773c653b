"""OPERATIONS.md's statements about settings and tests are compared with the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

import pytest

from node.settings.broker_settings import BrokerSettings
from storage.configs.broker_config import SYNONYMS
from storage.configs.docs import MEANINGS
from storage.configs.log_config import NO_EFFECT, LogConfig
from tests.operations import OPERATIONS, ROOT, section

#: `file` · `test`, as the promises name the tests that guard them
GUARDS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)` · `(\w+)`", OPERATIONS)))

_UNITS = {
    "ms": "ms",
    "hours": "h",
    "minutes": "min",
    "seconds": "s",
    "bytes_per_second": "bytes/s",
    "bytes": "bytes",
    "throttled_rate": "bytes/s",
    "buffer_size": "bytes",
    "percentage": "%",
}


def setting_names(title: str) -> list[str]:
    """Return the first column of a section's table."""
    return re.findall(r"^\| `([\w.]+)` \|", section(title), re.MULTILINE)


def unit(name: str, value: object) -> str:
    """Return a setting's unit, by the end of its name."""
    flat = name.replace(".", "_")
    if isinstance(value, bool) or value in ("true", "false"):
        return "true, false"
    return next((unit for end, unit in _UNITS.items() if flat.endswith(f"_{end}")), "")


def shown(value: object) -> str:
    """Return a default as the document writes it."""
    if isinstance(value, tuple):
        return " ".join(f"`{each}`" for each in value) or "none"
    return "none" if value == "" else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def broker_row(setting: Field[Any]) -> str:
    required = setting.default is MISSING
    default = "required" if required else "computed" if setting.metadata["is_computed"] else shown(setting.default)
    kind = "" if required else unit(setting.name, setting.default)
    return f"| `{setting.name}` | {kind} | {default} | {setting.metadata['meaning']} |"


def topic_rows() -> Iterator[str]:
    for name, default in sorted(LogConfig().to_topic_configs().items()):
        meaning = MEANINGS[name] + (f"; no effect: {NO_EFFECT[name]}" if name in NO_EFFECT else "")
        brokers = ", ".join(f"`{broker.replace('.', '_')}`" for broker, _ in SYNONYMS.get(name, ())) or "none"
        yield f"| `{name}` | {unit(name, default)} | {shown(default)} | {brokers} | {meaning} |"


def test_operations_lists_every_broker_setting_with_unit_and_default() -> None:
    settings = [setting for setting in fields(BrokerSettings) if setting.metadata]
    text = section("Settings of a broker")
    assert [row for row in map(broker_row, settings) if row not in text.splitlines()] == []
    assert setting_names("Settings of a broker") == [setting.name for setting in settings]


def test_operations_lists_every_topic_setting_with_unit_and_default() -> None:
    lines = section("Settings of a topic").splitlines()
    assert [row for row in topic_rows() if row not in lines] == []
    assert setting_names("Settings of a topic") == sorted(LogConfig().to_topic_configs())


@pytest.mark.parametrize("title", ["Promises", "Faults that are tried"])
def test_every_promise_and_every_fault_names_a_test_that_there_is(title: str) -> None:
    _, *promises = (line for line in section(title).splitlines() if line.startswith("| "))
    assert len(promises) > 15
    assert [line for line in promises if not re.search(r"`tests/[\w/]+\.py` · `\w+`", line)] == []
    missing = [f"{file} has no {name}" for file, name in GUARDS if name not in functions_of(file)]
    assert missing == []


def functions_of(file: str) -> set[str]:
    path = ROOT / file
    if not path.exists():
        return set()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}
