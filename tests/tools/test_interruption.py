"""Ctrl-C at a bad moment waits for a better one."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tools.demo import interruption


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    interruption.install()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_what_must_not_be_cut_short_runs_to_its_end_and_is_interrupted_then() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interruption.uninterrupted():
        signal.raise_signal(signal.SIGINT)
        done.append("started and noted")
    assert done == ["started and noted"]


def test_without_a_signal_nothing_is_raised() -> None:
    with interruption.uninterrupted():
        pass


def test_an_error_after_the_signal_gives_way_to_it() -> None:
    with pytest.raises(KeyboardInterrupt), interruption.uninterrupted():
        signal.raise_signal(signal.SIGINT)
        raise OSError("the process that was being born died of the same Ctrl-C")


def test_an_error_without_a_signal_is_told() -> None:
    with pytest.raises(OSError, match="no such program"), interruption.uninterrupted():
        raise OSError("no such program")
