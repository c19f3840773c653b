"""Tables for people and for `awk`."""

from __future__ import annotations

from tidelog.cli.terminal.table import Quantity, format_table


def test_numbers_are_right_aligned_and_unknown_values_are_dashes() -> None:
    lines = list(format_table(("name", "lag"), [("a", 5), ("long", None)]))
    assert lines == ["NAME  LAG", "a       5", "long    -"]


def test_quantity_is_one_word_and_right_aligned() -> None:
    lines = list(format_table(("size", "path"), [(Quantity("9.77 KiB"), "/a"), (None, "/b")]))
    assert lines == ["   SIZE  PATH", "9.77KiB  /a", "      -  /b"]


def test_unprintable_characters_of_names_are_escaped() -> None:
    (_, line) = format_table(("name",), [("two\nlines \x1b[2J é",)])
    assert line == "two\\nlines \\x1b[2J é"
