"""Tables for people and for `awk`."""

from __future__ import annotations

from tidelog.cli.terminal.table import Quantity, format_table


def test_numbers_stand_to_the_right_and_what_is_not_known_is_a_dash() -> None:
    lines = list(format_table(("name", "lag"), [("a", 5), ("long", None)]))
    assert lines == ["NAME  LAG", "a       5", "long    -"]


def test_a_quantity_is_one_word_and_stands_to_the_right() -> None:
    lines = list(format_table(("size", "path"), [(Quantity("9.77 KiB"), "/a"), (None, "/b")]))
    assert lines == ["   SIZE  PATH", "9.77KiB  /a", "      -  /b"]


def test_a_name_that_somebody_chose_breaks_no_line_and_commands_no_terminal() -> None:
    (_, line) = format_table(("name",), [("two\nlines \x1b[2J é",)])
    assert line == "two\\nlines \\x1b[2J é"
