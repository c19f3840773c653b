"""Ctrl-C during an uninterrupted block takes effect after it."""

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
def test_signal_raises_keyboard_interrupt(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_uninterrupted_block_runs_to_its_end_before_the_interrupt() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interruption.uninterrupted():
        signal.raise_signal(signal.SIGINT)
        done.append("started and noted")
    assert done == ["started and noted"]


def test_block_without_a_signal_raises_no_error() -> None:
    with interruption.uninterrupted():
        pass


def test_interrupt_replaces_an_error_of_the_block() -> None:
    with pytest.raises(KeyboardInterrupt), interruption.uninterrupted():
        signal.raise_signal(signal.SIGINT)
        raise OSError("the process that was being born died of the same Ctrl-C")


def test_error_of_a_block_without_a_signal_is_raised() -> None:
    with pytest.raises(OSError, match="no such program"), interruption.uninterrupted():
        raise OSError("no such program")
