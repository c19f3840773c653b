from __future__ import annotations

import time

import pytest

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


def test_a_name_of_a_million_characters_takes_no_time() -> None:
    began = time.process_time()
    nearest_names("x" * 1_000_000, NAMES)
    assert time.process_time() - began < 0.5
