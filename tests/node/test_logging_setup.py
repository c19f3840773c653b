"""The lines of the broker and of kazoo in a broker's log."""

from __future__ import annotations

import logging
import sys

from node.process.logging_setup import RateLimitedKazooLog


def record(name: str, message: str, at_s: float, *arguments: object) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.WARNING, __file__, 1, message, arguments, None)
    made.created = at_s
    return made


def test_repeated_kazoo_message_is_logged_once_a_minute() -> None:
    passes = RateLimitedKazooLog().filter
    dropped = [passes(record("kazoo.client", "Connection dropped: %s", tenth / 2, "refused")) for tenth in range(300)]
    assert [second / 2 for second, written in enumerate(dropped) if written] == [0, 60, 120]
    assert passes(record("kazoo.client", "Session has expired", 121.0)), "the message is a new one"


def test_stack_of_a_kazoo_message_is_left_out() -> None:
    try:
        raise ValueError("an answer that was torn")
    except ValueError:
        failed = logging.LogRecord("kazoo.client", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    assert RateLimitedKazooLog().filter(failed)
    assert "Traceback" not in logging.Formatter().format(failed)


def test_every_message_of_the_broker_is_logged() -> None:
    passes = RateLimitedKazooLog().filter
    assert all(passes(record("node.handlers.control.role_changes", "t-0: leads", 0.0)) for _ in range(5))
