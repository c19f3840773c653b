"""The threads of a pool have its name for the system, so that the threads of a broker can be counted by pool."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Barrier, get_native_id

import pytest

from node.runtime.thread_pool import thread_pool


def names_of_threads(name: str) -> list[str]:
    """Return the names that the system has for all three threads of a pool."""
    all_run = Barrier(3)

    def read_name() -> str:
        all_run.wait()
        return Path(f"/proc/self/task/{get_native_id()}/comm").read_text().strip()

    with thread_pool(3, name) as pool:
        return [each.result() for each in [pool.submit(read_name) for _ in range(3)]]


def test_system_knows_the_name_of_each_thread() -> None:
    assert names_of_threads("log-maintenance") == ["log-maintenance"] * 3


def test_longer_name_is_shortened() -> None:
    assert names_of_threads("a-name-of-many-characters") == ["a-name-of-many-"] * 3


@pytest.mark.parametrize("refusal", [FileNotFoundError(2, "no /proc"), OSError(24, os.strerror(24))])
def test_thread_works_without_a_name(monkeypatch: pytest.MonkeyPatch, refusal: OSError) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise refusal

    monkeypatch.setattr(Path, "write_text", refuse)
    with thread_pool(1, "flush") as pool:
        assert pool.submit(sum, (1, 2)).result() == 3
