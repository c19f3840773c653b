"""Lines cut out of chunks: whole, in order, as bytes, and within the limit of memory."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tools.demo.lines.line_splitter import LineSplitter, TooLong


def split_whole(content: bytes, cuts: list[int], limit: int = 1000) -> tuple[list[bytes], LineSplitter]:
    splitter = LineSplitter("log", limit)
    edges = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    lines = [line for start, end in pairwise(edges) for line in splitter.split(content[start:end])]
    return lines + splitter.end(), splitter


def test_line_keeps_every_byte_except_its_newline() -> None:
    lines, _ = split_whole(b"crlf\r\n\nnul \x00\n\xff\xfe broken\nno newline at the end", [3, 9])
    assert lines == [b"crlf\r", b"", b"nul \x00", b"\xff\xfe broken", b"no newline at the end"]


def test_final_newline_begins_no_further_line() -> None:
    assert split_whole(b"one\ntwo\n", [])[0] == [b"one", b"two"]
    assert split_whole(b"", [])[0] == []


def test_line_over_the_limit_is_dropped_and_its_place_reported() -> None:
    lines, splitter = split_whole(b"a\n" + b"x" * 5000 + b"\nb\n" + b"y" * 1001, list(range(0, 6000, 64)))
    assert lines == [b"a", b"b"]
    assert splitter.too_long_count == 2
    assert splitter.too_long == [TooLong("log", 2, 5000), TooLong("log", 4, 1001)]


def test_line_of_exactly_the_limit_is_kept() -> None:
    assert split_whole(b"x" * 1000 + b"\n", [500])[0] == [b"x" * 1000]


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"bb\n", b"\n\n", b"c" * 7, b"\r\n"]), max_size=30),
    st.lists(st.integers(0, 100), max_size=10),
)
def test_lines_do_not_depend_on_the_cuts_between_chunks(pieces: list[bytes], cuts: list[int]) -> None:
    content = b"".join(pieces)
    whole = content.split(b"\n")
    expected = whole if whole[-1] else whole[:-1]
    lines, splitter = split_whole(content, cuts, limit=6)
    assert lines == [line for line in expected if len(line) <= 6]
    assert [place.size_bytes for place in splitter.too_long] == [len(line) for line in expected if len(line) > 6][:20]
    assert splitter.too_long_count == len(expected) - len(lines)
