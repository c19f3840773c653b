"""Sources of lines: files, the machine's logs, growing logs; and the order of lines from several sources."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.demo.lines.line_splitter import Line
from tools.demo.lines.live_logs import LiveLogs
from tools.demo.lines.read_ahead import ReadAhead
from tools.demo.lines.sources import InputError, in_order_of_time, looks_binary, machine_logs, open_files


def write(path: Path, content: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def test_lines_of_a_file_have_its_name_and_their_own_times(tmp_path: Path) -> None:
    [source] = open_files([write(tmp_path / "app.log", b"2024-01-02T03:04:05Z one\nno time")])
    assert list(source.lines()) == [
        Line("app.log", b"2024-01-02T03:04:05Z one", 1704164645000),
        Line("app.log", b"no time", None),
    ]


def test_files_with_the_same_name_are_counted_under_their_paths(tmp_path: Path) -> None:
    paths = [write(tmp_path / place / "app.log", b"x\n") for place in ("a", "b")]
    assert [source.name for source in open_files(paths)] == paths


@pytest.mark.parametrize("name", ["missing.log", "a-directory", "binary.gz"])
def test_unreadable_input_is_refused_in_one_line_with_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "a-directory").mkdir()
    write(tmp_path / "binary.gz", bytes(range(256)) * 8)
    with pytest.raises(InputError) as refusal:
        open_files([str(tmp_path / name)])
    assert name in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_empty_file_and_a_stray_nul_are_text() -> None:
    assert not looks_binary(b"")
    assert not looks_binary(b"a line with a stray \x00 in it, \xff\xfe and colour \x1b[1m\r\n" * 10)
    assert looks_binary("UTF-16 is no lines of bytes".encode("utf-16"))


def test_lines_of_several_files_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    first = write(tmp_path / "a", b"2024-01-02T00:00:01Z a1\n  with more\n2024-01-02T00:00:04Z a2\n")
    second = write(tmp_path / "b", b"a banner\n2024-01-02T00:00:02Z b1\n2024-01-02T00:00:03Z b2\n")
    values = [line.value.split()[-1] for line in in_order_of_time(open_files([first, second]))]
    assert values == [b"a1", b"more", b"banner", b"b1", b"b2", b"a2"]


def test_lines_of_one_file_keep_their_order_if_time_steps_back(tmp_path: Path) -> None:
    first = write(tmp_path / "a", b"2024-01-02T00:00:05Z a1\n2024-01-02T00:00:01Z a2\n")
    second = write(tmp_path / "b", b"2024-01-02T00:00:03Z b1\n")
    assert [line.value[-2:] for line in in_order_of_time(open_files([first, second]))] == [b"b1", b"a1", b"a2"]


def test_machine_logs_are_the_readable_text_files(tmp_path: Path) -> None:
    write(tmp_path / "syslog", b"Jan  2 03:04:05 host x\n")
    write(tmp_path / "apt" / "history.log", b"x\n")
    write(tmp_path / "wtmp", bytes(range(256)))
    write(tmp_path / "empty.log", b"")
    write(tmp_path / "huge.log", b"x" * 1024 + b"\n" * (17 << 20))
    sources, left_out = machine_logs(tmp_path)
    assert sorted(source.name for source in sources) == ["apt/history.log", "syslog"]
    assert [line.split()[0] for line in left_out] == [str(tmp_path / "huge.log")]


def test_growing_log_is_followed_across_its_rotation(tmp_path: Path) -> None:
    log = tmp_path / "broker-1.log"
    live = LiveLogs({"broker-1": log, "never-there": tmp_path / "nothing"})
    seen: list[bytes] = []
    arrived = threading.Condition()

    def follow() -> None:
        for line in live.lines():
            with arrived:
                seen.append(line.value)
                arrived.notify_all()

    reader = threading.Thread(target=follow)
    reader.start()
    try:
        log.write_bytes(b"one\ntw")
        with arrived:
            assert arrived.wait_for(lambda: seen == [b"one"], 10)
        with log.open("ab") as old:
            old.write(b"o\n")
            log.rename(tmp_path / "broker-1.log.1")
            old.write(b"three\n")
        log.write_bytes(b"four\nhalf a li")
        with arrived:
            assert arrived.wait_for(lambda: seen == [b"one", b"two", b"three", b"four"], 10)
    finally:
        live.stop()
        reader.join(10)
    assert not reader.is_alive()


def lines(count: int) -> Iterator[Line]:
    return (Line("x", b"%d" % number, None) for number in range(count))


def test_read_ahead_stops_at_its_bound_until_lines_are_taken() -> None:
    ahead = ReadAhead(lines(10), max_lines=4)
    assert ahead.wait_filled(10)
    assert (len(ahead), ahead.full, ahead.ended) == (4, True, False)
    taken: list[Line] = []
    while len(taken) < 10:
        assert ahead.wait_filled(10)
        taken += ahead.take(3)
    assert [line.value for line in taken] == [b"%d" % number for number in range(10)]
    assert ahead.ended
    assert ahead.take(1) == []


def test_read_ahead_is_bounded_in_bytes_too() -> None:
    ahead = ReadAhead((Line("x", b"y" * 100, None) for _ in range(100)), max_bytes=1000)
    assert ahead.wait_filled(10)
    assert len(ahead) == 10


def test_error_of_the_input_is_raised_after_the_earlier_lines() -> None:
    def failing() -> Iterator[Line]:
        yield Line("x", b"one", None)
        raise InputError("cannot read on in x: Input/output error")

    ahead = ReadAhead(failing())
    assert ahead.wait_filled(10)
    assert [line.value for line in ahead.take(5)] == [b"one"]
    with pytest.raises(InputError):
        ahead.take(5)
