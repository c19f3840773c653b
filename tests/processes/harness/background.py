"""Runs a function in a thread beside a test."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Background(ABC):
    """A thread that does one thing again and again, from `with` to its end; a failure of it is the test's."""

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(90)
        if error is None:
            assert not self._thread.is_alive(), f"{self._thread.name} does not end"
            if self._failure is not None:
                raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.once()
        except BaseException as error:
            self._failure = error
        finally:
            self.close()

    @abstractmethod
    def once(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Give up what is held."""
