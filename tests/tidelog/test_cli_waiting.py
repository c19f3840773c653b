"""The line that shows how long a command has been waiting."""

from __future__ import annotations

import os
import pty
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidelog.cli.admins import open_admin
from tidelog.cli.program import run
from tidelog.cli.waiting import Waiting
from tidelog.errors import NoBrokersError

pytestmark = pytest.mark.timeout(20)


@contextmanager
def a_terminal() -> Iterator[int]:
    """Make standard error a terminal; what is written to it is read from the descriptor."""
    ours, theirs = pty.openpty()
    with open(theirs, "w") as side, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", side)
        yield ours
    os.close(ours)


def read_until_erased(terminal: int) -> None:
    """Read until the line is erased. A terminal may hand over in several parts what was written at once."""
    text = ""
    while not text.endswith("\r\x1b[K"):
        text += os.read(terminal, 100_000).decode()


def test_a_long_wait_is_shown_and_erased() -> None:
    with a_terminal() as terminal:
        with Waiting("waiting for a test", every_s=0.001):
            shown = os.read(terminal, 1_000).decode()
        assert shown.startswith("\r\x1b[Kwaiting for a test, ") and " ms …" in shown
        read_until_erased(terminal)


def test_a_wait_that_fails_is_erased_too() -> None:
    with a_terminal() as terminal:
        with pytest.raises(KeyboardInterrupt), Waiting(every_s=0.001):
            os.read(terminal, 1)
            raise KeyboardInterrupt
        read_until_erased(terminal)


def test_a_short_wait_shows_nothing() -> None:
    with a_terminal() as terminal:
        with Waiting(every_s=3600):
            pass
        os.set_blocking(terminal, False)
        with pytest.raises(BlockingIOError):
            os.read(terminal, 1)


def test_nothing_is_written_if_standard_error_is_not_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    with Waiting(every_s=0.001):
        assert threading.active_count() == before
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["consume", "produce"])
def test_consume_and_produce_show_that_they_wait(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    waits: list[str] = []
    monkeypatch.setattr(Waiting, "__enter__", lambda self: waits.append("begun"))
    monkeypatch.setattr(Waiting, "__exit__", lambda self, *_: waits.append("over"))
    arguments = [command, "t", "--bootstrap-servers", "127.0.0.1:1", "--timeout", "0.1"]
    assert run(arguments) == 1
    assert "no broker answered" in capfd.readouterr().err
    assert waits == ["begun", "over"]


@pytest.mark.parametrize("shows", [True, False])
def test_each_call_of_a_commands_admin_shows_that_it_waits(monkeypatch: pytest.MonkeyPatch, shows: bool) -> None:
    waits: list[str] = []
    monkeypatch.setattr(Waiting, "__enter__", lambda self: waits.append("begun"))
    monkeypatch.setattr(Waiting, "__exit__", lambda self, *_: waits.append("over"))
    with pytest.raises(NoBrokersError), open_admin("127.0.0.1:1", 0.1, shows_waiting=shows) as admin:
        admin.list_topics()
    assert waits == (["begun", "over"] if shows else [])
