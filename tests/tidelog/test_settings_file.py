"""Test that hostile, broken and long settings files get a clear error, and soon."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import ConfigError
from tidelog.settings_file import SettingsFile

#: @ is replaced by a unique name.
_PIECES = (
    *("", "# nothing", "[t]", "[t.u]", "[[@]]", "@ = 1", "@ = [\n  1,\n\n  2]", "u.@ = { v = 1 }"),
    *("# it's [\"", '@ = "#\'["', "@ = '\"#{'", '@ = "\\\\\\"["', "'@ [' = 1", "@ = ''"),
    "@ = ['''\n]''', # ]\n\n']'\n]",
    *('@ = """\n@ = 3\n"""', '@ = """"\n\\"""["" \\\n\n""""', "@ = ''''\n\\'''", "@ = '''\n''[''''"),
)
_HUGE = ("0x" + "f" * 4000, "9223372036854775808", "-9223372036854775809", "[[1, 1_0" + "0" * 30 + "]]")


@pytest.mark.parametrize("text", ["a = " + "[" * 4000, "a = " + "{a = " * 1300, "a." * 1900 + "a = 1"])
def test_values_nested_too_deeply_are_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(ConfigError, match="nested too deeply"):
        SettingsFile.read(tmp_path / "f")


@pytest.mark.parametrize("value", _HUGE, ids=range(len(_HUGE)))
def test_number_of_more_than_64_bits_is_rejected_with_its_line(tmp_path: Path, value: str) -> None:
    (tmp_path / "f").write_text(f"a = 9223372036854775807\n\nb = {value}\n")
    with pytest.raises(ConfigError, match=":3: b holds a number of more than 64 bits"):
        SettingsFile.read(tmp_path / "f")


@pytest.mark.parametrize(
    "text",
    ["# a comment\n" * 20_000, "a = [\n" + "  1,\n" * 19_998 + "]\n", 'a = """' + "\n" * 19_999 + '"""\n'],
    ids=["comments", "a list", "a string"],
)
def test_setting_is_found_quickly_in_a_long_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_text(text + "here = 1\n")
    file = SettingsFile.read(tmp_path / "f")
    begun = time.process_time()
    assert file.place("here") == f"{tmp_path / 'f'}:20001"
    assert time.process_time() - begun < 5


@given(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=8))
def test_place_of_a_setting_equals_that_of_a_line_by_line_search(pieces: list[str]) -> None:
    text = "\n".join(piece.replace("@", f"k{number}") for number, piece in enumerate(pieces))
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    file = _of(text)
    for name in file.values:
        assert file.place(name) == f"f:{_line_by_line(text, name)}"


def _of(text: str) -> SettingsFile:
    from tidelog.settings_file import _flat

    return SettingsFile(Path("f"), text, _flat(tomllib.loads(text)))


def _line_by_line(text: str, name: str) -> int:
    begin, lines = 1, text.split("\n")
    for count in range(1, len(lines) + 1):
        try:
            values = _of("\n".join(lines[:count])).values
        except tomllib.TOMLDecodeError:
            continue
        if name in values:
            break
        begin = count + 1
    return begin
