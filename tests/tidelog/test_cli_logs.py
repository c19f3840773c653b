from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.cli.cluster.logs import Tail


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "broker-1.log"


def test_the_last_lines_are_shown(log: Path) -> None:
    log.write_bytes(b"".join(b"line %d %s\n" % (number, b"x" * (number % 2_000)) for number in range(3_000)))
    shown = Tail("broker 1", log).last(3).splitlines()
    assert [line.split()[1] for line in shown] == [b"2997", b"2998", b"2999"]
    assert Tail("broker 1", log).last(0) == b""


def test_short_or_missing_log_is_shown_without_an_error(log: Path) -> None:
    assert Tail("broker 1", log).last(5) == b""
    log.write_bytes(b"only\n")
    assert Tail("broker 1", log).last(5) == b"only\n"


def test_following_loses_no_line_at_a_rotation(log: Path) -> None:
    log.write_bytes(b"old\n")
    tail = Tail("broker 1", log)
    tail.last(1)
    assert tail.more() == b""
    with log.open("ab") as writer:
        writer.write(b"just before\n")
    log.rename(log.with_suffix(".log.1"))
    log.write_bytes(b"just after\n")
    assert tail.more() == b"just before\njust after\n"
    assert tail.more() == b""


def test_log_created_later_is_shown_from_its_start(log: Path) -> None:
    tail = Tail("broker 1", log)
    tail.last(5)
    log.write_bytes(b"first\n")
    assert tail.more() == b"first\n"
