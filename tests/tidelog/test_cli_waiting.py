"""The line that shows how long a command has been waiting."""

from __future__ import annotations

import os
import pty
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tidelog.cli.admin_factory import open_admin
from tidelog.cli.program import run
from tidelog.cli.terminal.waiting import Waiting
from tidelog.errors import NoBrokersError

pytestmark = pytest.mark.timeout(20)


class Terminal:
    """A terminal and the text that it has received. A thread reads it, because a full terminal blocks its writers."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._received = b""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """Return the text that can be decoded so far, because a character may arrive in two parts."""
        return self._received.decode(errors="ignore")

    def text_once(self, condition: Callable[[str], bool]) -> str:
        """Return the text as soon as the condition holds for it."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.text), timeout=15), self.text
            return self.text

    def text_at_end(self) -> str:
        """Return all that was written, once the writing side is closed."""
        self._reader.join()
        return self.text

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._descriptor, 100_000)
            except OSError:  # the writing side is closed
                return
            with self._changed:
                self._received += part
                self._changed.notify_all()


@contextmanager
def a_terminal() -> Iterator[Terminal]:
    """Make standard error a terminal."""
    ours, theirs = pty.openpty()
    terminal = Terminal(ours)
    with open(theirs, "w") as side, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", side)
        yield terminal
    terminal.text_at_end()
    os.close(ours)


def test_a_long_wait_is_shown_and_erased() -> None:
    with a_terminal() as terminal:
        with Waiting("waiting for a test", every_s=0.001):
            shown = terminal.text_once(lambda text: "…" in text)
        assert shown.startswith("\r\x1b[Kwaiting for a test, ") and " ms …" in shown
    assert terminal.text_at_end().endswith("…\r\x1b[K")


def test_a_wait_that_fails_is_erased_too() -> None:
    with a_terminal() as terminal, pytest.raises(KeyboardInterrupt), Waiting(every_s=0.001):
        terminal.text_once(bool)
        raise KeyboardInterrupt
    assert terminal.text_at_end().endswith("…\r\x1b[K")


def test_a_short_wait_shows_nothing() -> None:
    with a_terminal() as terminal, Waiting(every_s=3600):
        pass
    assert terminal.text_at_end() == ""


def test_nothing_is_written_if_standard_error_is_not_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    with Waiting(every_s=0.001):
        assert set(threading.enumerate()) <= before
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
