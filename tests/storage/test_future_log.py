"""The future log of a move, while several threads use it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from storage.directory.log_directory import LogDirectory
from storage.moves.future_log import FutureLog
from tests.storage.logs import UnsyncedFiles, append, config
from tidelog.model import TopicPartition


def interrupted(
    call: Callable[[], object], code: CodeType, at: int, other: Callable[[], object]
) -> tuple[object, bool]:
    """Return the result of the call, and whether `other` ran before bytecode instruction number `at` of `code`.

    Another thread could run there.
    """
    left, before = at, sys.gettrace()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == -1:
                other()
        return trace

    sys.settrace(trace)
    try:
        return call(), left < 0
    finally:
        sys.settrace(before)


@pytest.fixture
def future(tmp_path: Path) -> FutureLog:
    files = UnsyncedFiles()
    target = LogDirectory.open(tmp_path / "b", files, 1, "c1", "boot-1")
    return FutureLog(TopicPartition("orders", 0), target, "orders-0.0-future", files)


def test_end_and_size_are_told_whenever_another_thread_closes_the_log(future: FutureLog) -> None:
    readers: list[tuple[property, Callable[[], int | None], int | None]] = [
        (FutureLog.end_offset, lambda: future.end_offset, None),  # type: ignore[list-item]
        (FutureLog.size_bytes, lambda: future.size_bytes, 0),  # type: ignore[list-item]
    ]
    future.open(config(), "id", 0)
    append(future.log)
    for told, read, of_a_closed_log in readers:
        of_the_open_log, results = read(), set()
        assert told.fget is not None and of_the_open_log
        for at in count():
            result, closed = interrupted(read, told.fget.__code__, at, future.close)
            results.add(result)
            if not closed:
                break
            assert read() == of_a_closed_log
            future.open(config(), "id", 0)
        assert results == {of_the_open_log, of_a_closed_log}
