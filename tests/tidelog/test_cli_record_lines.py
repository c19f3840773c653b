from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.records.record_lines import (
    OutgoingRecord,
    format_json,
    format_plain,
    parse_json,
    parse_plain,
    read_lines,
)
from tidelog.model import NO_TIMESTAMP

MOST = 1_000


def lines_of(content: bytes, most: int = MOST) -> list[bytes]:
    return [line for lines in read_lines(io.BytesIO(content), most) for line in lines]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\nx\n", [b"", b"", b"x"]),
        (b"dos\r\n", [b"dos\r"]),
        (b"a\0b\n\0\n", [b"a\0b", b"\0"]),
        (b"\xff\xfe\n\x80", [b"\xff\xfe", b"\x80"]),
        ("one\u2028two\x0bthree\x85".encode(), ["one\u2028two\x0bthree\x85".encode()]),
    ],
)
def test_a_line_is_every_byte_up_to_its_newline(content: bytes, lines: list[bytes]) -> None:
    assert lines_of(content) == lines


@given(st.binary())
def test_plain_lines_return_the_input(content: bytes) -> None:
    written = format_plain(lines_of(content))
    assert written == content + (b"\n" if content and not content.endswith(b"\n") else b"")


class Pieces:
    """A pipe in which these have arrived one after the other."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def read1(self, size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


@given(st.lists(st.text("xy\n", min_size=1, max_size=8).map(str.encode), max_size=10))
def test_lines_do_not_depend_on_read_boundaries(pieces: list[bytes]) -> None:
    arrived = [line for lines in read_lines(Pieces(*pieces), MOST) for line in lines]
    assert arrived == lines_of(b"".join(pieces))


def test_line_is_yielded_as_soon_as_its_newline_is_read() -> None:
    pipe = Pieces(b"one\ntw", b"o\n", b"three")
    lines = read_lines(pipe, MOST)
    assert (next(lines), len(pipe._pieces)) == ([b"one"], 2)
    assert (next(lines), len(pipe._pieces)) == ([b"two"], 1)
    assert next(lines) == [b"three"]


def test_lines_before_a_too_long_one_are_yielded() -> None:
    lines = read_lines(Pieces(b"a\nb\nc", b"c" * 9 + b"\nd\n" + b"x" * 11 + b"\n"), 10)
    assert [next(lines), next(lines)] == [[b"a", b"b"], [b"c" * 10, b"d"]]
    with pytest.raises(ValueError, match="longer than 10 B"):
        next(lines)


def test_short_lines_that_arrive_in_pieces_never_add_up_to_a_long_one() -> None:
    pieces = [b"x" * 8] + [b"\n" + b"x" * 8] * 5 + [b"\n"]
    assert [line for lines in read_lines(Pieces(*pieces), 10) for line in lines] == [b"x" * 8] * 6


def test_a_line_may_be_as_long_as_allowed_and_no_longer() -> None:
    assert lines_of(b"x" * MOST + b"\ny") == [b"x" * MOST, b"y"]
    with pytest.raises(ValueError, match="longer than 1,000 B"):
        lines_of(b"x" * (MOST + 1) + b"\n")
    with pytest.raises(ValueError, match="longer than 1,000 B"):
        lines_of(b"x" * (MOST + 1))


def test_key_and_value_split_at_the_first_separator() -> None:
    assert parse_plain(b"k:v:w", b":") == OutgoingRecord(b"v:w", b"k")
    assert parse_plain(b"k:", b":") == OutgoingRecord(b"", b"k")
    with pytest.raises(ValueError, match="no ':' in the line"):
        parse_plain(b"kv", b":")


maybe_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)


@given(
    value=maybe_bytes,
    key=maybe_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3),
    partition=st.integers(0, 2**31 - 1),
    timestamp_ms=st.integers(0, 2**63 - 1),
)
def test_json_line_has_every_field_of_a_record(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]], partition: int, timestamp_ms: int
) -> None:
    line = format_json(
        topic="t",
        partition=partition,
        offset=7,
        timestamp_ms=timestamp_ms,
        timestamp_type=0,
        leader_epoch=3,
        key=key,
        value=value,
        headers=headers,
    )
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert parse_json(line[:-1]) == OutgoingRecord(value, key, tuple(headers), partition, timestamp_ms)


def test_a_record_without_a_timestamp_is_a_line_without_one() -> None:
    about = {"topic": "t", "partition": 1, "offset": 7, "timestamp_type": 0, "leader_epoch": None}
    line = format_json(**about, timestamp_ms=NO_TIMESTAMP, key=None, value=b"x", headers=[])  # type: ignore[arg-type]
    assert b'"timestamp":null' in line
    assert parse_json(line) == OutgoingRecord(b"x", partition=1)


def test_a_short_json_line_is_enough() -> None:
    assert parse_json(b'{"value": "x"}') == OutgoingRecord(b"x")
    assert parse_json(b"{}") == OutgoingRecord(None)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"hello", r"not JSON \(plain lines need --format lines\): Expecting value at character 1$"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "must be an object"),
        (b'{"valeu": "x"}', "unknown field valeu"),
        (b'{"value": 5}', "value must be a string"),
        (b'{"key": {"base64": "*"}}', "key: "),
        (b'{"value": {"base64": 5}}', "value: "),
        (b'{"value": "\\ud800"}', "value: "),
        (b'{"timestamp": -1}', "timestamp must be a whole number of at least 0"),
        (b'{"timestamp": 1.5}', "timestamp must be a whole number"),
        (b'{"partition": true}', "partition must be a whole number"),
        (b'{"headers": [["a"]]}', "headers must be a list"),
        (b'{"headers": {"a": "b"}}', "headers must be a list"),
        (b'{"headers": [["\\udc80", "x"]]}', "a header's name: "),
        (b'{"headers": [["a", 1]]}', "header 'a' must be a string"),
    ],
)
def test_wrong_json_line_names_the_wrong_field(line: bytes, shown: str) -> None:
    with pytest.raises(ValueError, match=shown):
        parse_json(line)


def test_json_lines_are_utf8_for_every_reader() -> None:
    line = format_json(
        topic="t",
        partition=0,
        offset=0,
        timestamp_ms=0,
        timestamp_type=1,
        leader_epoch=None,
        key=None,
        value="ü".encode(),
        headers=[],
    )
    assert json.loads(line)["value"] == "ü"
    assert json.loads(line)["timestamp_type"] == "LogAppendTime"
