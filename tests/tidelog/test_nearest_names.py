from __future__ import annotations

import pytest

from tests.executed_lines import executed_lines
from tidelog.nearest_names import nearest_names

NAMES = ["linger_ms", "batch_size", "retention.ms", "isolation_level"]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("linger", "linger_ms"),
        ("lingerMs", "linger_ms"),
        ("LINGER-MS", "linger_ms"),
        ("retention_ms", "retention.ms"),
        ("isolationLevel", "isolation_level"),
    ],
)
def test_close_name_is_suggested_whatever_its_spelling(name: str, nearest: str) -> None:
    assert nearest_names(name, NAMES) == f"did you mean {nearest}?"


def test_three_nearest_names_are_listed_when_none_is_close() -> None:
    assert nearest_names("xyz", ["aaa", "bbx", "cyz9999", "d"]) == "the nearest are cyz9999, bbx and d"


def test_fewer_known_names_are_all_listed() -> None:
    assert nearest_names("xyz", ["qqq"]) == "the nearest is qqq"
    assert nearest_names("xyz", []) == ""


def test_name_of_a_million_characters_takes_no_more_work() -> None:
    nearest_names("x", NAMES)  # compiles the pattern
    long, longer = (executed_lines(lambda length=length: nearest_names("x" * length, NAMES)) for length in (100, 10**6))
    assert longer == long
