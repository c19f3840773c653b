"""Reads and writes records as lines: plain lines with a value (and perhaps a key), and lossless JSON lines.

A plain line is all bytes before its `\\n`. A `\\r`, a NUL, invalid UTF-8 and an empty line are kept. The last line may
lack its `\\n`.

A JSON line is an object with any of `value`, `key`, `headers`, `partition` and `timestamp` (ms). Bytes are a string
if they are valid UTF-8, else `{"base64": "…"}`. An absent field or null means none. `headers` is a list of
[name, bytes] pairs. The fields that `consume` adds (`topic`, `offset`, `timestamp_type`, `leader_epoch`) are accepted
and ignored, so that the JSON lines of one topic can be sent to another.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from tidelog.model import NO_TIMESTAMP
from tidelog.quantities import format_size, plural
from tidelog.records.encode import Header

_USED = frozenset(("value", "key", "headers", "partition", "timestamp"))
_UNUSED = frozenset(("topic", "offset", "timestamp_type", "leader_epoch"))
#: One encoder serves all lines, because `json.dumps` makes a new one for each call with options.
_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

#: The most bytes of one read. A read returns what a terminal or a pipe has so far, without waiting for more.
_READ_BYTES = 1 << 17


class LineSource(Protocol):
    """A binary file whose `read1` returns the available bytes without waiting for more; b"" at the end."""

    def read1(self, size: int, /) -> bytes: ...


class OutgoingRecord(NamedTuple):
    """The record that one input line describes. A field that the line does not have, or has as null, is None; the
    headers are then empty."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def read_lines(source: LineSource, most_bytes: int) -> Iterator[list[bytes]]:
    """Yield the lines that each read completes, without their newlines, as soon as they are available.

    Raises ValueError for a line longer than `most_bytes`, after the lines before it were yielded.
    """
    begun: list[bytes] = []  # parts of a line whose newline was not read yet
    begun_bytes = 0
    while block := source.read1(_READ_BYTES):
        lines = block.split(b"\n")
        if begun_bytes + len(block) > most_bytes:
            yield from _refuse_long(lines, begun, begun_bytes, most_bytes)
        rest = lines.pop()
        if lines:
            lines[0] = b"".join((*begun, lines[0]))
            begun, begun_bytes = [], 0
            yield lines
        begun.append(rest)
        begun_bytes += len(rest)
    if begun_bytes:
        yield [b"".join(begun)]


def _refuse_long(lines: list[bytes], begun: list[bytes], begun_bytes: int, most_bytes: int) -> Iterator[list[bytes]]:
    """If one of the lines is too long, yield those before it and raise ValueError."""
    for number, line in enumerate(lines):
        if len(line) + (0 if number else begun_bytes) > most_bytes:
            if number:
                yield [b"".join((*begun, lines[0])), *lines[1:number]]
            raise ValueError(f"the line is longer than {format_size(most_bytes)}, more than any record may have")


def parse_plain(line: bytes, key_separator: bytes | None) -> OutgoingRecord:
    """Return a record with the line as value; with a separator, the part before its first occurrence is the key.

    Raises ValueError if the line does not have the separator.
    """
    if key_separator is None:
        return OutgoingRecord(line)
    key, found, value = line.partition(key_separator)
    if not found:
        raise ValueError(f"no {key_separator.decode(errors='replace')!r} in the line to split key and value at")
    return OutgoingRecord(value, key)


def parse_json(line: bytes) -> OutgoingRecord:
    """Return the record of a JSON line. Raise ValueError, which says what is wrong with the line."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        # A JSONDecodeError counts lines within its text, and a reader would take "line 1" for the line of the file.
        why = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        raise ValueError(f"not JSON (plain lines need --format lines): {why}") from None
    if not isinstance(fields, dict):
        raise ValueError("a JSON line must be an object, such as {\"value\": \"text\"}")  # fmt: skip
    if unknown := sorted(fields.keys() - _USED - _UNUSED):
        raise ValueError(
            f"{plural(len(unknown), 'unknown field')} {', '.join(unknown)}; the fields are {', '.join(sorted(_USED))}"
        )
    return OutgoingRecord(
        _bytes(fields.get("value"), "value"),
        _bytes(fields.get("key"), "key"),
        tuple(_header(pair) for pair in _list(fields.get("headers"))),
        _whole(fields.get("partition"), "partition"),
        _whole(fields.get("timestamp"), "timestamp"),
    )


def format_plain(values: Sequence[bytes | None]) -> bytes:
    """Return the values with a newline after each; a record without a value is an empty line."""
    return b"\n".join([value or b"" for value in values]) + b"\n" if values else b""


def format_json(
    *,
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    timestamp_type: int,
    leader_epoch: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[Header, ...] | list[Header],
) -> bytes:
    """Return one JSON line with its newline, from which `parse_json` makes a record with the same content."""
    fields = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": None if timestamp_ms == NO_TIMESTAMP else timestamp_ms,
        "timestamp_type": "LogAppendTime" if timestamp_type else "CreateTime",
        "leader_epoch": leader_epoch,
        "key": _text(key),
        "value": _text(value),
        "headers": [[name, _text(content)] for name, content in headers],
    }
    return _encode_json(fields).encode() + b"\n"


def _text(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _bytes(content: Any, field: str) -> bytes | None:
    if content is None:
        return None
    try:
        if isinstance(content, str):
            return content.encode()
        if isinstance(content, dict) and content.keys() == {"base64"}:
            return base64.b64decode(content["base64"], validate=True)
    except (UnicodeEncodeError, binascii.Error, TypeError, ValueError) as error:
        raise ValueError(f"{field}: {error}") from None
    raise ValueError(f'{field} must be a string, {{"base64": "…"}} or null')


def _list(headers: Any) -> list[Any]:
    if headers is None:
        return []
    if not isinstance(headers, list):
        raise ValueError("headers must be a list of [name, value] pairs")
    return headers


def _header(pair: Any) -> Header:
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
        raise ValueError("headers must be a list of [name, value] pairs")
    name, content = pair
    _bytes(name, "a header's name")
    return name, _bytes(content, f"header {name!r}")


def _whole(number: Any, field: str) -> int | None:
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError(f"{field} must be a whole number of at least 0, not {json.dumps(number)}")
    return number
