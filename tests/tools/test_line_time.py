"""The time of a log line: the forms of real logs, missing years and zones, and implausible times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from email.utils import format_datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.demo.lines.line_time import EARLIEST_PLAUSIBLE_MS, LATEST_AHEAD_MS, LineTimes

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def ms(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


NOW_MS = ms(NOW)


def utc(text: str) -> int:
    return ms(datetime.fromisoformat(text).replace(tzinfo=UTC))


def time_of(line: bytes, zone: tzinfo = UTC, now_ms: int = NOW_MS) -> int | None:
    return LineTimes(zone).timestamp_ms(line, now_ms)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"2024-01-02T03:04:05Z GET /", "2024-01-02T03:04:05"),
        (b"2024-01-02T03:04:05.678Z", "2024-01-02T03:04:05.678"),
        (b"2024-01-02T03:04:05.678901234Z", "2024-01-02T03:04:05.678"),
        (b"2024-01-02t03:04:05.6789+01:30 x", "2024-01-02T01:34:05.678"),
        (b"2024-01-02T03:04:05+0100 host sshd[1]: x", "2024-01-02T02:04:05"),
        (b"2024-01-02 03:04:05,678 INFO [main] x", "2024-01-02T03:04:05.678"),
        (b"2024-01-02 03:04:05 status installed libc6", "2024-01-02T03:04:05"),
        (b"2024-01-02 03:04:05.678 UTC [71] LOG:  x", "2024-01-02T03:04:05.678"),
        (b"2024-01-02 03:04:05.678+00 x", "2024-01-02T03:04:05.678"),
        (b"2024-01-02 03:04:05-05 x", "2024-01-02T08:04:05"),
        (b"2024-01-02 03:04:05 -0700 x", "2024-01-02T10:04:05"),
        (b"2024-01-02 03:04:05 -1234 is no offset", "2024-01-02T03:04:05"),
        (b"2024-01-02 03:04 x", "2024-01-02T03:04:00"),
        (b"2024/01/02 03:04:05 [error] 7#7: *1 open() failed", "2024-01-02T03:04:05"),
        (b"[2024-01-02 03:04:05] x", "2024-01-02T03:04:05"),
        (b"Start-Date: 2024-01-02  03:04:05", "2024-01-02T03:04:05"),
        (b"update-alternatives 2024-01-02 03:04:05: run with --quiet", "2024-01-02T03:04:05"),
        (b"INFO  [main] 2024-01-02 03:04:05,678 x", "2024-01-02T03:04:05.678"),
        (b"Tue 2024-01-02 03:04:05 UTC host x", "2024-01-02T03:04:05"),
        (b"2005-06-03-15.42.50.363779 R02-M1", "2005-06-03T15:42:50.363"),
        (b"2016-12-31T23:59:60Z a leap second", "2017-01-01T00:00:00"),
        (b"<165>1 2003-10-11T22:14:15.003Z host evntslog - ID47 - x", "2003-10-11T22:14:15.003"),
        (b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed", "2026-10-11T22:14:15"),
        (b"Jan  2 03:04:05 host app[1]: x", "2026-01-02T03:04:05"),
        (b"Jan 02 03:04:05.678901 host app[1]: x", "2026-01-02T03:04:05.678"),
        (b"Dec 24 18:00:00 host app[1]: not this year's yet", "2025-12-24T18:00:00"),
        (b"20240102T030405Z x", "2024-01-02T03:04:05"),
        (b"20171223-22:15:29:606|Step_LSC|30002312|x", "2017-12-23T22:15:29.606"),
        (b'1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326', "2000-10-10T20:55:36"),
        (b'2001:db8::12:34 - - [10/Oct/2000:13:55:36 -0700] "GET /"', "2000-10-10T20:55:36"),
        (b"[Wed Oct 11 14:32:52 2000] [error] [client 1.2.3.4] x", "2000-10-11T14:32:52"),
        (b"[Wed Oct 11 14:32:52.123456 2000] [core:error] x", "2000-10-11T14:32:52.123"),
        (b"Wed Oct 11 14:32:52 UTC 2000", "2000-10-11T14:32:52"),
        (b"02-Jan-2024 03:04:05.678 INFO [main] org.apache.catalina", "2024-01-02T03:04:05.678"),
        (b"Tue, 02 Jan 2024 03:04:05 +0100", "2024-01-02T02:04:05"),
        (b"12:M 02 Jan 2024 03:04:05.678 * Ready", "2024-01-02T03:04:05.678"),
        (b"Jan 02, 2024 3:04:05 PM com.example.Main run", "2024-01-02T15:04:05"),
        (b"Jan 02, 2024 12:04:05 AM com.example.Main run", "2024-01-02T00:04:05"),
        (b"I0102 03:04:05.678901    7 main.go:12] x", "2026-01-02T03:04:05.678"),
        (b"03-17 16:13:38.811  1702  2395 D WindowManager: x", "2026-03-17T16:13:38.811"),
        (b"17/06/09 20:10:40 INFO executor.Backend: x", "2017-06-09T20:10:40"),
        (b"081109 203518 148 INFO dfs.DataNode: x", "2008-11-09T20:35:18"),
        (b"240102  3:04:05 [Note] mysqld: ready", "2024-01-02T03:04:05"),
        (b"1/2/2024 3:04:05 PM x", "2024-01-02T15:04:05"),
        (b"31/1/2024 03:04:05 x", "2024-01-31T03:04:05"),
        (b"02.01.2024 03:04:05 x", "2024-01-02T03:04:05"),
        (b"1704164645 x", "2024-01-02T03:04:05"),
        (b"1704164645.678    180 1.2.3.4 TCP_MISS/200", "2024-01-02T03:04:05.678"),
        (b"1704164645678,a,b", "2024-01-02T03:04:05.678"),
        (b"1704164645678901 x", "2024-01-02T03:04:05.678"),
        (b"1704164645678901234 x", "2024-01-02T03:04:05.678"),
        (b"- 1117838570 2005.06.03 R02-M1-N0-C:J12-U11 2005-06-03-15.42.50.675872 x", "2005-06-03T22:42:50"),
        (b"type=SYSCALL msg=audit(1704164645.678:24287): arch=c000003e", "2024-01-02T03:04:05.678"),
        (b'{"level":"info","ts":1704164645.678,"msg":"x"}', "2024-01-02T03:04:05.678"),
        (b'{"level": "info", "time": "2024-01-02T03:04:05.678Z"}', "2024-01-02T03:04:05.678"),
        (b'{"@timestamp": 1704164645678, "message": "x"}', "2024-01-02T03:04:05.678"),
        (b"level=info ts=2024-01-02T03:04:05.678Z msg=x", "2024-01-02T03:04:05.678"),
        (b"\xff\xfe\x00 2024-01-02 03:04:05 broken", "2024-01-02T03:04:05"),
        (b"2024-01-02 03:04:05\r", "2024-01-02T03:04:05"),
    ],
)
def test_forms_that_logs_use_are_read(line: bytes, expected: str) -> None:
    assert time_of(line) == utc(expected)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\x00",
        b"no time at all",
        b"    at com.example.Main.run(Main.java:123)",
        b"[    0.000000] Linux version 6.1.0",
        b"[12345.678901] usb 1-1: new device",
        b"10.0.0.12 10:20 is an address and half a time",
        b"2024-13-02 03:04:05 a thirteenth month",
        b"2024-02-30 03:04:05 a thirtieth of February",
        b"2024-01-02 24:61:05 no such minute",
        b"Feb 30 03:04:05 host x",
        b"99:99:99",
        b"123456789012 too long for seconds, too short for the rest",
        b"1970-01-01T00:00:00Z a clock without a battery",
        b"1989-12-31T23:59:59.999Z",
        b"0000000000 x",
        b"9999-12-31T23:59:59Z",
        b"x" * 400 + b" 2024-01-02 03:04:05 too deep in the line",
    ],
)
def test_line_without_a_plausible_time_has_none(line: bytes) -> None:
    assert time_of(line) is None


def test_own_stamp_wins_over_a_stamp_that_the_message_quotes() -> None:
    line = b"Jan  2 03:04:05 host job: backup of 2019-05-06 07:08:09 done"
    assert time_of(line) == utc("2026-01-02T03:04:05")


def test_remembered_form_does_not_match_a_later_line_s_quotation() -> None:
    times = LineTimes(UTC)
    assert times.timestamp_ms(b"-- logs begin at 2024-01-02 03:04:05 --", NOW_MS) == utc("2024-01-02T03:04:05")
    assert times.timestamp_ms(b"Jan  2 03:04:05 host job: since 2019-05-06 07:08:09", NOW_MS) == utc(
        "2026-01-02T03:04:05"
    )


def test_stamp_more_than_an_hour_ahead_is_ignored() -> None:
    assert time_of(b"2026-11-21T10:30:00Z") == NOW_MS + LATEST_AHEAD_MS
    assert time_of(b"2026-11-21T10:30:00.001Z") is None
    assert time_of(b"1990-01-01T00:00:00Z") == EARLIEST_PLAUSIBLE_MS


def test_missing_year_is_the_latest_that_is_not_in_the_future() -> None:
    assert time_of(b"Nov 21 09:30:00 host x") == utc("2026-11-21T09:30:00")
    assert time_of(b"Nov 21 09:30:01 host x") == utc("2025-11-21T09:30:01")
    assert time_of(b"Feb 29 12:00:00 host x") == utc("2024-02-29T12:00:00")


def test_same_stamp_gets_the_new_year_once_it_has_begun() -> None:
    times = LineTimes(UTC)
    line = b"Nov 21 09:30:01 host x"
    assert times.timestamp_ms(line, NOW_MS) == utc("2025-11-21T09:30:01")
    assert times.timestamp_ms(line, NOW_MS + 1000) == utc("2026-11-21T09:30:01")


def test_zone_ahead_is_in_the_new_year_on_new_year_s_eve() -> None:
    before_midnight = utc("2026-12-31T23:30:00")
    assert time_of(b"Jan  1 00:15:00 host x", BERLIN, before_midnight) == utc("2026-12-31T23:15:00")
    assert time_of(b"Dec 31 23:59:59 host x", BERLIN, before_midnight) == utc("2026-12-31T22:59:59")


def test_stamp_without_a_zone_is_local_in_summer_and_winter() -> None:
    assert time_of(b"2024-07-02 03:04:05", BERLIN) == utc("2024-07-02T01:04:05")
    assert time_of(b"2024-01-02 03:04:05", BERLIN) == utc("2024-01-02T02:04:05")
    assert time_of(b"2024-07-02 03:04:05Z", BERLIN) == utc("2024-07-02T03:04:05")


def _zoned(moment: datetime, zone: tzinfo) -> datetime:
    return moment.replace(tzinfo=UTC).astimezone(zone)


_RENDERINGS: dict[str, tuple[int, Callable[[datetime], str]]] = {
    "iso": (1, lambda m: m.isoformat(timespec="microseconds")),
    "iso to the second": (1000, lambda m: m.isoformat(" ", timespec="seconds")),
    "basic": (1000, lambda m: f"{m:%Y%m%dT%H%M%S%z}"),
    "apache": (1000, lambda m: f'::1 - - [{m:%d/%b/%Y:%H:%M:%S %z}] "GET /"'),
    "mail": (1000, lambda m: format_datetime(m)),
    "epoch s": (1000, lambda m: f"{ms(m) // 1000} x"),
    "epoch ms": (1, lambda m: f"{ms(m)} x"),
    "squid": (1, lambda m: f"{ms(m) // 1000}.{ms(m) % 1000:03} x"),
    "log4j": (1, lambda m: f"{m.astimezone(UTC):%Y-%m-%d %H:%M:%S},{ms(m) % 1000:03} INFO x"),
    "ctime": (1000, lambda m: f"[{m.astimezone(UTC):%a %b %d %H:%M:%S %Y}] x"),
}


@given(
    st.datetimes(datetime(2002, 1, 1), datetime(2026, 11, 21)),
    st.sampled_from(
        [UTC, timezone(timedelta(hours=-7)), timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=14))]
    ),
    st.sampled_from(sorted(_RENDERINGS)),
)
def test_every_moment_that_a_form_renders_is_read_back(moment: datetime, zone: tzinfo, name: str) -> None:
    precision, render = _RENDERINGS[name]
    aware = _zoned(moment, zone)
    assert time_of(render(aware).encode()) == ms(aware) // precision * precision


@given(st.lists(st.binary(max_size=80) | st.from_regex(rb"[0-9:./ TZ+\-]{4,40}", fullmatch=True)))
def test_arbitrary_bytes_yield_plausible_times_or_none(lines: list[bytes]) -> None:
    times = LineTimes(UTC)
    for line in lines:
        stamp = times.timestamp_ms(line, NOW_MS)
        assert stamp is None or EARLIEST_PLAUSIBLE_MS <= stamp <= NOW_MS + LATEST_AHEAD_MS


@given(
    st.lists(st.sampled_from([render(datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)) for _, render in _RENDERINGS.values()]))
)
def test_earlier_lines_do_not_change_the_time_of_a_line(lines: list[str]) -> None:
    times = LineTimes(UTC)
    for line in lines:
        assert times.timestamp_ms(line.encode(), NOW_MS) == time_of(line.encode())
